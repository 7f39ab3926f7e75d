//! From an edit of `slo.map` to the new rate.

use std::thread;
use std::time::Duration;

use crate::crowd::{Crowd, Run};
use crate::passed::seconds;
use crate::site::{Pupil, Pusher, slo_map};
use crate::support::effort::Effort;
use crate::support::programs::backend::Backend;
use crate::support::programs::eventually;
use crate::support::programs::haproxy::Version;
use crate::support::programs::skipped;
use crate::support::{median, peers};

/// The sources with their bursts, and their rates before and after the edit. They run at the same time.
const EDITS: [(&str, u32, f64, f64); 4] = [
    ("192.0.2.1", 10, 50.0, 100.0),
    ("192.0.2.2", 10, 50.0, 25.0),
    ("192.0.2.3", 100, 50.0, 100.0),
    ("192.0.2.4", 100, 50.0, 25.0),
];

/// The clients of each.
const CLIENTS: usize = 10;

/// The longest time before the edit, and the time after it.
const BEFORE_MAX: Duration = Duration::from_secs(4);
const AFTER_MAX: Duration = Duration::from_secs(15);

/// The seconds until the new limit is in HAProxy's table, and until the new rate holds.
type Figures = [f64; 2];

pub fn print(effort: Effort) {
    println!(
        "from an edit of slo.map to the new rate, {CLIENTS} clients (mark: the new rate holds within 1 s)"
    );
    println!("HAProxy   burst   from       to   limit in the table   new rate holds");
    for version in [Version::V3_2, Version::V2_6] {
        if version.binary().is_none() {
            skipped(&format!("HAProxy {version:?} cannot be had on this machine"));
            continue;
        }
        let runs: Vec<Vec<Figures>> = (0..effort.turns()).map(|_| measure(version, effort)).collect();
        for (place, (_, burst, from, to)) in EDITS.into_iter().enumerate() {
            let [taught_s, holds_s] =
                std::array::from_fn(|figure| median(runs.iter().map(|run| run[place][figure])));
            println!(
                "{:<7} {burst:>7} {from:>4.0}/s {to:>6.0}/s {taught_s:>18.2} s {:>16}",
                version.number(),
                seconds(holds_s),
            );
        }
    }
}

fn measure(version: Version, effort: Effort) -> Vec<Figures> {
    let slos = |rate: fn(f64, f64) -> f64| {
        let line = |(place, (_, burst, from, to)): (usize, _)| {
            format!("{} burst={burst} rate={}/s max_delay=5s\n", 3001 + place, rate(from, to))
        };
        EDITS.into_iter().enumerate().map(line).collect::<String>()
    };
    let sources: String = EDITS
        .iter()
        .enumerate()
        .map(|(place, (source, ..))| format!("{source} {}\n", 3001 + place))
        .collect();
    let (pusher, app) = (Pusher::start(&slos(|from, _| from), &sources), Backend::forgetful());
    let haproxy = Pupil::new(version, "lb1").start(&pusher, &app).expect("it was there");

    let (before, after) = (effort.time.min(BEFORE_MAX), effort.time.min(AFTER_MAX));
    let run = Run::lasting(before + after);
    let crowds = EDITS.map(|(source, ..)| Crowd::start(haproxy.address, source, CLIENTS, run));
    thread::sleep(before.saturating_sub(run.start.elapsed()));
    let edited_s = run.start.elapsed().as_secs_f64();
    pusher.slowlane.replace("slo.map", &slo_map(&slos(|_, to| to)));
    let taught_s = EDITS.map(|(source, _, _, to)| {
        eventually("the edit is taught", || {
            let slot_us = peers::slot_us(&haproxy, source)?;
            (slot_us as f64 == 1_000_000.0 / to).then(|| run.start.elapsed().as_secs_f64() - edited_s)
        })
    });
    let passed = crowds.map(Crowd::passed);
    let figures = EDITS.iter().zip(passed).zip(taught_s).map(|(((.., to), passed), taught_s)| {
        [taught_s, passed.settled(edited_s, run.until.as_secs_f64(), *to)]
    });
    figures.collect()
}
