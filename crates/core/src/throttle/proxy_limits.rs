//! Requests that a proxy decides by its own rules: their charges, and the limits that the proxy needs.

use std::time::Duration;

use crate::base::{Sample, Timestamp, Verdict};
use crate::law::{Arrival, Law, Rule};
use crate::policy::{Case, Cases};
use crate::throttle::Throttle;

/// The limit that a proxy needs to decide by its own rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyLimits {
    /// All requests of the key pass.
    Unlimited,
    /// The proxy must query slowlane: its rules cannot implement the SLO, or a request may have several SLOs.
    Ask,
    /// All requests with the key are refused until this moment.
    Refused(Timestamp),
    /// Requests take slots of a bucket (GCRA).
    Paced(Paced),
}

/// A bucket, in the form that a proxy's own rules use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paced {
    /// The time of one request.
    pub slot: Duration,
    /// The time of a full burst.
    pub burst: Duration,
    /// The longest delay. Zero if the law refuses instead.
    pub max_delay: Duration,
    /// The moment at which the bucket will be full again, given the requests of all proxies.
    pub tat: Timestamp,
}

/// How long a proxy is to refuse at a rate of 0. The refusal never ends, but the proxy gets an update long before.
const REFUSED: Duration = Duration::from_secs(60);

impl Throttle {
    /// The limit that a proxy needs for a request with these SLOs.
    ///
    /// ```
    /// # use slowlane_core::{policy::Policy, table::Sizing, throttle::{ProxyLimits, Throttle}};
    /// # use slowlane_core::base::{Request, Timestamp};
    /// # use std::time::Duration;
    /// # let sizing = Sizing { entries_max: 1_000, expire: Duration::from_secs(30) };
    /// # let read = |path: &std::path::Path| match path.to_str() {
    /// #     Some("slo.map") => Ok(b"0 burst=100 rate=50/s".to_vec()),
    /// #     _ => Err(std::io::ErrorKind::NotFound.into()),
    /// # };
    /// # let limited = Policy::parse("".as_ref(), &slowlane_core::policy::Layout::default(), read).unwrap();
    /// # let throttle = Throttle::new(limited, sizing, 0);
    /// // burst=100 rate=50/s: a slot of 20 ms. A proxy has let 10 requests through.
    /// let (policy, now) = (throttle.policy(), Timestamp::from_millis(60_000));
    /// let cases = policy.cases(&Request::new());
    /// throttle.charge(&cases, 10, 0, now);
    /// let ProxyLimits::Paced(paced) = throttle.proxy_limits(&cases, now) else { panic!() };
    /// assert_eq!((paced.slot, paced.burst), (Duration::from_millis(20), Duration::from_secs(2)));
    /// assert_eq!(paced.tat, Timestamp::from_millis(60_200));
    /// ```
    pub fn proxy_limits(&self, cases: &Cases<'_>, now: Timestamp) -> ProxyLimits {
        let by_operator = cases.blocked.filter(|blocked| blocked.holds_at(now));
        let Some(case) = alone(cases) else {
            return by_operator.map_or(ProxyLimits::Ask, |blocked| ProxyLimits::Refused(blocked.until));
        };
        if let Some(blocked) = by_operator.or_else(|| self.blocks.find(case, now)) {
            return ProxyLimits::Refused(blocked.until);
        }
        if case.slo.work.is_some() {
            return ProxyLimits::Ask;
        }
        let law = self.law_of(case);
        if law == Law::UNLIMITED || case.slo.dry_run {
            return ProxyLimits::Unlimited;
        }
        if law.is_closed() {
            return ProxyLimits::Refused(now + REFUSED);
        }
        match law.gcra().filter(|_| has_bucket(case)) {
            None => ProxyLimits::Ask,
            Some(gcra) => ProxyLimits::Paced(Paced {
                slot: gcra.slot(),
                burst: gcra.burst(),
                max_delay: gcra.delay_max(),
                tat: self.tat(case, now).unwrap_or(now).max(now),
            }),
        }
    }

    /// Charges requests that a proxy admitted, and counts its refusals, which may start a block. Counts
    /// nothing if the proxy must query slowlane: for several SLOs, or for a law that has no bucket and is
    /// neither unlimited nor closed.
    pub fn charge(&self, cases: &Cases<'_>, admitted: u32, denied: u32, now: Timestamp) {
        let Some(case) = alone(cases) else { return };
        let (law, has_bucket) = (case.slo.law, has_bucket(case));
        if !has_bucket && law != Law::UNLIMITED && !law.is_closed() || (admitted, denied) == (0, 0) {
            return;
        }
        // A block does not start again with each request that it refuses.
        if denied > 0 && self.blocks.find(case, now).is_none() {
            self.blocks.refused(case, Verdict::Deny { retry_after_s: 1 }, now);
        }
        let memory = law.gcra().map_or(Duration::ZERO, |gcra| gcra.owing().memory()).max(self.memory(case));
        self.table.with_batch(&[(case.key, memory)], now, |_, entry, now| {
            let arrival = |cost| Arrival { now, sample: Sample::MIDDLE, cost, sharer: 0, may_hold: false };
            if denied > 0 {
                entry.ask(denied, now);
            }
            if admitted > 0 && has_bucket {
                self.add_debt(case, entry, arrival(admitted));
            } else if admitted > 0 {
                entry.ask(admitted, now);
                entry.let_through(admitted, now);
            }
        });
    }

    /// The moment at which the bucket of a key will be full again: the nodes' common bucket, if they share one.
    fn tat(&self, case: &Case<'_>, now: Timestamp) -> Option<Timestamp> {
        if let Some((cluster, share)) = self.shared(case.slo) {
            return cluster.tat(case.key, &share, now);
        }
        let (entry, _) = self.table.get(case.key, now)?;
        Some(self.law_of(case).gcra()?.owing().tat(&entry, now))
    }

    /// The law of an SLO on this node: only a part of the rate, if nodes divide the SLO.
    fn law_of(&self, case: &Case<'_>) -> Law {
        if self.shared(case.slo).is_some() { case.slo.law } else { self.law_alone(case.slo) }
    }
}

/// The case of requests that fall under only one SLO. None if that SLO leads to another SLO, even if that
/// SLO's fields are missing here, because a proxy knows only the fields of a key.
fn alone<'c, 'p>(cases: &'c Cases<'p>) -> Option<&'c Case<'p>> {
    match cases.list.as_slice() {
        [case] if case.plan.is_alone => Some(case),
        _ => None,
    }
}

/// Whether requests that the law has not admitted can be charged. A sketch has no row for them, and a proxy does not
/// know what a request will cost in work.
fn has_bucket(case: &Case<'_>) -> bool {
    case.slo.work.is_none() && case.slo.law.gcra().is_some()
}
