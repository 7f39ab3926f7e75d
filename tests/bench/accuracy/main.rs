//! How exactly nodes share a rate in virtual time: the tables of doc/reports/cluster-accuracy.md.
//!
//! `cargo bench --bench accuracy -- cluster|steps|others [1ms|50ms]` prints a table, at this round trip to the store. It
//! takes minutes. `-- skew` and `-- low` print the figures of a few runs. Without a name, only a few cells are run.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests and benches are the world outside"
)]
#![allow(unreachable_pub, reason = "nothing here is reachable from outside, and pub(crate) is noise")]
#![cfg_attr(
    test,
    allow(unused, reason = "tests/it/accuracy.rs runs the unit tests, a bench has no harness for them")
)]

mod models;
mod runs;
mod suite;
#[path = "../support/mod.rs"]
mod support;

use std::env;
use std::time::Duration;

use slowlane_core::base::units::duration;
use slowlane_lab::simulate::report;
use suite::Suite;
use support::effort::{self, Effort, Part};

const PARTS: [Part; 5] = [
    ("cluster", |_| table("cluster", Suite::Cluster)),
    ("steps", |_| table("steps", Suite::Steps)),
    ("others", |_| table("others", Suite::Others)),
    ("skew", |_| print!("{}", report(&runs::skew()))),
    ("low", |_| print!("{}", report(&runs::low()))),
];

fn main() {
    effort::run(&PARTS, Effort::from_arguments(1.0));
}

fn is_named(part: &str) -> bool {
    env::args().any(|word| word == part)
}

fn table(name: &str, which: Suite) {
    let typed = env::args().skip(1).find_map(|word| duration(&word).ok());
    let round_trip = typed.unwrap_or(Duration::from_millis(1));
    let cheap = if which == Suite::Others { 10 } else { 1 };
    let is_wanted = |rate, _: &str| is_named(name) || rate <= cheap;
    let progress = |over, all| eprint!("\r{over} of {all} cells ");
    let made = suite::suite(which, round_trip, 5, is_wanted, progress).expect("each cell is a scenario");
    eprintln!();
    print!("{made}");
}
