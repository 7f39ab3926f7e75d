//! The outcomes as a chart: a self-contained SVG for light and dark backgrounds.
//!
//! ```text
//! legend:   a line per outcome                                   the number of clients, where it changes
//! ┌────────────────┐
//! │ requests/s     │  means over a second, or longer, for POINTS_MAX points at most; the SLO is dashed
//! └────────────────┘  with other groups than clients: first of all, then of the clients
//! ┌────────────────┐
//! │ delay          │  the mean over requests let through
//! └────────────────┘
//!  0  10  20  30 s
//! ```

use crate::chart::{Chart, ChartLine, LINES_MAX, POINTS_MAX, Panel};
use crate::simulate::{BINS_PER_S, Bin, SimulationOutcome};
use slowlane_core::base::Unit;

/// Draws the outcomes of runs of the same length and objective, the first [`LINES_MAX`] of them.
pub fn plot(outcomes: &[SimulationOutcome]) -> String {
    let outcomes = &outcomes[..outcomes.len().min(LINES_MAX)];
    let Some(SimulationOutcome { scenario: first, record, .. }) = outcomes.first() else {
        return String::new();
    };
    let is_one_load = outcomes.iter().all(|outcome| outcome.scenario.load.clients == first.load.clients);
    // The law, and the number of clients if it differs.
    let label = |outcome: &SimulationOutcome| match is_one_load {
        true => outcome.scenario.law.clone(),
        false => format!("{}, {} clients", outcome.scenario.law, outcome.scenario.load.clients),
    };
    let labels: Vec<String> = outcomes.iter().map(label).collect();
    let lines = |value: BinValue<'_>| outcomes.iter().map(|outcome| line(outcome, value)).collect();
    let sum = |bins: &[Bin], of: fn(&Bin) -> f64| bins.iter().map(of).sum::<f64>();
    let mean = |bins: &[Bin], _| {
        let count = sum(bins, |bin| bin.shown_requests.into());
        (count > 0.0).then(|| sum(bins, |bin| bin.shown_delay_ms as f64) / count)
    };
    let unit = record.unit.as_ref().map_or("requests", Unit::name);
    let rates = |whose: &str, of: fn(&Bin) -> f64| Panel {
        title: format!("{whose}{unit} let through per second"),
        lines: lines(&|bins: &[Bin], seconds| Some(sum(bins, of) / seconds)),
        dashed_at: Some(record.per_s),
    };
    let whose = if record.is_of_clients { "clients' " } else { "" };
    let counts = first.load.clients.counts();
    let all = record.is_of_clients.then(|| rates("all ", |bin| bin.all));
    let delays = Panel { title: format!("{whose}mean delay, ms"), lines: lines(&mean), dashed_at: None };
    let chart = Chart {
        title: format!("{} at {}", labels.join(", "), record.rate),
        lines: labels,
        dashed: Some(format!("SLO {}", record.rate)),
        phases: if is_one_load && counts.len() > 1 { counts } else { &[] },
        panels: all.into_iter().chain([rates(whose, |bin| bin.shown), delays]).collect(),
        seconds: f64::from(first.seconds),
        ..Chart::default()
    };
    chart.svg()
}

/// The value of some bins that together take this many seconds.
type BinValue<'v> = &'v dyn Fn(&[Bin], f64) -> Option<f64>;

/// A series as a line of at most [`POINTS_MAX`] points.
fn line(outcome: &SimulationOutcome, value: BinValue<'_>) -> ChartLine {
    let seconds_each = (outcome.scenario.seconds as usize).div_ceil(POINTS_MAX);
    let point = |(number, bins): (usize, &[Bin])| {
        let seconds = bins.len() as f64 / BINS_PER_S as f64;
        ((number * seconds_each) as f64 + seconds / 2.0, value(bins, seconds))
    };
    outcome.record.bins.chunks(seconds_each * BINS_PER_S).enumerate().map(point).collect()
}
