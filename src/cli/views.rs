//! Views of a running daemon: `slowlane status` and `quota`.

use clap::{Args, Subcommand};

use crate::admin_client::Question;
use crate::cli::admin::Daemon;
use crate::cli::fields::{Field, path};
#[cfg(feature = "top")]
use crate::top;

pub(super) const STATUS: &str = include_str!("help/status.txt");

pub(super) const QUOTA: &str = include_str!("help/quota.txt");

/// The daemon to query, and the format of its answer.
#[derive(Debug, Args)]
pub(super) struct View {
    #[command(flatten)]
    daemon: Daemon,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

impl View {
    pub(super) fn print(self, question: Question) -> anyhow::Result<()> {
        self.daemon.print(question.with_json(self.json))
    }
}

#[derive(Debug, Args)]
pub(super) struct StatusArguments {
    #[command(subcommand)]
    section: Option<Section>,
    #[command(flatten)]
    view: View,
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum Section {
    /// List the nodes of a cluster, as one of them sees it.
    #[command(after_help = include_str!("help/status-cluster.txt"))]
    Cluster,
    /// List the proxies that enforce limits locally (HAProxy's peers protocol).
    #[command(after_help = include_str!("help/status-peers.txt"))]
    Peers,
}

#[derive(Debug, Args)]
pub(super) struct QuotaArguments {
    /// The fields of the request
    #[arg(value_name = "FIELD=VALUE", required = true)]
    fields: Vec<Field>,
    #[command(flatten)]
    view: View,
}

/// Prints the view at a path.
pub(super) fn print(view: View, path: impl Into<String>) -> anyhow::Result<()> {
    view.print(Question::get(path))
}

pub(super) fn status(typed: StatusArguments) -> anyhow::Result<()> {
    let StatusArguments { section, view } = typed;
    match section {
        Some(Section::Cluster) => print(view, "/api/cluster"),
        Some(Section::Peers) => print(view, "/api/peers"),
        #[cfg(feature = "top")]
        None if !view.json => top::once(&view.daemon.client()?),
        None => print(view, "/api/status"),
    }
}

pub(super) fn quota(typed: QuotaArguments) -> anyhow::Result<()> {
    print(typed.view, path("quota", &typed.fields))
}
