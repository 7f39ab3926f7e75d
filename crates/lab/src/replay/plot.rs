//! The outcome as a picture: requests offered, let through and denied, and their delays.
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

use crate::chart::{Legend, Line, PANEL_GAP, POINTS_MAX, Panel, TimeAxis, class, page};
use crate::replay::outcome::{Outcome, Side};
use crate::replay::series::{Bin, Series};
use slowlane_core::base::date;
use slowlane_core::base::time::Timestamp;

/// Draws rates and delays over the time of the logs.
pub fn plot(outcome: &Outcome) -> String {
    let Some(first) = outcome.sides.first() else { return String::new() };
    let series: Vec<Series> =
        outcome.sides.iter().map(|side: &Side| side.series.coarser(POINTS_MAX)).collect();
    let name = |side: &Side| match outcome.sides.len() {
        1 => "let through".to_owned(),
        _ => format!("let through by {}", side.name),
    };
    let lines = outcome.sides.iter().enumerate().map(|(line, side)| (class(line), name(side)));
    // A policy has the same colour in every panel; the offered requests come last.
    let offered_class = class(outcome.sides.len());
    let legend = Legend::new(lines.chain([(offered_class, "offered".to_owned())]));

    let per_second =
        |count: fn(&Bin) -> u64| move |bin: &Bin, seconds: f64| Some(count(bin) as f64 / seconds);
    let of_each = |value: &dyn Fn(&Bin, f64) -> Option<f64>| -> Vec<Line> {
        series.iter().map(|series| line(series, value)).collect()
    };
    let mut rate_lines = of_each(&per_second(|bin| bin.let_through));
    rate_lines.push(line(&series[0], &per_second(|bin| bin.offered)));
    let denied_lines = of_each(&per_second(|bin| bin.denied));
    let delay_lines = of_each(&|bin, _| {
        let let_through = bin.offered - bin.denied;
        (let_through > 0).then(|| bin.delay_ms as f64 / let_through as f64)
    });

    let rates = Panel::new("requests per second".to_owned(), legend.bottom, rate_lines, None);
    let denied = Panel::new("denied per second".to_owned(), rates.bottom() + PANEL_GAP, denied_lines, None);
    let delays = Panel::new(
        "mean delay of those let through, ms".to_owned(),
        denied.bottom() + PANEL_GAP,
        delay_lines,
        None,
    );

    let mut svg = legend.svg;
    let lasts = |series: &Series| series.bins.len() as f64 * series.seconds_each();
    let axis = TimeAxis::of_any_length(series.iter().map(lasts).fold(1.0, f64::max));
    for panel in [&rates, &denied, &delays] {
        panel.draw(&mut svg, &axis);
    }
    axis.draw(&mut svg, delays.bottom());
    let title = format!(
        "{}: {} requests from {} UTC",
        first.name,
        outcome.requests(),
        date::written(Timestamp::from_nanos(outcome.begun_ns))
    );
    page(&title, delays.bottom() + 44.0, &svg)
}

fn line(series: &Series, value: &dyn Fn(&Bin, f64) -> Option<f64>) -> Line {
    let seconds = series.seconds_each();
    let point = |(number, bin): (usize, &Bin)| ((number as f64 + 0.5) * seconds, value(bin, seconds));
    series.bins().iter().enumerate().map(point).collect()
}
