//! All cases of the suite, in the order of SPOE.txt.

mod hello;
mod notify;
mod wrong;

use crate::card::{Case, listed};
use crate::spoa::frames::{HELLO, hello};
use crate::spoa::{Exchange, Exchanges, Setting, Turn, Until};

/// The exchanges. The first exchange is the plain handshake, on whose result the others build.
pub(crate) fn exchanges(setting: &Setting) -> Vec<Exchange> {
    let mut suite = Exchanges::default();
    hello::hellos(&mut suite, setting);
    notify::notifies(&mut suite, setting);
    notify::types(&mut suite, setting);
    notify::connections(&mut suite, setting);
    wrong::frames(&mut suite, setting);
    wrong::strangers(&mut suite, setting);
    suite.0
}

/// Every case and its expectation.
pub(crate) fn list() -> String {
    listed("the agent", cases())
}

fn cases() -> impl Iterator<Item = Case> {
    let exchanges = exchanges(&Setting::default()).into_iter();
    exchanges.flat_map(|exchange| exchange.cases).map(|(case, _)| case)
}

/// A plain hello, then bytes that the agent answers with this many frames.
pub(crate) fn greeted(bytes: Vec<u8>, answers: usize) -> Vec<Turn> {
    greeted_by(hello(HELLO), bytes, answers)
}

/// Like [`greeted`], but with a different hello.
fn greeted_by(hello: Vec<u8>, bytes: Vec<u8>, answers: usize) -> Vec<Turn> {
    vec![Turn::new(hello, Until::Frames(1)), Turn::new(bytes, Until::Frames(1 + answers))]
}

/// A plain hello, then bytes whose answer is not read.
fn unread(bytes: Vec<u8>) -> Vec<Turn> {
    vec![opening(), Turn::new(bytes, Until::Sent)]
}

/// A plain hello, then bytes after which the agent closes.
fn refused(bytes: Vec<u8>) -> Vec<Turn> {
    vec![opening(), Turn::new(bytes, Until::Closed)]
}

/// A first frame that the agent answers with a frame of its own.
fn first(bytes: Vec<u8>) -> Vec<Turn> {
    vec![Turn::new(bytes, Until::Frames(1))]
}

/// A first frame after which the agent closes.
fn only(bytes: Vec<u8>) -> Vec<Turn> {
    vec![Turn::new(bytes, Until::Closed)]
}

/// The same turns, with small writes.
fn in_pieces(bytes: usize, turns: Vec<Turn>) -> Vec<Turn> {
    turns.into_iter().map(|turn| Turn { piece_bytes: Some(bytes), ..turn }).collect()
}

/// A plain hello, then a NOTIFY for each of these ids, each sent after the answer to the previous NOTIFY.
fn in_turn(setting: &Setting, ids: &[(u64, u64)]) -> Vec<Turn> {
    let asked = ids.iter().zip(2..).map(|(&(stream_id, frame_id), count)| {
        Turn::new(setting.notify(stream_id, frame_id), Until::Frames(count))
    });
    [opening()].into_iter().chain(asked).collect()
}

pub(crate) fn opening() -> Turn {
    Turn::new(hello(HELLO), Until::Frames(1))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::card::Level;
    use crate::spoa::exchange::Judge;
    use crate::spoa::setting::Needs;
    use crate::spoa::setting::tests::setting;

    #[test]
    fn every_case_has_a_name_of_its_own_and_a_section() {
        let sections = ["3.1", "3.2", "3.2.1", "3.2.2", "3.2.3", "3.2.4", "3.2.5", "3.2.6", "3.2.7", "3.2.8"];
        let more = ["3.2.9", "3.3", "3.4", "3.5", "field"];
        let cases: Vec<Case> = cases().collect();
        let names: BTreeSet<&str> = cases.iter().map(|case| case.name).collect();
        assert_eq!(names.len(), cases.len());
        for case in &cases {
            assert!(sections.iter().chain(&more).any(|section| *section == case.section), "{}", case.name);
            assert!(
                case.name.bytes().all(|byte| byte.is_ascii_lowercase() || b"-.0123456789".contains(&byte))
            );
        }
        assert!(cases.iter().filter(|case| case.level == Level::Required).count() >= 30);
    }

    /// Whatever no HAProxy sends decides first whether the agent survives it.
    #[test]
    fn survival_is_judged_after_hostile_exchanges() {
        let mut hostile = Exchanges::default();
        wrong::frames(&mut hostile, &setting());
        wrong::strangers(&mut hostile, &setting());
        let exchanges = exchanges(&setting());
        let sound = exchanges.len() - hostile.0.len();
        for (number, exchange) in exchanges.iter().enumerate() {
            let at = exchange.cases.iter().position(|(_, judge)| matches!(judge, Judge::ServesOn));
            assert_eq!(at, (number >= sound).then_some(0), "{}", exchange.cases[0].0.name);
            assert_eq!(exchange.is_hostile(), number >= sound, "{}", exchange.cases[0].0.name);
        }
    }

    /// The first exchange finds out what the agent agrees to, so it can need nothing.
    #[test]
    fn the_first_exchange_is_the_plain_handshake() {
        let first = &exchanges(&setting())[0];
        assert_eq!(first.needs, Needs::Nothing);
        assert_eq!(first.turns[0].bytes, hello(HELLO));
    }
}
