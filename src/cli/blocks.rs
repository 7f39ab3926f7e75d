//! `slowlane blocks`: the blocks in force.

use std::path::PathBuf;

use clap::Args;

use crate::admin_client::Question;
use crate::cli::admin::{self, At};

pub(super) const EXAMPLES: &str = "\
Examples:
  slowlane blocks
      the blocks of operators, then those of keys, with what is left of each
  slowlane blocks --json
      the same for programs";

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The daemon's config file, for its address and its token
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    at: At,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn blocks(typed: Arguments) -> anyhow::Result<()> {
    let Arguments { config, at, json } = typed;
    let mut question = Question::get("/api/blocks");
    if json {
        question.accept = "application/json";
    }
    admin::print(&at.daemon(config)?, question)?;
    Ok(())
}
