//! `slowlane demo`: shows slowlane at work.

use std::io::{IsTerminal, stdout};
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use crate::demo::{Demo, LIMITED, PROTECTED, SECONDS_DEFAULT, SECONDS_MIN};
use crate::proxy::installed;
use crate::proxy::shipped::haproxy::Version;

#[derive(Debug, Args)]
pub(super) struct DemoArguments {
    /// Protect the application from many crawlers with law=protect, which needs no rate
    #[arg(long)]
    protect: bool,
    /// Print the rates for this many seconds, then exit [default: print 15, then run until Ctrl-C]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(i64::from(SECONDS_MIN)..=3600))]
    seconds: Option<u32>,
    /// The HAProxy program to start; with `none`, slowlane replaces HAProxy [default: the program on the PATH]
    #[arg(long, value_name = "FILE")]
    haproxy: Option<PathBuf>,
}

pub(super) fn demo(typed: DemoArguments) -> anyhow::Result<()> {
    let DemoArguments { protect, seconds, haproxy } = typed;
    let slo = if protect { PROTECTED } else { LIMITED };
    let (haproxy, stays) = (program(haproxy)?, seconds.is_none());
    let demo = Demo { slo, seconds: seconds.unwrap_or(SECONDS_DEFAULT), stays, haproxy };
    demo.run(&mut stdout(), stdout().is_terminal())
}

/// The given HAProxy, else the HAProxy on the PATH, else the reason why there is none.
fn program(typed: Option<PathBuf>) -> anyhow::Result<Result<(PathBuf, Version), String>> {
    Ok(match typed {
        Some(file) if file.as_os_str() == "none" => Err("without HAProxy".to_owned()),
        Some(file) => {
            // HAProxy runs in another folder, so the path must be absolute.
            let file = std::path::absolute(file)?;
            let problem = || format!("{}: this is not HAProxy {} or later", file.display(), Version::OLDEST);
            let version = installed::version(&file).with_context(problem)?;
            Ok((file, version))
        }
        None => installed::haproxy()
            .ok_or_else(|| format!("HAProxy {} or later is not installed", Version::OLDEST)),
    })
}
