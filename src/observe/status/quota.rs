//! The quotas of a request, and how much of each quota the client has used.

use std::fmt;

use serde::Serialize;

use slowlane_core::base::{
    Request, Sample, Timestamp,
    date::{WallShift, written},
    shown,
};
use slowlane_core::law::Used;
use slowlane_core::policy::{Explained, Part};
use slowlane_core::throttle::{Throttle, View};

/// The quotas of a request, as they stand now. Reading them counts no request.
#[derive(Clone, Debug, Serialize)]
pub struct Quotas {
    pub quotas: Vec<QuotaLine>,
}

/// One quota of a request.
#[derive(Clone, Debug, Serialize)]
pub struct QuotaLine {
    pub slo: u32,
    /// The values that share the quota: `website shop.example`.
    pub of: Vec<String>,
    /// The allowance in words.
    pub allowance: String,
    /// Requests, or whole units of work. `None` if the SLO has a rate instead of a quota.
    pub limit: Option<u64>,
    pub used: Option<u64>,
    pub left: Option<u64>,
    pub unit: Option<String>,
    /// When the used requests stop counting, in UTC. `None` if nothing counts now, or the SLO has no quota.
    pub resets_at: Option<String>,
    /// Seconds until `resets_at`.
    pub resets_in: Option<u64>,
}

impl Quotas {
    pub fn of(throttle: &Throttle, request: &Request<'_>, now: Timestamp, wall: WallShift) -> Quotas {
        let policy = throttle.policy();
        let explanation = policy.explain(request);
        let foreseen = throttle.foresee(&explanation.cases, now, Sample::MIDDLE);
        let lines = explanation.of.iter().zip(&foreseen.views);
        Quotas { quotas: lines.map(|(explained, view)| QuotaLine::of(explained, view, now, wall)).collect() }
    }

    /// JSON for programs, with a final line break.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain values are JSON") + "\n"
    }
}

impl QuotaLine {
    fn of(explained: &Explained<'_>, view: &View, now: Timestamp, wall: WallShift) -> QuotaLine {
        let slo = explained.case.slo;
        let part = |part: &Part<'_>| {
            let value = part.value.as_deref().map_or("(missing)".to_owned(), shown);
            format!("{} {value}", shown(part.field.as_bytes()))
        };
        let used = view.used;
        let resets_at = used.and_then(|used| used.resets_at);
        let units = |grains: u32| slo.units(grains.into());
        QuotaLine {
            slo: slo.id.number(),
            of: explained.parts.iter().map(part).collect(),
            allowance: slo.describe(),
            limit: used.map(|used| units(used.limit).round() as u64),
            used: used.map(|used| units(used.requests).ceil() as u64),
            left: used.map(|Used { requests, limit, .. }| units(limit.saturating_sub(requests)) as u64),
            unit: slo.unit().map(|unit| unit.name().to_owned()),
            resets_at: resets_at.map(|at| written(wall.wall(at))),
            resets_in: resets_at.map(|at| at.since(now).as_millis().div_ceil(1_000) as u64),
        }
    }
}

/// Text for people:
///
/// ```text
/// SLO 2001 of website shop.example: 1000 in each month (UTC)
///   used    40
///   left    960
///   resets  2026-12-01 00:00:00 UTC, in 734400 s
/// ```
impl fmt::Display for Quotas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.quotas.iter().try_for_each(|line| line.fmt(f))
    }
}

impl fmt::Display for QuotaLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = if self.of.is_empty() { "all requests".into() } else { self.of.join(", ") };
        writeln!(f, "SLO {} of {of}: {}", self.slo, self.allowance)?;
        let (Some(used), Some(left)) = (self.used, self.left) else {
            return writeln!(f, "  no quota: the SLO's law limits a rate; `slowlane why` shows the state");
        };
        let unit = self.unit.as_ref().map_or(String::new(), |unit| format!(" {unit}"));
        writeln!(f, "  used    {used}{unit}")?;
        writeln!(f, "  left    {left}{unit}")?;
        match (&self.resets_at, self.resets_in) {
            (Some(at), Some(seconds)) => writeln!(f, "  resets  {at} UTC, in {seconds} s"),
            _ => writeln!(f, "  resets  nothing counts now"),
        }
    }
}
