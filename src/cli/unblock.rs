//! `slowlane unblock`: ends a block early.

use std::path::PathBuf;

use clap::Args;

use crate::admin_client::Question;
use crate::cli::admin::{self, At};
use crate::cli::fields::{Field, path};

pub(super) const EXAMPLES: &str = "\
Examples:
  slowlane unblock source=192.0.2.66
      end the block of exactly these fields, and that of the key that they make up
  slowlane unblock key=26C7827D889F6DA3
      end the block that an SLO's block= has set; `slowlane blocks` lists the keys";

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The fields of the block, or key= and sixteen hex digits
    #[arg(value_name = "FIELD=VALUE", required = true)]
    fields: Vec<Field>,
    /// The daemon's config file, for its address and its token
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    at: At,
}

pub(super) fn unblock(typed: Arguments) -> anyhow::Result<()> {
    let Arguments { fields, config, at } = typed;
    let question = Question { method: "POST", ..Question::get(path("unblock", &fields)) };
    admin::print(&at.daemon(config)?, question)?;
    Ok(())
}
