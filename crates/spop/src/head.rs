//! The head of a frame: its type, its flags and its ids (SPOE.txt 3.2).
//!
//! ```text
//!  ┌──────┬───────┬────────────┬────────────┐
//!  │ type │ flags │ stream-id  │ frame-id   │      at least 7 bytes; the frame's length is before it
//!  │ 1    │ 4     │ varint     │ varint     │
//!  └──────┴───────┴────────────┴────────────┘
//! ```

use crate::{Cursor, Error, varint};

/// The shortest head: both ids in one byte each.
pub(super) const HEAD_BYTES_MIN: u32 = 7;

/// The type of a frame (SPOE.txt 3.2.2). SPOP 2.0 defines no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind(pub u8);

impl Kind {
    /// A further part of a fragmented payload.
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
    /// The stream of the connection. HAProxy counts from 0, since 3.1 from 1.
    pub stream_id: u64,
    pub frame_id: u64,
}

impl Head {
    /// Set on the last frame of a payload, so on every frame that the agent sends.
    pub const FIN: u32 = 0x1;

    /// Cancels a payload that was sent in part. The other bits of the flags are reserved.
    pub const ABORT: u32 = 0x2;

    /// The head of a frame with a whole payload.
    pub const fn new(kind: Kind, stream_id: u64, frame_id: u64) -> Head {
        Head { kind, flags: Head::FIN, stream_id, frame_id }
    }

    /// The head of a hello or a disconnect, which belong to the connection and not to a stream.
    pub const fn of_connection(kind: Kind) -> Head {
        Head::new(kind, 0, 0)
    }

    #[inline]
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        out.push(self.kind.0);
        out.extend_from_slice(&self.flags.to_be_bytes());
        varint::encode(self.stream_id, out);
        varint::encode(self.frame_id, out);
    }

    #[inline(always)]
    pub(super) fn decode(cursor: &mut Cursor<'_>) -> Result<Head, Error> {
        let kind = Kind(cursor.byte()?);
        let flags = u32::from_be_bytes(cursor.array()?);
        let stream_id = cursor.varint()?;
        let frame_id = cursor.varint()?;
        Ok(Head { kind, flags, stream_id, frame_id })
    }

    /// Fails for a fragment: a frame without FIN (3.2). Agents that do not announce `fragmentation` must not get any
    /// (3.2.1). ABORT may be ignored on a whole payload.
    #[inline]
    pub(super) fn expect_whole(self) -> Result<(), Error> {
        if self.flags & Head::FIN == 0 { Err(Error::Fragmented) } else { Ok(()) }
    }

    /// Checks a hello or disconnect: it is not fragmented, and its stream-id and frame-id are 0 (3.2.4, 3.2.5, 3.2.8,
    /// 3.2.9).
    pub(super) fn expect_of_connection(self) -> Result<(), Error> {
        self.expect_whole()?;
        if (self.stream_id, self.frame_id) == (0, 0) { Ok(()) } else { Err(Error::UnexpectedId) }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn any_head() -> impl Strategy<Value = Head> {
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
