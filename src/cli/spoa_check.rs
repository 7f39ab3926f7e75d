//! `slowlane spoa-check`: tests any SPOE agent.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use clap::error::ErrorKind;
use tokio::runtime::Builder;

use crate::cli::progress::Progress;
use slowlane_core::base::{Address, units};
use slowlane_lab::conformance::{self, ARGUMENTS_MAX, Agent, Argument, Setting, examine};

pub(super) const EXAMPLES: &str = include_str!("help/spoa-check.txt");

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The address of the agent: host:port or unix:/path
    #[arg(value_name = "ADDR", required_unless_present = "list")]
    address: Option<Address>,
    /// Name of a message that the agent handles
    #[arg(long, value_name = "NAME", default_value = "request")]
    message: String,
    /// An argument of the message; may be repeated, up to 253 times
    #[arg(long, alias = "args", value_name = "NAME=VALUE")]
    arg: Vec<Argument>,
    /// The longest wait for a connection or for an answer, up to 60s
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = limit)]
    timeout: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print the cases, without connecting
    #[arg(long)]
    list: bool,
}

/// A shorter limit fails a correct agent on a busy machine.
const LIMIT_MIN: Duration = Duration::from_millis(10);
const LIMIT_MAX: Duration = Duration::from_secs(60);

fn limit(text: &str) -> Result<Duration, String> {
    let limit = units::duration(text).map_err(|error| error.to_string())?;
    let is_within = (LIMIT_MIN..=LIMIT_MAX).contains(&limit);
    if is_within { Ok(limit) } else { Err("expected a time from 10ms to 60s".into()) }
}

pub(super) fn spoa_check(typed: Arguments) -> anyhow::Result<()> {
    let Arguments { address, message, arg, timeout, json, list } = typed;
    let Some(address) = address.filter(|_| !list) else {
        io::stdout().write_all(conformance::list().as_bytes())?;
        return Ok(());
    };
    if arg.len() > ARGUMENTS_MAX {
        let text = format!("--arg: expected at most {ARGUMENTS_MAX} arguments, because some cases add two\n");
        clap::Error::raw(ErrorKind::TooManyValues, text).exit();
    }
    let setting = Setting::new(message, arg);
    let agent = Agent { address, limit: timeout };
    let mut progress = Progress::begin();
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let card = runtime.block_on(examine(&agent, setting, |over, all| {
        progress.report(|| format!("{over} of {all} exchanges"));
    }));
    // A name may still be looked up.
    runtime.shutdown_background();
    progress.end();
    let text = match json {
        true => serde_json::to_string_pretty(&card.to_json(agent.address.to_string()))? + "\n",
        false => card.to_text(),
    };
    io::stdout().write_all(text.as_bytes())?;
    // The card has said everything.
    if card.is_passed() { Ok(()) } else { Err(anyhow!("")) }
}
