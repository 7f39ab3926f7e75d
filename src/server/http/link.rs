//! One connection to the HTTP check: its socket, its read buffer and its timers.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::{Sleep, sleep, timeout};

use crate::http::HEAD_BYTES_MAX;
use crate::server::agent::Agent;
use crate::server::http::conversation::{Conversation, Next};
use crate::server::inbox::Inbox;
use crate::server::shutdown::{Shutdown, Signal};
use crate::server::stream::{Stream, drain};
use crate::server::transfer::{State, Transfer};
use slowlane_core::base::time::Timestamp;

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
    /// The longest wait for a whole request, and for a client that reads nothing.
    patience: Duration,
    /// The moment of the last request, or of the answer to one that was held.
    quiet_since: Timestamp,
    agent: Arc<Agent>,
    shutdown: Shutdown,
}

impl Link {
    pub(super) fn new(
        stream: Stream,
        unread: &[u8],
        conversation: Conversation,
        patience: Duration,
        agent: Arc<Agent>,
        shutdown: Shutdown,
    ) -> Link {
        let quiet_since = agent.clock.now();
        let inbox = Inbox::with(HEAD_BYTES_MAX as u32, unread);
        Link { stream, inbox, conversation, patience, quiet_since, agent, shutdown }
    }

    /// Serves until the client closes, sends no whole request or reads no answer for too long, or the shutdown begins.
    pub(super) async fn run(mut self) -> io::Result<()> {
        // Single futures for all waits: polling them again is cheaper than creating them.
        let signal = self.shutdown.signal();
        let (mut ending, mut idle) = (pin!(signal.begun()), pin!(sleep(self.patience)));
        loop {
            let next = self.answer();
            if !self.flush_unless(ending.as_mut()).await? {
                return self.stop(&signal).await;
            }
            match next {
                Next::Wait => {}
                Next::Write => continue,
                Next::Close => return self.close(&signal).await,
            }
            match self.wait(idle.as_mut(), ending.as_mut()).await? {
                Wake::Bytes => {}
                Wake::Due => self.release(),
                Wake::Closed | Wake::WriteTimedOut => return Ok(()),
                Wake::End => return self.stop(&signal).await,
            }
        }
    }

    /// Answers the whole requests in the read buffer.
    fn answer(&mut self) -> Next {
        let now = self.agent.clock.now();
        let used = self.conversation.answer(self.inbox.bytes_mut(), now);
        self.inbox.consume(used.bytes);
        if used.requests > 0 {
            self.quiet_since = now;
        }
        used.next
    }

    fn release(&mut self) {
        let now = self.agent.clock.now();
        self.conversation.release(now);
        self.quiet_since = now;
    }

    /// Writes all pending answers. False: the shutdown began first.
    async fn flush_unless(&mut self, ending: Pin<&mut impl Future<Output = ()>>) -> io::Result<bool> {
        self.conversation.outbox().flush_unless(&mut self.stream, self.patience, ending).await
    }

    /// Waits for bytes, for the end of a hold or of the patience, or for the shutdown.
    async fn wait(
        &mut self,
        mut idle: Pin<&mut Sleep>,
        ending: Pin<&mut impl Future<Output = ()>>,
    ) -> io::Result<Wake> {
        let Link { stream, inbox, conversation, patience, quiet_since, agent, .. } = self;
        let (due, clock, impatient) = (conversation.due(), agent.clock, *quiet_since + *patience);
        // Pinned where it is made: it is too large to be moved for each question.
        let alarm = pin!(async {
            match due {
                Some(due) => {
                    agent.holds.until(clock.instant(due)).await;
                    Wake::Due
                }
                None => loop {
                    idle.as_mut().await;
                    if impatient <= clock.now() {
                        return Wake::WriteTimedOut;
                    }
                    // Set forward only when it rings: most requests come long before.
                    idle.as_mut().reset(clock.instant(impatient).into());
                },
            }
        });
        // Requests behind a held one may fill the buffer.
        let has_room = !inbox.space().is_empty();
        tokio::select! {
            biased;
            // First, because an endless stream of questions would delay the shutdown.
            () = ending => Ok(Wake::End),
            bytes = inbox.read(stream), if has_room => Ok(if bytes? == 0 { Wake::Closed } else { Wake::Bytes }),
            wake = alarm => Ok(wake),
        }
    }

    /// Ends the connection for a shutdown, or passes it on to the next process, unless an answer is on its way. The
    /// state of TLS cannot be passed on.
    async fn stop(mut self, signal: &Signal) -> io::Result<()> {
        let is_quiet = self.conversation.due().is_none() && !self.conversation.has_answers();
        if is_quiet
            && !self.stream.is_tls()
            && let Some(handover) = self.shutdown.handover()
        {
            let unread = self.inbox.bytes().to_vec();
            handover.pass_on(Transfer { stream: self.stream, state: State::Http(unread) });
            return Ok(());
        }
        self.conversation.end(self.agent.clock.now());
        if is_quiet {
            self.inbox.read_at_once(&mut self.stream).await?;
            self.answer();
        }
        self.shutdown.decides_no_more();
        if self.conversation.due().is_some() && !self.hold_on(signal).await? {
            return Ok(());
        }
        self.close(signal).await
    }

    /// Holds the last answer until it is due, or all connections are to be closed. False: the client left before.
    async fn hold_on(&mut self, signal: &Signal) -> io::Result<bool> {
        let (mut idle, mut ended) = (pin!(sleep(self.patience)), pin!(signal.ended()));
        loop {
            match self.wait(idle.as_mut(), ended.as_mut()).await? {
                Wake::Bytes | Wake::WriteTimedOut => {}
                Wake::Closed => return Ok(false),
                Wake::Due | Wake::End => {
                    self.release();
                    return Ok(true);
                }
            }
        }
    }

    /// Writes the last answers and closes.
    async fn close(mut self, signal: &Signal) -> io::Result<()> {
        self.shutdown.decides_no_more();
        self.conversation.outbox().flush(&mut self.stream, self.patience).await?;
        timeout(self.patience, self.stream.shutdown()).await??;
        signal.unless_begun(drain(self.stream)).await;
        Ok(())
    }
}
