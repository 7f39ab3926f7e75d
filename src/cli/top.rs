//! `slowlane top`: the status of a daemon in a terminal.

use clap::Args;

use crate::cli::admin::Daemon;
use crate::top;

pub(super) const EXAMPLES: &str = include_str!("help/top.txt");

#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    daemon: Daemon,
    /// Print one snapshot as text and exit; the default if standard output is not a terminal
    #[arg(long)]
    once: bool,
}

pub(super) fn top(typed: Arguments) -> anyhow::Result<()> {
    let daemon = typed.daemon.client()?;
    if typed.once || !top::has_screen() { top::once(&daemon) } else { top::watch(&daemon) }
}
