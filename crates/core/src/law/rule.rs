//! The methods that every law implements.

use std::mem::discriminant;
use std::time::Duration;

use crate::base::quota::Quota;
use crate::base::time::Timestamp;
use crate::law::admission::Admission;
use crate::law::arrival::Arrival;
use crate::law::aux_state::AuxState;
use crate::law::judgement::Judgement;
use crate::law::objective::Objective;
use crate::law::used::Used;
use crate::law::window::Window;
use crate::table::Entry;

/// One law with its numbers filled in for an SLO.
///
/// No method has an effect beside the entry and the auxiliary state that it is given. The defaults suit a
/// bucket that passes or denies, forgets at once and needs no auxiliary state. [`Law`](crate::law::Law) documents the
/// methods for callers.
pub(super) trait Rule {
    /// Judges one request, and writes it into the entry and the auxiliary state. Only `Fixed` is asked about a cost of
    /// 0.
    fn judge(&self, entry: &mut Entry, aux: Option<&mut AuxState>, arrival: &Arrival) -> Judgement;

    /// The same judgement, with no admission added to the auxiliary state. Without an auxiliary state it must equal
    /// `judge`: a decision under several SLOs keeps its entry.
    fn foresee(&self, entry: &mut Entry, aux: Option<&mut AuxState>, arrival: &Arrival) -> Judgement {
        self.judge(entry, aux, arrival)
    }

    /// The law's formula with the numbers of this request in it.
    fn explain(
        &self,
        objective: &Objective,
        entry: &Entry,
        aux: Option<&AuxState>,
        arrival: &Arrival,
    ) -> String;

    /// Undoes the charge of a request whose client has left.
    fn take_back(&self, _entry: &mut Entry, _aux: Option<&mut AuxState>, _gone: &Admission) {}

    /// Whether the law must know of each request's end.
    fn counts_ends(&self) -> bool {
        false
    }

    /// Notes the end of a request. `gone.due` is the moment of its judgement. Returns how much of its cost was
    /// still counted.
    fn end(&self, _entry: &mut Entry, _gone: &Admission) -> u32 {
        0
    }

    /// Tells apart states of this law that have different numbers in them, such as numbers of windows.
    fn state_shape(&self) -> u64 {
        0
    }

    /// How long the entry matters after a write, beyond the table's `expire`.
    fn memory(&self) -> Duration {
        Duration::ZERO
    }

    /// The longest delay. `None`: the law never delays. `Duration::MAX`: there is no limit.
    fn max_delay(&self) -> Option<Duration> {
        None
    }

    /// The window whose requests the law counts. It ignores the burst then.
    fn window(&self) -> Option<&Window> {
        None
    }

    /// The law at a part of its rate: one of so many nodes. A law that nodes cannot share stays as it is.
    fn split(&self, _nodes: u32) -> Self
    where
        Self: Copy,
    {
        *self
    }

    /// The allowance in the numbers of the `RateLimit-Policy` header.
    fn quota(&self, objective: Objective) -> Quota {
        match self.window() {
            Some(window) => window.quota(),
            None => Quota::of_bucket(objective.burst, objective.rate),
        }
    }

    /// What a key has used of its quota. None: the law has no quota, but a rate.
    fn used(&self, _entry: &Entry, _aux: Option<&AuxState>, _now: Timestamp) -> Option<Used> {
        None
    }

    /// The allowance in words.
    fn describe(&self, Objective { burst, rate }: Objective) -> String {
        match self.window() {
            Some(window) => window.describe(),
            None => format!("{rate}, burst {burst}"),
        }
    }

    /// Whether requests need a [`sharer`](Arrival::sharer).
    fn is_shared(&self) -> bool {
        false
    }

    /// An empty auxiliary state, for a law that needs one.
    fn aux(&self) -> Option<AuxState> {
        None
    }

    /// Whether the law made this kind of auxiliary state.
    fn owns(&self, aux: &AuxState) -> bool {
        self.aux().is_some_and(|own| discriminant(&own) == discriminant(aux))
    }

    /// The most memory that the auxiliary state takes after one more request of this cost.
    fn aux_bytes_after(&self, aux: &AuxState, _cost: u32) -> usize {
        aux.bytes()
    }
}
