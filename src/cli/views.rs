//! Views of a running daemon: `slowlane status`, `top`, `groups` and `quota`.

use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, Subcommand, ValueEnum};

use crate::admin_client::{AdminQuestion, history};
use crate::cli::admin::Daemon;
use crate::cli::arguments::{FieldArgument, path};
use crate::observe::status::{DAY, RankedBy};
use crate::top;
use slowlane_core::base::{query::written, units};

/// The daemon to query, and the format of its answer.
#[derive(Debug, Args)]
pub(super) struct DaemonView {
    #[command(flatten)]
    daemon: Daemon,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

impl DaemonView {
    pub(super) fn print(self, question: AdminQuestion) -> anyhow::Result<()> {
        self.daemon.print(question.with_json(self.json))
    }
}

#[derive(Debug, Args)]
pub(super) struct StatusArguments {
    #[command(subcommand)]
    section: Option<Section>,
    /// Print the clients throttled in the last TIME, at most 24h
    #[arg(long, value_name = "TIME", value_parser = span)]
    since: Option<Duration>,
    #[command(flatten)]
    view: DaemonView,
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum Section {
    /// List the nodes of a cluster, as the queried node sees them.
    #[command(after_help = include_str!("help/status-cluster.txt"))]
    Cluster,
    /// List the proxies that enforce limits locally (HAProxy's peers protocol).
    #[command(after_help = include_str!("help/status-peers.txt"))]
    Peers,
}

#[derive(Debug, Args)]
pub(super) struct TopArguments {
    #[command(flatten)]
    daemon: Daemon,
    /// Print the status once and exit; this is the default if standard output is not a terminal
    #[arg(long)]
    once: bool,
    /// Show the clients throttled in the last TIME, at most 24h, instead of the clients throttled now
    #[arg(long, value_name = "TIME", value_parser = span)]
    since: Option<Duration>,
}

#[derive(Debug, Args)]
pub(super) struct QuotaArguments {
    /// The fields of the request
    #[arg(value_name = "FIELD=VALUE", required = true)]
    fields: Vec<FieldArgument>,
    #[command(flatten)]
    view: DaemonView,
}

#[derive(Debug, Args)]
pub(super) struct GroupsArguments {
    /// Rank only the values of this field
    #[arg(value_name = "FIELD")]
    field: Option<String>,
    /// The time to look back: 1m, 10m or 1h
    #[arg(long, value_name = "TIME", default_value = "10m")]
    over: String,
    /// The measure to rank by: the number of requests, the time that they take, or their delay
    #[arg(long, value_enum, default_value_t)]
    by: RankedBy,
    #[command(flatten)]
    view: DaemonView,
}

pub(super) fn groups(typed: GroupsArguments) -> anyhow::Result<()> {
    let GroupsArguments { field, over, by, view } = typed;
    let by = by.to_possible_value().expect("no measure is hidden");
    let field = field.as_deref().map(|name| ("field", name));
    let query = [("over", over.as_str()), ("by", by.get_name())].into_iter().chain(field);
    let path = format!("/api/groups?{}", written(query));
    if view.json { print(view, path) } else { top::groups(&view.daemon.client()?, &path) }
}

/// Prints the view at a path.
pub(super) fn print(view: DaemonView, path: impl Into<String>) -> anyhow::Result<()> {
    view.print(AdminQuestion::get(path))
}

pub(super) fn status(typed: StatusArguments) -> anyhow::Result<()> {
    let StatusArguments { section, since, view } = typed;
    match (section, since) {
        (Some(_), Some(_)) => clap::Error::raw(ErrorKind::ArgumentConflict, NO_SECTION).exit(),
        (Some(Section::Cluster), _) => print(view, "/api/cluster"),
        (Some(Section::Peers), _) => print(view, "/api/peers"),
        (None, since) if !view.json => top::once(&view.daemon.client()?, since),
        (None, Some(span)) => print(view, history(span)),
        (None, None) => print(view, "/api/status"),
    }
}

pub(super) fn top(typed: TopArguments) -> anyhow::Result<()> {
    let daemon = typed.daemon.client()?;
    match typed.once || !top::has_screen() {
        true => top::once(&daemon, typed.since),
        false => top::watch(daemon, typed.since),
    }
}

const NO_SECTION: &str = "--since lists throttled clients, so it cannot be combined with cluster or peers\n";

/// A time span of the history.
fn span(text: &str) -> Result<Duration, String> {
    match units::duration(text) {
        Ok(span) if (Duration::from_secs(1)..=DAY).contains(&span) => Ok(span),
        Ok(_) => Err("expected a time from 1s to 24h".into()),
        Err(reason) => Err(reason.to_string()),
    }
}

pub(super) fn quota(typed: QuotaArguments) -> anyhow::Result<()> {
    print(typed.view, path("quota", &typed.fields))
}
