//! `slowlane cluster`: the nodes of a cluster, as one of them sees it.

use std::path::PathBuf;

use clap::Args;

use crate::admin_client::Question;
use crate::cli::admin::{self, At};

pub(super) const EXAMPLES: &str = "\
Examples:
  slowlane cluster
      the nodes with their versions, policies and clocks, the store, the keys shared
  slowlane cluster --json
      the same for programs

Columns: node (its name), version, policy (a hash of the SLOs that it shares: nodes with another one are marked),
clock (its wall clock less the store's). Clocks need not agree: nothing depends on them.";

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The daemon's config file, for its address and its token
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    at: At,
}

pub(super) fn cluster(typed: Arguments) -> anyhow::Result<()> {
    let Arguments { json, config, at } = typed;
    let path = if json { "/api/cluster?json" } else { "/api/cluster" };
    admin::print(&at.daemon(config)?, Question::get(path))?;
    Ok(())
}
