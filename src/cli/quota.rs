//! `slowlane quota`: what a client has used of its quotas.

use std::path::PathBuf;

use clap::Args;

use crate::admin_client::Question;
use crate::cli::admin::{self, At};
use crate::cli::fields::{Field, path};

pub(super) const EXAMPLES: &str = "\
Examples:
  slowlane quota source=192.0.2.1 website=shop.example
      what is used and left of each quota that such a request falls under, and when it resets
  slowlane quota owner=acme --json
      the same for programs

Nothing is counted. Times are UTC, by the clock of the daemon. In a cluster the numbers are those of all nodes, as
last told; with cluster=lease, parts that nodes hold ahead count as used.";

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The fields of the request
    #[arg(value_name = "FIELD=VALUE", required = true)]
    fields: Vec<Field>,
    /// The daemon's config file, for its address and its token
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    at: At,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn quota(typed: Arguments) -> anyhow::Result<()> {
    let Arguments { fields, config, at, json } = typed;
    let mut question = Question::get(path("quota", &fields));
    if json {
        question.accept = "application/json";
    }
    admin::print(&at.daemon(config)?, question)?;
    Ok(())
}
