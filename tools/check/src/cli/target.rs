//! The server to test, as typed, and its report.

use std::io;
use std::time::Duration;

use clap::Args;
use tokio::runtime::Builder;

use crate::card::Card;
use crate::cli::progress::Progress;
use crate::cli::say;
use crate::endpoint::Endpoint;
use crate::tls::TlsFiles;
use slowlane_core::base::{Address, units};

#[derive(Debug, Args)]
pub(super) struct Target {
    /// The address of the server: host:port or unix:/path
    #[arg(value_name = "ADDR", required_unless_present = "list")]
    address: Option<Address>,
    /// The longest wait for a connection or for an answer, up to 60s
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = limit)]
    timeout: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print the list of cases, without connecting to a server
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    files: TlsFiles,
}

/// With a shorter limit, a correct server on a busy machine would fail.
const LIMIT_MIN: Duration = Duration::from_millis(10);
const LIMIT_MAX: Duration = Duration::from_secs(60);

fn limit(text: &str) -> Result<Duration, String> {
    let limit = units::duration(text).map_err(|error| error.to_string())?;
    let is_within = (LIMIT_MIN..=LIMIT_MAX).contains(&limit);
    if is_within { Ok(limit) } else { Err("expected a time from 10ms to 60s".into()) }
}

impl Target {
    /// Tests the server and prints its card, or prints the list of cases. Returns whether the server passes. `protocol`
    /// is the protocol to offer over TLS.
    pub(super) fn check(
        self,
        list: fn() -> String,
        protocol: Option<&str>,
        examine: impl AsyncFnOnce(&Endpoint, &mut dyn FnMut(usize, usize)) -> Card,
    ) -> io::Result<bool> {
        let Target { address, timeout, json, list: is_list, files } = self;
        let Some(address) = address.filter(|_| !is_list) else {
            say(&list())?;
            return Ok(true);
        };
        let server =
            Endpoint { address, limit: timeout, tls: files.read(protocol).map_err(io::Error::other)? };
        let progress = Progress::begin();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let card = runtime.block_on(examine(&server, &mut |over, all| progress.report(over, all)));
        // A name lookup may still be running.
        runtime.shutdown_background();
        progress.end();
        let text = match json {
            true => serde_json::to_string_pretty(&card.to_json(server.address.to_string()))? + "\n",
            false => card.to_text(),
        };
        say(&text)?;
        Ok(card.is_passed())
    }
}
