//! The SPOE agent: serves SPOP connections by answering the frames that they carry.

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arrayvec::ArrayVec;
use fastrand::Rng;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::observe::groups;
use crate::proxy::haproxy::{self, Question};
use crate::server::connection::{self, Inbox, Next, Protocol};
use crate::server::{Accepted, Agent, Bell, HoldPlace, Service, Shutdown, Stream, TransferState};
use slowlane_core::base::{BATCH_MAX, Decisions, Key, Sample, Timestamp, Turn, Verdict};
use slowlane_core::policy::{Batch, Policy};
use spop::{Close, Connection, Error, Frame, Kind, Notify, Status, Step};

/// The name that slowlane reports in the handshake if its own tools, as clients, request the name.
pub const NAME: &str = "slowlane";

/// While more unwritten output than this many bytes is pending, no held answer is added.
const OUT_BYTES_MAX: usize = 256 * 1024;

/// The maximum number of additional reads at a shutdown, before the DISCONNECT.
const LAST_READS_MAX: usize = 16;

/// The pause before a handshake is refused. Without it, HAProxy up to 3.0 would retry thousands of times a second.
const REFUSAL_PAUSE: Duration = Duration::from_secs(1);

/// The SPOP service, shared by all its connections.
#[derive(Debug)]
pub struct Spoe {
    /// The longest frame to accept.
    pub frame_bytes_max: u32,
    /// The longest wait for HAProxy to send its hello, to finish a frame, or to accept an answer.
    pub timeout: Duration,
}

impl Spoe {
    /// Serves a connection. `spop_state` is the state before a handover, or the default for a new connection.
    pub async fn serve(
        self: Arc<Spoe>,
        stream: Stream,
        spop_state: SpopState,
        agent: Arc<Agent>,
        shutdown: Shutdown,
    ) {
        // An earlier process may have agreed to frames longer than this process's limit.
        let agreed = spop_state.agreed.as_ref().map_or(0, |agreed| agreed.frame_bytes_max);
        let inbox = Inbox::with(self.frame_bytes_max.max(agreed), &spop_state.unread);
        let protocol =
            Conversation::new(agent.clone(), self.frame_bytes_max).going_on(spop_state, agent.clock.now());
        let link =
            connection::Connection { stream, inbox, protocol, patience: self.timeout, agent, shutdown };
        if let Err(error) = link.run().await {
            tracing::debug!("spop connection lost: {error}");
        }
    }
}

impl Service for Spoe {
    fn call(self: Arc<Self>, accepted: Accepted) -> BoxFuture<'static, ()> {
        let Accepted { stream, earlier, agent, shutdown, .. } = accepted;
        let spop_state = match earlier {
            Some(TransferState::Spop(spop_state)) => spop_state,
            _ => SpopState::default(),
        };
        Box::pin(self.serve(stream, spop_state, agent, shutdown))
    }
}

/// The values agreed for an SPOP connection, and its pending work. The default is that of a new connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpopState {
    /// `None` if HAProxy has not said hello yet.
    agreed: Option<Agreed>,
    /// The beginning of a frame.
    unread: Vec<u8>,
    /// Answers that the socket has not accepted yet. They may begin within a frame.
    unwritten: Vec<u8>,
    /// Held answers, each with the moment at which it is due.
    held: Vec<(Timestamp, haproxy::Id)>,
    /// When the wait began for the rest of a frame, or for the HELLO.
    unfinished_since: Option<Timestamp>,
}

/// The result of the handshake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Agreed {
    frame_bytes_max: u32,
    /// Earlier versions put the engine-id here. Nothing reads it.
    engine_id: Option<Box<str>>,
}

/// One connection's protocol state, its held answers, and the answers to be written.
#[derive(Debug)]
pub struct Conversation {
    agent: Arc<Agent>,
    protocol: Connection,
    /// The answers to write.
    pub out: Vec<u8>,
    held: Held,
    /// Rings when a turn of a held answer moves.
    bell: Arc<Bell>,
    /// When the wait began for the rest of a frame, or for the HELLO.
    unfinished_since: Option<Timestamp>,
    /// The number of NOTIFYs read so far.
    notified: u64,
    /// The number of holds begun so far.
    holds_begun: u64,
    /// The arguments of the last request, with their places in a batch for the policy and the width in `placed_in`.
    arguments: haproxy::Arguments,
    placed_in: (Weak<Policy>, usize),
    /// A seeded generator makes a run repeatable.
    pub rng: Rng,
}

/// Held answers, sorted by due time. A running number makes the keys unique.
type Held = BTreeMap<(Timestamp, u64), HeldAnswer>;

/// A held answer.
#[derive(Debug)]
struct HeldAnswer {
    id: haproxy::Id,
    _place: HoldPlace,
    turn: Option<Placed>,
}

/// The place of a held request in the queue of its key, in which its turn may still move.
#[derive(Clone, Debug)]
struct Placed {
    key: Key,
    number: u64,
    turn: Arc<Turn>,
    /// When the longest hold ends. The answer is due no later than this.
    latest: Timestamp,
}

impl Placed {
    /// The moment at which the answer is due, or `None` if the request is refused.
    fn due(&self) -> Option<Timestamp> {
        Some(self.turn.due()?.min(self.latest))
    }
}

/// The result of [`Conversation::answer`].
#[derive(Debug)]
pub struct Used {
    /// The number of bytes used. Unless the connection closes, the remaining bytes are the beginning of a frame.
    pub bytes: usize,
    /// The number of NOTIFYs read.
    pub notified: u64,
    /// If set, the reason why the caller must close the connection.
    pub close: Option<Close>,
}

/// A batch of at most [`BATCH_MAX`] queries from one read.
struct Questions<'p, 'a> {
    batch: Batch<'p, 'a>,
    /// The NOTIFY to answer for each request, and whether the answer includes the quota.
    asked: ArrayVec<(haproxy::Id, bool), BATCH_MAX>,
}

impl<'p: 'a, 'a> Questions<'p, 'a> {
    #[inline]
    fn under(policy: &'p Policy) -> Questions<'p, 'a> {
        Questions { batch: Batch::of(policy), asked: ArrayVec::new() }
    }

    fn clear(&mut self) {
        self.batch.clear();
        self.asked.clear();
    }
}

/// The reason why a batch is complete.
enum End {
    /// The batch is full. More frames may follow.
    Full,
    /// The next frame is incomplete.
    NoMore,
    /// The bytes are not a valid frame or NOTIFY.
    Refused(Error),
    /// The connection ends after these last bytes are written.
    Closed(Close, Vec<u8>),
}

impl Protocol for Conversation {
    const HAS_GOODBYE: bool = true;

    fn read(&mut self, bytes: &mut [u8], now: Timestamp) -> (usize, Next) {
        let used = self.answer(bytes, now);
        self.unfinished_since = match used.bytes == bytes.len() && self.protocol.hello().is_some() {
            true => None,
            false if used.notified > 0 => Some(now),
            false => self.unfinished_since.or(Some(now)),
        };
        (used.bytes, used.close.map_or(Next::Wait, |close| self.close(&close, now)))
    }

    fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    fn due(&self) -> Option<Timestamp> {
        self.held.first_key_value().map(|(&(due, _), _)| due)
    }

    fn bell(&self) -> Option<Arc<Bell>> {
        (!self.held.is_empty()).then(|| self.bell.clone())
    }

    /// Re-sorts the held answers whose turns have moved, and answers those whose requests are refused.
    fn moved(&mut self) {
        let has_moved = |due: Timestamp, answer: &HeldAnswer| {
            answer.turn.as_ref().is_some_and(|turn| turn.due() != Some(due))
        };
        let moved = self.held.iter().filter(|(at, answer)| has_moved(at.0, answer));
        let moved: Vec<_> = moved.map(|(at, _)| *at).collect();
        for at in moved {
            let Some(answer) = self.held.remove(&at) else { continue };
            match answer.turn.as_ref().and_then(Placed::due) {
                Some(due) => drop(self.held.insert((due, at.1), answer)),
                None => {
                    self.agent.metrics.frames.ack.inc();
                    haproxy::answer_hold(answer.id, self.agent.has_no_slot(), &mut self.out);
                }
            }
        }
    }

    /// Writes the held answers that are due, up to [`OUT_BYTES_MAX`].
    fn release(&mut self, now: Timestamp) {
        while let Some(first) = self.held.first_entry() {
            if first.key().0 > now || self.out.len() > OUT_BYTES_MAX {
                return;
            }
            let HeldAnswer { id, turn, .. } = first.remove();
            self.passes(turn.as_ref(), now);
            self.agent.metrics.frames.ack.inc();
            haproxy::answer_hold(id, Verdict::Pass, &mut self.out);
        }
    }

    fn waits_since(&self) -> Option<Timestamp> {
        self.unfinished_since
    }

    fn time_out(&mut self, now: Timestamp) -> Next {
        let close = self.refuse(Error::TimedOut);
        self.close(&close, now)
    }

    fn state(&mut self, unread: &[u8]) -> Option<TransferState> {
        let frame_bytes_max = self.protocol.frame_bytes_max();
        let agreed = self.protocol.hello().map(|_| Agreed { frame_bytes_max, engine_id: None });
        // In the next process, turns no longer move. If a turn has just been refused, its answer keeps its last due
        // time.
        let known = |((due, _), answer): ((Timestamp, u64), HeldAnswer)| {
            (answer.turn.map_or(Some(due), |turn| turn.due()).unwrap_or(due), answer.id)
        };
        Some(TransferState::Spop(SpopState {
            agreed,
            unread: unread.to_vec(),
            unwritten: mem::take(&mut self.out),
            held: mem::take(&mut self.held).into_iter().map(known).collect(),
            unfinished_since: self.unfinished_since,
        }))
    }

    fn begin_end(&mut self, _now: Timestamp) -> usize {
        LAST_READS_MAX
    }

    fn say_goodbye(&mut self) {
        self.leave();
    }
}

impl Conversation {
    /// `frame_bytes_max` is the longest frame to accept.
    pub fn new(agent: Arc<Agent>, frame_bytes_max: u32) -> Conversation {
        Conversation {
            agent,
            protocol: Connection::new(frame_bytes_max).named(NAME),
            out: Vec::new(),
            held: Held::new(),
            bell: Arc::default(),
            unfinished_since: None,
            notified: 0,
            holds_begun: 0,
            arguments: haproxy::Arguments::default(),
            placed_in: (Weak::new(), 0),
            rng: Rng::new(),
        }
    }

    /// Continues a conversation that stopped for a handover.
    fn going_on(mut self, spop_state: SpopState, now: Timestamp) -> Conversation {
        if let Some(Agreed { frame_bytes_max, .. }) = spop_state.agreed {
            self.protocol = Connection::established(frame_bytes_max);
            self.unfinished_since = spop_state.unfinished_since;
        }
        self.out = spop_state.unwritten;
        for (due, id) in spop_state.held {
            self.hold_until(id, due, None, now);
        }
        self
    }

    /// Answers every complete frame of `bytes`, batch by batch: decode, decide, observe, answer.
    pub fn answer(&mut self, bytes: &[u8], now: Timestamp) -> Used {
        let agent = self.agent.clone();
        let policy = agent.throttle.policy();
        // These are separate statements, because a tuple of both values would be copied.
        let mut questions = Questions::under(&policy);
        let mut decisions = Decisions::new();
        let mut frames = bytes;
        let (notified, holds) = (self.notified, self.holds_begun);
        let close = loop {
            self.place_in(&policy, questions.batch.width());
            let end = self.read_batch(&mut frames, &mut questions, now);
            self.answer_batch(&questions, &mut decisions, now);
            questions.clear();
            match end {
                End::Full => {}
                End::NoMore => break None,
                End::Refused(error) => break Some(self.refuse(error)),
                End::Closed(close, goodbye) => {
                    self.answer_all_held();
                    self.out.extend(goodbye);
                    break Some(close);
                }
            }
        };
        let notified = self.notified - notified;
        agent.metrics.frames.notify.inc_by(notified);
        agent.metrics.frames.ack.inc_by(notified - (self.holds_begun - holds));
        Used { bytes: bytes.len() - frames.len(), notified, close }
    }

    /// Forgets the places of arguments if the policy or the fields that blocks use have changed.
    #[inline]
    fn place_in(&mut self, policy: &Arc<Policy>, width: usize) {
        if (self.placed_in.0.as_ptr(), self.placed_in.1) != (Arc::as_ptr(policy), width) {
            self.placed_in = (Arc::downgrade(policy), width);
            self.arguments.forget_notes();
        }
    }

    /// Takes frames from `frames` and decodes them into a batch. Frames that need no decision are answered at once.
    fn read_batch<'p: 'a, 'a>(
        &mut self,
        frames: &mut &'a [u8],
        questions: &mut Questions<'p, 'a>,
        now: Timestamp,
    ) -> End {
        while !questions.batch.is_full() {
            let (frame, bytes) = match Frame::cut(frames, self.protocol.frame_bytes_max()) {
                Ok(Some(cut)) => cut,
                Ok(None) => return End::NoMore,
                Err(error) => return End::Refused(error),
            };
            let (kind, written) = (frame.head.kind, self.out.len());
            match self.protocol.receive(frame, &mut self.out) {
                Step::Continue => self.count(kind),
                Step::Notify(notify) => match self.read_question(&notify, questions, now) {
                    Ok(()) => self.notified += 1,
                    Err(error) => return End::Refused(error),
                },
                Step::Close(close) => {
                    self.count(kind);
                    return End::Closed(close, self.out.split_off(written));
                }
            }
            *frames = &frames[bytes..];
        }
        End::Full
    }

    /// Reads one NOTIFY. A request joins the batch; other messages are answered now, or after their hold.
    fn read_question<'p: 'a, 'a>(
        &mut self,
        notify: &Notify<'a>,
        questions: &mut Questions<'p, 'a>,
        now: Timestamp,
    ) -> Result<(), Error> {
        let id = haproxy::Id::of(notify);
        let mut draft = questions.batch.draft();
        let asked = haproxy::question(notify, &mut self.arguments, |place, name, value| {
            let place = *place.get_or_insert_with(|| draft.place_of(name));
            draft.field_at(place, value);
        })?;
        match asked {
            Question::Verdict { wants_quota, may_hold } => {
                questions.batch.keep_draft();
                if may_hold {
                    questions.batch.may_hold_last();
                }
                questions.asked.push((id, wants_quota));
            }
            Question::Hold { delay, turn } => self.hold(id, delay, turn, now),
            Question::Abandoned(delay) => {
                self.agent.abandoned(delay, now);
                haproxy::answer_nothing(id, &mut self.out);
            }
            Question::End(ticket, ending) => {
                self.agent.end(ticket, ending, now);
                haproxy::answer_nothing(id, &mut self.out);
            }
            Question::Nothing => haproxy::answer_nothing(id, &mut self.out),
        }
        Ok(())
    }

    /// Decides a batch, observes the decisions, and writes the answers.
    fn answer_batch(&mut self, questions: &Questions<'_, '_>, decisions: &mut Decisions, now: Timestamp) {
        if questions.batch.is_empty() {
            return;
        }
        let Conversation { rng, out, agent, .. } = self;
        let batch = &questions.batch;

        agent.throttle.decide(batch, now, &mut || Sample::from_bits(rng.u64(..)), decisions);
        agent.observer.decided(batch, decisions, &agent.throttle, rng, |number| batch.fields(number));
        for (decided, &(id, wants_quota)) in decisions.iter().zip(&questions.asked) {
            let quota =
                if wants_quota { batch.policy().quota(decided.0.slo, decided.0.remaining) } else { None };
            haproxy::answer_verdict(id, decided, agent.secret, quota, out);
        }
    }

    /// Counts a hello or a disconnect. Other frames are not counted here.
    fn count(&mut self, kind: Kind) {
        match kind {
            // slowlane's own tools do not count as proxies.
            Kind::HAPROXY_HELLO if self.protocol.hello().is_some_and(|hello| hello.asks_for_name) => return,
            Kind::HAPROXY_HELLO => self.agent.metrics.frames.hello.inc(),
            Kind::HAPROXY_DISCONNECT => self.agent.metrics.frames.disconnect.inc(),
            _ => return,
        };
    }

    fn hold(&mut self, id: haproxy::Id, delay: Duration, turn: Option<(Key, u64)>, now: Timestamp) {
        let due = match turn {
            // A turn's number is the time of its decision. If the request has no place in the queue, its delay counts
            // from that time.
            Some((_, number)) => (Timestamp::from_nanos(number) + delay).min(now + delay),
            None => now + delay,
        };
        let latest = now + self.agent.holds.limits.hold_max;
        let placed = turn.and_then(|(key, number)| {
            let turn = self.agent.throttle.turn(key, number)?;
            // The bell must listen before the due time is read, because the turn may move at any time.
            self.bell.listen_to(&turn);
            Some(Placed { key, number, turn, latest })
        });
        match placed.as_ref().map_or(Some(due.min(latest)), Placed::due) {
            None => haproxy::answer_hold(id, self.agent.has_no_slot(), &mut self.out),
            Some(due) if due <= now => {
                self.passes(placed.as_ref(), now);
                haproxy::answer_hold(id, Verdict::Pass, &mut self.out);
            }
            Some(due) => self.hold_until(id, due, placed, now),
        }
    }

    fn hold_until(&mut self, id: haproxy::Id, due: Timestamp, turn: Option<Placed>, now: Timestamp) {
        match self.agent.place(now) {
            Ok(place) => {
                self.holds_begun += 1;
                self.held.insert((due, self.holds_begun), HeldAnswer { id, _place: place, turn });
            }
            Err(verdict) => {
                match &turn {
                    Some(Placed { key, number, .. }) if !verdict.is_let_through() => {
                        self.agent.throttle.leave(*key, *number, now);
                    }
                    turn => self.passes(turn.as_ref(), now),
                }
                haproxy::answer_hold(id, verdict, &mut self.out);
            }
        }
    }

    /// Reports that a held request passes.
    fn passes(&self, turn: Option<&Placed>, now: Timestamp) {
        if let Some(Placed { key, number, .. }) = turn {
            self.agent.throttle.pass(*key, *number, now);
        }
    }

    fn answer_all_held(&mut self) {
        for HeldAnswer { id, turn, .. } in mem::take(&mut self.held).into_values() {
            self.passes(turn.as_ref(), self.agent.clock.now());
            self.agent.metrics.frames.ack.inc();
            haproxy::answer_hold(id, Verdict::Pass, &mut self.out);
        }
    }

    /// Ends the conversation after an error of HAProxy.
    fn refuse(&mut self, error: Error) -> Close {
        let at = self.out.len();
        let close = self.protocol.refuse(error, &mut self.out);
        self.answer_held_before(at);
        close
    }

    /// Ends the conversation for a shutdown.
    pub fn leave(&mut self) {
        let at = self.out.len();
        self.protocol.leave(&mut self.out);
        self.answer_held_before(at);
    }

    /// Inserts all held answers into `out` at `at`, before the DISCONNECT, because HAProxy ignores all later answers.
    fn answer_held_before(&mut self, at: usize) {
        let goodbye = self.out.split_off(at);
        self.answer_all_held();
        self.out.extend(goodbye);
    }

    /// Counts and logs the reason why the connection closes, unless it is normal. Returns the step that closes it.
    fn close(&self, close: &Close, now: Timestamp) -> Next {
        let by = if close.error.is_some() { "slowlane" } else { "haproxy" };
        if close.status != Status::NORMAL {
            let error = groups::SpopError { status: close.status.assigned().code(), by };
            self.agent.metrics.plain.spop_errors.get_or_create(&error).inc();
        }
        // HAProxy up to 3.0 closes idle connections with the status timeout, which is not an error.
        let is_idle = close.status == Status::TIMEOUT && close.error.is_none();
        if close.status != Status::NORMAL && !is_idle {
            let reason = close.error.map(|error| error.to_string()).unwrap_or_default();
            let text = || format!("spop connection ended by {by}: {}: {reason}", close.status);
            self.agent.spop_error_line.warn(now, text);
        }
        Next::Close(close.late.then_some(REFUSAL_PAUSE))
    }
}

/// The held answers of a lost connection are dropped: HAProxy lets their requests pass.
impl Drop for Conversation {
    fn drop(&mut self) {
        let now = self.agent.clock.now();
        self.held.values().for_each(|answer| self.passes(answer.turn.as_ref(), now));
        self.agent.metrics.plain.holds_abandoned.inc_by(self.held.len() as u64);
    }
}
