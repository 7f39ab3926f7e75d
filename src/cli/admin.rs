//! The arguments that reach a running daemon, and the printing of its answer.

use std::io;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;

use crate::base::address::Address;
use crate::config::{Config, Flags, read_token};
use crate::tools::admin_client::{AdminClient, Question};

/// The address of the daemon, and its token.
#[derive(Debug, Args)]
pub(super) struct At {
    /// The admin address of a running daemon [default: of --config, else 127.0.0.1:9002]
    #[arg(long, value_name = "ADDR", global = true)]
    pub(super) admin: Option<Address>,
    /// The file with the admin token [default: the token of --config]
    #[arg(long, value_name = "FILE", global = true)]
    token_file: Option<PathBuf>,
}

impl At {
    /// A client for the daemon. It sends nothing yet.
    pub(super) fn daemon(self, config: Option<PathBuf>) -> anyhow::Result<AdminClient> {
        let config = Config::load(config.as_deref(), Flags::default())?.admin;
        let token = match self.token_file {
            Some(path) => Some(read_token(path)?),
            None => config.token,
        };
        let configured = || config.listen.addresses.first().cloned();
        let address = self.admin.or_else(configured);
        let address =
            address.ok_or_else(|| anyhow!("no admin address is configured: name one with --admin"))?;
        Ok(AdminClient { address, token })
    }
}

/// Prints the answer as it comes. Returns false if the answer was empty.
pub(super) fn print(daemon: &AdminClient, question: Question) -> anyhow::Result<bool> {
    Ok(daemon.ask(question, &mut io::stdout().lock())? > 0)
}
