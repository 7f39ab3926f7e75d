//! The end of slowlane, and its return.

use std::thread;
use std::time::{Duration, Instant};

use crate::crowd::{Crowd, Run};
use crate::site::{Pupil, Pusher, SLO, SOURCES};
use crate::support::effort::Effort;
use crate::support::programs::backend::Backend;
use crate::support::programs::haproxy::{Haproxy, Version};
use crate::support::programs::{eventually, own_address, skipped};
use crate::support::{median, peers};

const SOURCE: &str = "192.0.2.1";

/// The clients of each HAProxy, throughout. Any answer other than 200 or 429 fails the bench.
const CLIENTS: usize = 5;

/// The life of limits in short runs. Otherwise it is the shipped one, 10 s.
const SHORT_EXPIRE: &str = "1s";

/// The seconds until limits are gone, and until they are back: in a HAProxy that slowlane dials, and in one that it does
/// not.
type Figures = [f64; 4];

pub fn print(effort: Effort) {
    println!(
        "slowlane is killed, and starts again (marks: limits gone after 10.1 s, back within 1 s of the start)"
    );
    println!("HAProxy   connected by   limits gone   limits back");
    for version in [Version::V3_2, Version::V2_6] {
        if version.binary().is_none() {
            skipped(&format!("HAProxy {version:?} cannot be had on this machine"));
            continue;
        }
        let runs: Vec<Figures> = (0..effort.turns()).map(|_| measure(version, effort)).collect();
        let figures: Figures = std::array::from_fn(|place| median(runs.iter().map(|run| run[place])));
        for (place, by) in ["slowlane", "HAProxy"].into_iter().enumerate() {
            println!(
                "{:<9} {by:>12} {:>11.2} s {:>11.2} s",
                version.number(),
                figures[place],
                figures[2 + place],
            );
        }
    }
}

fn measure(version: Version, effort: Effort) -> Figures {
    let app = Backend::forgetful();
    let expire = effort.is_short().then_some(SHORT_EXPIRE);
    let [dialled, other] = ["lb1", "lb2"].map(|name| Pupil { version, name, own: own_address(), expire });
    let mut pusher = Pusher::dialling(SLO, SOURCES, &[(dialled.name, dialled.own)]);
    let haproxys = [dialled, other].map(|pupil| pupil.start(&pusher, &app).expect("it was there"));
    let run = Run::lasting(Duration::MAX);
    let began = Instant::now();
    let crowds = haproxys.each_ref().map(|haproxy| Crowd::start(haproxy.address, SOURCE, CLIENTS, run));
    all(&haproxys, began, is_pushed);
    // A lesson is refreshed when a quarter of its life is over.
    thread::sleep(effort.time.min(Duration::from_secs(5)));

    let killed = Instant::now();
    pusher.slowlane.kill();
    let gone_s = all(&haproxys, killed, |haproxy| !is_pushed(haproxy));
    let started = Instant::now();
    pusher.slowlane.restart();
    let back_s = all(&haproxys, started, is_pushed);
    crowds.into_iter().for_each(|crowd| drop(crowd.stopped()));
    [gone_s[0], gone_s[1], back_s[0], back_s[1]]
}

fn is_pushed(haproxy: &Haproxy) -> bool {
    peers::slot_us(haproxy, SOURCE).is_some_and(|slot_us| slot_us > 0)
}

/// The seconds since a time until this is so in each HAProxy.
fn all(haproxys: &[Haproxy; 2], since: Instant, is_so: impl Fn(&Haproxy) -> bool + Sync) -> [f64; 2] {
    let is_so = &is_so;
    thread::scope(|scope| {
        let wait = |haproxy| {
            scope.spawn(move || {
                eventually("all HAProxys know", || is_so(haproxy).then(|| since.elapsed().as_secs_f64()))
            })
        };
        haproxys.each_ref().map(wait).map(|waiting| waiting.join().expect("the table is read"))
    })
}
