//! A load as a chart: the time of the customers' pages, before and after, and the limit that the law finds.

use crate::chart::{Chart, ChartLine, Panel};
use crate::protect::load::SECONDS;
use crate::protect::report::{BEFORE, Played};
use crate::protect::runs::summary;
use crate::protect::world::{Group, World};

/// Draws the first run of a load.
pub fn plot_protected(played: &Played) -> String {
    let worlds = played.runs.each_ref().map(|runs| &runs.0[0]);
    let limits = worlds.map(|world| {
        let views = world.views.iter().take_while(|(second, _)| *second < SECONDS);
        views.map(|(second, view)| (*second, Some(view.limit as f64))).collect()
    });
    let panel = |title: &str, lines| Panel { title: title.into(), lines, dashed_at: None };
    let chart = Chart {
        title: format!(
            "customers' pages under the load `{}`, without and with law=protect",
            played.load.name
        ),
        lines: BEFORE.map(|before| format!("{before} before the application")).to_vec(),
        panels: vec![
            panel("customers' pages, median, ms", worlds.map(page_times).to_vec()),
            panel("requests let in at a time: the limit", limits.to_vec()),
        ],
        seconds: SECONDS,
        ..Chart::default()
    };
    chart.svg()
}

/// The median for each second in which a page was asked for.
fn page_times(world: &World) -> ChartLine {
    let point = |second: f64| {
        let median_ms = summary(world, Group::Customer, (second, second + 1.0)).page_ms(0.5);
        (second + 0.5, median_ms.is_finite().then_some(median_ms))
    };
    (0..SECONDS as u32).map(f64::from).map(point).collect()
}
