//! Any bytes as one SPOP connection, served as the daemon serves it: every NOTIFY gets one ACK with its ids, in whole
//! frames of a bounded length, however the bytes arrive.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use slowlane::observe::clock::Clock;
use slowlane::proxy::haproxy::{Arguments, Question, question};
use slowlane::server::Agent;
use slowlane::server::spoe::Conversation;
use slowlane_core::base::{HoldLimits, Timestamp, Value, WhenFull, canonical};
use slowlane_core::policy::{Layout, Policy};
use slowlane_core::table::Sizing;
use slowlane_core::throttle::Throttle;
use spop::{Ack, Close, Connection, Frame, HaproxyHello, Kind, Notify, Step};

use super::watched::watched;

const FRAME_BYTES_MAX: u32 = 4_096;

/// The shortest limit that HAProxy may set. Each of our frames fits into it.
const OWN_FRAME_BYTES_MAX: u32 = 256;

const HOLDS_MAX: usize = 4;

const SEED: u64 = 1;

/// The stream and frame of a NOTIFY.
type Id = (u64, u64);

/// The first byte is the length of the pieces that the others arrive in. If it is odd, a law with chance is used.
pub fn run(bytes: &[u8]) {
    let Some((&piece_bytes, bytes)) = bytes.split_first() else { return };
    let mut greeted = Vec::new();
    HaproxyHello::new(FRAME_BYTES_MAX).encode(&mut greeted);
    greeted.extend_from_slice(bytes);
    for bytes in [bytes, &greeted] {
        let asked = Asked::of(bytes);
        let has_chance = piece_bytes % 2 == 1;
        let pieces = || bytes.chunks(usize::from(piece_bytes).max(1));
        let (whole, in_pieces) = (serve([bytes], has_chance), serve(pieces(), has_chance));
        assert_eq!(serve(pieces(), has_chance), in_pieces, "one seed, two outcomes");
        for served in [&whole, &in_pieces] {
            assert_eq!(served.ids(), asked.ids);
            assert_eq!(served.close, asked.close);
        }
        // A batch takes tickets and draws dice in another order than its NOTIFYs would one by one.
        if !has_chance && !asked.ends_request {
            assert_eq!(whole.sorted(), in_pieces.sorted());
        }
    }
}

/// The expected course of a connection, from its protocol alone.
struct Asked {
    /// Of each valid NOTIFY, in order.
    ids: Vec<Id>,
    /// Whether a ticket came back.
    ends_request: bool,
    close: Option<Close>,
    arguments: Arguments,
}

impl Asked {
    fn of(mut bytes: &[u8]) -> Asked {
        let mut asked =
            Asked { ids: Vec::new(), ends_request: false, close: None, arguments: Arguments::default() };
        let (mut protocol, mut said) = (Connection::new(FRAME_BYTES_MAX), Vec::new());
        while asked.close.is_none() {
            match Frame::cut(bytes, protocol.frame_bytes_max()) {
                Ok(None) => break,
                Err(error) => asked.close = Some(protocol.refuse(error, &mut said)),
                Ok(Some((frame, length))) => {
                    bytes = &bytes[length..];
                    match protocol.receive(frame, &mut said) {
                        Step::Continue => {}
                        Step::Close(close) => asked.close = Some(close),
                        Step::Notify(notify) => asked.read(&notify, &mut protocol),
                    }
                }
            }
        }
        asked.ids.sort_unstable();
        asked
    }

    fn read(&mut self, notify: &Notify<'_>, protocol: &mut Connection) {
        let mut fields = 0;
        let read = question(notify, &mut self.arguments, |_, _, value| {
            fields += 1;
            assert_ne!(value, Value::Text(b""), "a field without a value");
            if let Value::Address(address) = value {
                assert_eq!(address, canonical(address));
            }
        });
        match read {
            Ok(question) => {
                let is_request = matches!(question, Question::Verdict { .. });
                assert!(is_request || fields == 0, "{question:?} has {fields} fields");
                self.ends_request |= matches!(question, Question::End(..));
                self.ids.push((notify.stream_id, notify.frame_id));
            }
            Err(error) => self.close = Some(protocol.refuse(error, &mut Vec::new())),
        }
    }
}

/// The outcome of a connection.
#[derive(Debug, PartialEq)]
struct Served {
    said: Vec<u8>,
    close: Option<Close>,
}

impl Served {
    /// All of them, cut and decoded.
    fn frames(&self) -> Vec<Frame<'_>> {
        let (mut frames, mut rest) = (Vec::new(), &self.said[..]);
        while !rest.is_empty() {
            let (frame, length) =
                Frame::cut(rest, OWN_FRAME_BYTES_MAX).expect("a frame of ours").expect("a whole one");
            frames.push(frame);
            rest = &rest[length..];
        }
        frames
    }

    /// The ids of all ACKs. Each ACK sets or unsets something.
    fn ids(&self) -> Vec<Id> {
        let acks = self.frames().into_iter().filter(|frame| frame.head.kind == Kind::ACK);
        let mut ids: Vec<Id> = acks
            .map(|frame| {
                let ack = Ack::decode(frame).expect("an ACK of ours");
                let actions: Result<Vec<_>, _> = ack.actions().collect();
                assert!(!actions.expect("whole actions").is_empty());
                (ack.stream_id, ack.frame_id)
            })
            .collect();
        ids.sort_unstable();
        ids
    }

    /// The frames in an order that does not depend on their arrival.
    fn sorted(&self) -> Vec<Vec<u8>> {
        let written = |frame: Frame<'_>| {
            let mut bytes = Vec::new();
            frame.encode(&mut bytes);
            bytes
        };
        let mut frames: Vec<Vec<u8>> = self.frames().into_iter().map(written).collect();
        frames.sort_unstable();
        frames
    }
}

/// Serves a connection whose bytes arrive in these pieces, all at one moment, and takes leave at its end.
fn serve<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, has_chance: bool) -> Served {
    let agent = Arc::new(agent(has_chance));
    let mut conversation = Conversation::new(agent, FRAME_BYTES_MAX);
    conversation.rng.seed(SEED);
    let now = Timestamp::from_millis(1_000_000);
    let (mut unread, mut served) = (Vec::new(), Served { said: Vec::new(), close: None });
    for piece in pieces {
        unread.extend_from_slice(piece);
        let used = conversation.answer(&unread, now);
        // A hello and a goodbye come on top.
        let frames_max = used.notified as usize + HOLDS_MAX + 2;
        assert!(conversation.out.len() <= frames_max * (4 + OWN_FRAME_BYTES_MAX as usize));
        served.said.extend_from_slice(&conversation.out);
        conversation.out.clear();
        unread.drain(..used.bytes);
        served.close = used.close;
        if served.close.is_some() {
            return served;
        }
        assert!(unread.len() < 4 + FRAME_BYTES_MAX as usize, "a whole frame is left unread");
    }
    conversation.leave();
    served.said.extend_from_slice(&conversation.out);
    served
}

fn agent(has_chance: bool) -> Agent {
    let sizing = Sizing { entries_max: 64, expire: Duration::from_secs(30) };
    let throttle = Arc::new(Throttle::new(policy(has_chance), sizing, 1 << 16));
    let hold =
        HoldLimits { holds_max: HOLDS_MAX, hold_max: Duration::from_secs(60), when_full: WhenFull::Pass };
    let (metrics, status) = watched();
    Agent::new(throttle, Clock::start(), hold, metrics, status)
}

/// Delays, denials, tickets, and all SLOs that one request can have.
fn policy(has_chance: bool) -> Policy {
    let law = if has_chance { "adaptive" } else { "pace" };
    let read = |path: &Path| match path.to_str() {
        Some("slo.map") => Ok(format!(
            "0 burst=2 rate=1/s\n1001 burst=1 rate=1/s law=concurrency max=2\n\
             2001 burst=1 rate=1/s law={law} also=owner\n3001 burst=1 rate=1/m law=sliding-log also=website\n"
        )
        .into_bytes()),
        Some("source.map") => Ok(b"192.0.2.0/24 3001\n2001:db8::/32 3001\n".to_vec()),
        Some("website.map") => Ok(b"shop.example 2001\n".to_vec()),
        Some("owner.map") => Ok(b"acme 1001\n".to_vec()),
        _ => Err(io::ErrorKind::NotFound.into()),
    };
    Policy::parse(Path::new(""), &Layout::default(), read).expect("a policy without mistakes")
}
