//! The outcome as a chart: requests offered, admitted and denied, and their delays.
//!
//! ```text
//! ┌────────────────┐
//! │ requests/s     │  offered, and let through by each policy
//! └────────────────┘
//! ┌────────────────┐
//! │ denied/s       │  by each policy
//! └────────────────┘
//! ┌────────────────┐
//! │ delay          │  the mean over requests let through, at the time of their arrival
//! └────────────────┘
//! ```

use crate::chart::{Chart, ChartLine, ChartUnit, POINTS_MAX, Panel};
use crate::replay::{Bin, Outcome, Series};
use slowlane_core::base::plural;

/// Draws rates and delays over the time of the logs.
pub fn plot(outcome: &Outcome) -> String {
    let series: Vec<Series> = outcome.sides.iter().map(|side| side.series.coarser(POINTS_MAX)).collect();
    let Some(first) = series.first() else { return String::new() };
    let mut lines: Vec<String> = match outcome.sides.as_slice() {
        [_] => vec!["let through".to_owned()],
        sides => sides.iter().map(|side| format!("let through by {}", side.name)).collect(),
    };
    lines.push("offered".to_owned());

    let per_second =
        |count: fn(&Bin) -> u64| move |bin: &Bin, seconds: f64| Some(count(bin) as f64 / seconds);
    let of_each = |value: &dyn Fn(&Bin, f64) -> Option<f64>| -> Vec<ChartLine> {
        series.iter().map(|series| line(series, value)).collect()
    };
    let mut rates = of_each(&per_second(|bin| bin.let_through));
    rates.push(line(first, &per_second(|bin| bin.offered)));
    let denied = of_each(&per_second(|bin| bin.denied));
    let delays = of_each(&|bin, _| {
        let let_through = bin.offered - bin.denied;
        (let_through > 0).then(|| bin.delay_ms as f64 / let_through as f64)
    });
    let panel = |title: &str, lines| Panel { title: title.to_owned(), lines, dashed_at: None };
    let lasts = |series: &Series| series.bins.len() as f64 * series.seconds_each();
    let seconds = series.iter().map(lasts).fold(1.0, f64::max);
    let [begun, _] = outcome.span();
    let chart = Chart {
        title: format!(
            "{}: {} from {begun} UTC",
            outcome.sides[0].name,
            plural(outcome.requests(), "request")
        ),
        lines,
        panels: vec![
            panel("requests per second", rates),
            panel("denied per second", denied),
            panel("mean delay of those let through, ms", delays),
        ],
        seconds,
        unit: ChartUnit::of(seconds),
        ..Chart::default()
    };
    chart.svg()
}

fn line(series: &Series, value: &dyn Fn(&Bin, f64) -> Option<f64>) -> ChartLine {
    let seconds = series.seconds_each();
    let point = |(number, bin): (usize, &Bin)| ((number as f64 + 0.5) * seconds, value(bin, seconds));
    series.bins.iter().enumerate().map(point).collect()
}
