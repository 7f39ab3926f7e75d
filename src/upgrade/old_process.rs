//! The new process of an upgrade, which takes over everything from the old process.

use std::fs::File;
use std::io::{self, BufReader};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;
use std::{env, thread};

use anyhow::{Context, bail, ensure};
use rustix::stdio::dup2_stdin;

use crate::observe::Clock;
use crate::server::{Agent, Inherited, TransferState};
use crate::upgrade::channel::{BUFFER_BYTES, Channel, UpgradeMessage, VERSION};
use crate::upgrade::handover::HANDOVER;
use slowlane_core::base::KeySecret;
use slowlane_core::snapshot::{Parts, restore};

/// The longest wait for the old process.
const PATIENCE: Duration = Duration::from_secs(30);

/// The process that hands over to this process.
#[derive(Debug)]
pub(crate) struct OldProcess {
    channel: Channel,
    pub(crate) listeners: Inherited,
    pub(crate) clock: Clock,
    pub(crate) key_secret: Option<KeySecret>,
}

impl OldProcess {
    /// The process that started this one to take over. `None` if this process was not started by an upgrade.
    ///
    /// # Errors
    /// Standard input is not the socket of an old process, or the old process sends something unexpected.
    pub(crate) fn find() -> anyhow::Result<Option<OldProcess>> {
        if env::var_os(HANDOVER).is_none() {
            return Ok(None);
        }
        let meet = || -> anyhow::Result<OldProcess> {
            let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
            // If the socket stayed standard input, it would be open for as long as this process runs.
            dup2_stdin(File::open("/dev/null")?)?;
            let channel = Channel(socket);
            channel.wait_at_most(Some(PATIENCE))?;
            channel.send(&UpgradeMessage::Hello(VERSION), None)?;
            let mut listeners = Inherited::default();
            loop {
                match channel.receive()? {
                    (UpgradeMessage::Listener(acceptor, address), Some(socket)) => {
                        listeners.add(acceptor, address, socket);
                    }
                    (UpgradeMessage::Offer { moment, monotonic, key_secret }, None) => {
                        let clock = Clock::going_on_from(moment, monotonic);
                        let key_secret = KeySecret::read(key_secret.as_bytes());
                        return Ok(OldProcess { channel, listeners, clock, key_secret });
                    }
                    (message, _) => bail!("unexpected message: {message:?}"),
                }
            }
        };
        let cannot = || format!("{HANDOVER} is set, but standard input is no handover from slowlane");
        meet().map(Some).with_context(cannot)
    }

    /// Takes the state and the connections. When this returns, the old process has stopped deciding. This call blocks,
    /// so it needs its own thread.
    ///
    /// # Errors
    /// The old process has ended or continues to serve.
    pub(crate) fn take(&self, agent: &Agent) -> anyhow::Result<Vec<(OwnedFd, TransferState)>> {
        self.channel.send(&UpgradeMessage::Built, None)?;
        while self.restore(agent)? {
            self.channel.send(&UpgradeMessage::Restored, None)?;
        }
        let mut connections = Vec::new();
        loop {
            match self.channel.receive()? {
                (UpgradeMessage::Connection(state), Some(socket)) => connections.push((socket, state)),
                (UpgradeMessage::Answers(answers), None) => agent.dedup.put_back(answers, self.clock.now()),
                (UpgradeMessage::Yours, None) => return Ok(connections),
                (message, _) => bail!("unexpected message: {message:?}"),
            }
        }
    }

    /// Restores a part of the state. Returns false after the last part.
    fn restore(&self, agent: &Agent) -> anyhow::Result<bool> {
        let (throttle, now) = (&agent.throttle, self.clock.now());
        let (message, stream) = self.channel.receive()?;
        ensure!(
            matches!(message, UpgradeMessage::State | UpgradeMessage::Changes),
            "unexpected message: {message:?}"
        );
        let stream = UnixStream::from(stream.context("this message has no stream")?);
        stream.set_read_timeout(Some(PATIENCE))?;
        let parts = Parts::new(BufReader::with_capacity(BUFFER_BYTES, stream))?;
        let keys = parts.head.key_secret() == Some(throttle.policy().key_secret());
        if !keys && matches!(message, UpgradeMessage::Changes) {
            tracing::warn!(
                "this slowlane and the previous one have different key secrets: the old entries are dropped"
            );
        }
        agent.status.put_back(&restore(parts, keys, throttle, now)?.notes, now);
        Ok(matches!(message, UpgradeMessage::State))
    }

    /// Reports to the old process that this process is serving. A thread receives the remaining messages of the old
    /// process, and calls `main` once systemd knows this process or the old process has ended.
    ///
    /// # Errors
    /// The old process continues to serve, so this process must end.
    pub(crate) fn taken(self, agent: Arc<Agent>, main: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let OldProcess { channel, .. } = self;
        let taken = Channel(channel.0.try_clone()?);
        let mut main = Some(main);
        let listen = move || {
            let _ = channel.wait_at_most(None);
            while let Ok((message, _)) = channel.receive() {
                match message {
                    UpgradeMessage::Main => main.take().into_iter().for_each(|main| main()),
                    UpgradeMessage::TakenBack(decision) => agent.take_back(&decision),
                    _ => break,
                }
            }
            // The old process may have ended before it could send `Main`.
            main.take().into_iter().for_each(|main| main());
        };
        thread::Builder::new().name("predecessor".into()).spawn(listen)?;
        taken.send(&UpgradeMessage::Taken, None)
    }
}
