//! Turns that many exchanges share.

use crate::conformance::case::{Turn, Writing};
use crate::conformance::frames::{HELLO, hello};
use crate::conformance::setting::Setting;
use crate::conformance::transcript::Until;

/// A plain hello, then bytes that the agent answers with so many frames.
pub(crate) fn greeted(bytes: Vec<u8>, answers: usize) -> Vec<Turn> {
    greeted_by(hello(HELLO), bytes, answers)
}

/// The same with another hello.
pub(crate) fn greeted_by(hello: Vec<u8>, bytes: Vec<u8>, answers: usize) -> Vec<Turn> {
    let asked = Turn::new(bytes, Until::Frames(1 + answers));
    [first(hello), vec![asked]].concat()
}

/// A plain hello, then bytes whose answer is not read.
pub(crate) fn unread(bytes: Vec<u8>) -> Vec<Turn> {
    vec![opening(), Turn::new(bytes, Until::Sent)]
}

/// A plain hello, then bytes after which the agent closes.
pub(crate) fn refused(bytes: Vec<u8>) -> Vec<Turn> {
    vec![opening(), Turn::new(bytes, Until::Closed)]
}

/// A first frame that the agent answers with a frame of its own.
pub(crate) fn first(bytes: Vec<u8>) -> Vec<Turn> {
    vec![Turn::new(bytes, Until::Frames(1))]
}

/// A first frame after which the agent closes.
pub(crate) fn only(bytes: Vec<u8>) -> Vec<Turn> {
    vec![Turn::new(bytes, Until::Closed)]
}

/// The same turns, with small writes.
pub(crate) fn in_pieces(bytes: usize, turns: Vec<Turn>) -> Vec<Turn> {
    turns.into_iter().map(|turn| Turn { writing: Writing::InPieces(bytes), ..turn }).collect()
}

/// A plain hello, then a NOTIFY for each of these ids, one after the other's answer.
pub(crate) fn in_turn(setting: &Setting, ids: &[(u64, u64)]) -> Vec<Turn> {
    let asked = ids.iter().zip(2..);
    let asked = asked.map(|(&(stream_id, frame_id), count)| {
        Turn::new(setting.notify(stream_id, frame_id), Until::Frames(count))
    });
    [opening()].into_iter().chain(asked).collect()
}

/// So many NOTIFYs of different streams.
pub(crate) fn streams(setting: &Setting, count: u64) -> Vec<u8> {
    (1..=count).flat_map(|stream_id| setting.notify(stream_id, 1)).collect()
}

pub(crate) fn opening() -> Turn {
    Turn::new(hello(HELLO), Until::Frames(1))
}
