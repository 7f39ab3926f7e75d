//! `slowlane top`: what a daemon does now, in a terminal.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::Args;

use crate::server::socket::Address;
use crate::top::{self, Daemon};

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
    /// The file with its token, if it wants one
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Print one snapshot as text and exit, as is done where standard output is no terminal
    #[arg(long)]
    once: bool,
}

pub(super) fn top(typed: Arguments) -> anyhow::Result<()> {
    let token = typed.token_file.as_deref().map(token).transpose()?;
    let daemon = Daemon { address: typed.admin, token };
    if typed.once || !top::has_screen() { top::once(&daemon) } else { top::watch(&daemon) }
}

fn token(path: &Path) -> anyhow::Result<String> {
    let text = fs::read_to_string(path).with_context(|| format!("{}: cannot be read", path.display()))?;
    let token = text.trim();
    let is_one = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    ensure!(is_one, "{}: expected a token, letters and digits in one line", path.display());
    Ok(token.to_owned())
}
