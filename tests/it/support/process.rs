//! A child process with its log, killed when it is dropped.

use std::fs::{self, DirEntry, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;

use super::eventually;

/// The most lines of a program's log that a failed test shows.
const DUMP_LINES: usize = 50;

/// Puts a copy of a program at a path. Another process writes it: a file that this one has open for writing is busy
/// in each child that another test starts meanwhile, and cannot be started.
pub fn install(program: impl AsRef<Path>, to: impl AsRef<Path>) {
    let ended = Command::new("install").arg("-m755").arg(program.as_ref()).arg(to.as_ref()).status().unwrap();
    assert!(ended.success(), "{} is installed", program.as_ref().display());
}

/// A running program. All of its output is kept, in a file: HAProxy drops a line for which a pipe has no room.
pub struct Process {
    name: String,
    child: Child,
    output: File,
}

impl Process {
    pub fn start(command: &mut Command) -> Process {
        Process::spawn(command, Stdio::null(), None)
    }

    /// Starts a program with its own standard input and output. Only standard error is kept.
    pub fn start_with(command: &mut Command, input: Stdio, output: Stdio) -> Process {
        Process::spawn(command, input, Some(output))
    }

    fn spawn(command: &mut Command, input: Stdio, output: Option<Stdio>) -> Process {
        let name = command.get_program().to_string_lossy().into_owned();
        let kept = tempfile::tempfile().unwrap();
        // Of one open file, all its descriptors have one place to write at, and `log` reads without it.
        let again = || Stdio::from(kept.try_clone().unwrap());
        command.stdin(input).stdout(output.unwrap_or_else(again)).stderr(again());
        let child = command.spawn().unwrap_or_else(|error| panic!("{name} does not start: {error}"));
        Process { name, child, output: kept }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The lines that the program has ended.
    pub fn log(&self) -> Vec<String> {
        let mut bytes = vec![0; self.output.metadata().unwrap().len() as usize];
        self.output.read_exact_at(&mut bytes, 0).unwrap();
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').unwrap_or(0);
        let text = String::from_utf8_lossy(&bytes[..whole]);
        if text.is_empty() { Vec::new() } else { text.split('\n').map(str::to_owned).collect() }
    }

    /// Waits for a line that contains `marker`, and returns the rest of the line.
    pub fn logged(&mut self, marker: &str) -> String {
        let what = format!("{} logs {marker:?}", self.name);
        eventually(&what, || {
            // Before the log, so that one that has ended has written all of it.
            let ended = self.child.try_wait().unwrap();
            let log = self.log();
            let found = log.iter().find_map(|line| line.split_once(marker));
            if let (None, Some(status)) = (found, ended) {
                panic!("{} ended ({status}):\n{}", self.name, log.join("\n"));
            }
            found.map(|(_, rest)| rest.to_owned())
        })
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Sends a signal by its name, like `TERM`.
    pub fn signal(&self, signal: &str) {
        let sent =
            Command::new("kill").arg(format!("-{signal}")).arg(self.id().to_string()).status().unwrap();
        assert!(sent.success(), "{} takes no {signal}", self.name);
    }

    /// Stops the process, and waits until all its threads have stopped. `CONT` lets it go on.
    pub fn stop(&self) {
        self.signal("STOP");
        let tasks = format!("/proc/{}/task", self.id());
        let is_stopped = |task: DirEntry| {
            fs::read_to_string(task.path().join("stat"))
                .unwrap()
                .rsplit(") ")
                .next()
                .unwrap()
                .starts_with('T')
        };
        eventually("every thread has stopped", || {
            fs::read_dir(&tasks).unwrap().map(Result::unwrap).all(is_stopped).then_some(())
        });
    }

    pub fn wait(&mut self) -> ExitStatus {
        let what = format!("{} ends", self.name);
        eventually(&what, || self.child.try_wait().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            let log = self.log();
            let last = &log[log.len().saturating_sub(DUMP_LINES)..];
            eprintln!(
                "--- log of {}, {} of {} lines:\n{}",
                self.name,
                last.len(),
                log.len(),
                last.join("\n")
            );
        }
    }
}
