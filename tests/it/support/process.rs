//! A child process with its log, killed when it is dropped.

use std::fs::{self, DirEntry};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use super::eventually;

/// The most lines of a program's log that a failed test shows.
const DUMP_LINES: usize = 50;

/// A running program. All of its output is kept.
pub struct Process {
    name: String,
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
    /// The threads that keep the log.
    readers: Vec<JoinHandle<()>>,
}

impl Process {
    pub fn start(command: &mut Command) -> Process {
        Process::start_with(command, Stdio::null(), Stdio::piped())
    }

    /// Starts a program with its own standard input and output. Only standard error is kept.
    pub fn start_with(command: &mut Command, input: Stdio, output: Stdio) -> Process {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(input).stdout(output).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{name} does not start: {error}"));
        let log = Arc::default();
        let mut readers = vec![keep(child.stderr.take().unwrap(), &log)];
        readers.extend(child.stdout.take().map(|output| keep(output, &log)));
        Process { name, child, log, readers }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    /// Waits for a line that contains `marker`, and returns the rest of the line.
    pub fn logged(&mut self, marker: &str) -> String {
        let what = format!("{} logs {marker:?}", self.name);
        eventually(&what, || {
            // Before the log: one that has ended may have lines that nobody has read yet.
            let is_whole = self.readers.iter().all(JoinHandle::is_finished);
            let log = self.log();
            let found = log.iter().find_map(|line| line.split_once(marker));
            if found.is_none() && is_whole {
                self.assert_running(&log);
            }
            found.map(|(_, rest)| rest.to_owned())
        })
    }

    fn assert_running(&mut self, log: &[String]) {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "{} ended ({}):\n{}", self.name, ended.unwrap(), log.join("\n"));
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

fn keep(output: impl Read + Send + 'static, log: &Arc<Mutex<Vec<String>>>) -> JoinHandle<()> {
    let log = log.clone();
    thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n') {
            let Ok(line) = line else { return };
            log.lock().unwrap().push(String::from_utf8_lossy(&line).into_owned());
        }
    })
}
