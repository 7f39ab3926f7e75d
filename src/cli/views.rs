//! Views of a running daemon: `slowlane blocks`, `cluster`, `peers` and `quota`.

use clap::Args;

use crate::admin_client::Question;
use crate::cli::admin::Daemon;
use crate::cli::fields::{Field, path};

pub(super) const BLOCKS: &str = "\
Examples:
  slowlane blocks
      the blocks of operators, then those of keys, with the remaining time of each
  slowlane blocks --json
      the same for programs";

pub(super) const CLUSTER: &str = "\
Examples:
  slowlane cluster
      the nodes with their versions, policies and clocks, the store, the keys shared
  slowlane cluster --json
      the same for programs

Columns: node (its name), version, policy (a hash of the SLOs that it shares; nodes with a different hash are marked),
clock (its wall clock minus the store's). Clocks need not agree: nothing depends on them.";

pub(super) const PEERS: &str = "\
Examples:
  slowlane peers
      each HAProxy with its connection, its tables and the number of its keys
  slowlane peers --json
      the same for programs

`slowlane why FIELD=VALUE` shows what each of them has counted for a key, and the limit that slowlane pushed.";

pub(super) const QUOTA: &str = "\
Examples:
  slowlane quota source=192.0.2.1 website=shop.example
      how much of each quota of such a request is used and left, and when it resets
  slowlane quota owner=acme --json
      the same for programs

Nothing is counted. Times are UTC, by the daemon's clock. In a cluster the numbers are those of all nodes, as last
reported; with cluster=lease, leased parts count as used.";

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
