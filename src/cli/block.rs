//! `slowlane block` and `slowlane unblock`: requests that are refused for a time.

use anyhow::{anyhow, ensure};
use clap::Args;

use crate::admin_client::Question;
use crate::cli::admin::Daemon;
use crate::cli::fields::{Field, path};
use slowlane_core::base::units;

pub(super) const EXAMPLES: &str = include_str!("help/block.txt");

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Fields of the requests; all must match
    #[arg(value_name = "FIELD=VALUE", required = true)]
    fields: Vec<Field>,
    /// How long: 30s, 10m, 1d; at most 366d
    #[arg(long = "for", value_name = "DURATION")]
    time: Option<String>,
    #[command(flatten)]
    daemon: Daemon,
}

pub(super) fn block(typed: Arguments) -> anyhow::Result<()> {
    let Arguments { fields, time, daemon } = typed;
    let time = time.ok_or_else(|| anyhow!("say how long: add --for 10m; the longest block is 366d"))?;
    let duration = units::duration(&time).map_err(|reason| anyhow!("--for {time:?}: {reason}"))?;
    ensure!(
        !duration.is_zero(),
        "--for {time:?}: expected some time, like 10m; `slowlane unblock` ends a block"
    );
    daemon.print(Question { body: format!("for={time}"), ..Question::post(path("block", &fields)) })
}

pub(super) const UNBLOCK_EXAMPLES: &str = include_str!("help/unblock.txt");

#[derive(Debug, Args)]
pub(super) struct UnblockArguments {
    /// The fields of the block, or key= and sixteen hex digits
    #[arg(value_name = "FIELD=VALUE", required = true)]
    fields: Vec<Field>,
    #[command(flatten)]
    daemon: Daemon,
}

pub(super) fn unblock(typed: UnblockArguments) -> anyhow::Result<()> {
    typed.daemon.print(Question::post(path("unblock", &typed.fields)))
}
