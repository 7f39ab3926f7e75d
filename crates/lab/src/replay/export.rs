//! The outcome as JSON and CSV, for programs.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::replay::{KeyRow, Outcome, ReplayCounts, ReplayTally, Side};
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

/// The columns of every line. A line leaves those that do not apply empty.
const COLUMNS: &str = "what,policy,slo,law,rate,key,who,requests,delayed,denied,mean_ms,p50_ms,p99_ms,max_ms";

/// More columns where two policies are compared: requests with different verdicts, and how many the other policy
/// delayed and denied.
const COMPARED: &str = ",otherwise,delayed_there,denied_there";

/// More columns where an SLO counts work, in its unit.
const WORK: &str = ",unit,work_asked,work_used,work_delayed,work_denied";

/// One line for each policy (`total`), SLO (`slo`) and key (`key`).
pub fn csv(outcome: &Outcome) -> String {
    let others = outcome.sides.iter().rev();
    let changed = outcome.changes.map(|changes| {
        let same: u64 = (0..changes.len()).map(|verdict| changes[verdict][verdict]).sum();
        changes.as_flattened().iter().sum::<u64>() - same
    });
    let has_work = outcome.sides.iter().flat_map(|side| &side.slos).any(|(slo, _)| slo.work.is_some());
    let work =
        |slo: Option<&(Slo, ReplayTally)>| match slo.and_then(|(slo, tally)| Some((slo.unit()?, tally))) {
            _ if !has_work => String::new(),
            None => ",,,,,".to_owned(),
            Some((unit, tally)) => {
                format!(",{unit},{}", tally.work.figures().map(|units| units.to_string()).join(","))
            }
        };
    let [compared, work_columns] = [(changed.is_some(), COMPARED), (has_work, WORK)]
        .map(|(has, columns)| if has { columns } else { "" });
    let mut text = format!("{COLUMNS}{compared}{work_columns}\n");
    for (side, other) in outcome.sides.iter().zip(others) {
        let policy = quoted(&side.name);
        let compared = |counts: Option<[u64; 3]>| match (changed, counts) {
            (None, _) => String::new(),
            (Some(_), None) => ",,,".to_owned(),
            (Some(_), Some([changed, delayed, denied])) => format!(",{changed},{delayed},{denied}"),
        };
        let there = [changed.unwrap_or_default(), other.total.counts.delayed, other.total.counts.denied];
        let total = columns(&side.total) + &compared(Some(there)) + &work(None);
        let _ = writeln!(text, "total,{policy},,,,,,{total}");
        for row @ (slo, tally) in &side.slos {
            let (id, law, rate) = (slo.id, slo.law.name(), slo.rate());
            let figures = columns(tally) + &compared(None) + &work(Some(row));
            let _ = writeln!(text, "slo,{policy},{id},{law},{rate},,,{figures}");
        }
        for row in &side.keys {
            let (slo, key, who) = (row.slo, row.key, quoted(&row.name));
            let figures = columns(&ReplayTally { counts: row.counts, ..ReplayTally::default() });
            let there = compared(Some([row.changed, row.other_delayed, row.other_denied])) + &work(None);
            let _ = writeln!(text, "key,{policy},{slo},,,{key},{who},{figures}{there}");
        }
    }
    text
}

fn columns(tally: &ReplayTally) -> String {
    tally.texts("").join(",")
}

/// RFC 4180, section 2.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}
