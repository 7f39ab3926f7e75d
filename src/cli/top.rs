//! `slowlane top`: the status of a daemon in a terminal.

use std::time::Duration;

use clap::Args;

use crate::cli::admin::Daemon;
use crate::cli::views::span;
use crate::top;

pub(super) const EXAMPLES: &str = include_str!("help/top.txt");

#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    daemon: Daemon,
    /// Print one snapshot as text and exit; the default if standard output is not a terminal
    #[arg(long)]
    once: bool,
    /// Begin with the clients throttled in the last TIME, 24h at most; with --once, print only these
    #[arg(long, value_name = "TIME", value_parser = span)]
    since: Option<Duration>,
}

pub(super) fn top(typed: Arguments) -> anyhow::Result<()> {
    let daemon = typed.daemon.client()?;
    match typed.once || !top::has_screen() {
        true => top::once(&daemon, typed.since),
        false => top::watch(&daemon, typed.since),
    }
}
