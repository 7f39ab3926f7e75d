//! Four HAProxys with one key, behind one slowlane and behind four.

use crate::crowd::{Crowd, Run};
use crate::passed::{Passed, seconds};
use crate::site::{BURST, Pupil, Pusher, RATE, SLO, SOURCES, assert_pushed};
use crate::support::effort::Effort;
use crate::support::median;
use crate::support::programs::backend::Backend;
use crate::support::programs::haproxy::{Haproxy, Version};
use crate::support::programs::skipped;

const NAMES: [&str; 4] = ["lb1", "lb2", "lb3", "lb4"];

/// The clients of each HAProxy.
const CLIENTS: usize = 10;

const SOURCE: &str = "192.0.2.1";

/// The sum over all HAProxys in one run.
struct Figures {
    error: f64,
    above: f64,
    settled_s: f64,
}

pub fn print(effort: Effort) {
    if Version::V3_2.binary().is_none() {
        return skipped("HAProxy 3.2 cannot be had on this machine");
    }
    println!(
        "four HAProxys 3.2, {CLIENTS} clients each, one key \
         (marks: error within 1 %, settled in 5 s, one burst of 100 above the bucket)"
    );
    println!("                      sum       error   worst error   above the bucket   settled after");
    for (what, pushers) in [("one slowlane", 1), ("a slowlane each", NAMES.len())] {
        let runs: Vec<Figures> = (0..effort.turns()).map(|_| measure(pushers, effort)).collect();
        let each = |figure: fn(&Figures) -> f64| runs.iter().map(figure);
        let error = median(each(|figures| figures.error));
        println!(
            "{what:<15} {:>7.2}/s {error:>+9.2} % {:>11.2} % {:>18.0} {:>15}",
            RATE * (1.0 + error / 100.0),
            each(|figures| figures.error.abs()).fold(0.0, f64::max),
            each(|figures| figures.above).fold(f64::NEG_INFINITY, f64::max),
            seconds(median(each(|figures| figures.settled_s))),
        );
    }
}

fn measure(pushers: usize, effort: Effort) -> Figures {
    let app = Backend::forgetful();
    let pushers: Vec<Pusher> = (0..pushers).map(|_| Pusher::start(SLO, SOURCES)).collect();
    let start = |(number, name)| {
        let pusher = &pushers[number % pushers.len()];
        Pupil::new(Version::V3_2, name).start(pusher, &app).expect("it was there")
    };
    let haproxys: Vec<Haproxy> = NAMES.into_iter().enumerate().map(start).collect();
    let run = Run::start(effort);
    let crowds: Vec<Crowd> =
        haproxys.iter().map(|haproxy| Crowd::start(haproxy.address, SOURCE, CLIENTS, run)).collect();
    let passed = crowds.into_iter().map(Crowd::passed).fold(Passed::default(), Passed::and);
    haproxys.iter().for_each(|haproxy| assert_pushed(haproxy, &[SOURCE]));
    Figures {
        error: passed.error(run, RATE),
        above: passed.most_above(BURST, RATE),
        settled_s: passed.settled(0.0, run.until.as_secs_f64(), RATE),
    }
}
