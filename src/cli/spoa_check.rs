//! `slowlane spoa-check`: tests any SPOE agent.

use clap::Args;
use clap::error::ErrorKind;

use crate::cli::conformance::{Target, check};
use slowlane_lab::conformance::{ARGUMENTS_MAX, Argument, Setting, examine, list};

pub(super) const EXAMPLES: &str = include_str!("help/spoa-check.txt");

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Name of a message that the agent handles
    #[arg(long, value_name = "NAME", default_value = "request")]
    message: String,
    /// An argument of the message; may be repeated, up to 253 times
    #[arg(long, alias = "args", value_name = "NAME=VALUE")]
    arg: Vec<Argument>,
    #[command(flatten)]
    target: Target,
}

pub(super) fn spoa_check(typed: Arguments) -> anyhow::Result<()> {
    let Arguments { message, arg, target } = typed;
    if arg.len() > ARGUMENTS_MAX {
        let text = format!("--arg: expected at most {ARGUMENTS_MAX} arguments, because some cases add two\n");
        clap::Error::raw(ErrorKind::TooManyValues, text).exit();
    }
    let setting = Setting::new(message, arg);
    check(target, list, async move |agent, report| examine(agent, setting, report).await)
}
