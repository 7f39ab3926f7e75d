//! Views of a running daemon: `slowlane blocks`, `cluster`, `peers` and `quota`.

use clap::Args;

use crate::admin_client::Question;
use crate::cli::admin::Daemon;
use crate::cli::fields::{Field, path};

pub(super) const BLOCKS: &str = "\
Examples:
  slowlane blocks
      the blocks of operators, then those of keys, with what is left of each
  slowlane blocks --json
      the same for programs";

pub(super) const CLUSTER: &str = "\
Examples:
  slowlane cluster
      the nodes with their versions, policies and clocks, the store, the keys shared
  slowlane cluster --json
      the same for programs

Columns: node (its name), version, policy (a hash of the SLOs that it shares: nodes with another one are marked),
clock (its wall clock less the store's). Clocks need not agree: nothing depends on them.";

pub(super) const PEERS: &str = "\
Examples:
  slowlane peers
      each HAProxy with its connection, its tables and the number of its keys
  slowlane peers --json
      the same for programs

`slowlane why FIELD=VALUE` shows what each of them has counted for one key, and what it was taught.";

pub(super) const QUOTA: &str = "\
Examples:
  slowlane quota source=192.0.2.1 website=shop.example
      what is used and left of each quota that such a request falls under, and when it resets
  slowlane quota owner=acme --json
      the same for programs

Nothing is counted. Times are UTC, by the clock of the daemon. In a cluster the numbers are those of all nodes, as
last told; with cluster=lease, parts that nodes hold ahead count as used.";

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
