//! `slowlane demo`: shows slowlane at work.

use std::io::{IsTerminal, stdout};
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use crate::demo::{Demo, SECONDS_DEFAULT, SECONDS_MIN};
use crate::proxy::installed;
use crate::proxy::shipped::haproxy::Version;
use slowlane_core::base::Rate;

pub(super) const EXAMPLES: &str = include_str!("help/demo.txt");

#[derive(Debug, Args)]
pub(super) struct DemoArguments {
    /// Connections of the crawler; each sends its next request after each answer
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    clients: u32,
    /// Rate of the SLO, for each source
    #[arg(long, value_name = "RATE", default_value = "50/s")]
    rate: Rate,
    /// Print this many seconds, then exit [default: print 15, then run until Ctrl-C]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(i64::from(SECONDS_MIN)..=3600))]
    seconds: Option<u32>,
    /// The HAProxy to start; with `none`, slowlane takes its place [default: the one on the PATH]
    #[arg(long, value_name = "FILE")]
    haproxy: Option<PathBuf>,
}

pub(super) fn demo(typed: DemoArguments) -> anyhow::Result<()> {
    let DemoArguments { clients, rate, seconds, haproxy } = typed;
    let (haproxy, stays) = (program(haproxy)?, seconds.is_none());
    let demo = Demo { clients, rate, seconds: seconds.unwrap_or(SECONDS_DEFAULT), stays, haproxy };
    demo.run(&mut stdout(), stdout().is_terminal())
}

/// The HAProxy given, else the one on the PATH; or the reason why there is none.
fn program(typed: Option<PathBuf>) -> anyhow::Result<Result<(PathBuf, Version), String>> {
    Ok(match typed {
        Some(file) if file.as_os_str() == "none" => Err("without HAProxy".to_owned()),
        Some(file) => {
            // HAProxy runs in another folder, so the path must be absolute.
            let file = std::path::absolute(file)?;
            let problem = || format!("{}: not HAProxy {} or later", file.display(), Version::OLDEST);
            let version = installed::version(&file).with_context(problem)?;
            Ok((file, version))
        }
        None => installed::haproxy()
            .ok_or_else(|| format!("HAProxy {} or later is not installed", Version::OLDEST)),
    })
}
