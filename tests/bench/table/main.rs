//! What the table holds, how fast it is written, and what is left of it after a flood; beside dashmap, governor and pingora.
//!
//! `cargo bench --bench table [-- SECONDS] [resident] [writes] [flood] [longest]`. What is to be seen:
//!
//! - `resident`: a million live entries take 80 MB at most.
//! - `writes`: two threads on different keys write 1.8 times as much as one; on one hot key, no less in all than one.
//!   How much two threads that share `nothing` do says how much of two cores there was.
//! - `flood`: a flood of one-hit keys takes no more memory, and a key that is throttled outlives it.
//! - `longest`: no single write takes longer than a millisecond, whether the table grows, is full or has expired.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests and benches are the world outside"
)]
#![allow(unreachable_pub, reason = "nothing here is reachable from outside, and pub(crate) is noise")]

mod flood;
mod longest;
mod resident;
mod stores;
#[path = "../support/mod.rs"]
mod support;
mod writes;

use support::effort::{self, Effort, Part};

/// As many as the default config has room for.
const ENTRIES: u32 = 1_000_000;

const PARTS: [Part; 4] = [
    ("resident", resident::print),
    ("writes", writes::print),
    ("flood", flood::print),
    ("longest", longest::print),
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
