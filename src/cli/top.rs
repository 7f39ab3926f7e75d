//! `slowlane top`: the status of a daemon in a terminal.

use std::path::PathBuf;

use clap::Args;

use crate::cli::admin::At;
use crate::top;

pub(super) const EXAMPLES: &str = include_str!("help/top.txt");

#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    at: At,
    /// The daemon's config file, for its address and its token
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one snapshot as text and exit; the default if standard output is not a terminal
    #[arg(long)]
    once: bool,
}

pub(super) fn top(typed: Arguments) -> anyhow::Result<()> {
    let Arguments { at, config, once } = typed;
    let daemon = at.daemon(config)?;
    if once || !top::has_screen() { top::once(&daemon) } else { top::watch(&daemon) }
}
