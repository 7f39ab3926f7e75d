//! What happened at a site: counts, faults, and the times in which its agent was dead.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Instant;

/// The examples that are kept of each kind of fault.
const EXAMPLES_MAX: usize = 5;

/// Shared by all threads of a site.
#[derive(Default)]
pub struct Records {
    counts: Mutex<BTreeMap<String, u64>>,
    faults: Mutex<BTreeMap<String, (u64, Vec<String>)>>,
    /// From a kill until every proxy has a verdict again.
    pub gaps: Spans,
}

impl Records {
    pub fn count(&self, what: &str) {
        self.add(what, 1);
    }

    pub fn add(&self, what: &str, number: u64) {
        *self.counts.lock().unwrap().entry(what.to_owned()).or_default() += number;
    }

    pub fn counted(&self, what: &str) -> u64 {
        self.counts.lock().unwrap().get(what).copied().unwrap_or(0)
    }

    pub fn counts(&self) -> Vec<(String, u64)> {
        self.counts.lock().unwrap().iter().map(|(what, number)| (what.clone(), *number)).collect()
    }

    /// Notes a fault, and keeps the first examples of its kind.
    pub fn fault(&self, kind: &str, example: String) {
        let mut faults = self.faults.lock().unwrap();
        let (count, examples) = faults.entry(kind.to_owned()).or_default();
        *count += 1;
        if examples.len() < EXAMPLES_MAX {
            examples.push(example);
        }
    }

    /// The faults by kind, each with its number and first examples.
    pub fn faults(&self) -> Vec<String> {
        let faults = self.faults.lock().unwrap();
        let outcome = |(kind, (count, examples)): (&String, &(u64, Vec<String>))| {
            format!("{count} x {kind}:\n    {}", examples.join("\n    "))
        };
        faults.iter().map(outcome).collect()
    }
}

/// Spans of time, of which the last may still be open.
#[derive(Default)]
pub struct Spans(Mutex<Vec<(Instant, Option<Instant>)>>);

impl Spans {
    pub fn begin(&self) {
        self.0.lock().unwrap().push((Instant::now(), None));
    }

    pub fn end(&self) {
        self.0.lock().unwrap().last_mut().expect("it has begun").1 = Some(Instant::now());
    }

    pub fn is_open(&self) -> bool {
        self.0.lock().unwrap().last().is_some_and(|(_, end)| end.is_none())
    }

    /// Whether any part of the time from `from` to `to` lies in one.
    pub fn meet(&self, from: Instant, to: Instant) -> bool {
        let spans = self.0.lock().unwrap();
        spans.iter().any(|&(begin, end)| begin <= to && end.is_none_or(|end| from <= end))
    }
}

#[test]
fn a_time_meets_a_span_that_it_touches() {
    let spans = Spans::default();
    let before = Instant::now();
    assert!(!spans.meet(before, before));
    spans.begin();
    let within = Instant::now();
    assert!(!spans.meet(before, before) && spans.meet(before, within) && spans.meet(within, within));
    spans.end();
    let after = Instant::now() + std::time::Duration::from_nanos(1);
    assert!(spans.meet(within, after) && spans.meet(before, after) && !spans.meet(after, after));
}
