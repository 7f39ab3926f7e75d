//! The outcome as JSON, for programs.

use serde_json::{Value, json};

use crate::replay::{KeyRow, Outcome, ProtectedLog, ReplayCounts, ReplayTally, Side};
use slowlane_core::base::Kind;
use slowlane_core::policy::Slo;

/// The whole outcome as one JSON object.
pub fn json(outcome: &Outcome) -> String {
    let verdicts = Kind::ALL.map(Kind::name);
    let counts =
        |row: &[u64; 3]| -> Value { verdicts.iter().zip(row).map(|(name, count)| (*name, *count)).collect() };
    let changes = outcome.changes.map(|changes| -> Value {
        verdicts.iter().zip(&changes).map(|(name, row)| (*name, counts(row))).collect()
    });
    let [from, to] = outcome.span().map(|at| at.replace(' ', "T") + "Z");
    let whole = json!({
        "from": from,
        "to": to,
        "requests": outcome.requests(),
        "logs": outcome.logs,
        "policies": outcome.sides.iter().map(side).collect::<Vec<_>>(),
        "changes": changes,
        "notes": outcome.notes,
    });
    format!("{whole:#}\n")
}

fn side(side: &Side) -> Value {
    let slo = |(slo, tallied): &(Slo, ReplayTally)| {
        let mut value = figures(tallied);
        value["slo"] = slo.id.number().into();
        value["law"] = slo.law.name().into();
        value["rate"] = slo.rate().into();
        value["dry_run"] = slo.dry_run.into();
        if let Some(unit) = slo.unit() {
            let ([asked, used, delayed, denied], unmeasured) =
                (tallied.work.figures(), tallied.work.unmeasured);
            value["work"] = json!({
                "unit": unit.name(), "asked": asked, "used": used, "delayed": delayed, "denied": denied,
                "unmeasured": unmeasured,
            });
        }
        value
    };
    let bin =
        |bin: &crate::replay::series::Bin| json!([bin.offered, bin.let_through, bin.denied, bin.delay_ms]);
    json!({
        "policy": side.name,
        "total": figures(&side.total),
        "slos": side.slos.iter().map(slo).collect::<Vec<_>>(),
        "protected": side.protected.iter().map(protected).collect::<Vec<_>>(),
        "throttled_keys": side.throttled_keys,
        "keys": side.keys.iter().map(key).collect::<Vec<_>>(),
        "series": {
            "seconds_each": side.series.seconds_each(),
            "columns": ["offered", "let_through", "denied", "delay_ms"],
            "bins": side.series.bins.iter().map(bin).collect::<Vec<_>>(),
        },
    })
}

fn figures(tally: &ReplayTally) -> Value {
    let mut value = json_of(&tally.counts);
    value["delay_ms"]["p50"] = json!(tally.percentile_ms(50));
    value["delay_ms"]["p99"] = json!(tally.percentile_ms(99));
    value
}

fn json_of(counts: &ReplayCounts) -> Value {
    json!({
        "requests": counts.requests,
        "delayed": counts.delayed,
        "denied": counts.denied,
        "delay_ms": { "mean": counts.mean_ms(), "max": counts.max_ms() },
    })
}

fn protected(of: &ProtectedLog) -> Value {
    json!({
        "slo": of.slo.number(),
        "key": of.key.to_string(),
        "inside": of.inside,
        "slow_down": of.slow_down,
        "limit": of.limit,
    })
}

fn key(row: &KeyRow) -> Value {
    let mut value = json_of(&row.counts);
    value["slo"] = row.slo.number().into();
    value["key"] = row.key.to_string().into();
    value["who"] = row.name.as_ref().into();
    value["otherwise"] = row.changed.into();
    value["delayed_there"] = row.other_delayed.into();
    value["denied_there"] = row.other_denied.into();
    value
}
