//! `slowlane top`: what a daemon does now, in a terminal.

use clap::Args;

use crate::server::socket::Address;
use crate::top;

pub(super) const EXAMPLES: &str = "\
Examples:
  slowlane top
  slowlane top --admin unix:/run/slowlane/admin.sock
  slowlane top --once | grep shop.example

Keys: q or Ctrl-C quits, Tab or 1 2 3 chooses a table, < and > the column to sort by, r reverses,
/ filters, Enter explains the key that the arrows have chosen, Esc goes back.";

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The admin address of the daemon: host:port or unix:/path
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9002")]
    admin: Address,
    /// Print one snapshot as text and exit, as is done where standard output is no terminal
    #[arg(long)]
    once: bool,
}

pub(super) fn top(typed: Arguments) -> anyhow::Result<()> {
    if typed.once || !top::has_screen() { top::once(&typed.admin) } else { top::watch(&typed.admin) }
}
