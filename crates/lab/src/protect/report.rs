//! The runs as a table.

use serde_json::{Value, json};

use crate::protect::world::Group;
use crate::protect::{ProtectLoad, Runs};
use slowlane_core::base::aligned;
use slowlane_core::law::protect::ProtectSettings;

/// A load that has been played.
#[derive(Debug)]
pub struct Played {
    pub(crate) load: ProtectLoad,
    /// With nothing before the application, and with the law.
    pub(crate) runs: [Runs; 2],
}

/// The names of the two.
pub(crate) const BEFORE: [&str; 2] = ["nothing", "protect"];

impl Played {
    /// Plays a load for each seed.
    pub fn of(load: ProtectLoad, seeds: &[u64]) -> Played {
        let runs =
            [None, Some(ProtectSettings::default())].map(|before| load.runs(before, seeds.iter().copied()));
        Played { load, runs }
    }

    fn figures(&self) -> [ProtectFigures; 2] {
        let (window, workers) = (self.load.measured_s(), self.load.workers());
        self.runs.each_ref().map(|runs| ProtectFigures {
            p50_ms: runs.of_group(Group::Customer, window, |of| of.page_ms(0.5)),
            p99_ms: runs.of_group(Group::Customer, window, |of| of.page_ms(0.99)),
            failed_percent: runs.of_group(Group::Customer, window, |of| of.failed_percent),
            crawlers_per_s: runs.of_group(Group::Crawler, window, |of| of.served_per_s),
            used_percent: 100.0 * runs.used(workers, window),
        })
    }
}

/// The effect of a load on the customers, the crawlers and the application.
struct ProtectFigures {
    p50_ms: f64,
    p99_ms: f64,
    /// Of the customers' requests, refused or given up.
    failed_percent: f64,
    crawlers_per_s: f64,
    /// Of the capacity.
    used_percent: f64,
}

const HEADINGS: [&str; 9] =
    ["load", "before it", "measured s", "p50 ms", "p99 ms", "failed %", "crawlers /s", "kept %", "used %"];

/// Two lines for each load. `kept` is the rate of the crawlers as a percentage of the rate without the law.
pub fn report_protected(played: &[Played]) -> String {
    let mut rows = vec![HEADINGS.map(str::to_owned).to_vec()];
    for one in played {
        let ((from, to), figures) = (one.load.measured_s(), one.figures());
        for (before, of) in BEFORE.iter().zip(&figures) {
            let kept = of.crawlers_per_s / figures[0].crawlers_per_s * 100.0;
            rows.push(vec![
                one.load.name.to_owned(),
                (*before).to_owned(),
                format!("{from}-{to}"),
                format!("{:.0}", of.p50_ms),
                format!("{:.0}", of.p99_ms),
                format!("{:.1}", of.failed_percent),
                format!("{:.1}", of.crawlers_per_s),
                if kept.is_nan() { "-".into() } else { format!("{kept:.0}") },
                format!("{:.1}", of.used_percent),
            ]);
        }
    }
    aligned(&rows, "  ", |column, _| column < 2)
}

/// The same for programs.
pub fn json_protected(played: &[Played]) -> String {
    let lines = |one: &Played| {
        let (name, (from, to)) = (one.load.name, one.load.measured_s());
        let line = move |(before, of): (&str, ProtectFigures)| {
            json!({
                "load": name, "before": before, "measured_s": [from, to],
                "p50_ms": of.p50_ms, "p99_ms": of.p99_ms, "failed_percent": of.failed_percent,
                "crawlers_per_s": of.crawlers_per_s, "used_percent": of.used_percent,
            })
        };
        BEFORE.into_iter().zip(one.figures()).map(line).collect::<Vec<_>>()
    };
    Value::from_iter(played.iter().flat_map(lines)).to_string() + "\n"
}
