//! A slowlane that is killed at random moments under load: what its state file forgets.
//!
//! `cargo bench --bench restart [-- SECONDS]`, 200 times by default, of about a second each. Targets: no state file is
//! ever set aside, and no kill forgets more than the requests of `every`, one second here, and of the write that the
//! kill met.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests and benches are the world outside"
)]
#![allow(unreachable_pub, reason = "nothing here is reachable from outside, and pub(crate) is noise")]

#[path = "../support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use support::effort::{self, Effort, Part};
use support::programs::client::Client;
use support::programs::slowlane::Slowlane;

const PARTS: [Part; 1] = [("kills", kills)];

/// More than all requests of the bench.
const QUOTA: u32 = 100_000_000;

fn main() {
    effort::run(&PARTS, Effort::from_arguments(200.0));
}

/// What is left of the quota, after one more request.
fn ask(client: &mut Client) -> Option<u32> {
    let answer = client.request("GET", "/check", &[("X-Slowlane-Website", "shop.example")], "");
    answer.header("x-slowlane-remaining")?.parse().ok()
}

fn kills(effort: Effort) {
    let kills = (effort.seconds() as u32).max(2);
    let slo_map = format!("0 rate=unlimited\n2001 burst=1 rate={QUOTA}/d law=fixed-window\n");
    let files = [("slo.map", slo_map.as_str()), ("website.map", "shop.example 2001\n")];
    let mut slowlane = Slowlane::with_config(&files, "[state]\nfile = \"state\"\nevery = \"1s\"\n");
    let mut rng = fastrand::Rng::with_seed(7);
    let (mut passed, mut forgotten, mut aside, mut longest_s, mut over_s) = (0u32, 0, 0, 0.0f64, 0.0f64);
    // The entry of a key also counts what is newer than the file, so that each kill is seen for itself.
    for _ in 0..kills {
        let time = Duration::from_secs_f64(rng.f64() * 2.0);
        let (begun, mut client) = (Instant::now(), Client::connect(slowlane.http));
        let mut before = None;
        let mut times = Vec::new();
        while begun.elapsed() < time || before.is_none() {
            before = ask(&mut client);
            passed += 1;
            times.push(Instant::now());
        }
        slowlane.kill();
        let killed = Instant::now();
        slowlane.restart();
        aside += slowlane.process.log().iter().filter(|line| line.contains("aside")).count();
        let after = ask(&mut Client::connect(slowlane.http)).expect("the SLO has a quota");
        passed += 1;
        // One request fewer is left if nothing is forgotten.
        let lost = (after + 1).saturating_sub(before.expect("it was asked")) as usize;
        forgotten += lost;
        if let Some(first) = lost.checked_sub(1).and_then(|_| times.len().checked_sub(lost)) {
            let lost_s = killed.duration_since(times[first]).as_secs_f64();
            longest_s = longest_s.max(lost_s);
            over_s = over_s.max(lost_s - 1.0);
        }
    }
    println!("{kills} kills under load, a state file every second");
    println!("  {passed} requests, of which {forgotten} were forgotten");
    println!("  {aside} files set aside");
    println!("  the oldest forgotten request was {longest_s:.3} s old, {over_s:+.3} s beside `every`");
}
