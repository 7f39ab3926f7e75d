//! The ends of requests, reported by log lines: over UDP, or in a file that a proxy writes.

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::{interval, sleep};

use crate::observe::revived_task;
use crate::proxy::end_line;
use crate::server::{AccessList, Agent, Listener, Shutdown};

/// The maximum length of a line over UDP. By default, HAProxy writes at most 1,024 bytes, and nginx 2,048.
const MESSAGE_BYTES_MAX: usize = 8_192;

/// How often slowlane counts the lines that the kernel has dropped.
const COUNTED_EVERY: Duration = Duration::from_secs(1);

/// The pause after a read has failed.
const PAUSE: Duration = Duration::from_millis(100);

/// A listener for log lines.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) listener: Arc<Listener>,
    pub(crate) access_list: AccessList,
    pub(crate) agent: Arc<Agent>,
    /// The number of lines that the kernel had dropped when they were last counted.
    pub(crate) lost: AtomicU64,
    /// The runtime of the listener's socket.
    pub(crate) runtime: Handle,
}

impl Ends {
    /// Reads lines until the shutdown begins. After an upgrade, the next process reads the lines that wait in the
    /// socket.
    pub(crate) fn open(self: &Arc<Ends>, shutdown: &Shutdown) {
        let (ends, shutdown) = (self.clone(), shutdown.clone());
        self.runtime.spawn(async move {
            revived_task("the listener for log lines", || ends.read(&shutdown)).await;
        });
    }

    async fn read(&self, shutdown: &Shutdown) {
        let mut line = vec![0; MESSAGE_BYTES_MAX + 1];
        let (mut ending, mut count) = (pin!(shutdown.signal.begun()), interval(COUNTED_EVERY));
        loop {
            tokio::select! {
                () = ending.as_mut() => return,
                received = self.listener.receive(&mut line) => match received {
                    Ok((bytes, from)) => self.take(&line[..bytes], from),
                    Err(_) => sleep(PAUSE).await,
                },
                _ = count.tick() => self.count_lost(),
            }
        }
    }

    fn take(&self, line: &[u8], from: IpAddr) {
        if !self.access_list.allows(from.to_canonical()) {
            return dropped(&self.agent, "not_allowed", 1);
        }
        end_line(&self.agent, line, MESSAGE_BYTES_MAX);
    }

    /// Counts the lines that the kernel has dropped since the last count.
    fn count_lost(&self) {
        let Ok(lost) = self.listener.lost() else { return };
        dropped(&self.agent, "lost", lost.saturating_sub(self.lost.swap(lost, Relaxed)));
    }
}

/// If a line reports the end of a request, ends that request.
fn end_line(agent: &Agent, line: &[u8], bytes_max: usize) {
    if line.len() > bytes_max {
        return dropped(agent, "too_long", 1);
    }
    agent.metrics.plain.end_lines.inc();
    if let Some((ticket, ending)) = end_line::read(line) {
        agent.end(ticket, ending, agent.clock.now());
    } else if end_line::is_refused(line) {
        dropped(agent, "unsafe", 1);
        agent.unsafe_ticket.call_once(|| {
            tracing::warn!(
                "[ends]: a line was ignored: clients may have written the text before its ticket, or the line is in \
                 a container's log. If your proxy wrote the line, make its format begin with the ticket"
            );
        });
    }
}

fn dropped(agent: &Agent, reason: &'static str, lines: u64) {
    agent.metrics.plain.end_lines_dropped.get_or_create(&[("reason", reason)]).inc_by(lines);
}

/// The interval at which a file is read. It is short, because a request keeps its place until slowlane reads its end.
const EVERY: Duration = Duration::from_millis(50);

/// The maximum length of a line in a file: Caddy logs all headers of a request, if none are filtered.
const LINE_BYTES_MAX: usize = 1 << 20;

/// The size of one read, and the maximum number of reads in a row, so that the thread can also read sockets.
const CHUNK_BYTES: usize = 64 * 1024;
const CHUNKS_MAX: usize = 16;

/// A log file that is followed by its path: if a new file appears there, the new file is read from then on.
#[derive(Debug)]
pub(crate) struct FollowedLog {
    path: PathBuf,
    agent: Arc<Agent>,
    runtime: Handle,
    /// `None` if no file could be opened.
    open: Mutex<Option<OpenLog>>,
}

impl FollowedLog {
    /// Follows a file from its current end, in the runtime of the caller. A file that does not exist yet is read from
    /// its beginning when it appears.
    pub(crate) fn at_end(path: PathBuf, agent: Arc<Agent>) -> FollowedLog {
        let open = file(&path).and_then(|_| OpenLog::of(&path, SeekFrom::End(0)));
        match &open {
            Ok(_) => tracing::info!("reading the ends of requests from {}", path.display()),
            Err(error) => {
                tracing::warn!("[ends] follow: {}: {error}; slowlane keeps trying", path.display())
            }
        }
        FollowedLog { path, agent, runtime: Handle::current(), open: Mutex::new(open.ok()) }
    }

    /// Reads lines until the shutdown begins. During an upgrade, the next process opens the file before this one stops
    /// reading.
    pub(crate) fn open(self: &Arc<FollowedLog>, shutdown: &Shutdown) {
        let (log, shutdown) = (self.clone(), shutdown.clone());
        self.runtime.spawn(async move {
            revived_task("a followed log", || log.follow(&shutdown)).await;
        });
    }

    async fn follow(&self, shutdown: &Shutdown) {
        let mut look = interval(EVERY);
        while shutdown.signal.unless_begun(look.tick()).await.is_some() {
            self.look();
        }
        self.look();
    }

    /// Reads new lines. If another file has replaced the open file, the open file is first read to its end.
    fn look(&self) {
        let (mut open, current) = (self.open.lock(), file(&self.path).ok());
        let mut take = |line: &[u8]| end_line(&self.agent, line, LINE_BYTES_MAX);
        let is_at_end = open.as_mut().is_none_or(|log| log.read_on(&mut take).unwrap_or(true));
        let is_other = |new: &Metadata| open.as_ref().is_none_or(|log| log.inode != inode(new));
        if is_at_end && current.as_ref().is_some_and(is_other) {
            *open = OpenLog::of(&self.path, SeekFrom::Start(0)).ok();
        }
    }
}

/// The metadata of a regular file. Anything else is refused, because opening a pipe would block.
fn file(path: &PathBuf) -> io::Result<Metadata> {
    let found = fs::metadata(path)?;
    if found.is_file() { Ok(found) } else { Err(io::Error::other("expected a regular file")) }
}

fn inode(of: &Metadata) -> (u64, u64) {
    (of.dev(), of.ino())
}

/// An open file, and how far it has been read.
#[derive(Debug)]
struct OpenLog {
    file: File,
    inode: (u64, u64),
    read: u64,
    /// The beginning of a line whose end has not been written yet.
    line: Vec<u8>,
}

impl OpenLog {
    fn of(path: &PathBuf, from: SeekFrom) -> io::Result<OpenLog> {
        let mut file = File::open(path)?;
        let (inode, read) = (inode(&file.metadata()?), file.seek(from)?);
        Ok(OpenLog { file, inode, read, line: Vec::new() })
    }

    /// Passes new lines to `take`, and returns whether the end of the file was reached.
    fn read_on(&mut self, take: &mut impl FnMut(&[u8])) -> io::Result<bool> {
        // A file that is shorter than before was emptied, as log rotation may do after copying it.
        if self.file.metadata()?.len() < self.read {
            self.read = self.file.seek(SeekFrom::Start(0))?;
            self.line.clear();
        }
        let mut chunk = vec![0; CHUNK_BYTES];
        for _ in 0..CHUNKS_MAX {
            let bytes = self.file.read(&mut chunk)?;
            if bytes == 0 {
                return Ok(true);
            }
            self.read += bytes as u64;
            chunk[..bytes].split_inclusive(|byte| *byte == b'\n').for_each(|piece| self.add(piece, take));
        }
        Ok(false)
    }

    /// Adds a piece of a line, and passes the line to `take` if it is complete. If a line is too long, one byte beyond
    /// the limit is kept, so that its length shows this.
    fn add(&mut self, piece: &[u8], take: &mut impl FnMut(&[u8])) {
        let room = LINE_BYTES_MAX + 1 - self.line.len();
        self.line.extend_from_slice(&piece[..piece.len().min(room)]);
        if piece.ends_with(b"\n") {
            take(&self.line);
            self.line.clear();
            self.line.shrink_to(CHUNK_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// The lines that a look finds.
    fn lines(log: &mut OpenLog) -> Vec<usize> {
        let mut found = Vec::new();
        while !log.read_on(&mut |line| found.push(line.len())).unwrap() {}
        found
    }

    #[test]
    fn lines_are_whole_and_bounded_however_they_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut writer = File::create(&path).unwrap();
        let mut write = |text: &str| writer.write_all(text.as_bytes()).unwrap();
        write("an old line\n");
        let mut log = OpenLog::of(&path, SeekFrom::End(0)).unwrap();
        write("ab");
        assert_eq!(lines(&mut log), [0; 0]);
        write("c\n\nd\ne");
        assert_eq!(lines(&mut log), [4, 1, 2]);
        write(&"x".repeat(9 << 20));
        write("\nf\n");
        assert_eq!(lines(&mut log), [LINE_BYTES_MAX + 1, 2]);
        assert!(log.line.capacity() <= CHUNK_BYTES);
        File::create(&path).unwrap().write_all(b"new\n").unwrap();
        assert_eq!(lines(&mut log), [4]);
    }
}
