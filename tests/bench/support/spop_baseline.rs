//! The baseline: a minimal agent. It reads the ids of each NOTIFY and answers a constant.

use ::spop::{Ack, Connection, Data, Frame, Kind, Scope, Variable};

use super::plain_server;

/// Makes this binary the baseline agent.
pub const ARGUMENT: &str = "--baseline";

const VERDICT: Variable = Variable::new(Scope::Txn, b"verdict");
const DELAY: Variable = Variable::new(Scope::Txn, b"delay");
const SLO: Variable = Variable::new(Scope::Txn, b"slo");
const KEY: Variable = Variable::new(Scope::Txn, b"key");
const REMAINING: Variable = Variable::new(Scope::Txn, b"remaining");

/// The content of its answers.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// A verdict.
    Verdict,
    /// Five variables, like slowlane, with the same cost to HAProxy.
    Everything,
}

/// Serves at `host:port` or `unix:/path`.
pub fn run(at: &str, answer: Answer) {
    plain_server::serve("SPOP", at, || {
        let mut protocol = Connection::new(65_536);
        move |bytes: &[u8], out: &mut Vec<u8>| answer_frames(answer, &mut protocol, bytes, out)
    });
}

fn answer_frames(answer: Answer, protocol: &mut Connection, bytes: &[u8], out: &mut Vec<u8>) -> usize {
    let mut used = 0;
    while let Some((frame, length)) = Frame::cut(&bytes[used..], 65_536).unwrap() {
        used += length;
        match frame.head.kind {
            Kind::NOTIFY => answer_notify(answer, frame, out),
            _ => drop(protocol.receive(frame, out)),
        }
    }
    used
}

fn answer_notify(answer: Answer, notify: Frame<'_>, out: &mut Vec<u8>) {
    let ack = Ack::begin(out, notify.head.stream_id, notify.head.frame_id);
    let ack = ack.set(&VERDICT, Data::Str(b"pass"));
    match answer {
        Answer::Verdict => ack.finish(),
        Answer::Everything => ack
            .set(&DELAY, Data::Int64(0))
            .set(&SLO, Data::Int64(3001))
            .set(&KEY, Data::Int64(i64::MIN))
            .set(&REMAINING, Data::Int64(999_999))
            .finish(),
    }
}
