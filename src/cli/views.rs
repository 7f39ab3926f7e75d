//! Views of a running daemon: `slowlane blocks`, `cluster`, `peers` and `quota`.

use clap::Args;

use crate::admin_client::Question;
use crate::cli::admin::Daemon;
use crate::cli::fields::{Field, path};

pub(super) const BLOCKS: &str = include_str!("help/blocks.txt");

pub(super) const CLUSTER: &str = include_str!("help/cluster.txt");

pub(super) const PEERS: &str = include_str!("help/peers.txt");

pub(super) const QUOTA: &str = include_str!("help/quota.txt");

#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    daemon: Daemon,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct QuotaArguments {
    /// The fields of the request
    #[arg(value_name = "FIELD=VALUE", required = true)]
    fields: Vec<Field>,
    #[command(flatten)]
    view: Arguments,
}

/// Prints the view at a path.
pub(super) fn print(typed: Arguments, path: impl Into<String>) -> anyhow::Result<()> {
    typed.daemon.print(Question::get(path).with_json(typed.json))
}

pub(super) fn quota(typed: QuotaArguments) -> anyhow::Result<()> {
    print(typed.view, path("quota", &typed.fields))
}
