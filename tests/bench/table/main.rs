//! The table: memory, writes and floods, compared with dashmap, governor and pingora.
//!
//! `cargo bench --bench table [-- SECONDS] [resident] [writes] [flood] [churn] [longest] [snapshot]`. Targets:
//!
//! - `resident`: a million live entries take 80 MB at most.
//! - `writes`: two threads on different keys write 1.8 times as much as one, and on one hot key no less than one. Two
//!   threads that share `nothing` show the available CPU.
//! - `flood`: keys that are used once take no more memory, and throttled keys survive them.
//! - `churn`: keys come and go at 70,000/s. Of 100,000 decisions per second, 99.99 % take at most 20 us from their
//!   planned start.
//! - `snapshot`: a million entries are written within a second, and read within half of one. Meanwhile, 99.99 % of
//!   100,000 decisions per second take at most 20 us from their planned start.
//! - `longest`: a single write takes at most a millisecond while the table grows, is full or has expired.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests and benches are the world outside"
)]
#![allow(unreachable_pub, reason = "nothing here is reachable from outside, and pub(crate) is noise")]

mod churn;
mod flood;
mod longest;
mod paced;
mod resident;
mod snapshot;
mod stores;
#[path = "../support/mod.rs"]
mod support;
mod writes;

use support::effort::{self, Effort, Part};

/// The table size of the default config.
const ENTRIES: u32 = 1_000_000;

const PARTS: [Part; 6] = [
    ("resident", resident::print),
    ("writes", writes::print),
    ("flood", flood::print),
    ("churn", churn::print),
    ("longest", longest::print),
    ("snapshot", snapshot::print),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [alone, name, entries] = arguments.as_slice()
        && alone == resident::ALONE
    {
        return resident::measure(name, entries.parse().expect("a number of entries"));
    }
    let effort = Effort::from_arguments(1.0);
    println!("entries: {}", effort.count(ENTRIES));
    effort::run(&PARTS, effort);
}
