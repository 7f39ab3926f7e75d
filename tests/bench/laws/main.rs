//! What a judgement costs under each law: by itself, with its entry to be found, and as a whole decision; beside governor.
//!
//! `cargo bench --bench laws [-- SECONDS]`. Nanoseconds of CPU. Bare judgements are of a thousand keys that fit the
//! cache, each of which comes half as often as its SLO allows, or twice as often. The others are of a hundred thousand
//! keys, drawn evenly, that seldom come too often. Governor is what `token-bucket` is to be held against.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests and benches are the world outside"
)]
#![allow(unreachable_pub, reason = "nothing here is reachable from outside, and pub(crate) is noise")]

mod bare;
mod found;
#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

use slowlane::law::{Law, Objective, Options};
use support::effort::Effort;
use support::print_each;

/// Keys whose entries have to be found.
const KEYS: u32 = 100_000;

/// Measures for so long, and gives back nanoseconds.
type Measure = Box<dyn FnMut(Duration) -> f64>;

/// What is measured of each law, and of governor but for the last: it has no maps to decide by.
struct Subject {
    name: &'static str,
    measures: [Measure; 4],
}

fn main() {
    let effort = Effort::from_arguments(1.0);
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

    /// The last is the one before it once more.
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
