//! `slowlane block`: refuses requests for a time.

use std::time::Duration;

use clap::{Args, Subcommand};

use crate::admin_client::AdminQuestion;
use crate::cli::arguments::{FieldArgument, path};
use crate::cli::views::{self, DaemonView};
use slowlane_core::base::units;

#[derive(Debug, Subcommand)]
pub(super) enum BlockAction {
    /// For some time, answer all requests that have these fields with 429.
    #[command(after_help = include_str!("help/block-add.txt"))]
    Add(Addition),
    /// End a block early.
    #[command(after_help = include_str!("help/block-rm.txt"))]
    Rm(Removal),
    /// List the blocks in force.
    #[command(after_help = include_str!("help/block-list.txt"))]
    List(DaemonView),
}

#[derive(Debug, Args)]
pub(super) struct Addition {
    /// Fields that a request must have to be blocked; all must match
    #[arg(value_name = "FIELD=VALUE", required = true)]
    fields: Vec<FieldArgument>,
    /// The duration of the block, like 30s, 10m or 1d; at most 366d
    #[arg(long = "for", value_name = "DURATION", value_parser = some_time)]
    time: Duration,
    #[command(flatten)]
    view: DaemonView,
}

#[derive(Debug, Args)]
pub(super) struct Removal {
    /// The fields of the block, or key= followed by sixteen hex digits
    #[arg(value_name = "FIELD=VALUE", required = true)]
    fields: Vec<FieldArgument>,
    #[command(flatten)]
    view: DaemonView,
}

fn some_time(text: &str) -> Result<Duration, String> {
    match units::duration(text) {
        Ok(Duration::ZERO) => {
            Err("expected a duration longer than 0, like 10m; to end a block, use `slowlane block rm`".into())
        }
        Ok(time) => Ok(time),
        Err(reason) => Err(reason.to_string()),
    }
}

pub(super) fn block(action: BlockAction) -> anyhow::Result<()> {
    match action {
        BlockAction::Add(Addition { fields, time, view }) => {
            let body = format!("for={}", units::written(time));
            view.print(AdminQuestion { body, ..AdminQuestion::post(path("block", &fields)) })
        }
        BlockAction::Rm(Removal { fields, view }) => {
            view.print(AdminQuestion::post(path("unblock", &fields)))
        }
        BlockAction::List(view) => views::print(view, "/api/blocks"),
    }
}
