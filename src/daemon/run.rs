//! The life of the process: start, signals, upgrade, shutdown.

use anyhow::Context;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::runtime::Runtime;

use crate::config::Config;
use crate::daemon::serving::{Serving, start, take_over};
use crate::daemon::signals::{Order, Signals};
use crate::observe::systemd;
use crate::upgrade::{OldProcess, Program};

/// Serves until SIGTERM or SIGINT, or until a new process has taken over. An error means that the start failed and
/// nothing was served.
pub(crate) fn run(config: Config) -> anyhow::Result<()> {
    raise_file_limit();
    let program = Program::of_this_process().context("cannot find the program of this process")?;
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
        let (reload, certificates) = (serving.reload.clone(), serving.certificates());
        let asked = tokio::select! {
            order = signals.wait(reload.as_ref(), &certificates, config.file.as_ref()) => match order {
                Order::End => break,
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
    tracing::info!("shutting down: held requests proceed, connections are closed");
    systemd::stopping();
    serving.shut_down().await;
    Ok(())
}

/// After an upgrade: sends the answers that are still held, each at its time, or all of them when a signal arrives.
async fn answer_the_rest(serving: Serving, mut signals: Signals) {
    let ended = async { while signals.wait(None, &[], None).await != Order::End {} };
    let is_ended = tokio::select! {
        () = serving.drain() => false,
        () = ended => true,
    };
    if is_ended {
        serving.shut_down().await;
    }
}

/// Raises the soft limit of open files, often 1024, to the hard limit: every connection needs a file descriptor.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // On failure the old limit stays in force.
    let _ = setrlimit(Resource::Nofile, limit);
}
