//! The outcome as JSON and CSV, for programs.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::access_log::LogOutcome;
use crate::replay::keys::KeyRow;
use crate::replay::outcome::{Outcome, Side};
use crate::replay::tally::Figures;
use slowlane_core::base::date;
use slowlane_core::base::kind::Kind;
use slowlane_core::base::time::Timestamp;
use slowlane_core::policy::Slo;

/// The whole outcome as one JSON object.
pub fn json(outcome: &Outcome) -> String {
    let verdicts = Kind::ALL.map(Kind::name);
    let counts =
        |row: &[u64; 3]| -> Value { verdicts.iter().zip(row).map(|(name, count)| (*name, *count)).collect() };
    let changes = outcome.changes.map(|changes| -> Value {
        verdicts.iter().zip(&changes).map(|(name, row)| (*name, counts(row))).collect()
    });
    let whole = json!({
        "from": date::written(Timestamp::from_nanos(outcome.begun_ns)).replace(' ', "T") + "Z",
        "to": date::written(Timestamp::from_nanos(outcome.ended_ns)).replace(' ', "T") + "Z",
        "requests": outcome.requests(),
        "logs": outcome.logs.iter().map(log).collect::<Vec<_>>(),
        "policies": outcome.sides.iter().map(side).collect::<Vec<_>>(),
        "changes": changes,
        "notes": outcome.notes.iter().map(ToString::to_string).collect::<Vec<_>>(),
    });
    format!("{whole:#}\n")
}

fn log(log: &LogOutcome) -> Value {
    let faults = log
        .faults
        .iter()
        .map(|(why, faulty)| json!({ "why": why, "lines": faulty.count, "first": faulty.numbers }));
    json!({
        "name": log.name,
        "format": log.format,
        "lines": log.lines,
        "requests": log.requests,
        "not_replayed": faults.collect::<Vec<_>>(),
        "broken": log.broken,
    })
}

fn side(side: &Side) -> Value {
    let slo = |(slo, tallied): &(Slo, Figures)| {
        let mut value = figures(tallied);
        value["slo"] = slo.id.number().into();
        value["law"] = slo.law.name().into();
        value["rate"] = slo.objective.rate.to_string().into();
        value["dry_run"] = slo.dry_run.into();
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
            "bins": side.series.bins().iter().map(bin).collect::<Vec<_>>(),
        },
    })
}

fn figures(figures: &Figures) -> Value {
    let &Figures { requests, delayed, denied, mean_ms, p50_ms, p99_ms, max_ms } = figures;
    json!({
        "requests": requests,
        "delayed": delayed,
        "denied": denied,
        "delay_ms": { "mean": mean_ms, "p50": p50_ms, "p99": p99_ms, "max": max_ms },
    })
}

fn key(row: &KeyRow) -> Value {
    json!({
        "slo": row.slo.number(),
        "key": row.key.to_string(),
        "who": row.name,
        "requests": row.requests,
        "delayed": row.delayed,
        "denied": row.denied,
        "delay_ms": { "mean": mean_ms(row), "max": (row.delayed > 0).then_some(row.longest_ms) },
        "otherwise": row.changed,
        "delayed_there": row.other_delayed,
        "denied_there": row.other_denied,
    })
}

fn mean_ms(row: &KeyRow) -> Option<f64> {
    (row.delayed > 0).then(|| row.delay_ms as f64 / row.delayed as f64)
}

/// The columns of every line. A line leaves those that do not apply empty.
const COLUMNS: &str = "what,policy,slo,law,rate,key,who,requests,delayed,denied,mean_ms,p50_ms,p99_ms,max_ms";

/// More columns where two policies are compared: requests with different verdicts, and how many the other policy
/// delayed and denied.
const COMPARED: &str = ",otherwise,delayed_there,denied_there";

/// One line for each policy (`total`), SLO (`slo`) and key (`key`).
pub fn csv(outcome: &Outcome) -> String {
    let others = outcome.sides.iter().rev();
    let changed = outcome.changes.map(|changes| {
        let same: u64 = (0..changes.len()).map(|verdict| changes[verdict][verdict]).sum();
        changes.as_flattened().iter().sum::<u64>() - same
    });
    let mut text = format!("{COLUMNS}{}\n", if changed.is_some() { COMPARED } else { "" });
    for (side, other) in outcome.sides.iter().zip(others) {
        let policy = quoted(&side.name);
        let compared = changed.map_or(String::new(), |changed| {
            format!(",{changed},{},{}", other.total.delayed, other.total.denied)
        });
        let _ = writeln!(text, "total,{policy},,,,,,{}{compared}", columns(&side.total));
        for (slo, figures) in &side.slos {
            let (law, rate) = (slo.law.name(), slo.objective.rate);
            let compared = if changed.is_some() { ",,," } else { "" };
            let _ = writeln!(text, "slo,{policy},{},{law},{rate},,,{}{compared}", slo.id, columns(figures));
        }
        for row in &side.keys {
            let mean = mean_ms(row).map_or(String::new(), |ms| format!("{ms:.1}"));
            let max = if row.delayed > 0 { row.longest_ms.to_string() } else { String::new() };
            let compared = changed.map_or(String::new(), |_| {
                format!(",{},{},{}", row.changed, row.other_delayed, row.other_denied)
            });
            let _ = writeln!(
                text,
                "key,{policy},{},,,{},{},{},{},{},{mean},,,{max}{compared}",
                row.slo,
                row.key,
                quoted(&row.name),
                row.requests,
                row.delayed,
                row.denied
            );
        }
    }
    text
}

fn columns(figures: &Figures) -> String {
    let &Figures { requests, delayed, denied, mean_ms, p50_ms, p99_ms, max_ms } = figures;
    let ms = |ms: Option<u64>| ms.map_or(String::new(), |ms| ms.to_string());
    let mean = mean_ms.map_or(String::new(), |ms| format!("{ms:.1}"));
    format!("{requests},{delayed},{denied},{mean},{},{},{}", ms(p50_ms), ms(p99_ms), ms(max_ms))
}

/// RFC 4180, section 2.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}
