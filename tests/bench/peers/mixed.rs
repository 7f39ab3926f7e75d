//! A HAProxy by peers and an nginx by HTTP, which share one SLO.

use crate::crowd::{Crowd, Run};
use crate::passed::seconds;
use crate::site::{BURST, Pupil, Pusher, RATE, SLO, SOURCES, assert_pushed};
use crate::support::effort::Effort;
use crate::support::median;
use crate::support::programs::backend::Backend;
use crate::support::programs::haproxy::Version;
use crate::support::programs::nginx::Nginx;
use crate::support::programs::skipped;

/// The clients of each proxy.
const CLIENTS: usize = 10;

/// The source that nginx sees. It has no header for it.
const SOURCE: &str = "127.0.0.1";

/// The figures of one run.
struct Figures {
    error: f64,
    by_haproxy: f64,
    above: f64,
    settled_s: f64,
}

pub fn print(effort: Effort) {
    println!("HAProxy by peers and nginx by HTTP, {CLIENTS} clients each, one key (mark: error within 1 %)");
    println!(
        "HAProxy         sum       error   worst error   of it HAProxy   above the bucket   settled after"
    );
    for version in [Version::V3_2, Version::V2_6] {
        if version.binary().is_none() {
            skipped(&format!("HAProxy {version:?} cannot be had on this machine"));
            continue;
        }
        let runs: Vec<Figures> = (0..effort.turns()).map(|_| measure(version, effort)).collect();
        let each = |figure: fn(&Figures) -> f64| runs.iter().map(figure);
        let error = median(each(|figures| figures.error));
        println!(
            "{:<7} {:>9.2}/s {error:>+9.2} % {:>11.2} % {:>13.2}/s {:>18.0} {:>15}",
            version.number(),
            RATE * (1.0 + error / 100.0),
            each(|figures| figures.error.abs()).fold(0.0, f64::max),
            median(each(|figures| figures.by_haproxy)),
            each(|figures| figures.above).fold(f64::NEG_INFINITY, f64::max),
            seconds(median(each(|figures| figures.settled_s))),
        );
    }
}

fn measure(version: Version, effort: Effort) -> Figures {
    let (pusher, app) = (Pusher::start(SLO, SOURCES), Backend::forgetful());
    let haproxy = Pupil::new(version, "lb1").start(&pusher, &app).expect("it was there");
    let nginx = Nginx::shipped(&pusher.slowlane.http.to_string(), app.address);
    let run = Run::start(effort);
    let crowds = [haproxy.address, nginx.address].map(|address| Crowd::start(address, SOURCE, CLIENTS, run));
    let [by_haproxy, by_nginx] = crowds.map(Crowd::passed);
    assert_pushed(&haproxy, &[SOURCE]);
    let haproxys = by_haproxy.rate(run.from.as_secs_f64(), run.until.as_secs_f64());
    let both = by_haproxy.and(by_nginx);
    Figures {
        error: both.error(run, RATE),
        by_haproxy: haproxys,
        above: both.most_above(BURST, RATE),
        settled_s: both.settled(0.0, run.until.as_secs_f64(), RATE),
    }
}
