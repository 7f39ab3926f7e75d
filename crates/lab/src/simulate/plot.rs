//! The outcomes as a chart: a self-contained SVG for light and dark backgrounds.
//!
//! ```text
//! legend:   a line per outcome                                   the number of clients, where it changes
//! ┌────────────────┐
//! │ requests/s     │  means over a second, or longer, for POINTS_MAX points at most; the SLO is dashed
//! └────────────────┘
//! ┌────────────────┐
//! │ delay          │  the mean over requests let through
//! └────────────────┘
//!  0  10  20  30 s
//! ```

use crate::chart::{Chart, LINES_MAX, Line, POINTS_MAX, Panel};
use crate::simulate::{BINS_PER_S, Bin, Outcome};

/// Draws the outcomes of runs of the same length and objective, the first [`LINES_MAX`] of them.
pub fn plot(outcomes: &[Outcome]) -> String {
    let outcomes = &outcomes[..outcomes.len().min(LINES_MAX)];
    let Some(Outcome { scenario: first, record, .. }) = outcomes.first() else { return String::new() };
    let is_one_load = outcomes.iter().all(|outcome| outcome.scenario.load.clients == first.load.clients);
    // The law, and the number of clients if it differs.
    let label = |outcome: &Outcome| match is_one_load {
        true => outcome.scenario.law.clone(),
        false => format!("{}, {} clients", outcome.scenario.law, outcome.scenario.load.clients),
    };
    let labels: Vec<String> = outcomes.iter().map(label).collect();
    let per_second = |count: u32, _, seconds: f64| Some(f64::from(count) / seconds);
    let mean = |count: u32, delay_ms: u64, _| (count > 0).then(|| delay_ms as f64 / f64::from(count));
    let whose = if record.is_of_clients { "clients' " } else { "" };
    let counts = first.load.clients.counts();
    let chart = Chart {
        title: format!("{} at {}", labels.join(", "), first.rate),
        lines: labels,
        dashed: Some(format!("SLO {}", first.rate)),
        phases: if is_one_load && counts.len() > 1 { counts } else { &[] },
        panels: vec![
            Panel {
                title: format!("{whose}requests let through per second"),
                lines: outcomes.iter().map(|outcome| line(outcome, per_second)).collect(),
                dashed_at: Some(first.rate.per_second()),
            },
            Panel {
                title: format!("{whose}mean delay, ms"),
                lines: outcomes.iter().map(|outcome| line(outcome, mean)).collect(),
                dashed_at: None,
            },
        ],
        seconds: f64::from(first.seconds),
        ..Chart::default()
    };
    chart.svg()
}

/// A series as a line of at most [`POINTS_MAX`] points.
fn line(outcome: &Outcome, value: impl Fn(u32, u64, f64) -> Option<f64>) -> Line {
    let seconds_each = (outcome.scenario.seconds as usize).div_ceil(POINTS_MAX);
    let point = |(number, bins): (usize, &[Bin])| {
        let count = bins.iter().map(|bin| bin.shown).sum();
        let delay_ms = bins.iter().map(|bin| bin.shown_delay_ms).sum();
        let seconds = bins.len() as f64 / BINS_PER_S as f64;
        ((number * seconds_each) as f64 + seconds / 2.0, value(count, delay_ms, seconds))
    };
    outcome.record.bins.chunks(seconds_each * BINS_PER_S).enumerate().map(point).collect()
}
