//! The queue of log lines, and the thread that writes them.

use std::cell::RefCell;
use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

/// The most queued lines, about 150 bytes each.
pub(super) const QUEUE_MAX: usize = 1024;

/// The longest wait of a shutdown for the queue to take the flush, and as long again for the flush itself.
const GOODBYE: Duration = Duration::from_secs(1);

/// The interval of attempts while the queue, or a standard error that does not block, is full.
const AGAIN: Duration = Duration::from_millis(10);

enum Message {
    Line(Vec<u8>),
    /// Reply when all earlier lines are written.
    Flush(SyncSender<()>),
}

/// Handle used by all threads. It never waits: a full queue drops the line and counts it.
#[derive(Clone)]
pub(super) struct Queue {
    messages: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

thread_local! {
    /// In the thread that writes: its own lines. They do not pass through the queue.
    static OWN: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

impl Queue {
    /// Starts the thread that writes to `out`.
    pub(super) fn start(out: impl Write + Send + 'static) -> io::Result<Queue> {
        let (messages, received) = sync_channel(QUEUE_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let writer = Writer { out, dropped: dropped.clone(), told: 0, since_told: 0, is_torn: false };
        thread::Builder::new().name("log".into()).spawn(move || writer.run(&received))?;
        Ok(Queue { messages, dropped })
    }

    /// The lines that were dropped so far.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// Waits until the queued lines are written, two seconds at most.
    pub(super) fn flush(&self) {
        let (done, is_done) = sync_channel(1);
        let mut message = Message::Flush(done);
        for _ in 0..GOODBYE.as_millis() / AGAIN.as_millis() {
            match self.messages.try_send(message) {
                Ok(()) => {
                    // Lines that are still queued after this time are lost.
                    let _ = is_done.recv_timeout(GOODBYE);
                    return;
                }
                Err(TrySendError::Full(unsent)) => message = unsent,
                Err(TrySendError::Disconnected(_)) => return,
            }
            thread::sleep(AGAIN);
        }
    }

    fn push(&self, line: &[u8]) {
        let is_own = OWN.with_borrow_mut(|own| own.as_mut().map(|own| own.extend_from_slice(line)).is_some());
        if !is_own && self.messages.try_send(Message::Line(line.to_vec())).is_err() {
            self.dropped.fetch_add(1, Relaxed);
        }
    }
}

/// Takes one line with each call.
impl Write for Queue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The state of the thread that writes.
struct Writer<W> {
    out: W,
    dropped: Arc<AtomicU64>,
    /// The dropped lines that the log has told.
    told: u64,
    /// The lines written since then.
    since_told: usize,
    /// The last write may have stopped in the middle of a line.
    is_torn: bool,
}

impl<W: Write> Writer<W> {
    /// Runs until the last sender is dropped.
    fn run(mut self, messages: &Receiver<Message>) {
        OWN.set(Some(Vec::new()));
        loop {
            let message = match messages.try_recv() {
                Ok(message) => message,
                Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => {
                    self.tell_dropped();
                    let Ok(message) = messages.recv() else { return };
                    message
                }
            };
            match message {
                Message::Line(line) => self.write(&line),
                Message::Flush(done) => {
                    self.tell_dropped();
                    // The waiting thread may have timed out.
                    let _ = done.try_send(());
                }
            }
            if self.since_told >= QUEUE_MAX {
                self.tell_dropped();
            }
        }
    }

    /// Logs the number of lines dropped since the last such line.
    fn tell_dropped(&mut self) {
        self.since_told = 0;
        let dropped = self.dropped.load(Relaxed);
        if dropped > self.told {
            tracing::warn!("{} log lines dropped: standard error did not take them", dropped - self.told);
            let line = OWN.with_borrow_mut(|own| own.as_mut().map(std::mem::take));
            // On a full disk this line is lost, too, and comes again.
            if self.write_line(&line.unwrap_or_default()).is_ok() {
                self.told = dropped;
            }
        }
    }

    fn write(&mut self, line: &[u8]) {
        self.since_told += 1;
        if self.write_line(line).is_err() {
            self.dropped.fetch_add(1, Relaxed);
        }
    }

    /// A full disk may hold the first part of a line. A line break separates it from the next one.
    fn write_line(&mut self, line: &[u8]) -> io::Result<()> {
        let end: &[u8] = if self.is_torn { b"\n" } else { b"" };
        self.is_torn = true;
        self.write_all(end)?;
        self.write_all(line)?;
        self.is_torn = false;
        Ok(())
    }

    /// Like `Write::write_all`, for a standard error that another program has set not to block.
    fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.out.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(AGAIN),
                Err(error) => return Err(error),
            }
        }
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, Read, pipe};

    use super::*;

    fn queue() -> (Queue, PipeReader) {
        let (reader, writer) = pipe().unwrap();
        (Queue::start(writer).unwrap(), reader)
    }

    #[test]
    fn a_flush_writes_the_queued_lines_in_their_order() {
        let (mut queue, mut reader) = queue();
        let lines: Vec<String> = (0..100).map(|number| format!("line {number}\n")).collect();
        lines.iter().for_each(|line| queue.write_all(line.as_bytes()).unwrap());
        queue.flush();
        assert_eq!(queue.dropped(), 0);
        drop(queue);
        let mut written = String::new();
        reader.read_to_string(&mut written).unwrap();
        assert_eq!(written, lines.concat());
    }

    #[test]
    fn a_reader_that_sleeps_makes_no_caller_wait_and_neither_does_one_that_leaves() {
        let (mut queue, reader) = queue();
        let line = [b'a'; 1_000];
        for _ in 0..10 * QUEUE_MAX {
            queue.write_all(&line).unwrap();
        }
        let dropped = queue.dropped();
        assert!(dropped > 8 * QUEUE_MAX as u64, "{dropped}");
        // A pipe that nobody reads does not keep the process.
        queue.flush();
        drop(reader);
        queue.flush();
        assert!(queue.dropped() > dropped, "lines that cannot be written are dropped, too");
    }

    /// Takes some bytes, then asks for patience.
    struct Reluctant(Arc<std::sync::Mutex<Vec<u8>>>, bool);

    impl Write for Reluctant {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(ErrorKind::WouldBlock.into());
            }
            let count = bytes.len().min(3);
            self.0.lock().unwrap().extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Takes `room` bytes, then nothing until somebody makes room.
    #[derive(Clone, Default)]
    struct Disk(Arc<std::sync::Mutex<(Vec<u8>, usize)>>);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let (taken, room) = &mut *self.0.lock().unwrap();
            let count = bytes.len().min(*room);
            *room -= count;
            taken.extend_from_slice(&bytes[..count]);
            if count == 0 { Err(ErrorKind::StorageFull.into()) } else { Ok(count) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_loses_lines_that_are_counted_and_spoils_no_other() {
        let disk = Disk::default();
        disk.0.lock().unwrap().1 = "one\ntw".len();
        let mut queue = Queue::start(disk.clone()).unwrap();
        for line in ["one\n", "two\n", "three\n", "four\n"] {
            queue.write_all(line.as_bytes()).unwrap();
            queue.flush();
        }
        assert_eq!(queue.dropped(), 3);
        disk.0.lock().unwrap().1 = usize::MAX;
        queue.write_all(b"five\n").unwrap();
        queue.flush();
        assert_eq!(String::from_utf8_lossy(&disk.0.lock().unwrap().0), "one\ntw\nfive\n");
    }

    #[test]
    fn an_output_that_does_not_block_gets_whole_lines() {
        let taken = Arc::default();
        let mut queue = Queue::start(Reluctant(Arc::clone(&taken), false)).unwrap();
        queue.write_all(b"one line\n").unwrap();
        queue.write_all(b"another\n").unwrap();
        queue.flush();
        assert_eq!(String::from_utf8_lossy(&taken.lock().unwrap()), "one line\nanother\n");
    }
}
