//! A proposal for one type: the figures of the type's clients, a burst and a rate, the lines, and the replay.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde::Serialize;

use crate::access_log::VALUE_BYTES_MAX;
use crate::advise::clients::STEADY;
use crate::advise::{AdviseError, Client, Clients, ProposedLines, RATES, Settings};
use crate::replay::{self, Input, KeyRow, ReplayCounts, Subject};
use slowlane_core::base::{Key, SloId, plural};
use slowlane_core::policy::Policy;
use slowlane_core::throttle::Throttle;

/// An SLO for one type, and the clients that this SLO would have slowed down.
#[derive(Clone, Debug, Serialize)]
pub struct Proposal {
    /// The fields of the type, such as `source+website`.
    pub by: String,
    pub clients: usize,
    /// Percentiles over the clients, such as `p50`. Each count is ranked separately.
    pub quantiles: Vec<Busy>,
    /// The clients with the most requests.
    pub busiest: Vec<Busy>,
    pub bots: usize,
    /// The number of bots that do not name themselves and were found by their steady rate.
    pub steady_bots: usize,
    pub bot_requests: u64,
    /// The pairs of burst and rate that spare enough clients.
    pub pairs: Vec<Pair>,
    pub proposed: Pair,
    #[serde(flatten)]
    pub lines: ProposedLines,
    /// The number of values that get no line in the map.
    pub values_left_out: usize,
    /// The number of clients to be spared, and how many of them never waited in the replay.
    pub to_spare: usize,
    pub spared: usize,
    /// The number of clients that waited in the replay, bots included, and the verdicts on their requests.
    pub waiting_clients: usize,
    pub waiting_requests: u64,
    pub delayed: u64,
    pub denied: u64,
    /// The first of the clients that waited.
    pub waiting: Vec<Waiting>,
}

/// A client, and its requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Busy {
    pub who: String,
    pub requests: u64,
    pub busiest_minute: u64,
    pub busiest_second: u64,
    pub bot: Option<String>,
}

/// A burst and a rate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pair {
    pub burst: u32,
    pub rate: String,
    /// The maximum number of one client's requests that can pass in ten seconds: `burst + rate x T`, as `pace` bounds
    /// it.
    pub admits_in_10_s: u64,
}

impl Pair {
    /// The options of a line of `slo.map`.
    pub(super) fn objective(&self) -> String {
        format!("burst={} rate={}", self.burst, self.rate)
    }
}

/// A client that waited in the replay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Waiting {
    pub who: String,
    #[serde(flatten)]
    pub counts: ReplayCounts,
    pub bot: Option<String>,
}

/// The time T over which pairs are compared. An application notices a load of this length, and a page with its images
/// has loaded within this time.
const WINDOW: Duration = Duration::from_secs(10);

/// The quantiles: their names, and their places in thousandths.
const QUANTILES: [(&str, usize); 5] =
    [("p50", 500), ("p90", 900), ("p99", 990), ("p99.9", 999), ("most", 1_000)];

/// The maximum error of a time in whole seconds.
pub(super) const SECOND_NS: u64 = 1_000_000_000;

/// Memory for the auxiliary state of laws. `pace` has none.
pub(super) const AUX_BYTES_MAX: usize = 1 << 20;

/// Chooses a burst and a rate, and replays the logs with the proposed lines in force.
pub(super) fn propose(
    clients: Clients,
    whole_seconds: bool,
    inputs: Vec<Input>,
    settings: &Settings,
    progress: &mut impl FnMut(u64),
) -> Result<Proposal, AdviseError> {
    let Clients { by, id, mut rows, .. } = clients;
    let (top, mut values, mut values_left_out) = (settings.reading.top, Vec::new(), 0);
    if !by.is_by_address() {
        let count;
        (values, count) = listed(&rows);
        values.truncate(top);
        values_left_out = count - values.len();
        let listed: HashSet<&[u8]> = values.iter().map(String::as_bytes).collect();
        rows.retain(|_, client| listed.contains(&*client.value));
    }
    let to_spare: Vec<&Client> = rows.values().filter(|client| is_to_spare(client.bot(), settings)).collect();
    if to_spare.is_empty() {
        return Err(AdviseError::NoClients(by.name().to_owned()));
    }
    let pairs = pairs(&to_spare, settings.spare, if whole_seconds { SECOND_NS } else { 0 });
    let proposed = proposed(&pairs);
    let bots: Vec<&Client> = rows.values().filter(|client| client.bot().is_some()).collect();
    let mut busiest: Vec<&Client> = rows.values().collect();
    busiest.sort_unstable_by_key(|client| (Reverse(client.requests), &client.name));
    let busy = |client: &&Client| busy(&client.name, client.figures(), client.bot());

    let (lines, policy) = by.proposed(id.kind(), &proposed.objective(), &values)?;
    let keys = keys_waiting(policy, id, inputs, settings, progress)?;
    let sum = |of: fn(&ReplayCounts) -> u64| keys.iter().map(|row| of(&row.counts)).sum();
    let bot = |key: &Key| rows.get(key).and_then(Client::bot);
    let not_spared = keys.iter().filter(|row| is_to_spare(bot(&row.key), settings)).count();
    let waiting = |row: &KeyRow| Waiting {
        who: row.name.to_string(),
        counts: row.counts,
        bot: bot(&row.key).map(str::to_owned),
    };
    Ok(Proposal {
        by: by.name().to_owned(),
        clients: rows.len(),
        quantiles: quantiles(&rows),
        busiest: busiest.iter().take(top).map(busy).collect(),
        bots: bots.len(),
        steady_bots: bots.iter().filter(|client| client.bot() == Some(STEADY)).count(),
        bot_requests: bots.iter().map(|client| client.requests).sum(),
        pairs,
        proposed,
        lines,
        values_left_out,
        to_spare: to_spare.len(),
        spared: to_spare.len().saturating_sub(not_spared),
        waiting_clients: keys.len(),
        waiting_requests: sum(|counts| counts.requests),
        delayed: sum(|counts| counts.delayed),
        denied: sum(|counts| counts.denied),
        waiting: keys.iter().take(top).map(waiting).collect(),
    })
}

/// The keys of an SLO that wait when the logs are replayed under it, starting with the most waiting requests.
fn keys_waiting(
    policy: Policy,
    id: SloId,
    inputs: Vec<Input>,
    settings: &Settings,
    progress: &mut impl FnMut(u64),
) -> Result<Vec<KeyRow>, AdviseError> {
    let mut reading = replay::ReplaySettings { top: usize::MAX, ..settings.reading.clone() };
    // The other mappings are for other types or for the user agent.
    let is_used = |name: &str| name == "cost" || policy.used_fields().any(|field| field == name);
    reading.mappings.retain(|mapping| is_used(&mapping.field));
    let throttle = Throttle::new(policy, settings.sizing, AUX_BYTES_MAX);
    let mut outcome =
        replay::replay(inputs, &[Subject { name: id.to_string(), throttle }], &reading, progress)?;
    let mut keys = outcome.sides.swap_remove(0).keys;
    // A request whose website is not a host is refused under SLO 0.
    keys.retain(|row| row.slo == id);
    Ok(keys)
}

impl Proposal {
    /// What to call the rows: if a type does not include the source, many clients share a key.
    pub(super) fn noun(&self) -> &'static str {
        if self.by.starts_with("source") { "client" } else { "key" }
    }

    /// A note if there are so few clients that `spare` percent of them means all of them.
    pub(super) fn note(&self, spare: f64) -> Option<String> {
        let Proposal { by, to_spare, .. } = self;
        (spare < 100.0 && others(spare, *to_spare) == 0).then(|| {
            let clients = plural(*to_spare, self.noun());
            format!(
                "by {by}: --spare {spare} spares all of {clients}: with a lower --spare, the busiest of them would \
                 wait"
            )
        })
    }
}

fn is_to_spare(bot: Option<&str>, settings: &Settings) -> bool {
    !settings.except_bots || bot.is_none()
}

/// How many of this many clients, at most, need not be spared. The percentage is rounded to a thousandth.
pub(super) fn others(spare: f64, clients: usize) -> usize {
    clients * (100_000 - (spare * 1_000.0).round() as usize) / 100_000
}

/// For every rate, the smallest burst with which at least `spare` percent of the clients never wait. A rate is left out
/// if a lower rate needs no larger burst, because the higher rate would only admit more requests.
pub(super) fn pairs(clients: &[&Client], spare: f64, off_ns: u64) -> Vec<Pair> {
    let others = others(spare, clients.len());
    let mut pairs: Vec<Pair> = Vec::new();
    for (number, rate) in RATES.iter().enumerate() {
        let mut bursts: Vec<u64> = clients.iter().map(|client| client.burst(number, off_ns)).collect();
        bursts.sort_unstable_by_key(|&burst| Reverse(burst));
        let burst = bursts.get(others).map_or(1, |&burst| u32::try_from(burst).unwrap_or(u32::MAX));
        if pairs.last().is_none_or(|lower| burst < lower.burst) {
            let admits_in_10_s = u64::from(burst) + rate.requests_in(WINDOW) as u64;
            pairs.push(Pair { burst, rate: rate.to_string(), admits_in_10_s });
        }
    }
    pairs
}

/// The pair that admits the fewest requests.
pub(super) fn proposed(pairs: &[Pair]) -> Pair {
    pairs.iter().min_by_key(|pair| pair.admits_in_10_s).expect("at least one rate has a pair").clone()
}

/// The values that a line of a map can have, starting with the most requests, and the number of all values.
fn listed(rows: &HashMap<Key, Client>) -> (Vec<String>, usize) {
    let mut requests: HashMap<&[u8], u64> = HashMap::new();
    for client in rows.values() {
        *requests.entry(&client.value).or_default() += client.requests;
    }
    requests.remove(&b""[..]);
    let count = requests.len();
    // Values of the maximum length may have been cut.
    let text = |(value, requests): (&[u8], u64)| {
        let text = std::str::from_utf8(value).ok().filter(|text| text.len() < VALUE_BYTES_MAX)?;
        Some((text.to_owned(), requests))
    };
    let mut values: Vec<(String, u64)> = requests.into_iter().filter_map(text).collect();
    values.sort_unstable_by(|one, other| (Reverse(one.1), &one.0).cmp(&(Reverse(other.1), &other.0)));
    (values.into_iter().map(|(value, _)| value).collect(), count)
}

fn busy(who: &str, figures: [u64; 3], bot: Option<&str>) -> Busy {
    let [requests, busiest_minute, busiest_second] = figures;
    Busy { who: who.to_owned(), requests, busiest_minute, busiest_second, bot: bot.map(str::to_owned) }
}

fn quantiles(rows: &HashMap<Key, Client>) -> Vec<Busy> {
    let sorted = [0, 1, 2].map(|figure| {
        let mut figures: Vec<u64> = rows.values().map(|client| client.figures()[figure]).collect();
        figures.sort_unstable();
        figures
    });
    let place = |thousandths: usize| (rows.len() * thousandths).div_ceil(1_000) - 1;
    let quantile =
        |(name, thousandths)| busy(name, [0, 1, 2].map(|figure| sorted[figure][place(thousandths)]), None);
    QUANTILES.map(quantile).to_vec()
}
