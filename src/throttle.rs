//! The decision: what a proxy is told about one request.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::draw::Draw;
use crate::policy::Policy;
use crate::request::Request;
use crate::table::{Sizing, Table, Usage};
use crate::time::Timestamp;
use crate::verdict::Decision;

/// The policy in force, and what is remembered of every key.
#[derive(Debug)]
pub struct Throttle {
    policy: ArcSwap<Policy>,
    table: Table,
}

impl Throttle {
    pub fn new(policy: Policy, sizing: Sizing) -> Throttle {
        Throttle { policy: ArcSwap::from_pointee(policy), table: Table::new(sizing) }
    }

    /// Decides one request, and counts it.
    ///
    /// ```
    /// use slowlane::{draw::Draw, policy::Policy, request::Request, table::Sizing, throttle::Throttle};
    /// use slowlane::{time::Timestamp, verdict::Verdict};
    /// use std::time::Duration;
    ///
    /// let sizing = Sizing { entries_max: 1_000, expire: Duration::from_secs(30) };
    /// let throttle = Throttle::new(Policy::builtin(), sizing);
    /// let decision = throttle.decide(&Request::new(), Timestamp::from_millis(1), Draw::MIDDLE);
    /// assert_eq!(decision.verdict, Verdict::Pass);
    /// ```
    pub fn decide(&self, request: &Request<'_>, now: Timestamp, draw: Draw) -> Decision {
        let policy = self.policy.load();
        let (slo, key) = policy.classify(request);
        let judge = |entry: &mut _| slo.law.judge(entry, now, draw);
        let verdict = self.table.with(key, now, slo.law.memory(), judge);
        Decision { verdict, slo: slo.id, key }
    }

    /// Takes back a delayed request whose client left before its turn: its slot is free again.
    pub fn take_back(&self, decision: &Decision, now: Timestamp) {
        let policy = self.policy.load();
        let Some(slo) = policy.slo(decision.slo) else { return };
        self.table.with(decision.key, now, slo.law.memory(), |entry| slo.law.take_back(entry));
    }

    /// Puts another policy in force, whole, and gives the old one back. The table stays as it is.
    pub fn replace(&self, policy: Policy) -> Arc<Policy> {
        self.policy.swap(Arc::new(policy))
    }

    pub fn table(&self) -> &Table {
        &self.table
    }

    pub fn usage(&self) -> Usage {
        self.table.usage()
    }
}
