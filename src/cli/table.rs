//! `slowlane table`: the table of a running daemon, with the commands of HAProxy's Runtime API.

use anyhow::{anyhow, ensure};
use clap::{Args, Subcommand};

use crate::admin_client::AdminQuestion;
use crate::cli::admin::{self, Daemon};
use crate::cli::arguments::{FieldArgument, path};
use crate::observe::status::TABLE;
use slowlane_core::base::Key;

#[derive(Debug, Args)]
pub(super) struct TableArguments {
    #[command(subcommand)]
    action: TableAction,
    #[command(flatten)]
    daemon: Daemon,
}

#[derive(Debug, Subcommand)]
enum TableAction {
    /// Print all rows, or the rows that meet the conditions
    Show {
        /// Conditions, like data.gpc0_rate gt 10
        #[arg(value_name = "FILTER", allow_negative_numbers = true)]
        filter: Vec<String>,
    },
    /// Print the row of a key
    Get {
        /// The key, as sixteen hex digits
        #[arg(value_name = "KEY", value_parser = key)]
        key: Key,
    },
    /// Set columns of a row; a missing row is created
    Set {
        /// The key, as sixteen hex digits
        #[arg(value_name = "KEY", value_parser = key)]
        key: Key,
        /// Columns and their new values, like data.gpt0 1000
        #[arg(value_name = "COLUMN VALUE", required = true)]
        values: Vec<String>,
    },
    /// Forget a key, the rows that meet the conditions, or all rows
    Clear {
        /// A key, the fields of a request, or conditions, like data.gpc1_rate eq 0
        #[arg(value_name = "KEY | FIELD=VALUE | FILTER", allow_negative_numbers = true)]
        which: Vec<String>,
    },
}

fn key(text: &str) -> Result<Key, &'static str> {
    Key::from_hex(text).ok_or("expected a key of sixteen hex digits, like 26C7827D889F6DA3")
}

pub(super) fn table(typed: TableArguments) -> anyhow::Result<()> {
    let TableArguments { action, daemon } = typed;
    let question = match &action {
        TableAction::Clear { which } if which.iter().any(|word| word.contains('=')) => of_fields(which)?,
        action => AdminQuestion { body: command(action), ..AdminQuestion::post("/api/runtime") },
    };
    let reported = admin::print(&daemon.client()?, question)?;
    match action {
        TableAction::Get { key } => ensure!(reported, "the table has no entry for key {key}"),
        TableAction::Show { .. } | TableAction::Set { .. } | TableAction::Clear { .. } => {}
    }
    Ok(())
}

/// The query that makes the daemon forget a request's keys. Only the daemon knows the secret for hashing keys.
fn of_fields(words: &[String]) -> anyhow::Result<AdminQuestion> {
    let fields: Result<Vec<FieldArgument>, _> = words.iter().map(|word| word.parse()).collect();
    let fields = fields.map_err(|expected| anyhow!("{}: {expected}", words.join(" ")))?;
    Ok(AdminQuestion::post(path("clear", &fields)))
}

/// The command of the Runtime API for this action.
fn command(action: &TableAction) -> String {
    let (verb, words) = match action {
        TableAction::Show { filter } => ("show", escaped(filter)),
        TableAction::Get { key } => ("show", format!(" key {key}")),
        TableAction::Set { key, values } => ("set", format!(" key {key}{}", escaped(values))),
        TableAction::Clear { which } => match which.as_slice() {
            [one] if Key::from_hex(one).is_some() => ("clear", format!(" key {one}")),
            filter => ("clear", escaped(filter)),
        },
    };
    format!("{verb} table {TABLE}{words}")
}

/// Each word, preceded by a space. Separators of the Runtime API are escaped.
fn escaped(words: &[String]) -> String {
    let escape = |letter: char| match letter {
        '\\' | ';' | ' ' | '\t' => format!("\\{letter}"),
        letter => letter.to_string(),
    };
    words.iter().map(|word| format!(" {}", word.chars().map(escape).collect::<String>())).collect()
}
