//! `slowlane demo`: shows slowlane at work.

use std::io::{IsTerminal, stdout};
use std::path::PathBuf;

use clap::Args;

use crate::demo::{self, Look, Proxy, SECONDS_DEFAULT, SECONDS_MIN};
use slowlane_core::base::units::Rate;

pub(super) const EXAMPLES: &str = "\
Examples:
  slowlane demo
      a crawler's 20 connections settle at 50 requests/s; a customer keeps fast answers
  slowlane demo --clients 100 --rate 200/s --seconds 20
  slowlane demo --haproxy none
      without HAProxy, even if there is one";

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Connections of the crawler; each sends its next request after each answer
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    clients: u32,
    /// Rate of the SLO, for each source
    #[arg(long, value_name = "RATE", default_value = "50/s")]
    rate: Rate,
    /// Print this many seconds, then exit [default: print 15, then run until Ctrl-C]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(i64::from(SECONDS_MIN)..=3600))]
    seconds: Option<u32>,
    /// The HAProxy to start; with `none`, slowlane plays its part [default: the one on the PATH]
    #[arg(long, value_name = "FILE")]
    haproxy: Option<PathBuf>,
}

pub(super) fn demo(typed: Arguments) -> anyhow::Result<()> {
    let Arguments { clients, rate, seconds, haproxy } = typed;
    let proxy = match haproxy {
        None => Proxy::Found,
        Some(file) if file.as_os_str() == "none" => Proxy::None,
        Some(file) => Proxy::Given(file),
    };
    let stays = seconds.is_none();
    let demo = demo::Demo { clients, rate, seconds: seconds.unwrap_or(SECONDS_DEFAULT), stays, proxy };
    let look = if stdout().is_terminal() { Look::Terminal } else { Look::Plain };
    demo.run(&mut stdout(), look)
}
