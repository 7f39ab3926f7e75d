//! One connection: its socket, its buffers and its timers, for any protocol.

use std::future::poll_fn;
use std::io::{self, Read};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Sleep, sleep, sleep_until, timeout};

use crate::server::{Agent, Bell, Shutdown, Signal, Stream, Transfer, TransferState, drain};
use slowlane_core::base::Timestamp;

/// A protocol that turns bytes into answers, without a socket or a clock.
pub(super) trait Protocol {
    /// Whether the peer closes first after a goodbye, as HAProxy does after a DISCONNECT.
    const HAS_GOODBYE: bool;

    /// Answers the complete queries at the beginning of `bytes`. Returns the number of bytes used.
    fn read(&mut self, bytes: &mut [u8], now: Timestamp) -> (usize, Next);

    /// The bytes that the socket has not accepted yet. They may begin within an answer.
    fn out(&mut self) -> &mut Vec<u8>;

    /// The moment at which the next held answer is due.
    fn due(&self) -> Option<Timestamp>;

    /// The bell that rings when the due time of a held answer has moved. `None` if no held answer can move.
    fn bell(&self) -> Option<Arc<Bell>>;

    /// Called when the bell has rung.
    fn moved(&mut self);

    /// Writes the held answers that are due. A protocol with a single held answer writes it even if it is not due yet.
    fn release(&mut self, now: Timestamp);

    /// When the connection began to wait for bytes that must arrive within a time limit. `None` if it may wait forever.
    fn waits_since(&self) -> Option<Timestamp>;

    /// Called when the connection has waited too long.
    fn time_out(&mut self, now: Timestamp) -> Next;

    /// The state for the next process, with the bytes that were read but not used. `None` if this process must answer
    /// first.
    fn state(&mut self, unread: &[u8]) -> Option<TransferState>;

    /// Begins to close the connection. Returns the maximum number of additional reads, which cuts off an endless stream
    /// of queries.
    fn begin_end(&mut self, now: Timestamp) -> usize;

    /// If the protocol has a goodbye, answers everything that is held, and appends the goodbye.
    fn say_goodbye(&mut self);
}

/// The next step of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Write the answers, and wait for more bytes or for the end of a hold.
    Wait,
    /// Write the answers, then read on, because some queries are not answered yet.
    Write,
    /// Write the answers and close, after this pause.
    Close(Option<Duration>),
    /// Write the answers and close. All bytes of the peer have been read, so nothing is left to drain.
    Done,
    /// Close at once.
    Drop,
}

impl Next {
    /// The pause before a close.
    fn pause(self) -> Option<Duration> {
        if let Next::Close(pause) = self { pause } else { None }
    }
}

/// The reason why a wait has ended.
enum Wake {
    Bytes,
    Closed,
    Due,
    /// The due time of a held answer has moved.
    Moved,
    TimedOut,
    End,
}

/// The state of one connection.
pub(super) struct Connection<P> {
    pub(super) stream: Stream,
    pub(super) inbox: Inbox,
    pub(super) protocol: P,
    /// The longest wait for bytes that must arrive ([`Protocol::waits_since`]), and for a peer to read an answer.
    pub(super) patience: Duration,
    pub(super) agent: Arc<Agent>,
    pub(super) shutdown: Shutdown,
}

impl<P: Protocol> Connection<P> {
    /// Serves the connection until either side closes it, the peer is too slow, or the shutdown begins.
    pub(super) async fn run(mut self) -> io::Result<()> {
        self.inbox.read_fresh(&self.stream)?;
        let since = self.protocol.waits_since().unwrap_or_else(|| self.agent.clock.now());
        let patience = self.agent.clock.instant(since + self.patience);
        // The same two futures serve all waits, because polling them again is cheaper than creating new ones. The
        // futures that end the connection are boxed, so that no connection reserves room for them.
        let signal = self.shutdown.signal.clone();
        let (mut ending, mut idle) = (pin!(signal.begun()), pin!(sleep_until(patience.into())));
        loop {
            let mut next = self.read();
            if matches!(next, Next::Wait | Next::Write) && !self.flush_unless(ending.as_mut()).await? {
                return Box::pin(self.stop(&signal)).await;
            }
            if next == Next::Wait {
                match self.wait(idle.as_mut(), ending.as_mut()).await? {
                    Wake::Bytes | Wake::Due => {}
                    Wake::Moved => self.protocol.moved(),
                    Wake::Closed => return Ok(()),
                    Wake::TimedOut => next = self.protocol.time_out(self.agent.clock.now()),
                    Wake::End => return Box::pin(self.stop(&signal)).await,
                }
            }
            match next {
                Next::Wait | Next::Write => {}
                Next::Done if !matches!(self.stream, Stream::Tls(_)) => {
                    self.shutdown.decides_no_more();
                    return if self.flush_at_once()? { Ok(()) } else { self.flush().await };
                }
                Next::Close(_) | Next::Done => {
                    return Box::pin(self.close(next.pause(), true, &signal)).await;
                }
                Next::Drop => return Ok(()),
            }
        }
    }

    /// Writes the held answers that are due, and answers the queries in the read buffer.
    fn read(&mut self) -> Next {
        let now = self.agent.clock.now();
        if self.protocol.due().is_some_and(|due| due <= now) {
            self.protocol.release(now);
        }
        let (bytes, next) = self.protocol.read(self.inbox.bytes_mut(), now);
        self.inbox.consume(bytes);
        next
    }

    /// Waits for bytes, for a held answer to become due or to move, for the timeout, or for the shutdown.
    async fn wait(
        &mut self,
        mut idle: Pin<&mut Sleep>,
        ending: Pin<&mut impl Future<Output = ()>>,
    ) -> io::Result<Wake> {
        let Connection { stream, inbox, protocol, patience, agent, .. } = self;
        let (due, bell, clock) = (protocol.due(), protocol.bell(), agent.clock);
        let impatient = protocol.waits_since().map(|since| since + *patience);
        // Pinned in place, because the future is too large to be moved for each query.
        let alarm = pin!(async {
            match (due, impatient) {
                (Some(due), _) if impatient.is_none_or(|impatient| due < impatient) => {
                    agent.holds.until(clock.instant(due)).await;
                    Wake::Due
                }
                (_, Some(impatient)) => loop {
                    idle.as_mut().await;
                    if impatient <= clock.now() {
                        return Wake::TimedOut;
                    }
                    // The timer is reset only when it fires, because most queries arrive long before that.
                    idle.as_mut().reset(clock.instant(impatient).into());
                },
                (_, None) => std::future::pending().await,
            }
        });
        let rung = poll_fn(|context| bell.as_ref().map_or(Poll::Pending, |bell| bell.poll_rung(context)));
        // Requests behind a held request may fill the buffer.
        let has_room = !inbox.space().is_empty();
        tokio::select! {
            biased;
            // Polled first, because an endless stream of queries would delay the shutdown.
            () = ending => Ok(Wake::End),
            bytes = inbox.read(stream), if has_room => Ok(if bytes? == 0 { Wake::Closed } else { Wake::Bytes }),
            wake = alarm => Ok(wake),
            () = rung => Ok(Wake::Moved),
        }
    }

    /// Ends the connection for a shutdown, or passes it on to the next process. The state of TLS cannot be passed on.
    async fn stop(mut self, signal: &Signal) -> io::Result<()> {
        if !matches!(self.stream, Stream::Tls(_))
            && let Some(handover) = self.shutdown.handover()
            && let Some(state) = self.protocol.state(self.inbox.bytes())
        {
            handover.pass_on(Transfer { stream: self.stream, state });
            return Ok(());
        }
        // Queries that have not been read yet are answered, too.
        for _ in 0..self.protocol.begin_end(self.agent.clock.now()) {
            let bytes = self.inbox.read_at_once(&mut self.stream).await?;
            let next = self.read();
            if matches!(next, Next::Close(_) | Next::Done) {
                return self.close(next.pause(), true, signal).await;
            }
            if bytes == 0 {
                break;
            }
        }
        self.protocol.say_goodbye();
        self.shutdown.decides_no_more();
        if self.protocol.due().is_some() && !self.hold_on(signal).await? {
            return Ok(());
        }
        self.close(None, !P::HAS_GOODBYE, signal).await
    }

    /// Holds the last answer until it is due or all connections must close. Returns false if the peer leaves first.
    async fn hold_on(&mut self, signal: &Signal) -> io::Result<bool> {
        let (mut idle, mut ended) = (pin!(sleep(self.patience)), pin!(signal.ended()));
        loop {
            match self.wait(idle.as_mut(), ended.as_mut()).await? {
                Wake::Bytes | Wake::TimedOut | Wake::Moved => {}
                Wake::Closed => return Ok(false),
                Wake::Due | Wake::End => {
                    self.protocol.release(self.agent.clock.now());
                    return Ok(true);
                }
            }
        }
    }

    /// Writes the last answers and closes.
    async fn close(mut self, pause: Option<Duration>, half_close: bool, signal: &Signal) -> io::Result<()> {
        self.shutdown.decides_no_more();
        if let Some(pause) = pause {
            signal.unless_begun(sleep(pause)).await;
        }
        self.flush().await?;
        if half_close {
            timeout(self.patience, self.stream.shutdown()).await??;
        }
        match P::HAS_GOODBYE {
            true => drain(self.stream).await,
            false => drop(signal.unless_begun(drain(self.stream)).await),
        }
        Ok(())
    }

    /// Writes all answers, usually in one write. Returns false if `ending` completed first.
    async fn flush_unless(&mut self, ending: Pin<&mut impl Future<Output = ()>>) -> io::Result<bool> {
        // Usually the socket accepts everything at once, and no timer is needed.
        if self.flush_at_once()? {
            return Ok(true);
        }
        tokio::select! {
            biased;
            written = self.flush() => written.map(|()| true),
            () = ending => Ok(false),
        }
    }

    /// Writes the answers that the socket accepts at once. Returns false if some are left.
    fn flush_at_once(&mut self) -> io::Result<bool> {
        let out = self.protocol.out();
        if !out.is_empty() {
            match self.stream.try_write(out) {
                Ok(written) => drop(out.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(out.is_empty())
    }

    /// Writes all answers within the timeout. If the future is dropped, unwritten bytes stay in the buffer.
    async fn flush(&mut self) -> io::Result<()> {
        let (stream, out) = (&mut self.stream, self.protocol.out());
        let flushed = async {
            while !out.is_empty() {
                match stream.write(out).await? {
                    0 => return Err(io::ErrorKind::WriteZero.into()),
                    written => drop(out.drain(..written)),
                }
            }
            // Bytes that TLS has accepted may not have been sent yet.
            stream.flush().await
        };
        timeout(self.patience, flushed).await?
    }
}

/// The initial size of the read buffer: room for a few queries. Most connections never need more.
const READ_BYTES_MIN: usize = 1000;

/// The size to which the buffer of a busy connection grows. Only a longer frame needs more.
const READ_BYTES_MAX: usize = 16 * 1024;

/// A first-in, first-out buffer. Its maximum size is that of the longest frame, but at least [`READ_BYTES_MAX`].
///
/// ```text
///  │ used │ bytes() ······ │ space() ······ │
///         ▲ consume        ▲ filled
/// ```
#[derive(Debug, Default)]
pub(super) struct Inbox {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    bytes_max: usize,
    /// Whether the last read filled all the space.
    is_small: bool,
}

impl Inbox {
    pub(super) fn new(frame_bytes_max: u32) -> Inbox {
        let bytes_max = (frame_bytes_max as usize + size_of::<u32>()).max(READ_BYTES_MAX);
        Inbox { buffer: vec![0; READ_BYTES_MIN], bytes_max, ..Inbox::default() }
    }

    /// A buffer that begins with bytes that were read before.
    pub(super) fn with(frame_bytes_max: u32, unread: &[u8]) -> Inbox {
        let mut inbox = Inbox::new(frame_bytes_max);
        inbox.buffer.resize(inbox.buffer.len().max(unread.len()), 0);
        inbox.buffer[..unread.len()].copy_from_slice(unread);
        Inbox { end: unread.len(), ..inbox }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }

    pub(super) fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Reads once from a fresh socket, because often the only query of the connection has already arrived.
    fn read_fresh(&mut self, stream: &Stream) -> io::Result<()> {
        let Stream::Fresh(Some(socket)) = stream else { return Ok(()) };
        match (&*socket).read(self.space()) {
            Ok(bytes) => self.filled(bytes),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Reads once, and returns the number of bytes, or 0 if the peer has closed.
    pub(super) async fn read(&mut self, stream: &mut Stream) -> io::Result<usize> {
        let bytes = stream.read(self.space()).await?;
        self.filled(bytes);
        Ok(bytes)
    }

    /// Reads as many of the available bytes as there is room for.
    pub(super) async fn read_at_once(&mut self, stream: &mut Stream) -> io::Result<usize> {
        if self.space().is_empty() { Ok(0) } else { self.read(stream).now_or_never().unwrap_or(Ok(0)) }
    }

    /// The space for the next read. It is empty only if the buffer is full and has reached its maximum size.
    pub(super) fn space(&mut self) -> &mut [u8] {
        if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let is_small = std::mem::take(&mut self.is_small) && self.buffer.len() < READ_BYTES_MAX;
        if is_small || self.end == self.buffer.len() {
            let doubled = (self.buffer.len() * 2).min(self.bytes_max);
            self.buffer.resize(doubled, 0);
        }
        &mut self.buffer[self.end..]
    }

    fn filled(&mut self, bytes: usize) {
        self.end += bytes;
        self.is_small = self.end == self.buffer.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in_whatever_the_steps() {
        let mut inbox = Inbox::new(20_000);
        let (mut written, mut read) = (0u32, 0u32);
        for step in 1..2_000usize {
            let space = inbox.space();
            let bytes = space.len().min(step * 7 % 5_000);
            for byte in &mut space[..bytes] {
                *byte = written as u8;
                written += 1;
            }
            inbox.filled(bytes);
            let used = inbox.bytes().len().min(step * 11 % 5_000);
            for &byte in &inbox.bytes()[..used] {
                assert_eq!(byte, read as u8);
                read += 1;
            }
            inbox.consume(used);
        }
        assert!(read > 1_000_000);
        assert!(inbox.buffer.len() <= 20_004);
    }
}
