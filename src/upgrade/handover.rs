//! The old process of an upgrade, which starts the new process and hands everything over.

use std::ffi::OsString;
use std::io::{self, BufWriter};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};
use std::{env, path};

use thiserror::Error;
use tokio::runtime::Handle;

use crate::observe::Clock;
use crate::server::{Agent, Listener, Transfer, Trigger};
use crate::upgrade::channel::{BUFFER_BYTES, Channel, UpgradeMessage, VERSION};
use slowlane_core::base::Decision;
use slowlane_core::snapshot::{SnapshotHead, save};

/// The longest wait for the new process to read its config and its policy, or a part of the keys. A SIGTERM is handled
/// only after this wait, so the wait is shorter than systemd's stop timeout.
const START_MAX: Duration = Duration::from_secs(10);

/// The longest wait for this process's own tasks to stop deciding.
const STOP_MAX: Duration = Duration::from_secs(1);

/// The longest wait for the new process after this process has stopped deciding, during which requests wait.
const TAKE_MAX: Duration = Duration::from_secs(2);

/// The maximum number of rounds of sending changed keys before this process stops deciding.
const ROUNDS_MAX: usize = 5;

/// The rounds end when at most this many keys have changed: sending them takes only a few milliseconds.
const CHANGED_FEW: usize = 1_000;

/// The parts of a daemon that it hands over.
#[derive(Debug)]
pub(crate) struct Handover {
    pub(crate) agent: Arc<Agent>,
    /// Each listener with its name.
    pub(crate) listeners: Vec<(&'static str, Arc<Listener>)>,
    pub(crate) end: Arc<Trigger>,
    pub(crate) runtime: Handle,
}

/// The new process, after it has taken over.
#[derive(Debug)]
pub(crate) struct Successor {
    channel: Channel,
    pub(crate) process: Child,
    taken_back: Receiver<Decision>,
    /// The time in which neither process decided.
    pub(crate) paused: Duration,
}

/// The reason for a failed upgrade.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    #[error("cannot start {0}: {1}")]
    Start(String, #[source] io::Error),
    #[error("the new process did not start: {0}")]
    Child(#[from] io::Error),
    #[error("the new process is not a slowlane that can take over: restart slowlane instead")]
    Version,
    #[error("some connections did not stop in time")]
    Busy,
}

impl Handover {
    /// Starts the program and hands over to it. This call blocks, so it needs its own thread.
    ///
    /// # Errors
    /// The new process has not taken over, and is terminated. This process keeps all its state, and its trigger holds
    /// the connections that have stopped.
    pub(crate) fn hand_over(&self, program: &Program) -> Result<Successor, Failure> {
        let cannot_start = |error| Failure::Start(program.path.display().to_string(), error);
        let (ours, theirs) = UnixStream::pair().map_err(cannot_start)?;
        let mut process = program.start(OwnedFd::from(theirs)).map_err(cannot_start)?;
        let channel = Channel(ours);
        match self.give(&channel) {
            Ok((paused, taken_back)) => Ok(Successor { channel, process, taken_back, paused }),
            Err(failure) => {
                // The new process must end before this process continues, or both would serve the same connections.
                let _ = process.kill();
                let _ = process.wait();
                drop(self.agent.throttle.table().tracked());
                Err(failure)
            }
        }
    }

    fn give(&self, channel: &Channel) -> Result<(Duration, Receiver<Decision>), Failure> {
        self.introduce(channel)?;
        self.give_keys(channel)?;

        channel.wait_at_most(Some(TAKE_MAX))?;
        let begun = Instant::now();
        let (gone, taken_back) = mpsc::channel();
        self.agent.take_back_elsewhere(gone);
        if let Err(failure) = self.stop(channel) {
            self.agent.take_back_here();
            taken_back.try_iter().for_each(|decision| self.agent.take_back(&decision));
            return Err(failure);
        }
        Ok((begun.elapsed(), taken_back))
    }

    /// Stops all tasks from deciding, and sends the remaining state.
    fn stop(&self, channel: &Channel) -> Result<(), Failure> {
        if !self.runtime.block_on(self.end.hand_over(STOP_MAX)) {
            return Err(Failure::Busy);
        }
        let transfers = self.end.passed_on();
        self.give_rest(channel, &transfers).map_err(|error| {
            self.end.give_back(transfers);
            Failure::Child(error)
        })
    }

    /// Sends the listeners, the time and the secret, and waits until the new process has read its files.
    fn introduce(&self, channel: &Channel) -> Result<(), Failure> {
        channel.wait_at_most(Some(START_MAX))?;
        match channel.receive()? {
            (UpgradeMessage::Hello(VERSION), _) => {}
            _ => return Err(Failure::Version),
        }
        for (name, listener) in &self.listeners {
            let message = UpgradeMessage::Listener((*name).to_owned(), listener.address.clone());
            channel.send(&message, Some(listener.as_fd()))?;
        }
        let (moment, monotonic) = self.agent.clock.mark();
        let key_secret = self.agent.throttle.policy().key_secret().to_hex();
        channel.send(&UpgradeMessage::Offer { moment, monotonic, key_secret }, None)?;
        Ok(expect(channel, |message| matches!(message, UpgradeMessage::Built))?)
    }

    /// Sends all keys while this process continues to decide. Keys that change in the meantime are recorded.
    fn give_keys(&self, channel: &Channel) -> io::Result<()> {
        let throttle = &self.agent.throttle;
        drop(throttle.table().track());
        let writer = state(channel, &UpgradeMessage::State)?;
        save(throttle, self.head(), None, None, writer)?;
        expect(channel, |message| matches!(message, UpgradeMessage::Restored))?;
        // Each round takes less time than the previous one, so fewer keys change in it.
        for _ in 0..ROUNDS_MAX {
            let changed = throttle.table().track();
            let writer = state(channel, &UpgradeMessage::State)?;
            save(throttle, self.head(), Some(&changed), None, writer)?;
            expect(channel, |message| matches!(message, UpgradeMessage::Restored))?;
            if changed.len() <= CHANGED_FEW {
                break;
            }
        }
        Ok(())
    }

    /// Sends the latest changes, the connections, and the answers that nginx may request again.
    fn give_rest(&self, channel: &Channel, transfers: &[Transfer]) -> io::Result<()> {
        let throttle = &self.agent.throttle;
        let writer = state(channel, &UpgradeMessage::Changes)?;
        let changed = throttle.table().tracked();
        save(throttle, self.head(), Some(&changed), Some(&self.agent.status.notes()), writer)?;
        for transfer in transfers {
            channel
                .send(&UpgradeMessage::Connection(transfer.state.clone()), Some(transfer.stream.as_fd()))?;
        }
        for answers in self.agent.dedup.remembered(self.agent.clock.now()) {
            channel.send(&UpgradeMessage::Answers(answers), None)?;
        }
        channel.send(&UpgradeMessage::Yours, None)?;
        expect(channel, |message| matches!(message, UpgradeMessage::Taken))
    }

    fn head(&self) -> SnapshotHead {
        let (secret, now) = (self.agent.throttle.policy().key_secret(), self.agent.clock.now());
        SnapshotHead::new(now, Clock::wall(), secret, Vec::new())
    }
}

/// A stream to the new process, for a part of the state. A write fails if the new process does not read for
/// [`TAKE_MAX`].
fn state(channel: &Channel, part: &UpgradeMessage) -> io::Result<BufWriter<UnixStream>> {
    let (reader, writer) = UnixStream::pair()?;
    writer.set_write_timeout(Some(TAKE_MAX))?;
    channel.send(part, Some(reader.as_fd()))?;
    Ok(BufWriter::with_capacity(BUFFER_BYTES, writer))
}

fn expect(channel: &Channel, is_expected: impl Fn(&UpgradeMessage) -> bool) -> io::Result<()> {
    match channel.receive()? {
        (message, _) if is_expected(&message) => Ok(()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

impl Successor {
    /// Reports to the new process that systemd knows it, and from then on reports each request that must be taken back.
    /// Returns when either process ends.
    pub(crate) fn report(self) {
        let Successor { channel, taken_back, .. } = self;
        if channel.send(&UpgradeMessage::Main, None).is_err() {
            return;
        }
        for decision in taken_back {
            if channel.send(&UpgradeMessage::TakenBack(Box::new(decision)), None).is_err() {
                return;
            }
        }
    }
}

/// The environment variable that marks a process whose standard input is the socket of an old process.
pub(super) const HANDOVER: &str = "SLOWLANE_HANDOVER";

/// The path and the arguments with which this process was started. A new program at the same path is the new version.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    arguments: Vec<OsString>,
}

impl Program {
    /// Finds the program. Call this at startup, because later the path may hold another program, and the working
    /// directory may differ.
    pub(crate) fn of_this_process() -> io::Result<Program> {
        let mut arguments = env::args_os();
        let typed = arguments.next().map(PathBuf::from).unwrap_or_default();
        // The path is kept as it was typed, because its symbolic links may lead to another version at the time of the
        // upgrade. A bare name was looked up in PATH.
        let path = match typed.parent() {
            Some(folder) if folder != Path::new("") => path::absolute(&typed)?,
            _ => env::current_exe()?,
        };
        Ok(Program { path, arguments: arguments.collect() })
    }

    /// Starts the program again. `socket` becomes its standard input.
    pub(super) fn start(&self, socket: OwnedFd) -> io::Result<Child> {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments).stdin(Stdio::from(socket)).env(HANDOVER, "1");
        // These variables are for this process, not for the new one.
        for name in ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID"] {
            command.env_remove(name);
        }
        command.spawn()
    }
}
