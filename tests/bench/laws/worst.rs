//! The worst decisions of `fair`: denied requests, where every slot is taken and many sources wait.

use std::hint::black_box;
use std::time::Duration;

use slowlane_core::base::{Timestamp, Verdict};
use slowlane_core::law::{Arrival, Law, Objective, Options};
use slowlane_core::table::Entry;

use crate::support::Cost;

/// The options of `fair` at 1000/s.
#[derive(Clone, Copy)]
pub struct Worst {
    pub max_delay: &'static str,
    pub sources_max: &'static str,
    /// The cost of the denied request.
    pub cost: u32,
}

/// A long delay, with the default number of sources.
pub const LONG: Worst = Worst { max_delay: "60s", sources_max: "256", cost: 200 };

/// As many slots and sources as there may be, and a request that has to wait for most of them.
pub const LONGEST: Worst = Worst { max_delay: "65s", sources_max: "4096", cost: 40_000 };

const ROUND: usize = 100;

pub fn of_fair(Worst { max_delay, sources_max, cost }: Worst) -> impl FnMut(Duration) -> f64 {
    let options = Options::new([("max_delay", max_delay), ("sources_max", sources_max)]);
    let objective = Objective { burst: 100, rate: "1000/s".parse().expect("a rate") };
    let law = Law::new("fair", objective, options).expect("the options are those of fair");
    let sources: u64 = sources_max.parse().expect("a number");
    let (mut entry, mut aux) = (Entry::default(), law.aux());
    let now = Timestamp::from_millis(1_700_000_000_000);
    let mut ask = move |sharer, cost| {
        let arrival = Arrival { cost, sharer, ..Arrival::at(now) };
        law.judge(&mut entry, aux.as_mut(), &arrival).verdict
    };
    // All ask in turns until every one is denied.
    while (0..sources).filter(|&sharer| ask(sharer, 1).is_let_through()).count() > 0 {}
    move |time| {
        let mut spent = Cost::within(time);
        while spent.has_time() {
            spent.of(ROUND, || {
                for sharer in 0..ROUND as u64 {
                    let verdict = black_box(ask(sharer, cost));
                    debug_assert!(matches!(verdict, Verdict::Deny { .. }));
                }
            });
        }
        spent.ns_each()
    }
}
