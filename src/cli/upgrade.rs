//! `slowlane upgrade`: replaces the program of a running daemon.

use std::time::Duration;

use clap::Args;

use crate::admin_client::AdminQuestion;
use crate::cli::admin::Daemon;

/// The daemon times out earlier.
const PATIENCE: Duration = Duration::from_secs(90);

#[derive(Debug, Args)]
pub(super) struct UpgradeArguments {
    #[command(flatten)]
    daemon: Daemon,
}

pub(super) fn upgrade(typed: UpgradeArguments) -> anyhow::Result<()> {
    typed.daemon.print(AdminQuestion { patience: PATIENCE, ..AdminQuestion::post("/api/upgrade") })
}
