//! The precision of HAProxys that keep the pace by themselves, and the time until they know of a change.
//!
//! `cargo bench --bench peers [-- SECONDS] [rates] [four] [mixed] [effect] [edit] [death]`. HAProxys have the shipped
//! files, and slowlane is their peer. Clients ask again after each answer, or after Retry-After if denied.
//!
//! - `rates`: one HAProxy with 1 to 200 clients, by `pause` and by Lua;
//! - `four`: four HAProxys that share one key, with one slowlane and, for comparison, with one each;
//! - `mixed`: a HAProxy by peers, and an nginx that asks for each request;
//! - `effect`: the time from the first request of a new key to its limit in HAProxy;
//! - `edit`: the time from an edit of `slo.map` to the new rate;
//! - `death`: the times until limits are gone after `kill -9`, and until they are back.
//!
//! Rates count from second 5 on, and figures are the median of three runs. Each has its mark beside it; a miss is
//! printed, and fails nothing.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests and benches are the world outside"
)]
#![allow(unreachable_pub, reason = "nothing here is reachable from outside, and pub(crate) is noise")]

mod crowd;
mod death;
mod edit;
mod effect;
mod four;
mod mixed;
mod passed;
mod rates;
mod site;
#[path = "../support/mod.rs"]
mod support;

use support::effort::{self, Effort, Part};

const PARTS: [Part; 6] = [
    ("rates", rates::print),
    ("four", four::print),
    ("mixed", mixed::print),
    ("effect", effect::print),
    ("edit", edit::print),
    ("death", death::print),
];

fn main() {
    effort::run(&PARTS, Effort::from_arguments(20.0));
}
