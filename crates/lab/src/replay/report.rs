//! The outcome as text tables.

use crate::replay::{KeyRow, Outcome, ReplayCounts, ReplayTally, Side};
use slowlane_core::base::{Kind, aligned, plural};

const NONE: &str = "-";

const FIGURES: [&str; 9] =
    ["requests", "delayed", "%", "denied", "%", "mean ms", "p50 ms", "p99 ms", "max ms"];

/// The verdicts in total, by SLO and of the first keys; with two policies, their differences.
pub fn report(outcome: &Outcome) -> String {
    let ([begun, ended], requests) = (outcome.span(), outcome.requests());
    let seconds = ((outcome.ended_ns - outcome.begun_ns) as f64 / 1e9).max(1.0);
    let per_s = requests as f64 / seconds;
    let mut text = format!("{} from {begun} to {ended} UTC, {per_s:.1}/s\n\n", plural(requests, "request"));
    text += &totals(outcome);
    if let (Some(changes), [first, second]) = (&outcome.changes, outcome.sides.as_slice()) {
        text += "\n";
        text += &table(&changes_rows(changes, first, second), 1);
    }
    for side in &outcome.sides {
        text += "\n";
        text += &table(&slo_rows(side), 3);
        let work = work_rows(side, seconds);
        if work.len() > 1 {
            text += "\n";
            text += &table(&work, 3);
        }
    }
    for side in &outcome.sides {
        text += &keys(outcome, side);
    }
    text
}

fn totals(outcome: &Outcome) -> String {
    let mut rows = vec![headings(&["policy"])];
    let row = |name: &str, tally: &ReplayTally| [vec![name.to_owned()], cells(tally)].concat();
    rows.extend(outcome.sides.iter().map(|side| row(&side.name, &side.total)));
    if let [first, second] = outcome.sides.as_slice() {
        let difference = |of: fn(&ReplayCounts) -> u64| {
            format!("{:+}", of(&first.total.counts) as i64 - of(&second.total.counts) as i64)
        };
        let [delayed, denied] = [difference(|of| of.delayed), difference(|of| of.denied)];
        let row = ["difference", NONE, &delayed, NONE, &denied, NONE, NONE, NONE, NONE, NONE];
        rows.push(row.map(str::to_owned).to_vec());
    }
    table(&rows, 1)
}

fn changes_rows(changes: &[[u64; 3]; 3], first: &Side, second: &Side) -> Vec<Vec<String>> {
    let verdicts = Kind::ALL.map(Kind::name);
    let corner = format!("{} \\ {}", first.name, second.name);
    let mut rows = vec![[vec![corner], verdicts.map(str::to_owned).to_vec()].concat()];
    for (verdict, counts) in verdicts.iter().zip(changes) {
        let counts: Vec<String> = counts.iter().map(u64::to_string).collect();
        rows.push([vec![(*verdict).to_owned()], counts].concat());
    }
    rows
}

fn slo_rows(side: &Side) -> Vec<Vec<String>> {
    let mut rows = vec![headings(&["slo", "law", "rate"])];
    for (slo, tally) in &side.slos {
        let law = format!("{}{}", slo.law.name(), if slo.dry_run { " (dry run)" } else { "" });
        let names = vec![slo.id.to_string(), law, slo.rate()];
        rows.push([names, cells(tally)].concat());
    }
    rows
}

/// The SLOs in work, in their units.
fn work_rows(side: &Side, seconds: f64) -> Vec<Vec<String>> {
    let headings = ["slo", "allows", "unit", "asked", "used", "used /s", "delayed", "%", "denied", "%"];
    let mut rows = vec![headings.map(str::to_owned).to_vec()];
    for (slo, tally) in &side.slos {
        let (Some(unit), [asked, used, delayed, denied]) = (slo.unit(), tally.work.figures()) else {
            continue;
        };
        let share =
            |part: f64| if asked > 0.0 { format!("{:.1}", part * 100.0 / asked) } else { NONE.into() };
        let [asked, used, per_s] = [asked, used, used / seconds].map(units);
        let names = vec![slo.id.to_string(), slo.describe(), unit.to_string(), asked, used, per_s];
        rows.push([names, vec![units(delayed), share(delayed), units(denied), share(denied)]].concat());
    }
    rows
}

/// A number of units: small ones with fractions.
fn units(units: f64) -> String {
    if units < 1_000.0 { format!("{units:.2}") } else { format!("{units:.0}") }
}

fn headings(names: &[&str]) -> Vec<String> {
    names.iter().chain(&FIGURES).map(|&heading| heading.to_owned()).collect()
}

fn cells(tally: &ReplayTally) -> Vec<String> {
    let share = |part| percent(part, tally.counts.requests);
    let [requests, delayed, denied, mean, p50, p99, max] = tally.texts();
    let (delayed_share, denied_share) = (share(tally.counts.delayed), share(tally.counts.denied));
    vec![requests, delayed, delayed_share, denied, denied_share, mean, p50, p99, max]
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { NONE.into() } else { format!("{:.1}", part as f64 * 100.0 / whole as f64) }
}

/// The keys of a policy: those that were throttled or, with two policies, those on which they differ.
fn keys(outcome: &Outcome, side: &Side) -> String {
    let is_compared = outcome.sides.len() > 1;
    let heading = match (side.keys.is_empty(), is_compared) {
        (true, true) => return String::new(),
        (true, false) if side.throttled_keys > 0 => return String::new(),
        (true, false) => return "\nno key had a request delayed or denied\n".to_owned(),
        (false, true) => {
            format!("\nthe keys of {} with the most requests with different verdicts:\n", side.name)
        }
        (false, false) => {
            let (all, shown) = (side.throttled_keys, side.keys.len());
            let noun = if all == 1 { "key" } else { "keys" };
            let first = if shown < all { format!("; the first {shown}") } else { String::new() };
            format!("\n{all} {noun} had requests delayed or denied{first}:\n")
        }
    };
    let mut headings = vec!["slo", "key", "requests", "delayed", "denied", "mean ms", "max ms"];
    if is_compared {
        headings.extend(["otherwise", "delayed there", "denied there"]);
    }
    headings.push("who");
    let mut rows = vec![headings.into_iter().map(str::to_owned).collect()];
    rows.extend(side.keys.iter().map(|row| key_row(row, is_compared)));
    heading + &table(&rows, 2)
}

fn key_row(row: &KeyRow, is_compared: bool) -> Vec<String> {
    // Keys have no percentiles.
    let tally = ReplayTally { counts: row.counts, ..ReplayTally::default() };
    let [requests, delayed, denied, mean, _, _, max] = tally.texts();
    let mut cells = vec![row.slo.to_string(), row.key.to_string(), requests, delayed, denied, mean, max];
    if is_compared {
        cells.extend([row.changed, row.other_delayed, row.other_denied].map(|count| count.to_string()));
    }
    cells.push(row.name.to_string());
    cells
}

/// The first columns and one named `who` are text.
fn table(rows: &[Vec<String>], words: usize) -> String {
    aligned(rows, "  ", |column, heading| column < words || heading == "who")
}
