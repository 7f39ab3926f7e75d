//! `slowlane top`: the status of a daemon in a terminal.

use std::time::Duration;

use clap::Args;

use crate::cli::admin::Daemon;
use crate::cli::views::span;
use crate::top;
use slowlane_core::base::units;

#[derive(Debug, Args)]
pub(super) struct TopArguments {
    #[command(flatten)]
    daemon: Daemon,
    /// Print the status once and exit; the default if standard output is not a terminal
    #[arg(long)]
    once: bool,
    /// Print the clients throttled in the last TIME instead, 24h at most
    #[arg(long, value_name = "TIME", value_parser = span)]
    since: Option<Duration>,
    /// How often to refresh the output on a terminal
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
}

/// Shorter intervals only flicker.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

fn interval(text: &str) -> Result<Duration, String> {
    let interval = units::duration(text).map_err(|error| error.to_string())?;
    if interval >= INTERVAL_MIN { Ok(interval) } else { Err("expected a time from 100ms".into()) }
}

pub(super) fn top(typed: TopArguments) -> anyhow::Result<()> {
    let daemon = typed.daemon.client()?;
    match typed.once || !top::has_screen() {
        true => top::once(&daemon, typed.since),
        false => top::watch(daemon, typed.since, typed.interval),
    }
}
