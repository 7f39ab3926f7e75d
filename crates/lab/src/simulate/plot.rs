//! The outcomes as a picture: a self-contained SVG for light and dark backgrounds.
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

use std::fmt::Write;
use std::ops::Range;

use crate::chart::{
    LEGEND_LINE, LINES_MAX, Legend, Line, PANEL_GAP, POINTS_MAX, Panel, SLO_CLASS, TimeAxis, class, page,
};
use crate::simulate::outcome::Outcome;
use crate::simulate::record::BIN_NS;

/// Draws the outcomes of runs of the same length and objective, the first [`LINES_MAX`] of them.
pub fn plot(outcomes: &[Outcome]) -> String {
    let outcomes = &outcomes[..outcomes.len().min(LINES_MAX)];
    let Some(first) = outcomes.first() else { return String::new() };
    let labels = labels(outcomes);
    let slo = (SLO_CLASS.to_owned(), format!("SLO {}", first.rate));
    let entries = labels.iter().enumerate().map(|(line, label)| (class(line), label.clone()));
    let legend = Legend::new(entries.chain([slo]));
    let steps = Steps::of(outcomes);
    let rates = rates(outcomes, legend.bottom + steps.as_ref().map_or(0.0, |_| LEGEND_LINE));
    let delays = delays(outcomes, rates.bottom() + PANEL_GAP);

    let mut svg = legend.svg;
    let axis = TimeAxis::of_seconds(f64::from(first.seconds));
    if let Some(steps) = steps {
        steps.draw(&mut svg, &axis, rates.top()..delays.bottom());
    }
    rates.draw(&mut svg, &axis);
    delays.draw(&mut svg, &axis);
    axis.draw(&mut svg, delays.bottom());
    page(&format!("{} at {}", labels.join(", "), first.rate), delays.bottom() + 44.0, &svg)
}

/// The law, and the number of clients if it differs.
fn labels(outcomes: &[Outcome]) -> Vec<String> {
    let is_one_load = outcomes.iter().all(|outcome| outcome.clients == outcomes[0].clients);
    let label = |outcome: &Outcome| match is_one_load {
        true => outcome.law.clone(),
        false => format!("{}, {} clients", outcome.law, outcome.clients),
    };
    outcomes.iter().map(label).collect()
}

fn rates(outcomes: &[Outcome], top: f64) -> Panel {
    let per_second = |count: u32, _, seconds: f64| Some(f64::from(count) / seconds);
    let lines = outcomes.iter().map(|outcome| line(outcome, per_second)).collect();
    let objective = outcomes[0].rate.per_second();
    Panel::new(format!("{}requests let through per second", whose(outcomes)), top, lines, Some(objective))
}

fn delays(outcomes: &[Outcome], top: f64) -> Panel {
    let mean = |count: u32, delay_ms: u64, _| (count > 0).then(|| delay_ms as f64 / f64::from(count));
    let lines = outcomes.iter().map(|outcome| line(outcome, mean)).collect();
    Panel::new(format!("{}mean delay, ms", whose(outcomes)), top, lines, None)
}

fn whose(outcomes: &[Outcome]) -> &'static str {
    if outcomes[0].is_of_clients { "clients' " } else { "" }
}

/// A series as a line of at most [`POINTS_MAX`] points.
fn line(outcome: &Outcome, value: impl Fn(u32, u64, f64) -> Option<f64>) -> Line {
    let bins_per_s = (1_000_000_000 / BIN_NS) as usize;
    let seconds_each = (outcome.seconds as usize).div_ceil(POINTS_MAX);
    let point = |(number, bins): (usize, &[(u32, u64)])| {
        let count = bins.iter().map(|bin| bin.0).sum();
        let delay_ms = bins.iter().map(|bin| bin.1).sum();
        let seconds = bins.len() as f64 / bins_per_s as f64;
        ((number * seconds_each) as f64 + seconds / 2.0, value(count, delay_ms, seconds))
    };
    outcome.series.chunks(seconds_each * bins_per_s).enumerate().map(point).collect()
}

/// The changes of the number of clients, if they are the same in all runs.
struct Steps<'o> {
    counts: &'o [u32],
}

/// The width of `50 clients`. With less room only the number is shown.
const STEP_LABEL: f64 = 80.0;

impl<'o> Steps<'o> {
    fn of(outcomes: &'o [Outcome]) -> Option<Steps<'o>> {
        let clients = &outcomes[0].clients;
        let is_same = outcomes.iter().all(|outcome| outcome.clients == *clients);
        (is_same && clients.counts().len() > 1).then(|| Steps { counts: clients.counts() })
    }

    fn draw(&self, svg: &mut String, axis: &TimeAxis, y: Range<f64>) {
        let phase_s = axis.seconds() / self.counts.len() as f64;
        let noun = if axis.x(phase_s) - axis.x(0.0) < STEP_LABEL { "" } else { " clients" };
        for (number, clients) in self.counts.iter().enumerate() {
            let starts_s = number as f64 * phase_s;
            let (x, middle) = (axis.x(starts_s), axis.x(starts_s + phase_s / 2.0));
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>\
                 <text class=\"mid\" x=\"{middle:.1}\" y=\"{:.1}\">{clients}{noun}</text>",
                y.start,
                y.end,
                y.start - 27.0
            );
        }
    }
}
