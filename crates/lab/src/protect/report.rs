//! The runs as a table, as JSON, and as a chart: the time of the customers' pages, without and with the law, and the
//! law's limit.

use serde::Serialize;
use serde_json::json;

use crate::chart::{Chart, ChartLine, Panel};
use crate::columns::{ReportCell, columns};
use crate::protect::load::{ProtectLoad, SECONDS};
use crate::protect::runs::{Runs, summary};
use crate::protect::world::{Group, World};
use slowlane_core::law::protect::ProtectSettings;

/// A load, and the results of its runs.
#[derive(Debug)]
pub struct Played {
    pub(crate) load: ProtectLoad,
    /// The runs without protection, and those with the law.
    pub(crate) runs: [Runs; 2],
}

/// The names of these two kinds of runs.
const BEFORE: [&str; 2] = ["nothing", "protect"];

impl Played {
    /// Runs a load for each seed, without and with the law.
    pub fn of(load: ProtectLoad, seeds: &[u64]) -> Played {
        let runs =
            [None, Some(ProtectSettings::default())].map(|before| load.runs(before, seeds.iter().copied()));
        Played { load, runs }
    }

    fn figures(&self) -> [ProtectFigures; 2] {
        let (window, workers) = (self.load.measured_s(), self.load.workers());
        [0, 1].map(|place| {
            let runs = &self.runs[place];
            ProtectFigures {
                load: self.load.name,
                before: BEFORE[place],
                measured_s: window,
                p50_ms: runs.of_group(Group::Customer, window, |of| of.page_ms(0.5)),
                p99_ms: runs.of_group(Group::Customer, window, |of| of.page_ms(0.99)),
                failed_percent: runs.of_group(Group::Customer, window, |of| of.failed_percent),
                crawlers_per_s: runs.of_group(Group::Crawler, window, |of| of.served_per_s),
                used_percent: 100.0 * runs.used(workers, window),
            }
        })
    }
}

/// The effect of a load on the customers, the crawlers and the application.
#[derive(Serialize)]
struct ProtectFigures {
    load: &'static str,
    before: &'static str,
    measured_s: (f64, f64),
    p50_ms: f64,
    p99_ms: f64,
    /// The percentage of the customers' requests that were refused or given up.
    failed_percent: f64,
    crawlers_per_s: f64,
    /// The percentage of the capacity that was used.
    used_percent: f64,
}

impl ProtectFigures {
    /// `kept` is the rate of the crawlers as a percentage of the rate without the law.
    fn row(&self, without: &ProtectFigures) -> Vec<ReportCell> {
        let kept = self.crawlers_per_s / without.crawlers_per_s * 100.0;
        vec![
            ("load", self.load.to_owned()),
            ("before it", self.before.to_owned()),
            ("measured s", format!("{}-{}", self.measured_s.0, self.measured_s.1)),
            ("p50 ms", format!("{:.0}", self.p50_ms)),
            ("p99 ms", format!("{:.0}", self.p99_ms)),
            ("failed %", format!("{:.1}", self.failed_percent)),
            ("crawlers /s", format!("{:.1}", self.crawlers_per_s)),
            ("kept %", if kept.is_nan() { "-".into() } else { format!("{kept:.0}") }),
            ("used %", format!("{:.1}", self.used_percent)),
        ]
    }
}

/// A table with two lines for each load: without and with the law.
pub fn report_protected(played: &[Played]) -> String {
    let rows = played
        .iter()
        .map(Played::figures)
        .flat_map(|figures| figures.each_ref().map(|of| of.row(&figures[0])));
    columns(&rows.collect::<Vec<_>>(), &["load", "before it"])
}

/// The same figures for programs, as JSON.
pub fn json_protected(played: &[Played]) -> String {
    let figures: Vec<ProtectFigures> = played.iter().flat_map(Played::figures).collect();
    json!(figures).to_string() + "\n"
}

/// Draws a load under its first seed, without and with the law.
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

/// The median time of the customers' pages, for each second in which they requested any.
fn page_times(world: &World) -> ChartLine {
    let point = |second: f64| {
        let median_ms = summary(world, Group::Customer, (second, second + 1.0)).page_ms(0.5);
        (second + 0.5, median_ms.is_finite().then_some(median_ms))
    };
    (0..SECONDS as u32).map(f64::from).map(point).collect()
}
