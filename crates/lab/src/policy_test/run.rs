//! The run of a file of cases: each in virtual time, through a throttle of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::policy_test::case::{Action, Arrivals, REFUSED, Slos, Step, Suite, TestCase, UNLIMITED};
use crate::policy_test::expected::{Expected, Tally};
use crate::policy_test::fields::Fields;
use crate::policy_test::outcome::{CaseOutcome, Failure, Outcome, Unused};
use slowlane_core::base::draw::Draw;
use slowlane_core::base::request::is_same_name;
use slowlane_core::base::slo_id::SloId;
use slowlane_core::base::ticket::Ticket;
use slowlane_core::base::time::Timestamp;
use slowlane_core::policy::{Explained, Policy};
use slowlane_core::table::{EACH_MAX, Sizing};
use slowlane_core::throttle::Throttle;

/// The moment at which each case begins: 2026-01-01 00:00:00 UTC. There, a second, a day and a month begin.
pub const BEGINS: Timestamp = Timestamp::from_millis(1_767_225_600_000);

/// The part of a config that verdicts depend on, beside the policy.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Lifetime of an entry after its last write.
    pub expire: Duration,
    /// The memory for annexes and open tickets.
    pub annex_bytes_max: usize,
}

/// Runs all cases, each with empty counts. Gives the policy back for the next file.
///
/// ```
/// # use std::{io, path::Path, time::Duration};
/// use slowlane_core::policy::{Layout, Policy};
/// use slowlane_lab::policy_test::{Settings, Suite, run};
/// let read = |path: &Path| match path.to_str() {
///     Some("slo.map") => Ok(b"0 burst=10 rate=1/s law=token-bucket".to_vec()),
///     _ => Err(io::ErrorKind::NotFound.into()),
/// };
/// let policy = Policy::parse(Path::new(""), &Layout::default(), read).unwrap();
/// let settings = Settings { expire: Duration::from_secs(30), annex_bytes_max: 1 << 20 };
/// let text = b"source=192.0.2.1 -> 0; 11 at once -> 10 pass, 1 deny 1s; after 1s; 2 at once -> 2 pass";
/// let suite = Suite::parse(text).unwrap();
/// let (outcome, _) = run(&suite, policy, &settings);
/// let failure = &outcome.cases[0].failures[0];
/// assert_eq!((&*failure.step, &*failure.expected, &*failure.got), ("2 at once", "2 pass", "1 pass, 1 deny 1s"));
/// ```
pub fn run(suite: &Suite, mut policy: Policy, settings: &Settings) -> (Outcome, Policy) {
    let unused = unused(suite, &policy);
    let mut cases = Vec::new();
    for case in &suite.cases {
        let mut failures = Vec::new();
        failures.extend(wrong_slos(case, &policy));
        if !case.steps.is_empty() {
            let mut run = Run::new(case, policy, settings);
            failures.extend(case.steps.iter().filter_map(|step| run.step(step)));
            policy = run.end();
        }
        let title = format!("{} -> {}", case.fields, case.slos);
        cases.push(CaseOutcome { line: case.line, title, failures });
    }
    (Outcome { cases, unused }, policy)
}

/// The fields that no map, key or share of the policy uses, each with its first line. They may be misspelt.
fn unused(suite: &Suite, policy: &Policy) -> Vec<Unused> {
    let is_used = |name: &str| {
        policy.used_fields().chain(["cost"]).any(|used| is_same_name(used.as_bytes(), name.as_bytes()))
    };
    let mut first_lines: BTreeMap<&str, usize> = BTreeMap::new();
    for case in &suite.cases {
        let of_steps = case.steps.iter().filter_map(|step| match &step.action {
            Action::Ask { fields, .. } => Some((fields, step.line)),
            Action::After(_) | Action::Done(_) => None,
        });
        for (fields, line) in [(&case.fields, case.line)].into_iter().chain(of_steps) {
            for name in fields.names() {
                first_lines.entry(name).or_insert(line);
            }
        }
    }
    let unused = first_lines.into_iter().filter(|(name, _)| !is_used(name));
    let mut unused: Vec<Unused> =
        unused.map(|(name, line)| Unused { line, field: name.to_owned() }).collect();
    unused.sort_by_key(|unused| unused.line);
    unused
}

/// The failure of a case whose request falls under other SLOs.
fn wrong_slos(case: &TestCase, policy: &Policy) -> Option<Failure> {
    let explanation = policy.explain(&case.fields.request());
    let of = &explanation.of;
    let is_refused = of.iter().any(|explained| policy.is_refusal(explained.case.key));
    let holds = match &case.slos {
        Slos::Ids(ids) => !is_refused && ids.iter().eq(of.iter().map(|explained| &explained.case.slo.id)),
        Slos::Unlimited => of.iter().all(|explained| explained.case.slo.objective.rate.is_unlimited()),
        Slos::Refused => is_refused,
    };
    if holds {
        return None;
    }
    let got = match is_refused {
        true => format!("{REFUSED}: the website is no host, or a value is too long to be searched"),
        false => of.iter().map(named).collect::<Vec<_>>().join(", "),
    };
    let (step, expected) = (case.fields.to_string(), case.slos.to_string());
    Some(Failure { line: case.line, step, expected, got })
}

/// An SLO with the line that names it.
fn named(explained: &Explained<'_>) -> String {
    let (id, rate): (SloId, _) = (explained.case.slo.id, explained.case.slo.objective.rate);
    let unlimited = if rate.is_unlimited() { format!(" {UNLIMITED}") } else { String::new() };
    match explained.origin {
        Some(origin) => format!("{id}{unlimited} ({}:{})", origin.path.display(), origin.line),
        None => format!("{id}{unlimited} (no map names it)"),
    }
}

/// A case under way.
struct Run<'c> {
    fields: &'c Fields,
    throttle: Throttle,
    now: Timestamp,
    /// The requests in flight, by the moment at which they leave and by their number.
    in_flight: BTreeMap<(Timestamp, u32), Option<Box<Ticket>>>,
    asked: u32,
}

impl<'c> Run<'c> {
    fn new(case: &'c TestCase, policy: Policy, settings: &Settings) -> Run<'c> {
        // All requests of a step are alike and write the same rows. Twice as many have room, as shards fill unevenly, so
        // nothing is ever evicted.
        let entries_max = 2 * EACH_MAX * case.steps.len();
        let sizing = Sizing { entries_max: entries_max as u32, expire: settings.expire };
        let throttle = Throttle::new(policy, sizing, settings.annex_bytes_max);
        Run { fields: &case.fields, throttle, now: BEGINS, in_flight: BTreeMap::new(), asked: 0 }
    }

    fn end(self) -> Policy {
        Arc::into_inner(self.throttle.into_policy()).expect("no request of this thread is under way")
    }

    fn step(&mut self, step: &Step) -> Option<Failure> {
        let failed = match &step.action {
            Action::Ask { arrivals, fields, expected } => self.ask(*arrivals, fields, expected),
            Action::After(time) => {
                self.now = self.now + *time;
                None
            }
            Action::Done(count) => self.finish(*count),
        };
        let failure = |(expected, got)| Failure { line: step.line, step: step.action.asks(), expected, got };
        failed.map(failure)
    }

    /// Asks, and gives the verdicts that were expected and those that came, if they differ.
    fn ask(&mut self, arrivals: Arrivals, fields: &Fields, expected: &Expected) -> Option<(String, String)> {
        let fields = self.fields.with(fields);
        let (request, begins, count) = (fields.request(), self.now, arrivals.count());
        let mut tally = Tally::new(expected);
        for number in 0..count {
            let since = arrivals.takes().as_nanos() * u128::from(number) / u128::from(count);
            let now = begins + Duration::from_nanos(since as u64);
            let decision = self.throttle.decide_one(&request, now, Draw::MIDDLE);
            tally.count(decision.verdict);
            self.asked += 1;
            if decision.is_let_through() {
                let leaves = now + Duration::from_millis(decision.verdict.delay_ms());
                self.in_flight.insert((leaves, self.asked), decision.ticket().map(Box::new));
            }
        }
        self.now = begins + arrivals.takes();
        (!tally.holds()).then(|| (expected.to_string(), tally.told()))
    }

    /// Ends requests, and gives the expected number and the true one, if they differ.
    fn finish(&mut self, count: Option<u32>) -> Option<(String, String)> {
        let policy = self.throttle.policy();
        let mut ended = 0;
        while count.is_none_or(|count| ended < count) {
            let next = self.in_flight.first_entry().filter(|next| next.key().0 <= self.now);
            let Some(next) = next else { break };
            if let Some(ticket) = next.remove() {
                self.throttle.end(&policy, &ticket, self.now);
            }
            ended += 1;
        }
        let count = count.filter(|&count| ended < count)?;
        Some((format!("{count} in flight"), format!("{ended} in flight")))
    }
}
