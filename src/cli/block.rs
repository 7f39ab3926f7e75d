//! `slowlane block` and `slowlane unblock`: requests that are refused for a time.

use anyhow::{anyhow, ensure};
use clap::Args;

use crate::admin_client::Question;
use crate::cli::admin::Daemon;
use crate::cli::fields::{Field, path};
use slowlane_core::base::units;

pub(super) const EXAMPLES: &str = "\
Examples:
  slowlane block source=192.0.2.66 --for 10m
      refuse all requests of a source with 429, under every SLO
  slowlane block source=192.0.2.0/24 website=shop.example --for 1d
      refuse those of a network to one website: all fields must match
  slowlane block path=/login --for 30s
      a field that the policy does not use; the proxy must send it

An IPv6 address stands for the network of its customer, as in keys: usually a /64. A second block of the same
fields replaces the first. Blocks survive a reload of the policy and an upgrade. Without a state file
they end with a restart.";

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

pub(super) const UNBLOCK_EXAMPLES: &str = "\
Examples:
  slowlane unblock source=192.0.2.66
      end the block of exactly these fields, and that of the key that they make up
  slowlane unblock key=26C7827D889F6DA3
      end the block that an SLO's block= has set; `slowlane blocks` lists the keys";

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
