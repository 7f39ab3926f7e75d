//! The cost of each law: a bare judgement, one with a table lookup, and a whole decision; compared with governor.
//!
//! `cargo bench --bench laws [-- SECONDS] [laws] [sketch]`. Figures are nanoseconds of CPU. Bare judgements use 1,000 keys, which fit the
//! cache, at half or twice the rate of their SLO. The others use 100,000 keys, drawn evenly, mostly below their rate.
//! Compare governor with `token-bucket`. The last lines are the worst decisions of `fair`.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests and benches are the world outside"
)]
#![allow(unreachable_pub, reason = "nothing here is reachable from outside, and pub(crate) is noise")]

mod bare;
mod found;
mod sketch;
#[path = "../support/mod.rs"]
mod support;
mod worst;

use std::time::Duration;

use slowlane_core::law::{Law, Objective, Options};
use support::effort::{self, Effort, Part};
use support::print_each;

/// The number of keys for judgements with a lookup.
const KEYS: u32 = 100_000;

/// Measures for the given time and returns nanoseconds.
type Measure = Box<dyn FnMut(Duration) -> f64>;

/// The measurements of a law. Governor has no maps, so it has no whole decision.
struct Subject {
    name: &'static str,
    measures: [Measure; 4],
}

const PARTS: [Part; 2] = [("laws", print_laws), ("sketch", sketch::print)];

fn main() {
    effort::run(&PARTS, Effort::from_arguments(1.0));
}

fn print_laws(effort: Effort) {
    let keys = effort.count(KEYS);
    let laws = Law::NAMES.iter().map(|name| Subject::law(name, keys));
    let mut subjects: Vec<Subject> = [Subject::governor(keys)].into_iter().chain(laws).collect();
    let figures = effort
        .in_turns(&mut subjects, |subject| subject.measures.each_mut().map(|measure| measure(effort.time)));
    let whats = [
        "judged, at half its rate",
        "judged, at twice its rate",
        &format!("found and judged, {keys} keys"),
        &format!("decided, {keys} keys, five maps"),
    ];
    let names: Vec<&str> = subjects.iter().map(|subject| subject.name).collect();
    print_each(whats.map(|what| (what, "ns")), &names, &figures);
    let mut worst = [worst::LONG, worst::LONGEST].map(worst::of_fair);
    let figures = effort.in_turns(&mut worst, |measure| [measure(effort.time)]);
    let names = ["60s, cost 200", "65s, 4096 sources, cost 40000"];
    print_each([("fair, denied at 1000/s", "ns")], &names, &figures);
}

impl Subject {
    fn law(name: &'static str, keys: u32) -> Subject {
        let measures: [Measure; 4] = [
            Box::new(bare::of_law(name, bare::HALF)),
            Box::new(bare::of_law(name, bare::TWICE)),
            Box::new(found::of_law(name, keys)),
            Box::new(found::of_decision(name, keys)),
        ];
        Subject { name, measures }
    }

    /// The measurements of governor. The last one repeats the previous one.
    fn governor(keys: u32) -> Subject {
        let measures: [Measure; 4] = [
            Box::new(bare::of_governor(bare::HALF)),
            Box::new(bare::of_governor(bare::TWICE)),
            Box::new(found::of_governor(keys)),
            Box::new(found::of_governor(keys)),
        ];
        Subject { name: "governor", measures }
    }
}

fn law(name: &str, burst: u32, rate_per_second: u32) -> Law {
    let rate = format!("{rate_per_second}/s").parse().expect("a rate");
    Law::new(name, Objective { burst, rate }, Options::default()).expect("no law needs an option")
}
