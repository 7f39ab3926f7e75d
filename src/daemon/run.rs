//! The life of the process: start, signals, upgrade, shutdown.

use anyhow::{Context, anyhow};
use futures_util::future::select_all;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::config::Config;
use crate::daemon::serving::{Serving, start, take_over};
use crate::observe::systemd;
use crate::upgrade::{OldProcess, Program};

/// Serves until SIGTERM or SIGINT, or until a new process has taken over. An error means that the start failed and
/// nothing was served.
pub(crate) fn run(config: Config) -> anyhow::Result<()> {
    raise_file_limit();
    let program = Program::of_this_process().context("cannot find the executable of this process")?;
    let old_process = OldProcess::find()?;
    let runtime = Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(serve(config, program, old_process))
}

async fn serve(config: Config, program: Program, old_process: Option<OldProcess>) -> anyhow::Result<()> {
    tracing::info!("slowlane {} starts", env!("CARGO_PKG_VERSION"));
    let mut signals = Signals::new().context("cannot wait for signals")?;
    let mut serving = match old_process {
        Some(old_process) => take_over(&config, old_process).await?,
        None => {
            let serving = start(&config)?;
            systemd::status(&serving.summary());
            systemd::ready();
            serving
        }
    };
    loop {
        let asked = tokio::select! {
            order = signals.wait() => match order {
                Order::End => break,
                Order::Reload => {
                    serving.read_again();
                    continue;
                }
                Order::Upgrade => None,
            },
            Some(asked) = serving.upgrades.recv() => Some(asked),
        };
        let upgraded = serving.upgrade(&program).await;
        match &upgraded {
            Ok(news) => tracing::info!("upgrade: {news}"),
            Err(failure) => tracing::error!("upgrade: {failure}; this process keeps serving"),
        }
        let is_over = upgraded.is_ok();
        if let Some(asked) = asked {
            let _ = asked.send(upgraded);
        }
        if is_over {
            answer_the_rest(serving, signals).await;
            return Ok(());
        }
    }
    tracing::info!("shutting down: held requests proceed, and connections are closed");
    systemd::stopping();
    serving.shut_down().await;
    Ok(())
}

/// After an upgrade, sends the answers that are still held: each when it is due, or all of them on SIGTERM or SIGINT.
async fn answer_the_rest(serving: Serving, mut signals: Signals) {
    let ended = async { while signals.wait().await != Order::End {} };
    let is_ended = tokio::select! {
        () = serving.drain() => false,
        () = ended => true,
    };
    if is_ended {
        serving.shut_down().await;
    }
}

/// Raises the soft limit on open files, often 1024, to the hard limit: every connection needs a file descriptor.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // On failure the old limit stays in force.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// The signals of the daemon.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    user2: Signal,
}

/// The action that a signal requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    End,
    Reload,
    Upgrade,
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
        // A SIGUSR1, which older versions handled, must not end the process.
        drop(signal(SignalKind::user_defined1())?);
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            user2: signal(SignalKind::user_defined2())?,
        })
    }

    /// Waits for SIGTERM, SIGINT, SIGHUP or SIGUSR2. No signal is lost if the future is dropped.
    async fn wait(&mut self) -> Order {
        tokio::select! {
            _ = self.terminate.recv() => Order::End,
            _ = self.interrupt.recv() => Order::End,
            _ = self.hangup.recv() => Order::Reload,
            _ = self.user2.recv() => Order::Upgrade,
        }
    }
}

/// A future for commands, which waits for Ctrl-C, Ctrl-\, SIGTERM, or the closing of the terminal.
pub(crate) fn asked_to_end() -> anyhow::Result<impl Future<Output = ()>> {
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()];
    let signals: Result<Vec<Signal>, _> = kinds.into_iter().map(signal).collect();
    let mut signals = signals.map_err(|error| anyhow!("cannot wait for signals: {error}"))?;
    Ok(async move {
        select_all(signals.iter_mut().map(|signal| Box::pin(signal.recv()))).await;
    })
}
