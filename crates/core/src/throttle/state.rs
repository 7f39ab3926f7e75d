//! The throttle: the policy in force, and all state that decisions read and write.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};

use crate::base::{Key, Sharing, Timestamp};
use crate::cluster::{Cluster, OnSilence, Share};
use crate::law::Law;
use crate::policy::{Case, Policy, Slo};
use crate::table::{Entry, Sizing, Table, Usage};
use crate::throttle::AuxStore;
use crate::throttle::blocks::Blocks;
use crate::throttle::gates::{Gates, Protected};
use crate::throttle::sketches::Sketches;

/// The policy in force, the table, the sketches, the auxiliary states, the blocks and the gates.
#[derive(Debug)]
pub struct Throttle {
    policy: ArcSwap<Policy>,
    pub(super) table: Table,
    pub(super) sketches: Sketches,
    pub(super) aux_store: AuxStore,
    pub(super) blocks: Blocks,
    pub(super) gates: Gates,
    /// None if this slowlane is not in a cluster.
    pub(super) cluster: Option<Arc<Cluster>>,
    fallbacks: AtomicU64,
    /// The time of the last sweep, in seconds.
    swept_s: AtomicU64,
}

/// The policy in force at the time of the call. Drop this value promptly, because it keeps an old policy alive.
pub type InForce = Guard<Arc<Policy>>;

/// Counters of the auxiliary states for operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuxUsage {
    pub bytes: u64,
    /// How often there was no room: a simpler law judged, a ticket was not stored, or an application was not protected.
    pub fallbacks: u64,
}

impl Throttle {
    /// The auxiliary states and the open tickets take up at most `annex_bytes_max` bytes in addition to the table.
    pub fn new(policy: Policy, sizing: Sizing, annex_bytes_max: usize) -> Throttle {
        Throttle {
            sketches: Sketches::of(&policy),
            policy: ArcSwap::from_pointee(policy),
            table: Table::new(sizing),
            aux_store: AuxStore::new(annex_bytes_max),
            blocks: Blocks::new(),
            gates: Gates::default(),
            cluster: None,
            fallbacks: AtomicU64::new(0),
            swept_s: AtomicU64::new(0),
        }
    }

    /// Makes this throttle a node of a cluster.
    pub fn in_cluster(self, cluster: Arc<Cluster>) -> Throttle {
        Throttle { cluster: Some(cluster), ..self }
    }

    /// None if this slowlane is not in a cluster.
    pub fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_deref()
    }

    /// The cluster, if its nodes divide or share this SLO.
    #[inline]
    pub(super) fn cluster_of(&self, slo: &Slo) -> Option<&Cluster> {
        self.cluster().filter(|_| slo.sharing != Sharing::Local)
    }

    /// The cluster, and the way in which its nodes share an SLO. None if each node uses all or a part of the SLO alone.
    #[inline]
    pub(super) fn shared<'s>(&'s self, slo: &'s Slo) -> Option<(&'s Cluster, Share<'s>)> {
        let cluster = self.cluster()?;
        Some((cluster, Share::new(slo.sharing, &slo.law)?))
    }

    /// The law by which this node judges alone: a part of the SLO's law, if nodes divide or share the SLO. While the
    /// store is silent, a node may use the whole law of a shared SLO ([`OnSilence::Open`]).
    pub(super) fn law_alone(&self, slo: &Slo) -> Law {
        let Some(cluster) = self.cluster_of(slo) else { return slo.law };
        let is_open = slo.sharing != Sharing::Split
            && cluster.is_silent()
            && cluster.settings().on_silence == OnSilence::Open;
        if is_open { slo.law } else { slo.law.split(cluster.nodes()) }
    }

    /// How long the row of a case must be kept after a write.
    #[inline]
    pub(super) fn memory(&self, case: &Case<'_>) -> Duration {
        let Some(cluster) = self.cluster_of(case.slo) else { return case.plan.keep };
        let law = &case.slo.law;
        let lease = if case.slo.ends.is_work() { case.slo.lease() } else { Duration::ZERO };
        let unreported = self.shared(case.slo).map_or(Duration::ZERO, |(_, share)| cluster.memory(&share));
        law.memory_split(cluster.nodes()).max(unreported).saturating_add(lease)
    }

    /// The policy in force.
    pub fn policy(&self) -> InForce {
        self.policy.load()
    }

    /// Puts another policy in force and returns the old one. The table and the blocks stay, and so do sketches whose
    /// SLO has the same window, error and confidence.
    pub fn replace(&self, mut policy: Policy) -> Arc<Policy> {
        let operators = self.blocks.operators();
        policy.continue_from(&self.policy());
        self.sketches.begin(&policy);
        policy.put_blocks(operators.index(&policy));
        self.policy.swap(Arc::new(policy))
    }

    /// Returns the policy, and forgets every count.
    pub fn into_policy(self) -> Arc<Policy> {
        self.policy.into_inner()
    }

    /// Drops a key's entry and auxiliary state, if `is_to_go` returns true.
    pub fn forget(&self, key: Key, is_to_go: impl FnOnce(&Entry) -> bool) {
        if self.table.remove(key, is_to_go) {
            self.aux_store.remove(key);
        }
    }

    /// Shares a key with the other nodes from the key's next request on, if the key has an entry.
    pub fn share(&self, key: Key, now: Timestamp) {
        self.table.with_known(key, now, |entry, _| Cluster::share(entry));
    }

    /// The auxiliary states and the open tickets.
    pub fn aux_store(&self) -> &AuxStore {
        &self.aux_store
    }

    /// Removes expired state in the first call of each second: auxiliary states, tickets, unused sketches, blocks, idle
    /// applications, and shared keys. Decisions remove none of these. Writes to the table remove expired rows.
    pub fn sweep(&self, now: Timestamp) {
        let second = now.since_epoch().as_secs();
        if self.swept_s.swap(second, Relaxed) == second {
            return;
        }
        self.aux_store.sweep(now);
        self.sketches.sweep();
        self.sweep_blocks(now);
        self.gates.sweep(now);
        if let Some(cluster) = &self.cluster {
            cluster.sweep(now);
        }
    }

    /// Lets time pass in protected applications: requests that have waited for too long are refused, and lost
    /// requests give their places back. Call this function once per [`TICK`](crate::law::TICK).
    pub fn wake_gates(&self, now: Timestamp) {
        self.gates.wake(now);
    }

    /// The protected applications that have recently received requests.
    pub fn protected(&self) -> Vec<Protected> {
        self.gates.views()
    }

    pub fn table(&self) -> &Table {
        &self.table
    }

    pub fn usage(&self) -> Usage {
        self.table.usage()
    }

    pub fn aux_usage(&self) -> AuxUsage {
        AuxUsage { bytes: self.aux_store.bytes(), fallbacks: self.fallbacks.load(Relaxed) }
    }

    /// Counts a request for which there was no room: in the auxiliary states, or among the protected applications.
    pub(super) fn count_fallback(&self) {
        self.fallbacks.fetch_add(1, Relaxed);
    }
}
