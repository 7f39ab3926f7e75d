//! A frame: a class and a type, usually with a body.
//!
//! ```text
//!  ┌───────┬──────┐                          type below 128: nothing follows
//!  │ class │ type │
//!  ├───────┼──────┼────────────────┬──────┐  type from 128 on
//!  │ class │ type │ length: varint │ body │
//!  └───────┴──────┴────────────────┴──────┘
//! ```

use crate::cursor::Cursor;
use crate::error::ReadError;
use crate::peers::Error;
use crate::varint;

/// The maximum length of a body that is read. HAProxy's own messages fit in its buffers of 16 KiB.
pub const BODY_BYTES_MAX: usize = 16 << 10;

/// Types from this number on have a body.
const WITH_BODY: u8 = 0x80;

/// The classes of frames. The types of each class are below (peers-v2.0.txt, "Message Classes").
pub(super) const CONTROL: u8 = 0;
pub(super) const ERROR: u8 = 1;
pub(super) const STICK_TABLE: u8 = 10;

/// Requests all entries of all tables.
pub(super) const RESYNC_REQUEST: u8 = 0;
/// Reports that all entries have been sent.
pub(super) const RESYNC_FINISHED: u8 = 1;
/// Reports that all available entries have been sent, but some may be missing.
pub(super) const RESYNC_PARTIAL: u8 = 2;
/// Acknowledges the end of a resync.
pub(super) const RESYNC_CONFIRMED: u8 = 3;
pub(super) const HEARTBEAT: u8 = 4;

/// The two types of errors. Both end the connection.
pub(super) const PROTOCOL: u8 = 0;
pub(super) const SIZE_LIMIT: u8 = 1;

/// Updates a key of the current table, as do [`INCREMENTAL`], [`UPDATE_TIMED`] and [`INCREMENTAL_TIMED`].
pub(super) const UPDATE: u8 = 0x80;
pub(super) const INCREMENTAL: u8 = 0x81;
/// Defines a table, to which the following updates belong.
pub(super) const DEFINE: u8 = 0x82;
/// Switches to another table of the sender, to which the following updates belong.
pub(super) const SWITCH: u8 = 0x83;
/// Acknowledges a table's updates, up to and including the given one. The table's number is the one that the sender of
/// the updates has assigned. peers-v2.0.txt gives this type as 133, but no version of HAProxy uses that number for it.
pub(super) const ACK: u8 = 0x84;
pub(super) const UPDATE_TIMED: u8 = 0x85;
pub(super) const INCREMENTAL_TIMED: u8 = 0x86;

/// One frame, borrowed from the read buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub class: u8,
    pub kind: u8,
    pub body: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The first frame of `bytes`, and its length; `None` if the frame is incomplete.
    ///
    /// ```
    /// use spop::peers::Frame;
    /// let heartbeat = Frame { class: 0, kind: 4, body: b"" };
    /// let ack = Frame { class: 10, kind: 0x84, body: b"\x01\0\0\0\x07" };
    /// let bytes = b"\x00\x04\x0a\x84\x05\x01\0\0\0\x07";
    /// assert_eq!(Frame::cut(bytes), Ok(Some((heartbeat, 2))));
    /// assert_eq!(Frame::cut(&bytes[2..]), Ok(Some((ack, 8))));
    /// assert_eq!(Frame::cut(&bytes[2..9]), Ok(None));
    /// ```
    ///
    /// # Errors
    /// The body is longer than [`BODY_BYTES_MAX`], or its length is not a valid number.
    pub fn cut(bytes: &'a [u8]) -> Result<Option<(Frame<'a>, usize)>, Error> {
        let (class, kind) = match *bytes {
            [class, kind, ..] if kind < WITH_BODY => {
                return Ok(Some((Frame { class, kind, body: &[] }, 2)));
            }
            [class, kind, ..] => (class, kind),
            _ => return Ok(None),
        };
        let (length, length_bytes) = match varint::decode(&bytes[2..]) {
            Ok(read) => read,
            Err(ReadError::Truncated) if bytes.len() < 2 + varint::BYTES_MAX => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if length > BODY_BYTES_MAX as u64 {
            return Err(Error::TooBig { bytes: length, bytes_max: BODY_BYTES_MAX as u64 });
        }
        let (begin, end) = (2 + length_bytes, 2 + length_bytes + length as usize);
        Ok(bytes.get(begin..end).map(|body| (Frame { class, kind, body }, end)))
    }

    /// Appends the frame.
    pub fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.class, self.kind]);
        if self.kind >= WITH_BODY {
            varint::encode(self.body.len() as u64, out);
            out.extend_from_slice(self.body);
        }
    }
}

/// Appends a control message.
pub(super) fn control(kind: u8, out: &mut Vec<u8>) {
    Frame { class: CONTROL, kind, body: &[] }.encode(out);
}

/// Checks that a body has been read to its end.
pub(super) fn ended(cursor: Cursor<'_>) -> Result<(), Error> {
    match cursor.rest().len() {
        0 => Ok(()),
        rest => Err(Error::TooLong(rest)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_length_is_judged_before_its_body_is_there() {
        let mut bytes = vec![10, 0x80];
        varint::encode(BODY_BYTES_MAX as u64, &mut bytes);
        assert_eq!(Frame::cut(&bytes), Ok(None));
        let mut bytes = vec![10, 0x80];
        varint::encode(BODY_BYTES_MAX as u64 + 1, &mut bytes);
        assert!(matches!(Frame::cut(&bytes), Err(Error::TooBig { bytes: 16_385, .. })));
        let endless = [&[10, 0x80, 0xff][..], &[0xff; 12]].concat();
        assert_eq!(Frame::cut(&endless), Err(Error::Read(ReadError::VarintRange)));
    }

    proptest! {
        #[test]
        fn what_is_written_is_cut_off_again(class: u8, kind: u8, body: Vec<u8>, more: Vec<u8>) {
            let body = if kind < WITH_BODY { &[][..] } else { &body };
            let (frame, mut bytes) = (Frame { class, kind, body }, Vec::new());
            frame.encode(&mut bytes);
            let length = bytes.len();
            for end in 0..length {
                prop_assert_eq!(Frame::cut(&bytes[..end]), Ok(None));
            }
            bytes.extend_from_slice(&more);
            prop_assert_eq!(Frame::cut(&bytes), Ok(Some((frame, length))));
        }
    }
}
