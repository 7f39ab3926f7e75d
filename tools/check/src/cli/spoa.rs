//! `slowlane-check spoa`: tests any SPOE agent.

use std::io;

use clap::Args;
use clap::error::ErrorKind;

use crate::cli::target::Target;
use crate::spoa::{ARGUMENTS_MAX, Argument, Setting, examine, list};

pub(super) const EXAMPLES: &str = include_str!("help/spoa.txt");

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

pub(super) fn check(typed: Arguments) -> io::Result<bool> {
    let Arguments { message, arg, target } = typed;
    if arg.len() > ARGUMENTS_MAX {
        let text = format!("--arg: expected at most {ARGUMENTS_MAX} arguments, because some cases add two\n");
        clap::Error::raw(ErrorKind::TooManyValues, text).exit();
    }
    let setting = Setting::new(message, arg);
    target.check(list, None, async move |agent, report| examine(agent, setting, report).await)
}
