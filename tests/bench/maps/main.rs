//! Large maps: loading, memory, lookups, and replacing a policy while another thread decides.
//!
//! `cargo bench --bench maps [-- SECONDS] [load] [swap]`. The maps are generated in a temporary folder. Each is loaded in
//! its own process and compared with a map of the standard library. Swaps must not delay decisions: the 99.9th percentile
//! of their times changes by less than a millisecond.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests and benches are the world outside"
)]
#![allow(unreachable_pub, reason = "nothing here is reachable from outside, and pub(crate) is noise")]

mod kind;
mod load;
#[path = "../support/mod.rs"]
mod support;
mod swap;

use support::effort::{self, Effort, Part};

/// The number of lines of a map without a limit.
const LINES: u32 = 1_000_000;

const PARTS: [Part; 2] = [("load", load::print), ("swap", swap::print)];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [alone, name, lines, folder, seconds] = arguments.as_slice()
        && alone == load::ALONE
    {
        return load::measure(name, lines, folder, seconds);
    }
    effort::run(&PARTS, Effort::from_arguments(1.0));
}
