//! The modes in which the nodes of a cluster share the SLOs, and warnings about these modes.

use std::time::Duration;

use crate::base::{Sharing, SloId, Unit};
use crate::law::{Law, Window};
use crate::policy::{Policy, Slo, WarningKind};

/// Windows of this length or longer are quotas, which operators expect never to be exceeded.
const QUOTA: Duration = Duration::from_secs(3_600);

impl Policy {
    /// The SLOs of each mode that is in use.
    pub fn sharings(&self) -> Vec<(Sharing, Vec<SloId>)> {
        let of = |sharing| {
            let ids: Vec<SloId> =
                self.slos.iter().filter(|slo| slo.sharing == sharing).map(|slo| slo.id).collect();
            (!ids.is_empty()).then_some((sharing, ids))
        };
        Sharing::ALL.into_iter().filter_map(of).collect()
    }

    /// Adds warnings about SLOs that the nodes of a cluster cannot share well. A node contacts the store once
    /// per `period`. `has_peers` means that HAProxy enforces the limits itself.
    pub fn warn_of_sharing(&mut self, period: Duration, has_peers: bool) {
        for (slo, refs) in self.slos.iter().zip(&self.refs).filter(|(slo, _)| !slo.dry_run) {
            if let Some(warning) = warning(slo, period, has_peers) {
                self.warnings.add(&self.slo_map.path, Some(refs.line), warning);
            }
        }
    }

    /// Warns of each SLO that HAProxy, as a peer, cannot enforce: an SLO that counts work or uses the `protect` law.
    pub fn warn_of_peers(&mut self) {
        for (slo, refs) in self.slos.iter().zip(&self.refs) {
            let of_unit = |unit: &Unit| WarningKind::Asked(unit.name().to_owned());
            let of_law = || matches!(slo.law, Law::Protect(_)).then_some(WarningKind::Unprotected);
            if let Some(warning) = slo.unit().map(of_unit).or_else(of_law) {
                self.warnings.add(&self.slo_map.path, Some(refs.line), warning);
            }
        }
    }
}

fn warning(slo: &Slo, period: Duration, has_peers: bool) -> Option<WarningKind> {
    let Slo { law, sharing, objective, .. } = slo;
    if law.sharings() == [Sharing::Local]
        && !slo.is_sharing_given
        && !matches!(law, Law::Open(_) | Law::Closed(_))
    {
        return Some(WarningKind::Unshared { law: law.name() });
    }
    if *sharing == Sharing::Count
        && let Some(window) = law.shared_window().map(Window::longest).filter(|&window| window >= QUOTA)
    {
        return Some(WarningKind::Quota { sharing: sharing.name(), window });
    }
    let gcra = law.gcra().filter(|_| *sharing == Sharing::Rate)?;
    if !gcra.delay_max().is_zero() {
        // At such a low rate, even with only two nodes, each admits less than one request per period.
        let is_low = has_peers && gcra.slot() * 2 > period;
        return is_low.then_some(WarningKind::Uneven { rate: objective.rate });
    }
    // A law that refuses requests needs a burst of one and a half periods at its rate: 300 for 0.1 s at 2000/s.
    let least = (period * 3 / 2).as_nanos().div_ceil(gcra.slot().as_nanos()) as u64;
    let is_hasty = u64::from(objective.burst) < least && gcra.slot() * 2 < period;
    is_hasty.then_some(WarningKind::Hasty { burst: objective.burst, rate: objective.rate, period, least })
}
