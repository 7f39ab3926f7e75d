//! Transcripts for the tests of the judges.

use crate::spoa::frames::{HELLO, Item, hello, listing};
use crate::spoa::setting::tests::setting;
use crate::spoa::transcript::{End, Transcript};
use spop::{Ack, Data, Disconnect, Kind, Scope, Status, Variable};

/// A plain hello and the NOTIFYs 1/1 and 2/1 were sent; these frames came back.
pub(super) fn spoken(frames: &[Vec<u8>]) -> Transcript {
    let sent = [hello(HELLO), setting().notify(1, 1), setting().notify(2, 1)].concat();
    Transcript { sent, received: frames.concat(), end: End::Open }
}

pub(super) fn closed(frames: &[Vec<u8>]) -> Transcript {
    Transcript { end: End::Closed, ..spoken(frames) }
}

pub(super) fn silent() -> Transcript {
    Transcript { end: End::Overdue, ..spoken(&[]) }
}

pub(super) fn hello_of(items: &[Item<'_>]) -> Vec<u8> {
    listing(Kind::AGENT_HELLO, items)
}

/// An AGENT-HELLO that agrees to this frame size.
pub(super) fn greeting(frame_bytes_max: u32) -> Vec<u8> {
    hello_of(&[
        (b"version", Data::Str(b"2.0")),
        (b"max-frame-size", Data::Uint32(frame_bytes_max)),
        (b"capabilities", Data::Str(b"")),
    ])
}

pub(super) fn ack(stream_id: u64, frame_id: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    Ack::begin(&mut bytes, stream_id, frame_id).set(&Variable::new(Scope::Txn, b"a"), Data::Null).finish();
    bytes
}

pub(super) fn goodbye(code: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    Disconnect { status: Status::new(code), message: b"bye" }.encode_as_agent(&mut bytes);
    bytes
}
