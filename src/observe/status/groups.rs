//! The groups that send the most requests, found in a fixed amount of memory.
//!
//! ```text
//! a sample of all requests ─▶ 1 minute │ 10 minutes │ 1 hour, each faded once a second
//! ```
//! A request belongs to the group of its address, to one group for each network around it, and to one for each of its
//! fields. If at most [`NOTES_PER_S`] requests arrive in a second, all are noted; otherwise, only a sample is, in which
//! each request stands for several. A span is an exponentially damped mean, like a load average: in the span of a
//! minute, a request from a minute ago counts 1/e.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use arrayvec::ArrayVec;
use parking_lot::Mutex;

use crate::observe::status::ranking::{AddressBits, Crowd, GroupRow, RankedBy, Ranking};
use slowlane_core::base::{Decision, FIELDS_MAX, Key, Network, Ticket, Timestamp, Turn, Value, shown};
use slowlane_core::policy::{Fact, Text};
use slowlane_core::table::{Counter, Frequent};

/// The number of notes per second, up to 4,096 requests/s. Above that, 1 in 128 requests is noted, because a note costs
/// as much as two requests.
const NOTES_PER_S: u32 = 32;
const ONE_IN: f64 = 128.0;

/// The maximum number of notes in a second, from 32,000 requests/s on.
const NOTES_PER_S_MAX: f64 = 250.0;

/// The number of counters in each span. Every group with more than 0.06 % of all counts is found. The three spans take
/// 1.4 MB.
const ROOM: usize = 3_584;

/// The number of bytes to keep of a value. Longer values are cut for display, and compared by their first 256 bytes.
const LABEL_BYTES: usize = 47;
const VALUE_BYTES_MAX: usize = 256;

/// The networks around an address: their prefixes for IPv4 and IPv6.
const AROUND: [(u8, u8); 2] = [(24, 48), (16, 32)];

/// The maximum number of groups listed for each field: in a ranking, and in the status.
const LISTED_MAX: usize = 20;
const BUSIEST_MAX: usize = 3;

/// The first fields: the address, and each network around it.
const FIRST: [&str; 3] = [SOURCE, NETWORK, NETWORK];
const SOURCE: &str = "source";
pub(super) const NETWORK: &str = "network";

/// The maximum number of fields that are ranked. A process that has seen this many fields ignores new ones.
const NAMES_MAX: usize = 64;

/// Fields that contain an amount. Their values form no groups.
const AMOUNTS: [&str; 2] = ["cost", "announced"];

/// The maximum number of groups of one request.
const GROUPS_MAX: usize = FIRST.len() + FIELDS_MAX;

/// The maximum number of noted requests whose ends are awaited, and the longest wait for an end.
const AWAITED_MAX: usize = 1_024;
const AWAITED_FOR: Duration = Duration::from_secs(600);

/// A time over which groups are ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookback {
    Minute,
    TenMinutes,
    Hour,
}

impl Lookback {
    const ALL: [Lookback; 3] = [Lookback::Minute, Lookback::TenMinutes, Lookback::Hour];

    pub(super) const fn seconds(self) -> u32 {
        [60, 600, 3_600][self as usize]
    }

    /// The span of exactly this length, if there is one.
    pub fn of(time: Duration) -> Option<Lookback> {
        Lookback::ALL.into_iter().find(|span| time == Duration::from_secs(span.seconds().into()))
    }
}

/// The groups with the most requests.
#[derive(Debug)]
pub struct Groups {
    /// One request in this many is noted.
    one_in: AtomicU32,
    /// Whether the end of any noted request is awaited.
    awaits: AtomicBool,
    noted: Mutex<Noted>,
}

#[derive(Debug)]
struct Noted {
    /// The number of notes since the last tick.
    notes: u32,
    spans: [OfSpan; Lookback::ALL.len()],
    /// The names of the fields. A group refers to its field by index.
    names: Vec<Box<str>>,
    hasher: RandomState,
    /// The requests whose ends are awaited, by key and serial.
    awaited: HashMap<(Key, u32), Awaited>,
    ticked: Option<Timestamp>,
}

/// The groups of one span.
#[derive(Debug)]
struct OfSpan {
    groups: Frequent<GroupFacts>,
    requests: f64,
    /// The number of requests in the sample.
    sampled: f64,
    /// The time that the counts cover, in seconds, damped like the counts.
    seconds: f64,
}

/// Facts about a group, apart from its number of requests.
#[derive(Clone, Debug, Default)]
struct GroupFacts {
    field: u8,
    is_cut: bool,
    label: ArrayVec<u8, LABEL_BYTES>,
    delay_s: f32,
    denied: f32,
    work_s: f32,
    sources: AddressBits,
}

/// A noted request, and its groups so far.
struct NotedRequest {
    weight: f64,
    wait_s: f32,
    denied: f32,
    source: AddressBits,
    groups: ArrayVec<u64, GROUPS_MAX>,
}

/// A noted request that an SLO counts until its end.
#[derive(Debug)]
struct Awaited {
    /// The time at which the request passes; `turn` replaces it if that time may still change.
    begun: Timestamp,
    turn: Option<Arc<Turn>>,
    weight: f64,
    groups: ArrayVec<u64, GROUPS_MAX>,
}

impl Default for Groups {
    fn default() -> Groups {
        let span = |_| OfSpan { groups: Frequent::new(ROOM), requests: 0.0, sampled: 0.0, seconds: 0.0 };
        let noted = Noted {
            notes: 0,
            spans: Lookback::ALL.map(span),
            names: FIRST.map(Box::from).to_vec(),
            hasher: RandomState::new(),
            awaited: HashMap::new(),
            ticked: None,
        };
        Groups { one_in: AtomicU32::new(1), awaits: AtomicBool::default(), noted: Mutex::new(noted) }
    }
}

impl Groups {
    /// One request in this many is to be noted.
    #[inline]
    pub fn one_in(&self) -> u32 {
        self.one_in.load(Relaxed)
    }

    /// Notes a request, which waits for `turn`, unless the notes are locked. `facts` passes each field to its argument.
    pub fn note(
        &self,
        decision: &Decision,
        turn: Option<Arc<Turn>>,
        facts: impl Fn(&mut dyn FnMut(Fact<'_, '_>)),
    ) {
        let Some(mut noted) = self.noted.try_lock() else { return };
        let (weight, wait, is_denied) =
            (f64::from(self.one_in()), decision.verdict.wait(), !decision.is_let_through());
        let (wait_s, denied) =
            (wait.as_secs_f32() * weight as f32, if is_denied { weight as f32 } else { 0.0 });
        let mut note =
            NotedRequest { weight, wait_s, denied, source: AddressBits::default(), groups: ArrayVec::new() };
        facts(&mut |fact| noted.find_source(&fact, &mut note));
        facts(&mut |fact| noted.group(&fact, &mut note));
        for span in &mut noted.spans {
            span.requests += weight;
            span.sampled += 1.0;
        }
        noted.notes += 1;
        if noted.notes.is_multiple_of(2 * NOTES_PER_S) {
            // More requests arrive than in the last second, so a smaller share is noted.
            self.one_in.store(self.one_in().saturating_mul(2), Relaxed);
        }
        if is_denied || !decision.has_ticket() || noted.awaited.len() >= AWAITED_MAX {
            return;
        }
        if let Some((judged, serial)) = decision.numbered().find(|&(_, serial)| serial != 0) {
            let awaited = Awaited { begun: decision.at + wait, turn, weight, groups: note.groups };
            noted.awaited.insert((judged.key, serial), awaited);
            self.awaits.store(true, Relaxed);
        }
    }

    /// When a noted request ends, adds its time to the work of its groups.
    pub fn ended(&self, ticket: &Ticket, now: Timestamp) {
        if !self.awaits.load(Relaxed) {
            return;
        }
        let mut noted = self.noted.lock();
        let ended = ticket.counted.iter().find_map(|of| noted.awaited.remove(&(of.key, of.serial)));
        let Some(Awaited { begun, turn, weight, groups }) = ended else { return };
        let begun = turn.and_then(|turn| turn.due()).unwrap_or(begun);
        let work_s = now.since(begun).as_secs_f32() * weight as f32;
        for (group, span) in
            groups.iter().flat_map(|group| (0..Lookback::ALL.len()).map(move |span| (group, span)))
        {
            if let Some(facts) = noted.spans[span].groups.facts_mut(*group) {
                facts.work_s += work_s;
            }
        }
        self.awaits.store(!noted.awaited.is_empty(), Relaxed);
    }

    /// Fades all spans, and adapts the sample to `requests_per_s`. Call this once a second.
    pub fn tick(&self, now: Timestamp, requests_per_s: f64) {
        let one_in = (requests_per_s / f64::from(NOTES_PER_S)).min(ONE_IN);
        let one_in = one_in.max(requests_per_s / NOTES_PER_S_MAX).ceil().max(1.0);
        self.one_in.store(one_in as u32, Relaxed);
        let mut noted = self.noted.lock();
        noted.notes = 0;
        let passed = now.since(noted.ticked.unwrap_or(now));
        noted.ticked = Some(now);
        noted.awaited.retain(|_, awaited| now.since(awaited.begun) < AWAITED_FOR);
        noted.fade(passed.as_secs_f64());
    }

    /// The highest-ranked groups of each field, or of one field, by a measure.
    pub fn first(&self, span: Lookback, by: RankedBy, field: Option<&str>) -> Ranking {
        self.ranking(span).by(by, field, LISTED_MAX)
    }

    /// The busiest groups of the last minute.
    pub(super) fn busiest(&self) -> Vec<GroupRow> {
        self.ranking(Lookback::Minute).by(RankedBy::Requests, None, BUSIEST_MAX).groups
    }

    /// The network that nearly all requests of the last minute come from, if they come from few addresses.
    pub(super) fn crowd(&self) -> Option<Crowd> {
        self.ranking(Lookback::Minute).crowd()
    }

    /// The groups of a span whose weight exceeds the error, in no particular order.
    fn ranking(&self, span: Lookback) -> Ranking {
        let noted = self.noted.lock();
        let OfSpan { groups, requests, sampled, seconds } = &noted.spans[span as usize];
        let per_second = 1.0 / seconds.max(0.5);
        let row = |Counter { weight, facts, .. }: &Counter<GroupFacts>| GroupRow {
            field: noted.names[usize::from(facts.field)].to_string(),
            value: shown(&facts.label) + if facts.is_cut { "…" } else { "" },
            requests_per_s: weight * per_second,
            share: weight / requests,
            work: f64::from(facts.work_s) * per_second,
            delay: f64::from(facts.delay_s) * per_second,
            denied_per_s: f64::from(facts.denied) * per_second,
            addresses: facts.sources.addresses(),
        };
        let certain = groups.counters().filter(|counter| counter.weight > groups.error());
        Ranking {
            over_s: span.seconds(),
            requests_per_s: requests * per_second,
            error_per_s: groups.error() * per_second,
            sampled: *sampled as u64,
            one_in: self.one_in(),
            groups: certain.map(row).collect(),
        }
    }
}

impl Noted {
    /// Notes the address of a request.
    fn find_source(&self, fact: &Fact<'_, '_>, note: &mut NotedRequest) {
        if let (SOURCE, Value::Address(address)) = (fact.name, fact.value) {
            note.source = AddressBits::of(self.hash(0, &around(address, (32, 64))));
        }
    }

    /// Counts a request in the groups of one of its fields.
    fn group(&mut self, fact: &Fact<'_, '_>, note: &mut NotedRequest) {
        match (fact.name, fact.value) {
            (SOURCE, Value::Address(address)) => {
                self.count(0, &around(address, (32, 64)), note);
                for (field, prefixes) in (1..).zip(AROUND) {
                    self.count(field, &around(address, prefixes), note);
                }
            }
            // The networks around the address are counted instead of this field.
            (NETWORK, Value::Network(_)) => {}
            (name, _) if AMOUNTS.contains(&name) => {}
            (name, value) => {
                let known = self.names.iter().skip(FIRST.len()).position(|known| **known == *name);
                let field = known.map_or(self.names.len(), |place| place + FIRST.len());
                if field < NAMES_MAX {
                    if known.is_none() {
                        self.names.push(name.into());
                    }
                    self.count(field, &value, note);
                }
            }
        }
    }

    /// A keyed hash of a value. A network is hashed as a number, because converting it to text is slow.
    fn hash(&self, field: usize, value: &Value<'_>) -> u64 {
        if let Value::Network(network) = value {
            return self.hasher.hash_one((field, network.address()));
        }
        let mut text = Text::default();
        let value = text.of(value);
        self.hasher.hash_one((field, &value[..value.len().min(VALUE_BYTES_MAX)]))
    }

    fn count(&mut self, field: usize, value: &Value<'_>, note: &mut NotedRequest) {
        let group = self.hash(field, value);
        for span in &mut self.spans {
            let facts = span.groups.add(group, note.weight, || GroupFacts::named(field, value));
            facts.delay_s += note.wait_s;
            facts.denied += note.denied;
            facts.sources = facts.sources.and(note.source);
        }
        // There is room for the groups of all fields that a request can have.
        let _ = note.groups.try_push(group);
    }

    fn fade(&mut self, passed_s: f64) {
        for (span, of) in self.spans.iter_mut().zip(Lookback::ALL) {
            let factor = (-passed_s / f64::from(of.seconds())).exp();
            span.groups.fade(factor, |facts| facts.fade(factor as f32));
            span.requests *= factor;
            span.sampled *= factor;
            span.seconds = (span.seconds + passed_s) * factor;
        }
    }
}

/// The network around an address. The first prefix is for IPv4, the second for IPv6.
fn around(address: IpAddr, (ipv4, ipv6): (u8, u8)) -> Value<'static> {
    Value::Network(Network::of(address, if address.is_ipv4() { ipv4 } else { ipv6 }))
}

impl GroupFacts {
    fn named(field: usize, value: &Value<'_>) -> GroupFacts {
        let mut text = Text::default();
        let value = text.of(value);
        let label = value.iter().copied().take(LABEL_BYTES).collect();
        GroupFacts { field: field as u8, is_cut: value.len() > LABEL_BYTES, label, ..GroupFacts::default() }
    }

    fn fade(&mut self, factor: f32) {
        for sum in [&mut self.delay_s, &mut self.denied, &mut self.work_s] {
            *sum *= factor;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use slowlane_core::base::{Assurance, Counted, Ends, Judged, SloId, Verdict};

    use super::*;

    fn decision(verdict: Verdict, serial: u32) -> Decision {
        let (slo, key) = (SloId::DEFAULT, Key::from_bits(7));
        let ends = if serial > 0 { Ends::WithResponse } else { Ends::Never };
        let judged = Judged {
            slo,
            key,
            verdict,
            remaining: 0,
            cost: 1,
            is_dry_run: false,
            ends,
            assurance: Assurance::NONE,
        };
        let mut decision = Decision::of_one(judged, 1, Timestamp::default());
        decision.number(|_| serial);
        decision
    }

    fn fact<'a>(name: &'a str, value: Value<'a>) -> Fact<'a, 'a> {
        Fact { name, value, in_key: false, prefix: None }
    }

    /// A request that is noted, and stands for itself.
    fn ask(groups: &Groups, decision: &Decision, source: &str, agent: &str) {
        groups.one_in.store(1, Relaxed);
        groups.note(decision, None, |each| {
            each(fact("source", Value::address(source.parse().unwrap())));
            each(fact("network", Value::Network("192.0.2.0/24".parse().unwrap())));
            each(fact("user_agent", Value::Text(agent.as_bytes())));
            each(fact("cost", Value::Number(9)));
        });
    }

    /// Each group of a field by its value, with its requests per second.
    fn shown_of(groups: &Groups, field: &str, by: RankedBy) -> Vec<(String, f64)> {
        let Ranking { groups, .. } = groups.first(Lookback::Minute, by, Some(field));
        groups.into_iter().map(|row| (row.value, row.requests_per_s.round())).collect()
    }

    fn begun() -> Groups {
        let groups = Groups::default();
        groups.tick(Timestamp::default(), 0.0);
        groups
    }

    #[test]
    fn a_network_of_many_addresses_is_named_and_one_of_a_single_address_is_not() {
        let (groups, pass) = (begun(), decision(Verdict::Pass, 0));
        for number in 0..200 {
            ask(&groups, &pass, &format!("192.0.2.{number}"), "crawler");
            ask(&groups, &pass, "198.51.100.7", "customer");
        }
        groups.tick(Timestamp::from_millis(2_000), 0.0);
        let networks = shown_of(&groups, "network", RankedBy::Requests);
        assert_eq!(networks, [("192.0.2.0/24".to_owned(), 100.0)], "its /16 has nobody else");
        let sources = groups.first(Lookback::Minute, RankedBy::Requests, Some("source")).groups;
        assert_eq!((sources[0].value.as_str(), sources.len()), ("198.51.100.7", 20));
        let agents: BTreeMap<_, _> =
            shown_of(&groups, "user_agent", RankedBy::Requests).into_iter().collect();
        assert_eq!(agents.keys().collect::<Vec<_>>(), ["crawler", "customer"]);
        assert_eq!(groups.first(Lookback::Minute, RankedBy::Requests, Some("cost")).groups, []);
    }

    #[test]
    fn the_wider_network_is_named_if_several_narrower_ones_make_it() {
        let (groups, pass) = (begun(), decision(Verdict::Pass, 0));
        for number in 0..300 {
            ask(&groups, &pass, &format!("198.51.{}.{}", number % 3, number % 100), "");
            ask(&groups, &pass, &format!("2001:db8:{:x}:{:x}::1", number % 2, number), "");
        }
        groups.tick(Timestamp::from_millis(1_000), 0.0);
        let mut networks: Vec<String> =
            shown_of(&groups, "network", RankedBy::Requests).into_iter().map(|(value, _)| value).collect();
        networks.sort();
        assert_eq!(
            networks,
            [
                "198.51.0.0/16",
                "198.51.0.0/24",
                "198.51.1.0/24",
                "198.51.2.0/24",
                "2001:db8:1::/48",
                "2001:db8::/32",
                "2001:db8::/48"
            ]
        );
    }

    #[test]
    fn groups_are_ranked_by_requests_delay_and_work() {
        let groups = begun();
        (0..9).for_each(|_| ask(&groups, &decision(Verdict::Pass, 0), "192.0.2.1", "many"));
        ask(&groups, &decision(Verdict::Delay(Duration::from_secs(3)), 0), "192.0.2.2", "slowed");
        ask(&groups, &decision(Verdict::Deny { retry_after_s: 1 }, 0), "192.0.2.3", "denied");
        ask(&groups, &decision(Verdict::Pass, 5), "192.0.2.4", "expensive");
        let counted = Counted { slo: SloId::DEFAULT, key: Key::from_bits(7), serial: 5, cost: 1 };
        let ticket = Ticket::new(Timestamp::default(), [counted]);
        groups.ended(&ticket, Timestamp::from_millis(4_000));
        groups.ended(&ticket, Timestamp::from_millis(9_000));
        groups.tick(Timestamp::from_millis(2_000), 0.0);
        let first = |by| shown_of(&groups, "user_agent", by)[0].0.clone();
        assert_eq!(
            [RankedBy::Requests, RankedBy::Delay, RankedBy::Work].map(first),
            ["many", "slowed", "expensive"]
        );
        let rows = groups.first(Lookback::Minute, RankedBy::Requests, None).groups;
        let row = |value: &str| rows.iter().find(|row| row.value == value).unwrap();
        let about = |one: f64, other: f64| (one - other).abs() < 0.05;
        assert!(about(row("expensive").work, 2.0), "four seconds of two: {rows:?}");
        assert!(about(row("slowed").delay, 1.5) && about(row("denied").denied_per_s, 0.5), "{rows:?}");
    }

    #[test]
    fn with_many_requests_each_noted_one_stands_for_several() {
        let (groups, pass) = (begun(), decision(Verdict::Pass, 0));
        let one_in = |requests_per_s| {
            groups.tick(Timestamp::from_millis(1), requests_per_s);
            groups.one_in()
        };
        assert_eq!([0.0, 32.0, 33.0, 4_096.0, 32_000.0, 40_000.0].map(one_in), [1, 1, 2, 128, 128, 160]);
        groups.note(&pass, None, |each| each(fact("owner", Value::Text(b"acme"))));
        groups.tick(Timestamp::from_millis(1_001), 40_000.0);
        let Ranking { requests_per_s, sampled, .. } =
            groups.first(Lookback::Minute, RankedBy::Requests, None);
        assert_eq!((requests_per_s.round(), sampled), (160.0, 0));
    }

    /// A daemon that starts under full load notes some hundred requests, and all requests are counted.
    #[test]
    fn in_a_sudden_crowd_fewer_and_fewer_are_noted() {
        let (groups, pass) = (begun(), decision(Verdict::Pass, 0));
        let mut next = 0;
        for number in 0..100_000 {
            if number >= next {
                next = number + groups.one_in();
                groups.note(&pass, None, |each| each(fact("owner", Value::Text(b"acme"))));
            }
        }
        groups.tick(Timestamp::from_millis(1_000), 100_000.0);
        let Ranking { requests_per_s, sampled, .. } =
            groups.first(Lookback::Minute, RankedBy::Requests, None);
        assert!((500..1_000).contains(&sampled), "{sampled}");
        assert!((requests_per_s / 100_000.0 - 1.0).abs() < 0.03, "{requests_per_s}");
    }

    #[test]
    fn a_million_user_agents_take_no_more_memory_and_hide_nobody() {
        let (groups, pass) = (begun(), decision(Verdict::Pass, 0));
        for number in 0..200_000 {
            ask(
                &groups,
                &pass,
                &format!("10.{}.{}.1", number >> 8 & 255, number & 255),
                &format!("{number}"),
            );
            if number % 20 == 0 {
                ask(&groups, &pass, "192.0.2.1", "crawler");
            }
            if number % 500 == 0 {
                groups.tick(Timestamp::from_millis(1_000 * u64::from(number as u32 / 500 + 1)), 0.0);
            }
        }
        let noted = groups.noted.lock();
        assert!(noted.spans.iter().all(|span| span.groups.counters().count() <= ROOM));
        drop(noted);
        for span in Lookback::ALL {
            let agents = groups.first(span, RankedBy::Requests, Some("user_agent")).groups;
            assert_eq!(agents[0].value, "crawler");
            assert!((agents[0].share - 1.0 / 21.0).abs() < 0.005, "{span:?}: {}", agents[0].share);
        }
    }

    #[test]
    fn a_few_addresses_with_nearly_all_requests_are_a_crowd() {
        let pass = decision(Verdict::Pass, 0);
        let crowd = |requests: u32, source: &dyn Fn(u32) -> String| {
            let groups = begun();
            (0..requests).for_each(|number| ask(&groups, &pass, &source(number), ""));
            groups.tick(Timestamp::from_millis(1_000), 0.0);
            groups.crowd().map(|crowd| (crowd.network.to_string(), crowd.of))
        };
        let one = |_| "192.0.2.7".to_owned();
        assert_eq!(crowd(190, &one), None, "too few");
        assert_eq!(crowd(400, &one), Some(("192.0.2.7".into(), 393)), "a second ago");
        assert_eq!(crowd(400, &|n| format!("192.0.2.{}", n % 8)).unwrap().0, "192.0.2.0/24");
        assert_eq!(crowd(400, &|n| format!("192.0.{}.1", n % 8)).unwrap().0, "192.0.0.0/16");
        assert_eq!(crowd(400, &|n| format!("192.0.2.{}", n % 250)), None, "a network with many clients");
        assert_eq!(crowd(400, &|n| format!("{}.0.2.7", n % 200 + 1)), None);
        let others = |n: u32| if n.is_multiple_of(10) { format!("{}.0.2.7", n % 200 + 1) } else { one(n) };
        assert_eq!(crowd(400, &others), None, "10 % come from elsewhere");
    }
}
