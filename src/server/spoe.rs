//! One SPOP connection: bytes in, verdicts decided, ACKs out, held answers when they are due.

use std::collections::BTreeMap;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use arrayvec::ArrayVec;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, sleep_until, timeout};

use crate::base::draw::Draw;
use crate::base::time::Timestamp;
use crate::base::verdict::Verdict;
use crate::observe::log::OncePerSecond;
use crate::observe::metrics;
use crate::observe::status::Connected;
use crate::proxy::haproxy::{self, Question};
use crate::server::Agent;
use crate::server::holds::Place;
use crate::server::inbox::Inbox;
use crate::server::shutdown::Shutdown;
use crate::server::stream::Stream;
use crate::throttle::{DOCKET_MAX, Docket, Sitting};
use crate::wire::spop::{Close, Connection, Error, Frame, Kind, Notify, Status, Step};

/// HAProxy up to 3.0 repeats a refused handshake at once, thousands of times a second.
const REFUSAL_PAUSE: Duration = Duration::from_secs(1);

/// How long HAProxy may take to close a connection that was told to.
const GOODBYE: Duration = Duration::from_secs(1);

/// How often what has come in is read before a goodbye; a stream of questions without end is cut off.
const LAST_READS_MAX: usize = 16;

/// No more than this is written before HAProxy has taken it.
const OUT_BYTES_MAX: usize = 256 * 1024;

/// SPOP, as served on all its connections.
#[derive(Debug)]
pub struct Spoe {
    frame_bytes_max: u32,
    timeout: Duration,
    error_line: OncePerSecond,
}

impl Spoe {
    /// `timeout` bounds the wait for HAProxy: to say hello, to finish a frame that has begun, to take an
    /// answer.
    pub fn new(frame_bytes_max: u32, timeout: Duration) -> Spoe {
        Spoe { frame_bytes_max, timeout, error_line: OncePerSecond::default() }
    }

    pub async fn serve(self: Arc<Spoe>, stream: Stream, agent: Arc<Agent>, shutdown: Shutdown) {
        let protocol = Connection::new(self.frame_bytes_max);
        let started = agent.clock.now();
        let link = Link {
            stream,
            protocol,
            inbox: Inbox::new(self.frame_bytes_max),
            out: Vec::new(),
            held: Held::new(),
            holds: 0,
            dice: fastrand::Rng::new(),
            unfinished_since: Some(started),
            connected: None,
            spoe: self,
            agent,
            shutdown,
        };
        if let Err(error) = link.run().await {
            tracing::debug!("spop connection lost: {error}");
        }
    }
}

/// Answers that wait for their time, by that time; a number keeps those of the same time apart.
type Held = BTreeMap<(Timestamp, u64), (haproxy::Id, Place)>;

/// Requests that came together, and wait to be decided together.
#[derive(Default)]
struct Asked<'a> {
    /// With whether each wants to hear what its client is allowed.
    ids: ArrayVec<(haproxy::Id, bool), DOCKET_MAX>,
    docket: Docket<'a>,
}

/// Why a wait is over.
enum Wake {
    Bytes,
    Closed,
    Due,
    OutOfPatience,
    End,
}

/// The state of one connection.
struct Link {
    stream: Stream,
    protocol: Connection,
    inbox: Inbox,
    out: Vec<u8>,
    held: Held,
    /// How many answers have been held so far.
    holds: u64,
    dice: fastrand::Rng,
    /// Since when the other side owes us the rest of a frame, or its HELLO.
    unfinished_since: Option<Timestamp>,
    /// The engine that is connected, once it has said hello.
    connected: Option<Connected>,
    spoe: Arc<Spoe>,
    agent: Arc<Agent>,
    shutdown: Shutdown,
}

impl Link {
    async fn run(mut self) -> io::Result<()> {
        // One for all waits: to begin waiting for it costs more than to go on.
        let mut shutdown = self.shutdown.clone();
        let mut ending = pin!(shutdown.begun());
        loop {
            if let Some(close) = self.answer_frames() {
                return self.close(close).await;
            }
            if !self.held.is_empty() {
                self.answer_held(self.agent.clock.now());
            }
            self.flush().await?;
            match self.wait(ending.as_mut()).await? {
                Wake::Bytes | Wake::Due => {}
                Wake::Closed => return Ok(()),
                Wake::OutOfPatience => {
                    let close = self.refuse(Error::TimedOut);
                    return self.close(close).await;
                }
                Wake::End => return self.leave().await,
            }
        }
    }

    /// Answers every frame that is there. Some: the connection is to be closed.
    fn answer_frames(&mut self) -> Option<Close> {
        let now = self.agent.clock.now();
        let (agent, mut inbox) = (self.agent.clone(), std::mem::take(&mut self.inbox));
        let sitting = agent.throttle.sit();
        let (mut asked, mut used) = (Asked::default(), 0);
        let (mut finished, holds) = (0, self.holds);
        let close = loop {
            let (frame, bytes) = match Frame::cut(&inbox.bytes()[used..], self.protocol.frame_bytes_max()) {
                Ok(Some(cut)) => cut,
                Ok(None) => break None,
                Err(error) => {
                    self.decide(&sitting, &mut asked, now);
                    break Some(self.refuse(error));
                }
            };
            let (kind, answered) = (frame.head.kind, self.out.len());
            match self.protocol.receive(frame, &mut self.out) {
                Step::Continue => self.count(kind),
                Step::Notify(notify) => {
                    if let Err(error) = self.answer(&notify, &sitting, &mut asked, now) {
                        self.decide(&sitting, &mut asked, now);
                        break Some(self.refuse(error));
                    }
                    finished += 1;
                }
                Step::Close(close) => {
                    self.count(kind);
                    let goodbye = self.out.split_off(answered);
                    self.decide(&sitting, &mut asked, now);
                    self.answer_all_held();
                    self.out.extend(goodbye);
                    break Some(close);
                }
            }
            used += bytes;
        };
        self.decide(&sitting, &mut asked, now);
        drop(asked);
        inbox.consume(used);
        self.agent.metrics.frames.notify.inc_by(finished);
        self.agent.metrics.frames.ack.inc_by(finished - (self.holds - holds));
        self.unfinished_since = match inbox.bytes().is_empty() && self.protocol.hello().is_some() {
            true => None,
            false if finished > 0 => Some(now),
            false => self.unfinished_since.or(Some(now)),
        };
        self.inbox = inbox;
        close
    }

    /// Counts a frame that is no NOTIFY.
    fn count(&mut self, kind: Kind) {
        match kind {
            Kind::HaproxyHello => {
                let id = self.protocol.hello().and_then(|hello| hello.engine_id.as_deref());
                self.connected = Some(self.agent.status.engines.connected(id, &self.stream.peer()));
                self.agent.metrics.frames.hello.inc()
            }
            Kind::HaproxyDisconnect => self.agent.metrics.frames.disconnect.inc(),
            _ => return,
        };
    }

    /// Answers one NOTIFY: now, with the others that have come with it, or when its hold is over.
    fn answer<'a>(
        &mut self,
        notify: &Notify<'a>,
        sitting: &Sitting<'_>,
        asked: &mut Asked<'a>,
        now: Timestamp,
    ) -> Result<(), Error> {
        let id = haproxy::Id::of(notify);
        let mut filing = sitting.file(&mut asked.docket);
        match haproxy::question(notify, |name, value| filing.field(name, value))? {
            question @ (Question::Verdict | Question::VerdictAndPolicy) => {
                asked.ids.push((id, question == Question::VerdictAndPolicy));
                let has_room = sitting.enter(&mut asked.docket);
                if !has_room {
                    self.decide(sitting, asked, now);
                }
            }
            Question::Hold(delay) => self.hold(id, delay, now),
            Question::End(ticket) => {
                self.agent.throttle.end(&ticket, now);
                haproxy::answer_nothing(id, &mut self.out);
            }
            Question::Nothing => haproxy::answer_nothing(id, &mut self.out),
        }
        Ok(())
    }

    /// Decides what has been asked so far.
    fn decide(&mut self, sitting: &Sitting<'_>, asked: &mut Asked<'_>, now: Timestamp) {
        let Link { dice, out, agent, .. } = self;
        let draw = || Draw::from_bits(dice.u64(..));
        sitting.decide(&asked.docket, now, draw, |number, decision| {
            agent.metrics.verdicts.count(decision);
            if decision.is_throttled() {
                agent.status.throttled.note(decision, fastrand::u32(..), |slo, label| {
                    sitting.facts(&asked.docket, number, slo, |fact| label.push(fact));
                });
            }
            agent.log(decision, now, || sitting.fields(&asked.docket, number));
            match asked.ids[number] {
                (id, false) => haproxy::answer_verdict(id, decision, out),
                (id, true) => {
                    let quota = agent.throttle.quota(decision);
                    haproxy::answer_verdict_and_policy(id, decision, quota, out);
                }
            }
        });
        asked.ids.clear();
        asked.docket.clear();
    }

    fn hold(&mut self, id: haproxy::Id, delay: Duration, now: Timestamp) {
        let delay = self.agent.holds.bounded(delay);
        if delay.is_zero() {
            return haproxy::answer_hold(id, Verdict::Pass, &mut self.out);
        }
        match self.agent.place() {
            Ok(place) => {
                self.holds += 1;
                self.held.insert((now + delay, self.holds), (id, place));
            }
            Err(verdict) => haproxy::answer_hold(id, verdict, &mut self.out),
        }
    }

    /// Answers what is due, as far as there is room to write it.
    fn answer_held(&mut self, now: Timestamp) {
        while let Some(first) = self.held.first_entry() {
            if first.key().0 > now || self.out.len() > OUT_BYTES_MAX {
                return;
            }
            let (id, _) = first.remove();
            self.agent.metrics.frames.ack.inc();
            haproxy::answer_hold(id, Verdict::Pass, &mut self.out);
        }
    }

    /// Answers all that is held, ahead of what stands in `out` from `at` on: HAProxy takes no more answers
    /// after a goodbye.
    fn answer_held_before(&mut self, at: usize) {
        let goodbye = self.out.split_off(at);
        self.answer_all_held();
        self.out.extend(goodbye);
    }

    fn answer_all_held(&mut self) {
        for (id, _) in std::mem::take(&mut self.held).into_values() {
            self.agent.metrics.frames.ack.inc();
            haproxy::answer_hold(id, Verdict::Pass, &mut self.out);
        }
    }

    fn refuse(&mut self, error: Error) -> Close {
        let at = self.out.len();
        let close = self.protocol.refuse(error, &mut self.out);
        self.answer_held_before(at);
        close
    }

    /// Writes what there is to say, in one piece.
    async fn flush(&mut self) -> io::Result<()> {
        if self.out.is_empty() {
            return Ok(());
        }
        // Most often it is taken at once, and nobody needs a timer.
        let written = match self.stream.try_write(&self.out) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            written => written.unwrap_or(0),
        };
        if written < self.out.len() {
            timeout(self.spoe.timeout, self.stream.write_all(&self.out[written..])).await??;
        }
        self.out.clear();
        Ok(())
    }

    /// Waits for bytes, for the next held answer, for the end of patience, or for the end of it all.
    async fn wait(&mut self, ending: Pin<&mut impl Future<Output = ()>>) -> io::Result<Wake> {
        let due = self.held.first_key_value().map(|(&(due, _), _)| due);
        let patience = self.unfinished_since.map(|since| since + self.spoe.timeout);
        let alarm = match (due, patience) {
            (Some(due), Some(patience)) => Some(due.min(patience)),
            (due, patience) => due.or(patience),
        };
        let clock = self.agent.clock;
        let alarm = async {
            match alarm {
                Some(alarm) => sleep_until(clock.instant(alarm).into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            // First, or a stream of questions without end would hold up the end.
            () = ending => Ok(Wake::End),
            bytes = self.stream.read(self.inbox.space()) => match bytes? {
                0 => Ok(Wake::Closed),
                bytes => {
                    self.inbox.filled(bytes);
                    Ok(Wake::Bytes)
                }
            },
            () = alarm => {
                let out_of_patience = patience.is_some_and(|patience| patience <= clock.now());
                Ok(if out_of_patience { Wake::OutOfPatience } else { Wake::Due })
            }
        }
    }

    /// Ends it from our side: everything in flight is answered, also what has come in and was not read yet, then HAProxy is told to close.
    async fn leave(mut self) -> io::Result<()> {
        for _ in 0..LAST_READS_MAX {
            let read = tokio::select! {
                biased;
                read = self.stream.read(self.inbox.space()) => read?,
                () = std::future::ready(()) => 0,
            };
            if read == 0 {
                break;
            }
            self.inbox.filled(read);
            if let Some(close) = self.answer_frames() {
                return self.close(close).await;
            }
        }
        let at = self.out.len();
        self.protocol.leave(&mut self.out);
        self.answer_held_before(at);
        self.flush().await?;
        self.linger().await
    }

    /// Says what the protocol left to be said, and closes.
    async fn close(mut self, close: Close) -> io::Result<()> {
        if close.status != Status::NORMAL {
            self.report(&close);
        }
        if close.late {
            tokio::select! {
                () = sleep(REFUSAL_PAUSE) => {}
                () = self.shutdown.begun() => {}
            }
        }
        self.flush().await?;
        self.stream.shutdown().await?;
        self.linger().await
    }

    fn report(&self, close: &Close) {
        let by = if close.error.is_some() { "slowlane" } else { "haproxy" };
        let error = metrics::SpopError { status: close.status.assigned().code(), by };
        self.agent.metrics.spop_errors.get_or_create(&error).inc();
        // HAProxy up to 3.0 gives a timeout as the reason when it closes an idle connection.
        if close.status == Status::TIMEOUT && close.error.is_none() {
            return;
        }
        if let Some(unsaid) = self.spoe.error_line.allow(self.agent.clock.now()) {
            let reason = close.error.map(|error| error.to_string()).unwrap_or_default();
            tracing::warn!(unsaid, "spop connection ended by {by}: {}: {reason}", close.status);
        }
    }

    /// Reads what HAProxy may still send until it closes: closing on unread bytes would reset the
    /// connection, and the last answers with it.
    async fn linger(mut self) -> io::Result<()> {
        let closed = async {
            self.inbox.clear();
            while self.stream.read(self.inbox.space()).await? > 0 {}
            io::Result::Ok(())
        };
        timeout(GOODBYE, closed).await.unwrap_or(Ok(()))
    }
}
