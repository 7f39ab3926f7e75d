//! The messages of a connection, by class and type (peers-v2.0.txt, "Message Classes").

use crate::cursor::Cursor;
use crate::peers::update::{self, Form};
use crate::peers::{Definition, Error, Frame, ProtocolError};
use crate::varint;

const CONTROL: u8 = 0;
const ERROR: u8 = 1;
const STICK_TABLE: u8 = 10;

const UPDATE: u8 = 0x80;
const INCREMENTAL: u8 = 0x81;
const DEFINE: u8 = 0x82;
const SWITCH: u8 = 0x83;
/// The old document says 133, but no HAProxy does.
const ACK: u8 = 0x84;
const UPDATE_TIMED: u8 = 0x85;
const INCREMENTAL_TIMED: u8 = 0x86;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeersMessage<'a> {
    Control(Control),
    ProtocolError(ProtocolError),
    /// A table, to which the following updates belong.
    Define(Definition),
    /// Later updates belong to this table of the sender.
    Switch(u64),
    /// The receiver has a table's updates up to this one. The table's number is the one of the side that defined it.
    Ack {
        table: u64,
        update: u32,
    },
    /// The parts and the bytes of an update of the current table, which only the connection knows.
    Update(Form, &'a [u8]),
}

/// Control messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Control {
    /// Send all entries of all tables.
    ResyncRequest = 0,
    /// These were all.
    ResyncFinished = 1,
    /// All available entries were sent, but some may be missing.
    ResyncPartial = 2,
    /// Acknowledges the end of a resync.
    ResyncConfirmed = 3,
    Heartbeat = 4,
}

impl Control {
    /// Each variant has the value of its number.
    const ALL: [Control; 5] = [
        Control::ResyncRequest,
        Control::ResyncFinished,
        Control::ResyncPartial,
        Control::ResyncConfirmed,
        Control::Heartbeat,
    ];

    pub fn encode(self, out: &mut Vec<u8>) {
        Frame { class: CONTROL, kind: self as u8, body: &[] }.encode(out);
    }
}

impl ProtocolError {
    pub fn encode(self, out: &mut Vec<u8>) {
        Frame { class: ERROR, kind: self as u8, body: &[] }.encode(out);
    }
}

impl<'a> PeersMessage<'a> {
    /// # Errors
    /// The frame is not a message.
    pub fn decode(frame: Frame<'a>) -> Result<PeersMessage<'a>, Error> {
        let Frame { class, kind, body } = frame;
        let unknown = Error::UnknownType { class, kind };
        match (class, kind) {
            (CONTROL, kind) => {
                let control = Control::ALL.get(usize::from(kind)).copied();
                control.map(PeersMessage::Control).ok_or(unknown)
            }
            (ERROR, kind) => {
                let error = ProtocolError::ALL.get(usize::from(kind)).copied();
                error.map(PeersMessage::ProtocolError).ok_or(unknown)
            }
            (STICK_TABLE, UPDATE | INCREMENTAL | UPDATE_TIMED | INCREMENTAL_TIMED) => {
                let (has_id, has_remaining) = (matches!(kind, UPDATE | UPDATE_TIMED), kind >= UPDATE_TIMED);
                Ok(PeersMessage::Update(Form { has_id, has_remaining }, body))
            }
            (STICK_TABLE, DEFINE) => Definition::decode(body).map(PeersMessage::Define),
            (STICK_TABLE, SWITCH) => {
                let mut cursor = Cursor::new(body);
                let table = cursor.varint()?;
                ended(cursor, PeersMessage::Switch(table))
            }
            (STICK_TABLE, ACK) => {
                let mut cursor = Cursor::new(body);
                let (table, update) = (cursor.varint()?, u32::from_be_bytes(cursor.array()?));
                ended(cursor, PeersMessage::Ack { table, update })
            }
            (STICK_TABLE, _) => Err(unknown),
            (class, _) => Err(Error::UnknownClass(class)),
        }
    }
}

fn ended<'a>(cursor: Cursor<'_>, message: PeersMessage<'a>) -> Result<PeersMessage<'a>, Error> {
    match cursor.rest().len() {
        0 => Ok(message),
        rest => Err(Error::TooLong(rest)),
    }
}

/// Appends the definition of a table.
pub(super) fn define(table: &Definition, out: &mut Vec<u8>) {
    let mut body = Vec::new();
    table.encode(&mut body);
    Frame { class: STICK_TABLE, kind: DEFINE, body: &body }.encode(out);
}

/// Appends an acknowledgement.
pub(super) fn ack(table: u64, update: u32, out: &mut Vec<u8>) {
    let mut body = Vec::new();
    varint::encode(table, &mut body);
    body.extend_from_slice(&update.to_be_bytes());
    Frame { class: STICK_TABLE, kind: ACK, body: &body }.encode(out);
}

/// Appends an update of the current table, whose keys are texts and whose columns are numbers.
pub(super) fn update(id: u32, key: &[u8], values: &[u64], out: &mut Vec<u8>) {
    let mut body = Vec::new();
    update::encode(id, key, values, &mut body);
    Frame { class: STICK_TABLE, kind: UPDATE, body: &body }.encode(out);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(bytes: &[u8]) -> Result<PeersMessage<'_>, Error> {
        let (frame, length) = Frame::cut(bytes).unwrap().unwrap();
        assert_eq!(length, bytes.len());
        PeersMessage::decode(frame)
    }

    #[test]
    fn each_message_reads_back() {
        for control in Control::ALL {
            let mut bytes = Vec::new();
            control.encode(&mut bytes);
            assert_eq!(decoded(&bytes), Ok(PeersMessage::Control(control)));
        }
        for error in ProtocolError::ALL {
            let mut bytes = Vec::new();
            error.encode(&mut bytes);
            assert_eq!(decoded(&bytes), Ok(PeersMessage::ProtocolError(error)));
        }
        let mut bytes = Vec::new();
        ack(300, 7, &mut bytes);
        assert_eq!(decoded(&bytes), Ok(PeersMessage::Ack { table: 300, update: 7 }));
        assert_eq!(decoded(b"\x0a\x83\x01\x09"), Ok(PeersMessage::Switch(9)));
    }

    #[test]
    fn messages_that_do_not_exist_are_refused() {
        assert_eq!(decoded(b"\x00\x05"), Err(Error::UnknownType { class: 0, kind: 5 }));
        assert_eq!(decoded(b"\x01\x02"), Err(Error::UnknownType { class: 1, kind: 2 }));
        assert_eq!(decoded(b"\x0a\x87\x00"), Err(Error::UnknownType { class: 10, kind: 0x87 }));
        assert_eq!(decoded(b"\x0b\x01"), Err(Error::UnknownClass(11)));
        assert_eq!(decoded(b"\x0a\x83\x02\x01\x01"), Err(Error::TooLong(1)));
    }

    proptest! {
        #[test]
        fn any_frame_is_read_or_refused(class: u8, kind: u8, body: Vec<u8>) {
            let _ = PeersMessage::decode(Frame { class, kind, body: &body });
        }
    }
}
