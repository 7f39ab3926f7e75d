//! One HAProxy: the rate that it holds, with 1 to 200 clients.

use crate::crowd::{Crowd, Run};
use crate::site::{BURST, Pupil, Pusher, RATE, SLO, SOURCES, assert_pushed};
use crate::support::effort::Effort;
use crate::support::median;
use crate::support::programs::backend::Backend;
use crate::support::programs::haproxy::Version;
use crate::support::programs::skipped;

/// The sources with their numbers of clients. They run at the same time.
const CROWDS: [(&str, usize); 4] =
    [("192.0.2.1", 1), ("192.0.2.2", 10), ("192.0.2.3", 50), ("192.0.2.4", 200)];

/// The figures of one crowd in one run.
struct Figures {
    error: f64,
    above: f64,
    denied: f64,
}

pub fn print(effort: Effort) {
    println!("one HAProxy, rate=50/s burst=100 max_delay=5s (marks: error within 0.5 %, 1 above the bucket)");
    println!("HAProxy   clients        rate       error   worst error   above the bucket   denied");
    for (version, way) in [(Version::V3_2, "3.2 pause"), (Version::V2_6, "2.6 Lua")] {
        if version.binary().is_none() {
            skipped(&format!("HAProxy {version:?} cannot be had on this machine"));
            continue;
        }
        let runs: Vec<Vec<Figures>> = (0..effort.turns()).map(|_| measure(version, effort)).collect();
        for (place, (_, clients)) in CROWDS.into_iter().enumerate() {
            let each = |figure: fn(&Figures) -> f64| runs.iter().map(move |run| figure(&run[place]));
            let error = median(each(|figures| figures.error));
            println!(
                "{way:<9} {clients:>7} {:>9.2}/s {error:>+9.2} % {:>11.2} % {:>18.1} {:>8}",
                RATE * (1.0 + error / 100.0),
                each(|figures| figures.error.abs()).fold(0.0, f64::max),
                each(|figures| figures.above).fold(f64::NEG_INFINITY, f64::max),
                median(each(|figures| figures.denied)),
            );
        }
    }
}

fn measure(version: Version, effort: Effort) -> Vec<Figures> {
    let (pusher, app) = (Pusher::start(SLO, SOURCES), Backend::forgetful());
    let haproxy = Pupil::new(version, "lb1").start(&pusher, &app).expect("it was there");
    let run = Run::start(effort);
    let crowds = CROWDS.map(|(source, clients)| Crowd::start(haproxy.address, source, clients, run));
    let passed = crowds.map(Crowd::passed);
    assert_pushed(&haproxy, &CROWDS.map(|(source, _)| source));
    let figures = passed.map(|passed| Figures {
        error: passed.error(run, RATE),
        above: passed.most_above(BURST, RATE),
        denied: passed.denied as f64,
    });
    figures.into()
}
