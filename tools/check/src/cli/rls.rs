//! `slowlane-check rls`: tests any server of Envoy's rate limit service.

use std::io;

use clap::Args;
use grpc::Entry;
use grpc::ratelimit::{Descriptor, RateLimitRequest};

use crate::cli::target::Target;
use crate::rls::{examine, list};

pub(super) const EXAMPLES: &str = include_str!("help/rls.txt");

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// A domain that the server knows
    #[arg(long, value_name = "NAME", default_value = "envoy")]
    domain: String,
    /// An entry of the descriptor; may be repeated
    #[arg(long, value_name = "KEY=VALUE", default_value = "remote_address=192.0.2.1", value_parser = entry)]
    entry: Vec<Entry>,
    #[command(flatten)]
    target: Target,
}

fn entry(text: &str) -> Result<Entry, &'static str> {
    let (key, value) = text.split_once('=').ok_or("expected an entry, like remote_address=192.0.2.1")?;
    Ok(Entry { key: key.to_owned().into(), value: value.to_owned().into() })
}

pub(super) fn check(typed: Arguments) -> io::Result<bool> {
    let Arguments { domain, entry, target } = typed;
    let descriptors = vec![Descriptor { entries: entry, ..Descriptor::default() }];
    let request = RateLimitRequest { domain: domain.into(), descriptors, hits_addend: 0 };
    target.check(list, Some("h2"), async move |server, report| examine(server, &request, report).await)
}
