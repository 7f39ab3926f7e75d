//! DISCONNECT, the frame that ends a connection in either direction (SPOE.txt 3.2.8, 3.2.9).

use crate::data::encode_item;
use crate::{Data, Error, Frame, FrameWriter, Head, Kind, Status, items};

const STATUS_CODE: &[u8] = b"status-code";
const MESSAGE: &[u8] = b"message";

/// The maximum length of a message that HAProxy up to 3.0 accepts.
const MESSAGE_BYTES_MAX: usize = 255;

/// HAPROXY-DISCONNECT or AGENT-DISCONNECT.
///
/// ```
/// use spop::{Disconnect, Frame};
/// let mut out = Vec::new();
/// Disconnect::NORMAL.encode_as_haproxy(&mut out);
/// let (frame, _) = Frame::cut(&out, 256).unwrap().unwrap();
/// assert_eq!(Disconnect::decode(frame), Ok(Disconnect::NORMAL));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disconnect<'a> {
    pub status: Status,
    /// The reason, as text. Encoding cuts it to 255 bytes.
    pub message: &'a [u8],
}

impl<'a> Disconnect<'a> {
    /// A disconnect without an error.
    pub const NORMAL: Disconnect<'static> =
        Disconnect { status: Status::NORMAL, message: Status::NORMAL.description().as_bytes() };

    /// Decodes a frame of the kind `HAPROXY_DISCONNECT` or `AGENT_DISCONNECT`.
    ///
    /// Both items are mandatory in the protocol. As in HAProxy, a missing status becomes 99 (unknown), and a missing
    /// message is empty.
    ///
    /// # Errors
    /// The frame is fragmented, or has a stream-id, a frame-id or an unreadable item. The frame's kind is not checked.
    pub fn decode(frame: Frame<'a>) -> Result<Disconnect<'a>, Error> {
        frame.head.expect_of_connection()?;
        let mut disconnect = Disconnect { status: Status::UNKNOWN, message: b"" };
        for item in items(frame.payload) {
            let (name, value) = item?;
            match name {
                STATUS_CODE => disconnect.status = status(value),
                MESSAGE => disconnect.message = value.to_bytes().unwrap_or_default(),
                _ => {}
            }
        }
        Ok(disconnect)
    }

    pub fn encode_as_agent(&self, out: &mut Vec<u8>) {
        self.encode(Kind::AGENT_DISCONNECT, out);
    }

    pub fn encode_as_haproxy(&self, out: &mut Vec<u8>) {
        self.encode(Kind::HAPROXY_DISCONNECT, out);
    }

    fn encode(&self, kind: Kind, out: &mut Vec<u8>) {
        let message = &self.message[..self.message.len().min(MESSAGE_BYTES_MAX)];
        let frame = FrameWriter::begin(out, Head::of_connection(kind));
        encode_item(STATUS_CODE, Data::Uint32(self.status.code()), frame.out);
        encode_item(MESSAGE, Data::Str(message), frame.out);
        frame.finish();
    }
}

fn status(value: Data<'_>) -> Status {
    let code = value.to_i64().and_then(|code| u32::try_from(code).ok());
    code.map_or(Status::UNKNOWN, Status::new)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::data::tests::any_bytes;
    use crate::hello::tests::cut;

    #[test]
    fn it_has_these_bytes() {
        let mut out = Vec::new();
        Disconnect { status: Status::TOO_BIG, message: b"no" }.encode_as_agent(&mut out);
        let bytes = b"\x00\x00\x00\x21\x66\x00\x00\x00\x01\x00\x00\
            \x0bstatus-code\x03\x03\
            \x07message\x08\x02no";
        assert_eq!(out, bytes);
    }

    #[test]
    fn a_message_is_cut_at_the_longest_that_haproxy_takes() {
        let mut out = Vec::new();
        Disconnect { status: Status::UNKNOWN, message: &[b'x'; 300] }.encode_as_haproxy(&mut out);
        assert_eq!(Disconnect::decode(cut(&out)).unwrap().message.len(), 255);
    }

    #[test]
    fn a_disconnect_that_says_nothing_has_an_unknown_reason() {
        let mut out = Vec::new();
        FrameWriter::begin(&mut out, Head::of_connection(Kind::HAPROXY_DISCONNECT)).finish();
        let silent = Disconnect { status: Status::UNKNOWN, message: b"" };
        assert_eq!(Disconnect::decode(cut(&out)), Ok(silent));
    }

    proptest! {
        #[test]
        fn it_reads_back(code: u32, message in any_bytes()) {
            let disconnect = Disconnect { status: Status::new(code), message };
            let mut bytes = Vec::new();
            disconnect.encode_as_agent(&mut bytes);
            prop_assert_eq!(Disconnect::decode(cut(&bytes)), Ok(disconnect));
        }
    }
}
