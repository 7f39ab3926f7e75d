//! The outcome as text tables.

use crate::columns::{NONE, ReportCell, columns, or_none, percent};
use crate::replay::{KeyRow, Outcome, ProtectedLog, ReplayCounts, ReplayTally, Side};
use slowlane_core::base::{Kind, aligned, plural};
use slowlane_core::policy::Slo;

/// The headings of columns that contain words.
const WORDS: [&str; 8] = ["policy", "slo", "law", "rate", "allows", "unit", "key", "who"];

/// The verdicts in total, by SLO and for the first keys and, with two policies, the differences between them.
pub fn report(outcome: &Outcome) -> String {
    let ([begun, ended], requests) = (outcome.span(), outcome.requests());
    let seconds = ((outcome.ended_ns - outcome.begun_ns) as f64 / 1e9).max(1.0);
    let per_s = requests as f64 / seconds;
    let mut text = format!("{} from {begun} to {ended} UTC, {per_s:.1}/s\n\n", plural(requests, "request"));
    text += &columns(&totals(outcome), &WORDS);
    if let (Some(counts), [first, second]) = (&outcome.changes, outcome.sides.as_slice()) {
        text += &format!("\n{}", changes(counts, first, second));
    }
    for side in &outcome.sides {
        let slos: Vec<Vec<ReportCell>> = side.slos.iter().map(|(slo, tally)| slo_row(slo, tally)).collect();
        text += &format!("\n{}", columns(&slos, &WORDS));
        let work = side.slos.iter().filter_map(|(slo, tally)| work_row(slo, tally, seconds));
        let work: Vec<Vec<ReportCell>> = work.collect();
        if !work.is_empty() {
            text += &format!("\n{}", columns(&work, &WORDS));
        }
        if !side.protected.is_empty() {
            let rows: Vec<Vec<ReportCell>> = side.protected.iter().map(protected_row).collect();
            text += &format!("\n{PROTECTED}\n{}", columns(&rows, &WORDS));
        }
    }
    for side in &outcome.sides {
        text += &keys(outcome, side);
    }
    text
}

fn totals(outcome: &Outcome) -> Vec<Vec<ReportCell>> {
    let row = |side: &Side| [vec![("policy", side.name.clone())], figures(&side.total)].concat();
    let mut rows: Vec<Vec<ReportCell>> = outcome.sides.iter().map(row).collect();
    if let [first, second] = outcome.sides.as_slice() {
        let difference = |of: fn(&ReplayCounts) -> u64| {
            format!("{:+}", of(&first.total.counts) as i64 - of(&second.total.counts) as i64)
        };
        let [delayed, denied] = [difference(|of| of.delayed), difference(|of| of.denied)];
        let row = ["difference", NONE, &delayed, NONE, &denied, NONE, NONE, NONE, NONE, NONE];
        rows.push(row.map(|cell| ("", cell.to_owned())).to_vec());
    }
    rows
}

/// How often the second policy gave each verdict, for each verdict of the first policy.
fn changes(changes: &[[u64; 3]; 3], first: &Side, second: &Side) -> String {
    let verdicts = Kind::ALL.map(Kind::name);
    let corner = format!("{} \\ {}", first.name, second.name);
    let mut rows = vec![[vec![corner], verdicts.map(str::to_owned).to_vec()].concat()];
    for (verdict, counts) in verdicts.iter().zip(changes) {
        let counts: Vec<String> = counts.iter().map(u64::to_string).collect();
        rows.push([vec![(*verdict).to_owned()], counts].concat());
    }
    aligned(&rows, "  ", |column, _| column == 0)
}

fn slo_row(slo: &Slo, tally: &ReplayTally) -> Vec<ReportCell> {
    let law = format!("{}{}", slo.law.name(), if slo.dry_run { " (dry run)" } else { "" });
    [vec![("slo", slo.id.to_string()), ("law", law), ("rate", slo.rate())], figures(tally)].concat()
}

/// The work under an SLO, in the SLO's unit. None if the SLO has no unit.
fn work_row(slo: &Slo, tally: &ReplayTally, seconds: f64) -> Option<Vec<ReportCell>> {
    let (unit, [asked, used, delayed, denied]) = (slo.unit()?, tally.work.figures());
    Some(vec![
        ("slo", slo.id.to_string()),
        ("allows", slo.describe()),
        ("unit", unit.to_string()),
        ("asked", units(asked)),
        ("used", units(used)),
        ("used /s", units(used / seconds)),
        ("delayed", units(delayed)),
        ("%", percent(delayed, asked)),
        ("denied", units(denied)),
        ("%", percent(denied, asked)),
    ])
}

/// The heading of the estimates. In the tables above this heading, `protect` lets every request pass.
const PROTECTED: &str =
    "according to the log's times, law=protect would have let this many requests inside at a time:";

fn protected_row(of: &ProtectedLog) -> Vec<ReportCell> {
    vec![
        ("slo", of.slo.to_string()),
        ("key", of.key.to_string()),
        ("inside", format!("{:.0}", of.inside)),
        ("slow-down", format!("{:.1}", of.slow_down)),
        ("limit", or_none(of.limit.map(|limit| format!("{limit:.0}")))),
    ]
}

/// A number of units, with decimal places if the number is small.
fn units(units: f64) -> String {
    if units < 1_000.0 { format!("{units:.2}") } else { format!("{units:.0}") }
}

fn figures(tally: &ReplayTally) -> Vec<ReportCell> {
    let ReplayCounts { requests, delayed, denied, .. } = tally.counts;
    let share = |part: u64| ("%", percent(part as f64, requests as f64));
    let [requests, delayed_cell, denied_cell, mean, max] = tally.counts.cells();
    let [p50, p99] = [50, 99].map(|percent| or_none(tally.percentile_ms(percent)));
    let ms = [mean, ("p50 ms", p50), ("p99 ms", p99), max];
    [&[requests, delayed_cell, share(delayed), denied_cell, share(denied)][..], &ms].concat()
}

/// The keys that a policy throttled or, with two policies, the keys on which the policies differ.
fn keys(outcome: &Outcome, side: &Side) -> String {
    let is_compared = outcome.sides.len() > 1;
    let heading = match (side.keys.is_empty(), is_compared) {
        (true, true) => return String::new(),
        (true, false) if side.throttled_keys > 0 => return String::new(),
        (true, false) => return "\nno key had a request delayed or denied\n".to_owned(),
        (false, true) => {
            format!("\nthe keys of {} with the most requests whose verdicts differ:\n", side.name)
        }
        (false, false) => {
            let (all, shown) = (side.throttled_keys, side.keys.len());
            let noun = if all == 1 { "key" } else { "keys" };
            let first = if shown < all { format!("; the first {shown}") } else { String::new() };
            format!("\n{all} {noun} had requests delayed or denied{first}:\n")
        }
    };
    let rows: Vec<Vec<ReportCell>> = side.keys.iter().map(|row| key_row(row, is_compared)).collect();
    heading + &columns(&rows, &WORDS)
}

fn key_row(row: &KeyRow, is_compared: bool) -> Vec<ReportCell> {
    let mut cells = vec![("slo", row.slo.to_string()), ("key", row.key.to_string())];
    cells.extend(row.counts.cells());
    if is_compared {
        cells.extend([
            ("otherwise", row.changed.to_string()),
            ("delayed there", row.other_delayed.to_string()),
            ("denied there", row.other_denied.to_string()),
        ]);
    }
    cells.push(("who", row.name.to_string()));
    cells
}
