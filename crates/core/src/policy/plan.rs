//! The plan of an SLO: the data that a decision on a common request reads, compiled when the policy is loaded.

use std::time::Duration;

use crate::base::{Ends, SloId};
use crate::law::Law;
use crate::policy::Slo;
use crate::policy::fields::Masks;
use crate::policy::generation::SloRefs;

/// The plan of one SLO. Flags tell whether a request needs more than the plan holds.
#[derive(Clone, Copy, Debug)]
pub struct SloPlan {
    pub id: SloId,
    /// The state tag in the SLO's keys: see [`Law::state_tag`].
    pub state_tag: u32,
    /// How long a row must be kept after a write, if the node is not in a cluster.
    pub keep: Duration,
    /// Whether the SLO's line has no `also`, and no lookup adds an SLO.
    pub is_alone: bool,
    /// Whether a request under this SLO falls under no other SLO: neither `also` nor a lookup adds one, and
    /// the law is not `sketch`, which can be a first stage.
    pub is_single: bool,
    /// Whether a decision needs only a row and a verdict, with no other SLO, auxiliary state, ticket, dry run or block.
    pub is_plain: bool,
    /// Whether the law needs a random number.
    pub draws: bool,
    /// Whether requests need an auxiliary state or a ticket.
    pub uses_aux: bool,
    /// Whether a case needs only its key and its cost, because the SLO has no `share` and counts no work.
    pub(super) is_bare: bool,
    /// Set if the key has only one field, that field holds addresses, and the type is a single digit.
    pub(super) address: Option<AddressPlace>,
}

/// The address field of a key, with the bits that identify a customer.
#[derive(Clone, Copy, Debug)]
pub(super) struct AddressPlace {
    pub(super) place: u16,
    /// The type, 0 to 9.
    pub(super) digit: u8,
    pub(super) masks: Masks,
}

const _: () = assert!(size_of::<SloPlan>() <= 64, "one cache line");

impl SloPlan {
    /// The plan of an SLO outside any policy.
    pub fn alone(slo: &Slo) -> SloPlan {
        SloPlan::of(slo, &SloRefs::default(), None, true)
    }

    pub(super) fn of(
        slo: &Slo,
        refs: &SloRefs,
        address: Option<AddressPlace>,
        may_be_alone: bool,
    ) -> SloPlan {
        let uses_aux = slo.law.has_aux() || slo.ends != Ends::Never;
        // The row must still exist when the end of a request is reported.
        let lease = if slo.ends.is_work() { slo.lease() } else { Duration::ZERO };
        let is_single = may_be_alone && refs.also.is_none() && slo.law.sketched().is_none();
        SloPlan {
            id: slo.id,
            state_tag: slo.state_tag(),
            keep: slo.law.memory().saturating_add(lease),
            is_alone: may_be_alone && slo.also.is_none(),
            is_single,
            is_plain: is_single && !uses_aux && !slo.dry_run && slo.block.is_none(),
            draws: matches!(slo.law, Law::Adaptive(_)),
            uses_aux,
            is_bare: refs.share.is_empty() && !slo.ends.is_work(),
            address,
        }
    }
}
