//! The runs as a table and as JSON: the times of the customers' pages, without and with the law.

use serde::Serialize;
use serde_json::json;

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

/// The names of the two kinds of runs: without and with the law.
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
                seconds: (0..SECONDS as u32).map(|second| of_second(&runs.0[0], second.into())).collect(),
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
    /// For each second of the first run, the median time of the customers' pages, and the law's limit.
    seconds: Vec<(f64, Option<usize>)>,
}

impl ProtectFigures {
    /// `kept %` is the crawlers' rate, as a percentage of their rate without the law.
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

fn of_second(world: &World, second: f64) -> (f64, Option<usize>) {
    let page_ms = summary(world, Group::Customer, (second, second + 1.0)).page_ms(0.5);
    let view = world.views.iter().find(|(at, _)| *at >= second);
    (page_ms, view.map(|(_, view)| view.limit))
}

/// A table with two lines for each load, one without and one with the law.
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
