//! The requests of late that lack a field, or whose value cannot be used.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use slowlane_core::base::{cut, shown};
use slowlane_core::policy::{Needed, Policy, ValueKind};

/// A window ends after this many requests, or after [`TICKS`] if it has at least [`FEW`] by then.
const MANY: u64 = 5_000;
const FEW: u64 = 100;

/// The shortest window with few requests, in seconds.
const TICKS: u64 = 60;

/// The shortest time between two log lines about one field, in seconds.
const LOG_EVERY: u64 = 600;

/// The most characters of an example, which a client may have chosen.
const EXAMPLE_CHARS: usize = 64;

/// If a larger share of the requests has faults, the configuration is wrong.
const SHARE_MAX: f64 = 0.01;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fault {
    /// The value is not what the policy needs.
    Unreadable,
    /// There is no value, and every limit needs one.
    Absent,
}

/// A fault of a field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultLine {
    pub field: String,
    pub fault: Fault,
    /// The requests with the fault, of the last `of`.
    pub requests: u64,
    pub of: u64,
    /// The beginning of the last unreadable value.
    pub example: Option<String>,
    /// All of it, for people.
    pub text: String,
}

impl FaultLine {
    /// Whether it is more than a few odd requests.
    pub fn is_much(&self) -> bool {
        self.requests as f64 > SHARE_MAX * self.of as f64
    }
}

/// The number of faults, by field.
pub(super) type FieldCounts = BTreeMap<(String, Fault), u64>;

/// The counts of all requests at a moment.
#[derive(Clone, Debug, Default)]
struct Mark {
    requests: u64,
    counts: FieldCounts,
    tick: u64,
}

/// The faults under one policy.
#[derive(Debug, Default)]
pub(super) struct Recent {
    now: Mark,
    /// The start of the previous window, and of the current one. Faults after the former are recent.
    begins: [Mark; 2],
}

impl Recent {
    /// Reads the counts. `requests` are those of the policy so far.
    pub(super) fn tick(&mut self, policy: &Policy, requests: u64) {
        self.now = Mark { requests, counts: counts(policy), tick: self.now.tick + 1 };
        let (since, ticks) = (requests - self.begins[1].requests, self.now.tick - self.begins[1].tick);
        if since >= MANY || since >= FEW && ticks >= TICKS {
            self.begins.swap(0, 1);
            self.begins[1] = self.now.clone();
        }
        policy.calm();
    }

    pub(super) fn counts(&self) -> &FieldCounts {
        &self.now.counts
    }

    /// A line for each fault of late.
    pub(super) fn lines(&self, policy: &Policy) -> Vec<FaultLine> {
        let lines = policy.faults().flat_map(|faults| {
            [Fault::Unreadable, Fault::Absent].map(|fault| self.line(policy, &faults, fault))
        });
        lines.flatten().collect()
    }

    fn line(&self, policy: &Policy, faults: &Needed<'_>, fault: Fault) -> Option<FaultLine> {
        let (key, begin) = ((shown(faults.field), fault), &self.begins[0]);
        let count = |mark: &Mark| mark.counts.get(&key).copied().unwrap_or(0);
        let requests = count(&self.now) - count(begin);
        // A request is counted after its faults.
        let of = (self.now.requests - begin.requests).max(requests);
        if requests == 0 {
            return None;
        }
        let example = (fault == Fault::Unreadable).then(|| cut(shown(policy.example(faults)), EXAMPLE_CHARS));
        let needed_by = listed(&policy.needed_by(faults).iter().map(shown).collect::<Vec<_>>());
        let (field, fault) = key;
        let like = example.as_deref().unwrap_or_default();
        let text = match (fault, faults.kind) {
            (Fault::Absent, _) => {
                format!(
                    "{requests} of the last {of} requests carried no {field}, and each limit needs one: none applies"
                )
            }
            (_, ValueKind::Number) => format!(
                "{requests} of the last {of} requests carried a {field} that is not a whole number, like \"{like}\": \
                 each counts as 1"
            ),
            (_, ValueKind::Amount) => format!(
                "{requests} of the last {of} requests carried an {field} that is not an amount, like \"{like}\": each \
                 reserves the usual amount"
            ),
            (_, ValueKind::Address | ValueKind::Text) => format!(
                "{requests} of the last {of} requests carried a {field} that is not an address, like \"{like}\"; \
                 needed by {needed_by}"
            ),
        };
        Some(FaultLine { field, fault, requests, of, example, text })
    }
}

/// The moments, in ticks, at which faults were logged. It outlives the policies: some are replaced every minute.
#[derive(Debug, Default)]
pub(super) struct Logged(BTreeMap<(String, Fault), u64>);

impl Logged {
    /// The lines to log now: each fault once in [`LOG_EVERY`].
    pub(super) fn news(&mut self, mut lines: Vec<FaultLine>, tick: u64) -> Vec<FaultLine> {
        self.0.retain(|_, at| tick - *at < LOG_EVERY);
        lines.retain(|line| *self.0.entry((line.field.clone(), line.fault)).or_insert(tick) == tick);
        lines
    }
}

pub(super) fn counts(policy: &Policy) -> FieldCounts {
    let counted = policy.faults().flat_map(|faults| {
        let field = shown(faults.field);
        [(Fault::Unreadable, faults.counts.unreadable), (Fault::Absent, faults.counts.absent)]
            .map(|(fault, count)| ((field.clone(), fault), count))
    });
    counted.collect()
}

/// `a, b and c`.
pub(super) fn listed(words: &[String]) -> String {
    match words {
        [] => "the policy".to_owned(),
        [one] => one.clone(),
        [some @ .., last] => format!("{} and {last}", some.join(", ")),
    }
}
