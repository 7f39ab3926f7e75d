//! A frame: a length, a head (type, flags and ids) and a payload (SPOE.txt 3.2).
//!
//! ```text
//!  ┌─────────────┬──────┬───────┬────────────┬────────────┬─────────────┐
//!  │ length      │ type │ flags │ stream-id  │ frame-id   │ payload     │   length: of head and payload, big-endian
//!  │ 4           │ 1    │ 4     │ varint     │ varint     │ 0 …         │   head: at least 7 bytes
//!  └─────────────┴──────┴───────┴────────────┴────────────┴─────────────┘
//! ```

use crate::{Cursor, Error, varint};

/// HAProxy and every agent must accept frames of this length, so no limit may be lower (SPOE.txt 3.2).
pub const FRAME_BYTES_MIN: u32 = 256;

/// The size of the length field. The length does not include the field itself.
pub(super) const LENGTH_BYTES: usize = 4;

/// One frame, borrowed from the read buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub head: Head,
    pub payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The first frame of `bytes`, and its length, including the length field; `None` if the frame is incomplete.
    ///
    /// A length over `frame_bytes_max`, or shorter than a head, is an error as soon as the length is known,
    /// so the caller never has to store a frame that is too large.
    ///
    /// ```
    /// use spop::{Frame, Kind};
    /// let bytes = b"\0\0\0\x07\x03\0\0\0\x01\x05\x01 and more";
    /// let (frame, consumed) = Frame::cut(bytes, 256).unwrap().unwrap();
    /// assert_eq!((frame.head.kind, frame.head.stream_id, frame.head.frame_id), (Kind::NOTIFY, 5, 1));
    /// assert_eq!(&bytes[consumed..], b" and more");
    /// assert_eq!(Frame::cut(&bytes[..10], 256), Ok(None));
    /// assert!(Frame::cut(b"\0\0\x01\x01", 256).is_err());
    /// ```
    ///
    /// # Errors
    /// The frame is longer than `frame_bytes_max`, too short for its head, or its head is unreadable.
    #[inline(always)]
    pub fn cut(bytes: &'a [u8], frame_bytes_max: u32) -> Result<Option<(Frame<'a>, usize)>, Error> {
        let Some((&length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let first = length;
        let length = u32::from_be_bytes(first);
        if length > frame_bytes_max {
            let too_big = Error::TooBig { bytes: length, bytes_max: frame_bytes_max };
            return Err(foreign(&first).map_or(too_big, Error::Foreign));
        }
        if length < HEAD_BYTES_MIN {
            return Err(Error::TooSmall { bytes: length });
        }
        let length = length as usize;
        let Some(body) = rest.get(..length) else { return Ok(None) };
        Ok(Some((Frame::decode(body)?, LENGTH_BYTES + length)))
    }

    #[inline]
    fn decode(body: &'a [u8]) -> Result<Frame<'a>, Error> {
        let mut cursor = Cursor::new(body);
        let head = Head::decode(&mut cursor)?;
        Ok(Frame { head, payload: cursor.rest() })
    }

    /// Appends the frame with its length.
    pub fn encode(self, out: &mut Vec<u8>) {
        let writer = FrameWriter::begin(out, self.head);
        writer.out.extend_from_slice(self.payload);
        writer.finish();
    }
}

/// The name of another protocol that begins with these bytes, for a clearer error. As a length, these bytes
/// would be too large anyway.
fn foreign(first: &[u8; LENGTH_BYTES]) -> Option<&'static str> {
    match first {
        b"GET " | b"POST" | b"HEAD" | b"PUT " | b"DELE" | b"OPTI" | b"PATC" | b"CONN" | b"PRI " => {
            Some("HTTP")
        }
        // A handshake record of SSL 3.0 or later.
        [0x16, 0x03, ..] => Some("TLS"),
        _ => None,
    }
}

/// The length of the shortest head, in which each id takes one byte.
const HEAD_BYTES_MIN: u32 = 7;

/// The type of a frame (SPOE.txt 3.2.2). SPOP 2.0 defines only the types below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind(pub u8);

impl Kind {
    /// Another part of a fragmented payload.
    pub const UNSET: Kind = Kind(0);
    pub const HAPROXY_HELLO: Kind = Kind(1);
    pub const HAPROXY_DISCONNECT: Kind = Kind(2);
    pub const NOTIFY: Kind = Kind(3);
    pub const AGENT_HELLO: Kind = Kind(101);
    pub const AGENT_DISCONNECT: Kind = Kind(102);
    pub const ACK: Kind = Kind(103);
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub kind: Kind,
    pub flags: u32,
    /// The stream within the connection. HAProxy numbers streams from 0 or, since 3.1, from 1.
    pub stream_id: u64,
    pub frame_id: u64,
}

impl Head {
    /// Set on the last frame of a payload, and therefore on every frame that the agent sends.
    pub const FIN: u32 = 0x1;

    /// Cancels a payload that was sent in part. The other bits of the flags are reserved.
    pub const ABORT: u32 = 0x2;

    /// The head of a frame with a whole payload.
    pub const fn new(kind: Kind, stream_id: u64, frame_id: u64) -> Head {
        Head { kind, flags: Head::FIN, stream_id, frame_id }
    }

    /// The head of a hello or a disconnect, which belongs to the connection, not to a stream.
    pub const fn of_connection(kind: Kind) -> Head {
        Head::new(kind, 0, 0)
    }

    #[inline]
    fn encode(self, out: &mut Vec<u8>) {
        out.push(self.kind.0);
        out.extend_from_slice(&self.flags.to_be_bytes());
        varint::encode(self.stream_id, out);
        varint::encode(self.frame_id, out);
    }

    #[inline(always)]
    fn decode(cursor: &mut Cursor<'_>) -> Result<Head, Error> {
        let kind = Kind(cursor.byte()?);
        let flags = u32::from_be_bytes(cursor.array()?);
        let stream_id = cursor.varint()?;
        let frame_id = cursor.varint()?;
        Ok(Head { kind, flags, stream_id, frame_id })
    }

    /// Fails for a fragment: a frame without FIN (3.2). Agents that do not announce `fragmentation` must not receive
    /// fragments (3.2.1). ABORT may be ignored on a whole payload.
    #[inline]
    pub(super) fn expect_whole(self) -> Result<(), Error> {
        if self.flags & Head::FIN == 0 { Err(Error::Fragmented) } else { Ok(()) }
    }

    /// Checks that a hello or disconnect is not fragmented, and that its stream-id and frame-id are 0 (3.2.4,
    /// 3.2.5, 3.2.8, 3.2.9).
    pub(super) fn expect_of_connection(self) -> Result<(), Error> {
        self.expect_whole()?;
        if (self.stream_id, self.frame_id) == (0, 0) { Ok(()) } else { Err(Error::UnexpectedId) }
    }
}

/// An unfinished frame at the end of `out`.
///
/// The payload is written in place, and the length of the frame is filled in at the end.
#[derive(Debug)]
pub(super) struct FrameWriter<'o> {
    pub(super) out: &'o mut Vec<u8>,
    start: usize,
}

impl<'o> FrameWriter<'o> {
    #[inline]
    pub(super) fn begin(out: &'o mut Vec<u8>, head: Head) -> FrameWriter<'o> {
        let start = out.len();
        out.reserve(FRAME_BYTES_MIN as usize);
        out.extend_from_slice(&[0; LENGTH_BYTES]);
        head.encode(out);
        FrameWriter { out, start }
    }

    #[inline]
    pub(super) fn finish(self) {
        let frame = &mut self.out[self.start..];
        let length = u32::try_from(frame.len() - LENGTH_BYTES).expect("frames stay far below 4 GiB");
        frame[..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ReadError;
    use crate::data::tests::any_bytes;

    #[test]
    fn a_length_is_judged_before_its_frame_is_there() {
        assert_eq!(Frame::cut(b"\0\0\x01\x00", 256), Ok(None));
        let too_big = Error::TooBig { bytes: 257, bytes_max: 256 };
        assert_eq!(Frame::cut(b"\0\0\x01\x01", 256), Err(too_big));
        assert_eq!(Frame::cut(b"\0\0\0\x06", 256), Err(Error::TooSmall { bytes: 6 }));
        let too_big = Error::TooBig { bytes: u32::MAX, bytes_max: 16_380 };
        assert_eq!(Frame::cut(b"\xff\xff\xff\xff", 16_380), Err(too_big));
    }

    #[test]
    fn who_speaks_another_protocol_is_told_so() {
        for (bytes, protocol) in [
            (&b"GET / HTTP/1.1\r\n"[..], "HTTP"),
            (b"POST", "HTTP"),
            (b"HEAD", "HTTP"),
            (b"PUT ", "HTTP"),
            (b"\x16\x03\x01\x02", "TLS"),
        ] {
            assert_eq!(Frame::cut(bytes, 16 << 20), Err(Error::Foreign(protocol)), "{bytes:?}");
        }
        let reported = Error::Foreign("HTTP").to_string();
        assert_eq!(reported, "this is HTTP, not SPOP: this port is for HAProxy's SPOE only");
    }

    #[test]
    fn ids_that_pass_the_end_of_the_frame_are_no_ids() {
        let bytes = b"\0\0\0\x07\x03\0\0\0\x01\xf0\xf0\x00\x00";
        assert_eq!(Frame::cut(bytes, 256), Err(Error::Read(ReadError::Truncated)));
    }

    proptest! {
        #[test]
        fn what_is_written_is_cut_off_again(head in any_head(), payload in any_bytes(), more in any_bytes()) {
            let frame = Frame { head, payload };
            let mut bytes = Vec::new();
            frame.encode(&mut bytes);
            let length = bytes.len();
            for end in 0..length {
                prop_assert_eq!(Frame::cut(&bytes[..end], u32::MAX), Ok(None));
            }
            bytes.extend_from_slice(more);
            prop_assert_eq!(Frame::cut(&bytes, length as u32 - 4), Ok(Some((frame, length))));
            prop_assert!(Frame::cut(&bytes, length as u32 - 5).is_err());
        }
    }

    fn any_head() -> impl Strategy<Value = Head> {
        let ids = || prop_oneof![0..2_u64, any::<u64>()];
        (any::<u8>(), any::<u32>(), ids(), ids()).prop_map(|(kind, flags, stream_id, frame_id)| Head {
            kind: Kind(kind),
            flags,
            stream_id,
            frame_id,
        })
    }

    #[test]
    fn flags_are_big_endian() {
        let mut out = Vec::new();
        Head::new(Kind::NOTIFY, 240, 1).encode(&mut out);
        assert_eq!(out, b"\x03\x00\x00\x00\x01\xf0\x00\x01");
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(head in any_head()) {
            let mut out = Vec::new();
            head.encode(&mut out);
            prop_assert!(out.len() >= HEAD_BYTES_MIN as usize);
            prop_assert_eq!(Head::decode(&mut Cursor::new(&out)), Ok(head));
        }
    }
}
