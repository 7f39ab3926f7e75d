//! A bounded queue of lines, and the thread that writes the lines to the log or the decision log.

use std::io::{self, ErrorKind, Write};
use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::AcqRel, Ordering::Acquire};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;

use crate::observe::revived;

/// The longest time that a shutdown waits for the queued lines to be written. Lines that remain are lost.
const GOODBYE: Duration = Duration::from_secs(2);

/// The interval at which a shutdown checks the queue, and at which a write to a full non-blocking output is retried.
const AGAIN: Duration = Duration::from_millis(10);

/// The handle that all threads use. The handle never waits: if the queue is full, the line is dropped and counted.
#[derive(Clone, Debug)]
pub(super) struct LineQueue {
    lines: SyncSender<Vec<u8>>,
    /// The number of lines queued or being written. Lines lost in a panic stay counted, so a flush then waits its full
    /// time.
    unwritten: Arc<AtomicUsize>,
    dropped: Counter,
}

impl LineQueue {
    /// Starts the thread that calls `write`. Each call gets all lines that are queued at that moment.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub(super) fn start(
        name: &'static str,
        lines_max: usize,
        dropped: Counter,
        mut write: impl FnMut(&[u8]) + Send + 'static,
    ) -> io::Result<LineQueue> {
        let (lines, queued) = sync_channel(lines_max);
        let unwritten = Arc::<AtomicUsize>::default();
        let left = unwritten.clone();
        let run = move || revived(&format!("the {name}"), || run(&queued, lines_max, &left, &mut write));
        thread::Builder::new().name(name.into()).spawn(run)?;
        Ok(LineQueue { lines, unwritten, dropped })
    }

    pub(super) fn push(&self, line: Vec<u8>) {
        self.unwritten.fetch_add(1, AcqRel);
        if self.lines.try_send(line).is_err() {
            self.unwritten.fetch_sub(1, AcqRel);
            self.dropped.inc();
        }
    }

    /// Waits until the queued lines are written, but for at most two seconds.
    pub(super) fn flush(&self) {
        for _ in 0..GOODBYE.as_millis() / AGAIN.as_millis() {
            if self.unwritten.load(Acquire) == 0 {
                return;
            }
            thread::sleep(AGAIN);
        }
    }
}

/// Writes the queued lines until the last sender is dropped.
fn run(queued: &Receiver<Vec<u8>>, lines_max: usize, unwritten: &AtomicUsize, write: &mut impl FnMut(&[u8])) {
    while let Ok(first) = queued.recv() {
        let lines: Vec<Vec<u8>> = iter::once(first).chain(queued.try_iter().take(lines_max)).collect();
        write(&lines.concat());
        unwritten.fetch_sub(lines.len(), AcqRel);
    }
}

/// An output for lines, with counters of written and lost lines.
pub(super) struct LineOutput {
    out: Box<dyn Write + Send>,
    written: Counter,
    lost: Counter,
    /// Whether the last write may have stopped in the middle of a line.
    is_torn: bool,
}

impl LineOutput {
    pub(super) fn new(out: impl Write + Send + 'static, written: Counter, lost: Counter) -> LineOutput {
        LineOutput { out: Box::new(out), written, lost, is_torn: false }
    }

    /// Writes lines. If the last write stopped in the middle of a line, as on a full disk, a line break comes first.
    pub(super) fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let (mut end, mut rest): (&[u8], _) = (if self.is_torn { b"\n" } else { b"" }, lines);
        let written = self.write_all(&mut end).and_then(|()| self.write_all(&mut rest));
        self.is_torn = written.is_err();
        let lost = count(rest);
        self.written.inc_by(count(lines) - lost);
        self.lost.inc_by(lost);
        written
    }

    /// Like `Write::write_all`, but for an output that may be non-blocking. After an error, `bytes` has the unwritten
    /// part.
    fn write_all(&mut self, bytes: &mut &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.out.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => *bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(AGAIN),
                Err(error) => return Err(error),
            }
        }
        self.out.flush()
    }
}

fn count(lines: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', lines).count() as u64
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Takes some bytes, then asks for patience.
    struct Reluctant(Arc<Mutex<Vec<u8>>>, bool);

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

    #[test]
    fn an_output_that_does_not_block_gets_whole_lines() {
        let taken = Arc::default();
        let (written, lost) = (Counter::default(), Counter::default());
        let mut output = LineOutput::new(Reluctant(Arc::clone(&taken), false), written.clone(), lost.clone());
        output.write(b"one line\nanother\n").unwrap();
        assert_eq!(String::from_utf8_lossy(&taken.lock().unwrap()), "one line\nanother\n");
        assert_eq!((written.get(), lost.get()), (2, 0));
    }

    /// Takes `room` bytes, fails once, and then takes everything.
    struct Disk {
        room: usize,
        taken: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.room);
            if count == 0 {
                self.room = usize::MAX;
                return Err(ErrorKind::StorageFull.into());
            }
            self.room -= count;
            self.taken.lock().unwrap().extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_cut_off_by_a_full_disk_spoils_no_other_line() {
        for lines in [&["one\ntwo\n", "three\nfour\n"][..], &["one\n", "two\n", "three\n", "four\n"]] {
            let taken = Arc::<Mutex<Vec<u8>>>::default();
            let (written, lost) = (Counter::default(), Counter::default());
            let disk = Disk { room: 6, taken: taken.clone() };
            let mut output = LineOutput::new(disk, written.clone(), lost.clone());
            assert_eq!(lines.iter().filter(|lines| output.write(lines.as_bytes()).is_err()).count(), 1);
            assert_eq!(String::from_utf8_lossy(&taken.lock().unwrap()), "one\ntw\nthree\nfour\n");
            assert_eq!((written.get(), lost.get()), (3, 1), "of lines written together, only those cut off");
        }
    }
}
