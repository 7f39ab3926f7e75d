//! `slowlane peers`: the proxies that keep the pace by themselves.

use std::path::PathBuf;

use clap::Args;

use crate::admin_client::Question;
use crate::cli::admin::{self, At};

pub(super) const EXAMPLES: &str = "\
Examples:
  slowlane peers
      each HAProxy with its connection, its tables and the number of its keys
  slowlane peers --json
      the same for programs

`slowlane why FIELD=VALUE` shows what each of them has counted for one key, and what it was taught.";

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

pub(super) fn peers(typed: Arguments) -> anyhow::Result<()> {
    let Arguments { json, config, at } = typed;
    let mut question = Question::get("/api/peers");
    if json {
        question.accept = "application/json";
    }
    admin::print(&at.daemon(config)?, question)?;
    Ok(())
}
