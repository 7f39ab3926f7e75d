//! `slowlane upgrade`: replaces the program of a running daemon.

use std::time::Duration;

use clap::Args;

use crate::admin_client::Question;
use crate::cli::admin::Daemon;

pub(super) const EXAMPLES: &str = "\
Examples:
  slowlane upgrade
      start a newly installed version, which takes over
  slowlane upgrade --config /etc/slowlane/slowlane.toml
      the same for a daemon whose admin address and token are in its config file

The daemon starts the program that is now at the path it was started from, with the same arguments. The new process
reads the config, the policy and the certificates again. It takes over the listeners, the table and the connections.
No connection is refused, and each request is counted exactly once. If the new process does not start, the old one
keeps serving. Exit code 0: the new process serves. 1: the old one does.";

/// The daemon gives up earlier.
const PATIENCE: Duration = Duration::from_secs(90);

#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    daemon: Daemon,
}

pub(super) fn upgrade(typed: Arguments) -> anyhow::Result<()> {
    typed.daemon.print(Question { patience: PATIENCE, ..Question::post("/api/upgrade") })
}
