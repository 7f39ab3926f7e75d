//! Estimates, from the times in the log, of the limits that `protect` would have found: a replay holds no request.

use std::collections::{BTreeMap, HashMap};

use slowlane_core::base::{Key, SloId};
use slowlane_core::law::protect::{LIMIT_LEAST, LIMIT_START};

/// The maximum number of applications. Any further applications are not protected, as in the throttle.
const APPLICATIONS_MAX: usize = 1_024;

const INTERVAL_NS: u64 = 2_000_000_000;

/// The maximum total number of intervals of all pages. Requests in any further intervals are not counted.
const CELLS_MAX: usize = 1 << 20;

/// A page's mean time in an interval may be the page's base only if this many of its requests ended in the interval.
const ENDS_MIN: f64 = 8.0;

/// All applications that SLOs protect, each with its requests.
#[derive(Default)]
pub(super) struct ProtectedLogs {
    applications: BTreeMap<(SloId, Key), HashMap<(u64, Key), PageEnds>>,
    cells: usize,
}

/// The requests for one page that ended in one interval.
#[derive(Default)]
struct PageEnds {
    ends: f64,
    sum_ns: f64,
    sum_log: f64,
}

/// An estimate of what `protect` would have done for one application.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProtectedLog {
    pub slo: SloId,
    pub key: Key,
    /// The mean number of requests inside the application in the interval in which pages were slowest.
    pub inside: f64,
    /// How many times as long pages took in that interval as in their quietest intervals.
    pub slow_down: f64,
    /// The number of requests that the law would have let inside. None if it would have held no request.
    pub limit: Option<f64>,
}

impl ProtectedLogs {
    pub(super) fn count(&mut self, of: (SloId, Key), page: Key, ended_ns: u64, took_ns: u64) {
        if self.applications.len() >= APPLICATIONS_MAX && !self.applications.contains_key(&of) {
            return;
        }
        let pages = self.applications.entry(of).or_default();
        let cell = (ended_ns / INTERVAL_NS, page);
        if self.cells >= CELLS_MAX && !pages.contains_key(&cell) {
            return;
        }
        let known = pages.len();
        let page = pages.entry(cell).or_default();
        let took_ns = took_ns.max(1) as f64;
        page.ends += 1.0;
        page.sum_ns += took_ns;
        page.sum_log += took_ns.ln();
        self.cells += pages.len() - known;
    }

    /// The estimates. `aim` returns the slow-down at which an SLO's limit settles.
    pub(super) fn estimates(&self, aim: impl Fn(SloId) -> f64) -> Vec<ProtectedLog> {
        self.applications.iter().map(|(&(slo, key), pages)| estimate((slo, key), pages, aim(slo))).collect()
    }
}

/// While an application is saturated, the work that it completes in a second is the number of its busy workers. The
/// limit settles where a page takes `aim` times its base: with about `aim` times as many inside (Little's law).
fn estimate((slo, key): (SloId, Key), pages: &HashMap<(u64, Key), PageEnds>, aim: f64) -> ProtectedLog {
    let mut bases: HashMap<Key, f64> = HashMap::new();
    for (&(_, page), of) in pages.iter().filter(|(_, of)| of.ends >= ENDS_MIN) {
        let base = bases.entry(page).or_insert(f64::INFINITY);
        *base = base.min(of.sum_log / of.ends);
    }
    // By interval: the ended requests, their time inside, the excess over the bases, and the work.
    let mut intervals: BTreeMap<u64, [f64; 4]> = BTreeMap::new();
    for (&(interval, page), of) in pages {
        let base = bases.get(&page).copied().unwrap_or(of.sum_log / of.ends);
        let sums = [of.ends, of.sum_ns, of.sum_log - of.ends * base, of.ends * base.exp()];
        let all = intervals.entry(interval).or_default();
        all.iter_mut().zip(sums).for_each(|(all, sum)| *all += sum);
    }
    let seconds = INTERVAL_NS as f64;
    let slow_down = |[ends, _, excess, _]: &[f64; 4]| (excess / ends).exp();
    let slowest = intervals.values().max_by(|a, b| slow_down(a).total_cmp(&slow_down(b)));
    // The law holds no request while there are fewer requests inside than its initial limit.
    let is_full = |[_, inside, ..]: &[f64; 4]| inside / seconds >= LIMIT_START;
    let saturated = intervals.values().filter(|interval| slow_down(interval) > aim && is_full(interval));
    let mut work: Vec<f64> = saturated.map(|[.., work]| work / seconds).collect();
    work.sort_unstable_by(f64::total_cmp);
    ProtectedLog {
        slo,
        key,
        inside: slowest.map_or(0.0, |[_, inside, ..]| inside / seconds),
        slow_down: slowest.map_or(1.0, slow_down),
        limit: work.get(work.len() / 2).map(|work| (aim * work).max(LIMIT_LEAST)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten minutes of an application with this many workers, and pages of 100 ms. In the last five minutes, this many
    /// requests are inside at any time.
    fn of(workers: u64, inside: u64) -> ProtectedLog {
        let (of, mut logs) = ((SloId::DEFAULT, Key::from_bits(1)), ProtectedLogs::default());
        for tenth in 0..6_000 {
            let (busy, took_ms) =
                if tenth < 3_000 { (workers / 2, 100) } else { (workers, 100 * inside / workers) };
            for _ in 0..busy {
                logs.count(of, Key::from_bits(2), tenth * 100_000_000, took_ms * 1_000_000);
            }
        }
        logs.estimates(|_| 1.7)[0]
    }

    #[test]
    fn the_limit_is_that_of_the_workers_however_many_wait() {
        for inside in [40, 400, 4_000] {
            let estimate = of(8, inside);
            let is = [estimate.limit.unwrap(), estimate.slow_down, estimate.inside];
            let expected = [13.6, inside as f64 / 8.0, inside as f64];
            assert!(is.iter().zip(expected).all(|(is, it)| (is / it - 1.0).abs() < 1e-6), "{is:?}");
        }
    }

    #[test]
    fn pages_that_are_never_slow_show_no_limit() {
        assert_eq!(of(8, 8).limit, None);
    }

    #[test]
    fn pages_without_end_take_bounded_memory() {
        let (of, mut logs) = ((SloId::DEFAULT, Key::from_bits(1)), ProtectedLogs::default());
        for page in 0..2 * CELLS_MAX as u64 {
            logs.count(of, Key::from_bits(page), 0, 1_000);
        }
        assert_eq!(logs.applications[&of].len(), CELLS_MAX);
        for key in 0..2 * APPLICATIONS_MAX as u64 {
            logs.count((SloId::DEFAULT, Key::from_bits(key)), Key::from_bits(1), 0, 1_000);
        }
        assert_eq!(logs.estimates(|_| 1.7).len(), APPLICATIONS_MAX);
    }
}
