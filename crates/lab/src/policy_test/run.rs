//! Runs the cases of a file, each case in virtual time and through its own throttle.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::events::EventQueue;
use crate::policy_test::cases::{
    Action, CaseError, Expected, REFUSED, Slos, Suite, TestCase, TestFields, TestStep, UNLIMITED, Verdicts,
    amount, written,
};
use slowlane_core::base::{Ending, Kind, Sample, Ticket, Timestamp, Verdict, is_same_name, shown};
use slowlane_core::policy::{Explained, Policy};
use slowlane_core::table::{EACH_MAX, Sizing};
use slowlane_core::throttle::Throttle;

/// The moment at which each case begins: 2026-01-01 00:00:00 UTC. A second, a day and a month begin at this moment.
pub const BEGINS: Timestamp = Timestamp::from_millis(1_767_225_600_000);

/// The part of a config, besides the policy, on which verdicts depend.
#[derive(Clone, Copy, Debug)]
pub struct TestSettings {
    /// The lifetime of an entry after its last write.
    pub expire: Duration,
    /// The memory for auxiliary states and open tickets.
    pub annex_bytes_max: usize,
}

/// The outcome of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The outcomes of the cases, in the order of the file.
    pub cases: Vec<CaseOutcome>,
    /// Fields that the policy does not use, each with the first line that has it. Such fields may be misspelt.
    pub warnings: Vec<CaseError>,
}

/// The outcome of one case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CaseOutcome {
    pub line: usize,
    /// The request and its SLOs, as one line.
    pub title: String,
    /// Empty if the case holds.
    pub failures: Vec<Failure>,
}

/// A failed line of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    pub line: usize,
    /// The line without its verdicts.
    pub step: String,
    pub expected: String,
    pub got: String,
}

/// Runs all cases, each with empty counts. Returns the policy for the next file.
///
/// ```
/// # use std::{io, path::Path, time::Duration};
/// use slowlane_core::policy::{Layout, Policy};
/// use slowlane_lab::policy_test::{Suite, TestSettings, run};
/// let read = |path: &Path| match path.to_str() {
///     Some("slo.map") => Ok(b"0 burst=10 rate=1/s law=token-bucket".to_vec()),
///     _ => Err(io::ErrorKind::NotFound.into()),
/// };
/// let policy = Policy::parse(Path::new(""), &Layout::default(), read).unwrap();
/// let settings = TestSettings { expire: Duration::from_secs(30), annex_bytes_max: 1 << 20 };
/// let text = b"source=192.0.2.1 -> 0; 11 at once -> 10 pass, 1 deny 1s; after 1s; 2 at once -> 2 pass";
/// let suite = Suite::parse(text).unwrap();
/// let (outcome, _) = run(&suite, policy, &settings);
/// let failure = &outcome.cases[0].failures[0];
/// assert_eq!((&*failure.step, &*failure.expected, &*failure.got), ("2 at once", "2 pass", "1 pass, 1 deny 1s"));
/// ```
pub fn run(suite: &Suite, mut policy: Policy, settings: &TestSettings) -> (Outcome, Policy) {
    let warnings = unused(suite, &policy);
    let mut cases = Vec::new();
    for case in &suite.cases {
        let mut failures = Vec::new();
        failures.extend(wrong_slos(case, &policy));
        if !case.steps.is_empty() {
            let mut run = Run::new(case, policy, settings);
            failures.extend(case.steps.iter().filter_map(|step| run.step(step)));
            policy = run.end();
        }
        cases.push(CaseOutcome { line: case.line, title: case.title(), failures });
    }
    (Outcome { cases, warnings }, policy)
}

/// The fields that no map, key or share of the policy uses, each with the first line that has the field.
fn unused(suite: &Suite, policy: &Policy) -> Vec<CaseError> {
    let mut first_lines: BTreeMap<&str, usize> = BTreeMap::new();
    for case in &suite.cases {
        let of_steps = case.steps.iter().filter_map(|step| match &step.action {
            Action::Ask { fields, .. } => Some((step.line, fields)),
            Action::After(_) | Action::Done(_) => None,
        });
        for (line, fields) in [(case.line, &case.fields)].into_iter().chain(of_steps) {
            for name in fields.names() {
                first_lines.entry(name).or_insert(line);
            }
        }
    }
    first_lines.retain(|name, _| {
        let is_same = |used: &str| is_same_name(used.as_bytes(), name.as_bytes());
        !policy.used_fields().chain(["cost"]).any(is_same)
    });
    let doubt = |(name, line): (&str, usize)| {
        let text = format!("{}: the policy does not use this field: is it misspelt?", shown(name));
        CaseError { line: Some(line), column: None, text }
    };
    let mut unused: Vec<CaseError> = first_lines.into_iter().map(doubt).collect();
    unused.sort_by_key(|unused| unused.line);
    unused
}

/// The failure of a case whose request falls under different SLOs from the expected ones.
fn wrong_slos(case: &TestCase, policy: &Policy) -> Option<Failure> {
    let explanation = policy.explain(&case.fields.request());
    let of = &explanation.of;
    let is_refused = of.iter().any(|explained| policy.is_refusal(explained.case.key));
    let holds = match &case.slos {
        Slos::Ids(ids) => !is_refused && ids.iter().eq(of.iter().map(|explained| &explained.case.slo.id)),
        Slos::Unlimited => of.iter().all(|explained| explained.case.slo.is_unlimited()),
        Slos::Refused => is_refused,
    };
    if holds {
        return None;
    }
    let got = match is_refused {
        true => {
            format!("{REFUSED}: the website is not a valid host name, or a value is too long to be looked up")
        }
        false => of.iter().map(named).collect::<Vec<_>>().join(", "),
    };
    let [step, expected] = case.text.clone();
    Some(Failure { line: case.line, step, expected, got })
}

/// An SLO, with the place of the line that names it.
fn named(explained: &Explained<'_>) -> String {
    let slo = explained.case.slo;
    let unlimited = if slo.is_unlimited() { format!(" {UNLIMITED}") } else { String::new() };
    let id = slo.id;
    match explained.origin {
        Some(origin) => format!("{id}{unlimited} ({}:{})", origin.path.display(), origin.line),
        None => format!("{id}{unlimited} (no map names it)"),
    }
}

/// A case that is being run.
struct Run<'c> {
    fields: &'c TestFields,
    throttle: Throttle,
    now: Timestamp,
    /// The admitted requests, by the time at which their delay ends. From that time on, each is in flight.
    in_flight: EventQueue<Option<Box<Ticket>>>,
}

impl<'c> Run<'c> {
    fn new(case: &'c TestCase, policy: Policy, settings: &TestSettings) -> Run<'c> {
        // All requests of a step are alike and write the same rows. There is room for twice as many rows as needed,
        // because shards fill unevenly, so no row is ever evicted.
        let entries_max = 2 * EACH_MAX * case.steps.len();
        let sizing = Sizing { entries_max: entries_max as u32, expire: settings.expire };
        let throttle = Throttle::new(policy, sizing, settings.annex_bytes_max);
        Run { fields: &case.fields, throttle, now: BEGINS, in_flight: EventQueue::default() }
    }

    fn end(self) -> Policy {
        Arc::into_inner(self.throttle.into_policy()).expect("no request of this thread is under way")
    }

    fn step(&mut self, step: &TestStep) -> Option<Failure> {
        let failed = match &step.action {
            Action::Ask { count, time, fields, expected } => self.ask(*count, *time, fields, expected),
            Action::After(time) => {
                self.now = self.now + *time;
                None
            }
            Action::Done(count) => self.finish(*count),
        };
        let (expected, got) = failed?;
        Some(Failure { line: step.line, step: step.text.clone(), expected, got })
    }

    /// Sends the requests. Returns the expected and the actual verdicts if they differ.
    fn ask(
        &mut self,
        count: u32,
        time: Duration,
        fields: &TestFields,
        expected: &Expected,
    ) -> Option<(String, String)> {
        let fields = self.fields.with(fields);
        let (request, begins) = (fields.request(), self.now);
        let mut tally = Tally::default();
        for number in 0..count {
            let since = time.as_nanos() * u128::from(number) / u128::from(count);
            let now = begins + Duration::from_nanos(since as u64);
            self.throttle.sweep(now);
            let decision = self.throttle.decide_one(&request, now, Sample::MIDDLE);
            tally.count(decision.verdict);
            if decision.is_let_through() {
                let leaves = now + Duration::from_millis(decision.verdict.delay_ms());
                self.in_flight.enter(leaves.as_nanos(), decision.ticket().map(Box::new));
            }
        }
        self.now = begins + time;
        (!tally.fits(expected)).then(|| (written(&expected.0), written(&tally.verdicts())))
    }

    /// Ends requests. Returns the expected and the actual number if they differ.
    fn finish(&mut self, count: Option<u32>) -> Option<(String, String)> {
        let policy = self.throttle.policy();
        let mut ended = 0;
        while count.is_none_or(|count| ended < count)
            && let Some((_, ticket)) = self.in_flight.next_before(self.now.as_nanos() + 1)
        {
            if let Some(ticket) = ticket {
                self.throttle.end(&policy, &ticket, &Ending::default(), self.now);
            }
            ended += 1;
        }
        let count = count.filter(|&count| ended < count)?;
        Some((format!("{count} in flight"), format!("{ended} in flight")))
    }
}

/// The actual verdicts by kind and amount: how many of each there were, and in which order each first occurred.
#[derive(Default)]
struct Tally(BTreeMap<(usize, u64), (u32, usize)>);

/// The maximum number of different amounts of one kind to list individually.
const AMOUNTS_MAX: usize = 4;

impl Tally {
    fn count(&mut self, verdict: Verdict) {
        let first = self.0.len();
        self.0.entry((verdict.kind().index(), amount(verdict))).or_insert((0, first)).0 += 1;
    }

    /// Whether the actual verdicts are exactly the expected ones.
    fn fits(&self, Expected(expected): &Expected) -> bool {
        expected.iter().all(|Verdicts { count, kind, range }| {
            let fitting = self.0.range((kind.index(), *range.start())..=(kind.index(), *range.end()));
            fitting.map(|(_, (count, _))| count).sum::<u32>() == *count
        })
    }

    fn verdicts(&self) -> Vec<Verdicts> {
        Kind::ALL.into_iter().flat_map(|kind| self.of_kind(kind)).collect()
    }

    /// The verdicts of one kind, in the order in which they first occurred. Many different amounts become one range.
    fn of_kind(&self, kind: Kind) -> Vec<Verdicts> {
        let seen = self.0.range((kind.index(), 0)..=(kind.index(), u64::MAX));
        let mut seen: Vec<_> = seen.map(|((_, amount), (count, first))| (*first, *amount, *count)).collect();
        if seen.len() > AMOUNTS_MAX {
            let count = seen.iter().map(|(.., count)| count).sum();
            return vec![Verdicts { count, kind, range: seen[0].1..=seen[seen.len() - 1].1 }];
        }
        seen.sort_unstable();
        seen.into_iter().map(|(_, amount, count)| Verdicts { count, kind, range: amount..=amount }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy_test::cases::ANY;

    fn delay(ms: u64) -> Verdict {
        Verdict::Delay(Duration::from_millis(ms))
    }

    #[test]
    fn each_verdict_counts_for_its_item() {
        let pass = Verdicts { count: 1, kind: Kind::Pass, range: ANY };
        let expected = Expected(vec![pass, Verdicts { count: 2, kind: Kind::Delay, range: 20..=40 }]);
        assert_eq!(written(&expected.0), "1 pass, 2 delay 20ms..40ms");
        for (delays, holds, reported) in [
            ([20, 40], true, "1 pass, 1 delay 20ms, 1 delay 40ms"),
            ([20, 41], false, "1 pass, 1 delay 20ms, 1 delay 41ms"),
            ([7, 7], false, "1 pass, 2 delay 7ms"),
        ] {
            let mut tally = Tally::default();
            delays.iter().for_each(|&ms| tally.count(delay(ms)));
            assert!(!tally.fits(&expected), "one verdict is missing");
            tally.count(Verdict::Pass);
            assert_eq!((tally.fits(&expected), written(&tally.verdicts()).as_str()), (holds, reported));
        }
    }

    #[test]
    fn many_amounts_are_told_as_a_range() {
        let expected = Expected(vec![Verdicts { count: 9, kind: Kind::Deny, range: ANY }]);
        let mut tally = Tally::default();
        for ms in [40, 30, 20, 10, 50] {
            tally.count(delay(ms));
        }
        for retry_after_s in [90, 90, 90, 61] {
            tally.count(Verdict::Deny { retry_after_s });
        }
        assert_eq!(written(&tally.verdicts()), "5 delay 10ms..50ms, 3 deny 90s, 1 deny 61s");
        assert!(!tally.fits(&expected));
    }
}
