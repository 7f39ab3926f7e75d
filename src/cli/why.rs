//! `slowlane why`: the verdict that a request would get, and the reasons.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::admin_client::AdminQuestion;
use crate::cli::admin::Daemon;
use crate::cli::arguments::{FieldArgument, path};
use crate::cli::say;
use crate::config::{Config, Flags};
use crate::observe::Clock;
use crate::observe::status::Why;
use slowlane_core::base::{Request, Value};
use slowlane_core::table::Sizing;
use slowlane_core::throttle::Throttle;

#[derive(Debug, Args)]
pub(super) struct WhyArguments {
    /// The fields of the request
    #[arg(value_name = "FIELD=VALUE", required = true)]
    fields: Vec<FieldArgument>,
    /// Read this policy directory instead of querying a daemon; lookups and types then come from --config
    #[arg(long, value_name = "DIR", conflicts_with = "admin")]
    policy: Option<PathBuf>,
    #[command(flatten)]
    daemon: Daemon,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn why(typed: WhyArguments) -> anyhow::Result<()> {
    let WhyArguments { fields, policy, daemon, json } = typed;
    match policy {
        Some(policy) => of_files(&fields, policy, daemon.config, json),
        None => daemon.print(AdminQuestion::get(path("why", &fields)).with_json(json)),
    }
}

/// An empty table, in which every key is new.
const NO_TABLE: Sizing = Sizing { entries_max: 1, expire: Duration::from_secs(1) };

fn of_files(
    fields: &[FieldArgument],
    policy: PathBuf,
    config: Option<PathBuf>,
    json: bool,
) -> anyhow::Result<()> {
    let config = Config::load(config.as_deref(), Flags { policy: Some(policy), ..Flags::default() })?;
    let throttle = Throttle::new(config.read_policy()?, NO_TABLE, config.sections.table.annex_bytes_max);
    let mut request = Request::new();
    for FieldArgument { name, value } in fields.iter().filter(|field| !field.value.is_empty()) {
        request.push(name.as_bytes(), Value::Text(value.as_bytes()));
    }
    let mut why = Why::of(&throttle, &request, Clock::start().now());
    if config.key_secret.is_none() {
        why.leave_out_keys();
    }
    let text = if json { why.json() } else { why.to_string() };
    say(&text)
}
