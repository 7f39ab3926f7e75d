//! One SPOP connection: its socket, its read buffer and its timers.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::{sleep, sleep_until, timeout};

use crate::observe::log::OncePerSecond;
use crate::observe::metrics;
use crate::server::agent::Agent;
use crate::server::inbox::Inbox;
use crate::server::shutdown::Shutdown;
use crate::server::spoe::conversation::Conversation;
use crate::server::spop_state::SpopState;
use crate::server::stream::{Stream, drain};
use crate::server::transfer::{State, Transfer};
use slowlane_core::base::time::Timestamp;
use spop::{Close, Error, Status};

/// The pause before a refused handshake is answered. HAProxy up to 3.0 repeats it at once, thousands of times a second.
const REFUSAL_PAUSE: Duration = Duration::from_secs(1);

/// The most further reads before a DISCONNECT: an endless stream of questions is cut off.
const LAST_READS_MAX: usize = 16;

/// The settings shared by all connections.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) frame_bytes_max: u32,
    pub(super) timeout: Duration,
    pub(super) error_line: OncePerSecond,
}

/// The reason that a wait is over.
enum Wake {
    Bytes,
    Closed,
    Due,
    WriteTimedOut,
    End,
}

/// The state of one connection.
pub(super) struct Link {
    stream: Stream,
    inbox: Inbox,
    conversation: Conversation,
    /// The moment since which a frame, or the HELLO, is incomplete.
    unfinished_since: Option<Timestamp>,
    settings: Arc<Settings>,
    agent: Arc<Agent>,
    shutdown: Shutdown,
}

impl Link {
    pub(super) fn new(
        stream: Stream,
        spop_state: SpopState,
        settings: Arc<Settings>,
        agent: Arc<Agent>,
        shutdown: Shutdown,
    ) -> Link {
        let (now, frame_bytes_max) = (agent.clock.now(), settings.frame_bytes_max);
        // What an earlier process has agreed may be more than this one's limit.
        let agreed = spop_state.agreed.as_ref().map_or(0, |agreed| agreed.frame_bytes_max);
        let inbox = Inbox::with(frame_bytes_max.max(agreed), &spop_state.unread);
        let unfinished_since =
            if spop_state.agreed.is_some() { spop_state.unfinished_since } else { Some(now) };
        let conversation = Conversation::new(agent.clone(), frame_bytes_max, stream.peer());
        let conversation = conversation.going_on(spop_state, now);
        Link { stream, inbox, conversation, unfinished_since, settings, agent, shutdown }
    }

    pub(super) async fn run(mut self) -> io::Result<()> {
        // A single future for all waits: polling it again is cheaper than creating it.
        let signal = self.shutdown.signal();
        let mut ending = pin!(signal.begun());
        loop {
            if let Some(close) = self.answer() {
                return self.close(close).await;
            }
            if self.conversation.due().is_some() {
                self.conversation.answer_held(self.agent.clock.now());
            }
            if !self.flush_unless(ending.as_mut()).await? {
                return self.stop().await;
            }
            match self.wait(ending.as_mut()).await? {
                Wake::Bytes | Wake::Due => {}
                Wake::Closed => {
                    self.conversation.lost();
                    return Ok(());
                }
                Wake::WriteTimedOut => {
                    let close = self.conversation.refuse(Error::TimedOut);
                    return self.close(close).await;
                }
                Wake::End => return self.stop().await,
            }
        }
    }

    /// Answers the frames in the read buffer. `Some`: close the connection.
    fn answer(&mut self) -> Option<Close> {
        let now = self.agent.clock.now();
        let used = self.conversation.answer(self.inbox.bytes(), now);
        self.inbox.consume(used.bytes);
        self.unfinished_since = match self.inbox.bytes().is_empty() && self.conversation.is_greeted() {
            true => None,
            false if used.notified > 0 => Some(now),
            false => self.unfinished_since.or(Some(now)),
        };
        used.close
    }

    /// Writes all pending answers. False: the shutdown began first.
    async fn flush_unless(&mut self, ending: Pin<&mut impl Future<Output = ()>>) -> io::Result<bool> {
        self.conversation.outbox().flush_unless(&mut self.stream, self.settings.timeout, ending).await
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.conversation.outbox().flush(&mut self.stream, self.settings.timeout).await
    }

    /// Ends the connection for a shutdown, or passes it on to the next process. The state of TLS cannot be passed on.
    async fn stop(self) -> io::Result<()> {
        if !self.stream.is_tls()
            && let Some(handover) = self.shutdown.handover()
        {
            let unread = self.inbox.bytes().to_vec();
            let spop_state = self.conversation.into_talk(unread, self.unfinished_since);
            handover.pass_on(Transfer { stream: self.stream, state: State::Spop(spop_state) });
            return Ok(());
        }
        self.leave().await
    }

    /// Waits for bytes, for the next held answer, for the timeout, or for the shutdown.
    async fn wait(&mut self, ending: Pin<&mut impl Future<Output = ()>>) -> io::Result<Wake> {
        let Link { stream, inbox, conversation, unfinished_since, settings, agent, .. } = self;
        let (due, clock) = (conversation.due(), agent.clock);
        let patience = unfinished_since.map(|since| since + settings.timeout);
        let is_patient = patience.is_none_or(|patience| due.is_some_and(|due| due < patience));
        // Pinned where it is made: it is too large to be moved for each question.
        let alarm = pin!(async {
            match (due, patience) {
                (Some(due), _) if is_patient => agent.holds.until(clock.instant(due)).await,
                (_, Some(patience)) => sleep_until(clock.instant(patience).into()).await,
                (_, None) => std::future::pending().await,
            }
        });
        tokio::select! {
            biased;
            // First, because an endless stream of questions would delay the shutdown.
            () = ending => Ok(Wake::End),
            bytes = inbox.read(stream) => Ok(if bytes? == 0 { Wake::Closed } else { Wake::Bytes }),
            () = alarm => {
                let write_timed_out = patience.is_some_and(|patience| patience <= clock.now());
                Ok(if write_timed_out { Wake::WriteTimedOut } else { Wake::Due })
            }
        }
    }

    /// Ends the connection for a shutdown: answers all questions, also unread ones, and sends a DISCONNECT.
    async fn leave(mut self) -> io::Result<()> {
        for _ in 0..LAST_READS_MAX {
            if self.inbox.read_at_once(&mut self.stream).await? == 0 {
                break;
            }
            if let Some(close) = self.answer() {
                return self.close(close).await;
            }
        }
        self.conversation.leave();
        self.shutdown.decides_no_more();
        self.flush().await?;
        drain(self.stream).await;
        Ok(())
    }

    /// Writes the last answers and closes.
    async fn close(mut self, close: Close) -> io::Result<()> {
        self.shutdown.decides_no_more();
        if close.status != Status::NORMAL {
            self.report(&close);
        }
        if close.late {
            self.shutdown.unless_begun(sleep(REFUSAL_PAUSE)).await;
        }
        self.flush().await?;
        timeout(self.settings.timeout, self.stream.shutdown()).await??;
        drain(self.stream).await;
        Ok(())
    }

    fn report(&self, close: &Close) {
        let by = if close.error.is_some() { "slowlane" } else { "haproxy" };
        let error = metrics::SpopError { status: close.status.assigned().code(), by };
        self.agent.metrics.spop_errors.get_or_create(&error).inc();
        // HAProxy up to 3.0 closes idle connections with the status timeout, which is not an error.
        if close.status == Status::TIMEOUT && close.error.is_none() {
            return;
        }
        if let Some(suppressed) = self.settings.error_line.allow(self.agent.clock.now()) {
            let reason = close.error.map(|error| error.to_string()).unwrap_or_default();
            tracing::warn!(suppressed, "spop connection ended by {by}: {}: {reason}", close.status);
        }
    }
}
