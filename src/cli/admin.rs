//! The arguments that name a running daemon, and functions that print the daemon's answers.

use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{anyhow, ensure};
use clap::Args;

use crate::admin_client::{AdminClient, AdminQuestion};
use crate::config::{Config, Flags, Listen, read_token};
use crate::server::tls::{Trust, client};
use slowlane_core::base::{Address, AddressError};

/// A running daemon: its address and its token.
#[derive(Debug, Args)]
pub(super) struct Daemon {
    /// The daemon's config file, from which to read the daemon's admin address and token
    #[arg(long, value_name = "FILE", global = true)]
    pub(super) config: Option<PathBuf>,
    /// The admin address of a running daemon, or https://HOST:PORT with TLS [default: from --config, else
    /// 127.0.0.1:9002]
    #[arg(long, value_name = "ADDR", global = true)]
    admin: Option<AdminAddress>,
    /// The file with the admin token [default: the token in --config]
    #[arg(long, value_name = "FILE", global = true)]
    token_file: Option<PathBuf>,
    /// The CA of the daemon's certificate, in PEM [default: the certificate in --config, else the system's CAs]
    #[arg(long, value_name = "FILE", global = true)]
    ca: Option<PathBuf>,
    /// Your client certificate in PEM, for a daemon that has client_ca
    #[arg(id = "own_cert", long = "cert", value_name = "FILE", global = true, requires = "own_key")]
    cert: Option<PathBuf>,
    /// The private key of --cert, in PEM
    #[arg(id = "own_key", long = "key", value_name = "FILE", global = true, requires = "own_cert")]
    key: Option<PathBuf>,
}

impl Daemon {
    /// A client for the daemon. Creating it sends nothing.
    pub(super) fn client(self) -> anyhow::Result<AdminClient> {
        let config = Config::load(self.config.as_deref(), Flags::default())?;
        let token = match self.token_file {
            Some(path) => Some(read_token(path)?),
            None => config.admin_token,
        };
        let configured = || config.admin.addresses.first().cloned();
        let typed = self.admin.map(|typed| (typed.address, typed.is_https));
        let (address, is_https) = match typed.or_else(|| Some((configured()?, None))) {
            Some(found) => found,
            None => return Err(anyhow!("no admin address is configured: name one with --admin")),
        };
        let is_tcp = matches!(address, Address::Tcp(_));
        let is_typed = self.ca.is_some() || self.cert.is_some();
        ensure!(
            is_tcp || !(is_typed || is_https == Some(true)),
            "{address} cannot use TLS: name a TCP address with --admin"
        );
        let is_https = is_https.unwrap_or(is_typed || is_tcp && config.admin.tls.is_some());
        let identity = self.cert.as_deref().zip(self.key.as_deref());
        let tls = is_https.then(|| client(&trust(self.ca, &config.admin), identity)).transpose()?;
        Ok(AdminClient { address, tls, token })
    }

    /// Prints the answer to a query as it arrives.
    pub(super) fn print(self, question: AdminQuestion) -> anyhow::Result<()> {
        print(&self.client()?, question).map(drop)
    }
}

/// An admin address, which may begin with `https://` or `http://`.
#[derive(Clone, Debug)]
pub(super) struct AdminAddress {
    address: Address,
    /// `None` means as in the config.
    is_https: Option<bool>,
}

impl FromStr for AdminAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<AdminAddress, AddressError> {
        let (rest, is_https) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (rest, Some(true)),
            (_, Some(rest)) => (rest, Some(false)),
            _ => (text, None),
        };
        Ok(AdminAddress { address: rest.strip_suffix('/').unwrap_or(rest).parse()?, is_https })
    }
}

/// The certificates to trust: the given CA, else the certificate in the config, else the system's CAs.
fn trust(ca: Option<PathBuf>, listen: &Listen) -> Trust {
    let configured = listen.tls.as_ref().map(|files| Trust::Certificate(files.cert.clone()));
    ca.map(Trust::Authority).or(configured).unwrap_or(Trust::System)
}

/// Prints the answer as it arrives. Returns false if the answer was empty.
pub(super) fn print(daemon: &AdminClient, question: AdminQuestion) -> anyhow::Result<bool> {
    Ok(daemon.ask(question, &mut io::stdout().lock())? > 0)
}

/// How long to wait for the answer to an upgrade. The daemon's own time limit is shorter.
const UPGRADE_PATIENCE: Duration = Duration::from_secs(90);

/// `slowlane upgrade`: replaces the program of a running daemon.
pub(super) fn upgrade(daemon: Daemon) -> anyhow::Result<()> {
    daemon.print(AdminQuestion { patience: UPGRADE_PATIENCE, ..AdminQuestion::post("/api/upgrade") })
}
