//! A crowd: many addresses of the same network, ASN, user agent or page, which often send only a few requests each.
//!
//! ```text
//!  Requests ─▶ Groups: requests by value of a field ─▶ the values that stand out, and a limit that spares the others
//!                                                                      ▼
//!  the same logs ──────────────────────────────────▶ replay ─▶ Crowd: its addresses, its pages, and who else waited
//! ```
//! Memory is bounded: groups with few requests are forgotten, and if there are very many addresses, only a random part
//! of them is counted.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use serde::Serialize;

use crate::access_log::VALUE_BYTES_MAX;
use crate::advise::clients::{FEW, STEADY};
use crate::advise::proposal::{AUX_BYTES_MAX, SECOND_NS, pairs, proposed};
use crate::advise::{AGENTS, AdviseError, By, Client, ProposedLines, Settings};
use crate::replay::{Input, Requests, forget_half};
use slowlane_core::base::{Network, Request, Sample, Timestamp, Value, Verdict, shown};
use slowlane_core::policy::Text;
use slowlane_core::throttle::Throttle;

/// Addresses that one field distinguishes from all others, a limit for these addresses, and the effect of that limit.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Crowd {
    /// The field: `network`, `asn`, `user_agent` or `path`.
    pub by: String,
    /// The field's values, each with its number of requests, starting with the busiest.
    pub groups: Vec<(String, u64)>,
    pub addresses: u64,
    pub requests: u64,
    pub percent_of_requests: f64,
    /// The median number of requests per address.
    pub requests_each: u32,
    /// The percentage of the crowd's requests for pages that no other client requests. None if the logs have no paths.
    pub own_pages_percent: Option<f64>,
    #[serde(flatten)]
    pub lines: ProposedLines,
    /// The number of the crowd's requests that were delayed or denied in the replay.
    pub waiting_requests: u64,
    /// How many other clients there are, how many of these waited, and how many of their requests waited.
    pub others: u64,
    pub others_waiting: u64,
    pub others_waiting_requests: u64,
}

/// The fields that may distinguish a crowd from other clients.
pub(super) const FIELDS: [&str; 4] = ["network", "asn", "user_agent", "path"];

/// The maximum number of groups of a field at a time. Beyond this number, the smallest groups are dropped.
const GROUPS_MAX: usize = 1 << 14;

/// A group with fewer addresses needs only a limit for each address. A crowd of more than `NAMED_MAX` groups is not
/// recognised.
const ADDRESSES_MIN: u32 = 16;
const NAMED_MAX: usize = 64;

/// Each group of a crowd has at least this many times as many requests as the next group outside the crowd.
const GAP: u64 = 3;

/// The fraction of all requests that a crowd may send. If no group is outside the crowd, it must send at least half.
const PARTS: std::ops::RangeInclusive<f64> = 0.1..=0.95;
const PART_ALONE_MIN: f64 = 0.5;

/// If at least this part of a crowd's requests is for pages that only the crowd requests, it behaves unlike others.
const OWN_MIN: f64 = 0.9;

/// If a larger part of the other clients would wait, the field does not distinguish the crowd.
const OTHERS_MAX: f64 = 0.01;

/// The requests, grouped by the value of one field.
pub(super) struct Groups {
    pub(super) by: By,
    /// The groups by a hash of their value. The hash has a secret, because clients choose the values.
    rows: HashMap<u64, Client>,
    secret: RandomState,
}

impl Groups {
    pub(super) fn of(field: &str) -> Groups {
        let by = field.parse().expect("the name is a valid field");
        Groups { by, rows: HashMap::new(), secret: RandomState::new() }
    }

    pub(super) fn count(&mut self, request: &Request<'_>, now_ns: u64, cost: u32, bot: Option<&str>) {
        let Some(Value::Address(source)) = request.get(b"source") else { return };
        // The same prefixes as those of the built-in field.
        let prefix = if source.is_ipv4() { 24 } else { 48 };
        let value = match self.by.name() {
            "network" => Some(Value::Network(Network::of(source, prefix))),
            "user_agent" => AGENTS.iter().find_map(|name| request.get(name.as_bytes())),
            name => request.get(name.as_bytes()),
        };
        let Some(value) = value else { return };
        let mut text = Text::default();
        let text = text.of(&value);
        let key = self.secret.hash_one(text);
        if self.rows.len() >= GROUPS_MAX && !self.rows.contains_key(&key) {
            forget_half(&mut self.rows, |client| client.requests, |_| {});
        }
        let row = self.rows.entry(key).or_insert_with(|| Client::new(Box::default(), text.into()));
        row.count(now_ns, cost, bot);
        row.seen |= 1 << (self.secret.hash_one(source) % 64);
    }

    /// The groups of many addresses that have far more requests than the next group, starting with the busiest.
    pub(super) fn outstanding(&self, requests: u64) -> Vec<&Client> {
        let is_key = |value: &[u8]| value.len() < VALUE_BYTES_MAX && str::from_utf8(value).is_ok();
        let is_many = |client: &&Client| client.seen.count_ones() >= ADDRESSES_MIN && is_key(&client.value);
        let mut many: Vec<&Client> = self.rows.values().filter(is_many).collect();
        many.sort_unstable_by_key(|client| (Reverse(client.requests), &client.value));
        let mut sum = 0;
        let is_last = |&place: &usize| {
            sum += many[place].requests;
            let part = sum as f64 / requests as f64;
            let next = many.get(place + 1);
            PARTS.contains(&part)
                && next.map_or(part >= PART_ALONE_MIN, |next| many[place].requests >= GAP * next.requests)
        };
        let last = (0..many.len().min(NAMED_MAX)).find(is_last);
        many.truncate(last.map_or(0, |last| last + 1));
        many
    }

    /// Replays the logs with a limit for the groups that stand out. None if the groups are not a crowd, or if too many
    /// other clients would wait.
    pub(super) fn crowd(
        &self,
        (digit, requests): (u16, u64),
        whole_seconds: bool,
        inputs: Vec<Input>,
        settings: &Settings,
        progress: &mut impl FnMut(u64),
    ) -> Result<Option<Crowd>, AdviseError> {
        let (by, named) = (&self.by, self.outstanding(requests));
        let listed: HashSet<&[u8]> = named.iter().map(|client| &*client.value).collect();
        let others: Vec<&Client> =
            self.rows.values().filter(|client| !listed.contains(&*client.value)).collect();
        let pair = proposed(&pairs(&others, settings.spare, if whole_seconds { SECOND_NS } else { 0 }));
        let text = |client: &&Client| String::from_utf8_lossy(&client.value).into_owned();
        let values: Vec<String> = named.iter().map(text).collect();

        let (lines, policy) = by.proposed(digit, &pair.objective(), &values)?;
        let throttle = Throttle::new(policy, settings.sizing, AUX_BYTES_MAX);
        let wanted =
            |name: &str| FIELDS.iter().chain(&AGENTS).chain(&["source", "cost"]).any(|of| *of == name);
        let mut logs = Requests::open(inputs, &settings.reading, &wanted, None)?;
        let (mut seen, mut pages) = (Comparison::default(), vec![[0; 2]; PAGES]);
        logs.each(progress, |request, now_ns, _| {
            let mut asked = request.clone();
            AGENTS
                .iter()
                .filter_map(|name| request.get(name.as_bytes()))
                .for_each(|agent| asked.push(b"user_agent", agent));
            let now = Timestamp::from_nanos(now_ns);
            throttle.sweep(now);
            let decision = throttle.decide_one(&asked, now, Sample::MIDDLE);
            let is_waiting = decision.verdict != Verdict::Pass;
            seen.count(&asked, decision.slo.kind() == digit, is_waiting, &mut pages);
        });
        let is_bot = named.iter().all(|client| client.bot().is_some_and(|name| name != STEADY));
        let crowd = Crowd {
            by: by.name().to_owned(),
            groups: values
                .iter()
                .zip(&named)
                .map(|(value, client)| (shown(value), client.requests))
                .collect(),
            lines,
            ..seen.crowd(requests, &pages)
        };
        let is_own = crowd.own_pages_percent.is_some_and(|percent| percent >= 100.0 * OWN_MIN);
        let differs = is_own || is_bot || by.name() == "network" && crowd.requests_each <= FEW;
        let spares = crowd.others_waiting as f64 <= crowd.others as f64 * OTHERS_MAX;
        Ok(Some(crowd).filter(|crowd| differs && spares && crowd.waiting_requests > 0))
    }
}

/// The number of places for the counts of pages. If two pages share a place, the crowd may seem to request other
/// clients' pages.
const PAGES: usize = 1 << 20;

/// The maximum number of addresses that are counted.
const MET_MAX: usize = 1 << 18;

/// The requests of a crowd, compared with those of other clients.
#[derive(Default)]
struct Comparison {
    secret: RandomState,
    /// An address is counted only if this many leading bits of its hash are zero.
    bits: u32,
    met: HashMap<u64, Met>,
    requests: u64,
    waiting: u64,
}

/// How many requests an address sent: in the crowd's groups; among these, for pages that other clients had requested
/// before; outside the groups; and how many waited.
#[derive(Clone, Copy, Default)]
struct Met {
    inside: u32,
    known: u32,
    outside: u32,
    waiting: u32,
}

impl Comparison {
    /// Counts a request for its address and for its page. The crowd and other clients have separate counts.
    fn count(&mut self, request: &Request<'_>, is_inside: bool, waits: bool, pages: &mut [[u32; 2]]) {
        let mut is_known = false;
        if let Some(Value::Text(path)) = request.get(b"path") {
            let page = &mut pages[self.secret.hash_one(path) as usize % PAGES];
            is_known = page[1] > 0;
            let count = &mut page[usize::from(!is_inside)];
            *count = count.saturating_add(1);
        }
        self.requests += u64::from(is_inside);
        self.waiting += u64::from(is_inside && waits);
        let Some(Value::Address(source)) = request.get(b"source") else { return };
        let hash = self.secret.hash_one(source);
        if hash.leading_zeros() < self.bits {
            return;
        }
        let met = self.met.entry(hash).or_default();
        met.inside += u32::from(is_inside);
        met.known += u32::from(is_inside && is_known);
        met.outside += u32::from(!is_inside);
        met.waiting += u32::from(waits);
        if self.met.len() > MET_MAX {
            self.bits += 1;
            self.met.retain(|hash, _| hash.leading_zeros() >= self.bits);
        }
    }

    /// The figures of the crowd. A client with requests outside the groups does not belong to the crowd; nor does a
    /// client that mostly requests other clients' pages, if the crowd itself does not.
    fn crowd(&self, requests: u64, pages: &[[u32; 2]]) -> Crowd {
        let all: u64 = pages.iter().map(|page| u64::from(page[0])).sum();
        let own: u64 = pages.iter().filter(|page| page[1] == 0).map(|page| u64::from(page[0])).sum();
        let own = (all > 0).then_some(own as f64 / all as f64);
        let is_own = own.is_some_and(|own| own >= OWN_MIN);
        let is_of_it = |met: &&Met| met.outside == 0 && !(is_own && met.known * 2 > met.inside);
        let (of_it, others): (Vec<&Met>, Vec<&Met>) = self.met.values().partition(is_of_it);
        let mut each: Vec<u32> = of_it.iter().map(|met| met.inside).collect();
        each.sort_unstable();
        let waiting: Vec<u32> = others.iter().map(|met| met.waiting).filter(|&waiting| waiting > 0).collect();
        Crowd {
            addresses: (of_it.len() as u64) << self.bits,
            requests: self.requests,
            percent_of_requests: self.requests as f64 * 100.0 / requests as f64,
            requests_each: each.get(each.len() / 2).copied().unwrap_or(0),
            own_pages_percent: own.map(|own| own * 100.0),
            waiting_requests: self.waiting,
            others: (others.len() as u64) << self.bits,
            others_waiting: (waiting.len() as u64) << self.bits,
            others_waiting_requests: waiting.iter().map(|&waiting| u64::from(waiting)).sum::<u64>()
                << self.bits,
            ..Crowd::default()
        }
    }
}
