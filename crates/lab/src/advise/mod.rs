//! Advice on limits: the rates of the clients in access logs, and the burst and rate that would have spared most of
//! them.
//!
//! ```text
//!  Requests ─Request─▶ Clients: rates, bots, and the burst that each rate needs ─▶ Pair: burst and rate
//!                                                                                     ▼
//!  the same logs ──────────────────────────────────────────────────▶ replay ─▶ Proposal: who would have waited
//! ```
//! A client of a token bucket never waits if the burst covers its largest debt. For every rate in a list, a client's
//! largest debt is kept, in the arithmetic of the `pace` law. The clients that would have waited come from the replay.

mod by;
mod clients;
mod crowd;
mod proposal;
mod report;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde::Serialize;
use thiserror::Error;

use crate::access_log::{LogOutcome, PlanError};
use crate::replay::{self, Input, Requests};
use clients::{Client, Clients, RATES};
use crowd::{FIELDS, Groups};
use proposal::propose;
use slowlane_core::base::{Timestamp, Value, date};
use slowlane_core::policy::{LayoutError, PolicyErrors};
use slowlane_core::table::Sizing;

pub use by::{By, ProposedLines};
pub use crowd::Crowd;
pub use proposal::{Busy, Pair, Proposal, Waiting};
pub use report::report;

/// Settings for the proposals, and for reading the logs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The types to propose an SLO for. If empty: each of source, website and owner that the logs carry.
    pub by: Vec<By>,
    /// The percentage of the clients that must never wait.
    pub spare: f64,
    /// Whether bots are excluded from these clients.
    pub except_bots: bool,
    /// The size of the table in the replay.
    pub sizing: Sizing,
    pub reading: replay::ReplaySettings,
}

/// The clients of the logs, the crowds among them, and a proposal for each type.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// The times of the first and the last request.
    pub from: String,
    pub to: String,
    pub requests: u64,
    /// Whether any log has no fractions of a second. Each burst then has room for another second.
    pub whole_seconds: bool,
    pub logs: Vec<LogOutcome>,
    /// Crowds of addresses with few requests each.
    pub crowds: Vec<Crowd>,
    /// A sentence about addresses with few requests, if most requests come from them and no field distinguishes a
    /// crowd.
    pub scattered: Option<String>,
    pub types: Vec<Proposal>,
    /// Reasons to be cautious with the figures.
    pub notes: Vec<String>,
}

/// Why there is no advice.
#[derive(Debug, Error)]
pub enum AdviseError {
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error(transparent)]
    Policy(#[from] PolicyErrors),
    #[error(
        "by {0}: no clients found: if the log lacks a field, name its item with --field; otherwise, leave \
         out --except-bots"
    )]
    NoClients(String),
    #[error(
        "--by {0} and --by {1} use the same map, which can have only one SLO for each value: give only one \
         of these options"
    )]
    SameMap(String, String),
    #[error("--field {0}: this field is not used: to propose a limit for it, add --by {0}")]
    UselessField(String),
}

/// Fields with the user agent: the field that `--field` names, and nginx's variable.
const AGENTS: [&str; 2] = ["user_agent", "http_user_agent"];

/// Measures the clients of the logs, proposes limits, and replays the logs under each limit. `open` opens the logs:
/// first to measure the clients, then again for each replay. `progress` gets the number of lines read since the logs
/// were last opened.
///
/// # Errors
/// The errors of `open`; a format without a time; an option that is not used; or a type without clients to spare.
pub fn advise<E: From<AdviseError>>(
    mut open: impl FnMut() -> Result<Vec<Input>, E>,
    settings: &Settings,
    mut progress: impl FnMut(u64),
) -> Result<Advice, E> {
    let is_usual = settings.by.is_empty();
    let types = if is_usual { By::usual() } else { settings.by.clone() };
    let of_types = types.iter().flat_map(|by| by.fields().chain([by.looked_up()]));
    let fields: BTreeSet<&str> = of_types.chain(AGENTS).chain(["cost", "path", "asn"]).collect();
    let mut mappings = settings.reading.mappings.iter();
    if let Some(useless) =
        mappings.find(|mapping| !fields.contains(&*mapping.field) && !mapping.is_structural())
    {
        return Err(AdviseError::UselessField(useless.field.clone()).into());
    }
    let mut requests = Requests::open(open()?, &settings.reading, &|field| fields.contains(field), None)
        .map_err(AdviseError::from)?;
    let digits = By::digits(&types)?;
    let mut all = types.iter().zip(digits).map(Clients::new).collect::<Result<Vec<_>, AdviseError>>()?;
    let mut groups: Vec<Groups> = FIELDS.into_iter().filter(|_| is_usual).map(Groups::of).collect();
    let mut count = 0;
    requests.each(&mut progress, |request, now_ns, _| {
        count += 1;
        let agent = request.fields().find(|field| AGENTS.iter().any(|name| name.as_bytes() == field.name));
        let bot = match agent.map(|agent| agent.value) {
            Some(Value::Text(text)) => clients::bot(text),
            _ => None,
        };
        let now = Timestamp::from_nanos(now_ns);
        let cost = all.iter_mut().map(|clients| clients.count(request, now, bot)).max().unwrap_or(1);
        groups.iter_mut().for_each(|groups| groups.count(request, now_ns, cost, bot));
    });
    if is_usual {
        // A host that appears only in a few absolute URIs is not worth a limit by website.
        let is_by_chance = requests.plans().all(|plan| plan.has_website_by_chance());
        all.retain(|clients| !(clients.rows.is_empty() || is_by_chance && clients.by.name() == "website"));
    }
    let whole_seconds = requests.plans().any(|plan| plan.times.is_in_seconds());
    groups.retain(|groups| !groups.outstanding(count).is_empty());
    let bys: Vec<By> = groups.iter().map(|groups| groups.by.clone()).collect();
    let mut crowds = Vec::new();
    for (groups, digit) in groups.iter().zip(By::digits(&bys)?) {
        crowds.extend(groups.crowd((digit, count), whole_seconds, open()?, settings, &mut progress)?);
    }
    let sources = all.first().filter(|_| is_usual && crowds.is_empty());
    let scattered = sources.and_then(|clients| clients.scattered(count));
    let (mut notes, mut types) = (requests.notes(), Vec::new());
    for clients in all.into_iter().filter(|_| count > 0) {
        notes.extend(clients.note());
        let proposal = propose(clients, whole_seconds, open()?, settings, &mut progress)?;
        notes.extend(proposal.note(settings.spare));
        types.push(proposal);
    }
    let (begun_ns, ended_ns) = requests.span_ns();
    let [from, to] = [begun_ns, ended_ns].map(|at_ns| date::written(Timestamp::from_nanos(at_ns)));
    let logs = requests.outcomes();
    Ok(Advice { from, to, requests: count, whole_seconds, logs, crowds, scattered, types, notes })
}
