//! The methods that every law implements.

use std::time::Duration;

use crate::base::{Quota, Timestamp};
use crate::law::{Admission, Arrival, AuxState, Judgement, Objective, Scale, Used, Window};
use crate::table::Entry;

/// One law with its numbers filled in for an SLO.
///
/// The methods affect only the given entry and auxiliary state. The defaults suit a bucket that passes or denies, has
/// no auxiliary state, and needs no entry beyond the table's `expire`. A [`Law`](crate::law::Law) derefs to its rule.
pub trait Rule {
    /// Judges one request, and writes the result to the entry and the auxiliary state. Only `Fixed` gets requests of
    /// cost 0.
    fn judge(&self, entry: &mut Entry, aux: Option<&mut AuxState>, arrival: &Arrival) -> Judgement;

    /// Gives the same judgement as `judge`, but adds no admission to the auxiliary state. A law without auxiliary state
    /// must leave the entry as `judge` would, because a decision under several SLOs keeps that entry.
    fn foresee(&self, entry: &mut Entry, aux: Option<&mut AuxState>, arrival: &Arrival) -> Judgement {
        self.judge(entry, aux, arrival)
    }

    /// The law's formula with the numbers of this request.
    fn explain(&self, scale: &Scale, entry: &Entry, aux: Option<&AuxState>, arrival: &Arrival) -> String;

    /// Takes back the admission of a request whose client disconnected before its turn. Does nothing by default.
    fn take_back(&self, _entry: &mut Entry, _aux: Option<&mut AuxState>, _gone: &Admission) {}

    /// Charges an admitted request `cost` on top of the cost by which it was judged, whether or not there is room. Only
    /// a law that settles costs afterwards can do this.
    fn charge_more(&self, _entry: &mut Entry, _cost: u32, _now: Timestamp) {}

    /// Whether [`end`](Rule::end) must be called for each admission.
    fn counts_ends(&self) -> bool {
        false
    }

    /// Records the end of a request. `gone.due` is the moment of the judgement. Returns how much of the request's cost
    /// was still counted: 0 after its lease, or if all requests have ended.
    fn end(&self, _entry: &mut Entry, _gone: &Admission) -> u32 {
        0
    }

    /// Distinguishes states that this law keeps under different settings, such as windows of different lengths.
    fn state_shape(&self) -> u64 {
        0
    }

    /// How long the entry must be kept after a write, if that is longer than the table's `expire`.
    fn memory(&self) -> Duration {
        Duration::ZERO
    }

    /// The longest delay. `None` if the law never delays, `Duration::MAX` if there is no limit.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use slowlane_core::law::{Law, Objective, Options};
    /// # let objective = Objective { burst: 100, rate: "50/s".parse().unwrap() };
    /// let max_delay = |name| Law::new(name, objective, Options::default()).unwrap().max_delay();
    /// assert_eq!(max_delay("pace"), Some(Duration::from_secs(5)));
    /// assert_eq!((max_delay("adaptive"), max_delay("token-bucket")), (Some(Duration::MAX), None));
    /// ```
    fn max_delay(&self) -> Option<Duration> {
        None
    }

    /// The window in which the law counts requests, if it has one. A law with a window ignores the burst.
    fn window(&self) -> Option<&Window> {
        None
    }

    /// The allowance of a client, as the numbers of the `RateLimit-Policy` header. None if there is no limit.
    fn quota(&self, objective: Objective) -> Option<Quota> {
        match self.window() {
            Some(window) => Some(window.quota()),
            None => Some(Quota::of_bucket(objective.burst, objective.rate)),
        }
    }

    /// How much of its quota a key has used. None if the law does not report this.
    fn used(&self, _entry: &Entry, _aux: Option<&AuxState>, _now: Timestamp) -> Option<Used> {
        None
    }

    /// The allowance of a client in words. A window law ignores the burst, and `concurrency` ignores the rate.
    ///
    /// ```
    /// use slowlane_core::law::{Law, Objective, Options};
    /// let describe = |law, burst, rate: &str| {
    ///     let objective = Objective { burst, rate: rate.parse().unwrap() };
    ///     Law::new(law, objective, Options::default()).unwrap().describe(objective)
    /// };
    /// assert_eq!(describe("pace", 100, "50/s"), "50/s, burst 100");
    /// assert_eq!(describe("sliding-log", 0, "1000/m"), "1000 in 60 s");
    /// assert_eq!(describe("fixed-window", 0, "5000/d"), "5000 in 1 d");
    /// assert_eq!(describe("concurrency", 5, "1/s"), "5 at a time");
    /// assert_eq!(describe("pace", 100, "0/s"), "nothing");
    /// ```
    fn describe(&self, Objective { burst, rate }: Objective) -> String {
        match self.window() {
            Some(window) => window.describe(),
            None => format!("{rate}, burst {burst}"),
        }
    }

    /// Whether the law shares one bucket among sources, and so needs an [`Arrival::sharer`].
    fn is_shared(&self) -> bool {
        false
    }

    /// An empty auxiliary state, for a law that needs one.
    fn aux(&self) -> Option<AuxState> {
        None
    }

    /// The maximum memory of the auxiliary state after one more request of this cost.
    fn aux_bytes_after(&self, aux: &AuxState, _cost: u32) -> usize {
        aux.bytes()
    }
}
