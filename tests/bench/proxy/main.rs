//! The cost of throttling at the proxy: clients through a real HAProxy, 2.6 and 3.2, which also answers as application.
//!
//! `cargo bench --bench proxy [-- SECONDS] [v2.6] [v3.2]`. These instances of HAProxy are measured in turn:
//!
//! - without throttling;
//! - with two baselines, agents that answer a constant: only a verdict, or as many variables as slowlane;
//! - with slowlane;
//! - with the Lua throttling of the article that slowlane is based on;
//! - with a stick table of HAProxy alone, and a limit that is never reached;
//! - with slowlane as a peer: HAProxy keeps the pace, and each source has a limit that slowlane has taught.
//!
//! The last two are measured twice, with 10,000 and with 100,000 sources. The others have 100,000.
//!
//! HAProxy asks agents over a Unix socket, with the shipped configuration. Policies are full, and no request is delayed.
//! HAProxy has one thread on the first core. Agents have the second core, and clients the last. On two cores these may be
//! busier than HAProxy; then compare the CPU per request, not the requests per second.
//!
//! Targets: 95 % of the baseline's requests per second, a p50 within 20 µs of the baseline's, and more requests per second and
//! less CPU of HAProxy per request than with Lua. As a peer: at most 1.5 times the CPU of HAProxy per request of a stick
//! table, and on 3.2 at most 0.7 times that of slowlane.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests and benches are the world outside"
)]
#![allow(unreachable_pub, reason = "nothing here is reachable from outside, and pub(crate) is noise")]

#[path = "../support/mod.rs"]
mod support;
mod throttling;

use std::io::Write;
use std::time::Duration;

use support::clients::{Clients, Ran};
use support::effort::Effort;
use support::five_maps::source;
use support::programs::haproxy::Version;
use support::programs::skipped;
use support::spop_baseline::{self as baseline, Answer};
use support::{cores, print};
use throttling::{
    ALL_HEADERS, BASELINE, BASELINE_OF_ALL, LUA, PEERS, PEERS_MANY, SLOWLANE, TABLE, TABLE_MANY, Throttling,
    UNTHROTTLED,
};

/// The number of clients: one causes no queue, and many keep HAProxy busy.
const CLIENTS: [usize; 2] = [1, 64];

/// The longest time in which sources are taught before a run.
const PUSHES_MAX: Duration = Duration::from_secs(2);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [baseline::ARGUMENT, at] => return baseline::run(at, Answer::Verdict),
        [baseline::ARGUMENT, at, ALL_HEADERS] => return baseline::run(at, Answer::Everything),
        _ => {}
    }
    let effort = Effort::from_arguments(3.0);
    cores::stay_on_last();
    let is_named = |name: &str| arguments.iter().any(|argument| argument == name);
    let versions = [("v2.6", Version::V2_6), ("v3.2", Version::V3_2)];
    let are_all_wanted = versions.iter().all(|(name, _)| !is_named(name));
    for (name, version) in versions {
        if !are_all_wanted && !is_named(name) {
            continue;
        }
        let Some(mut throttlings) = Throttling::each(version) else {
            skipped(&format!("HAProxy {version:?} cannot be had on this machine"));
            continue;
        };
        for clients in CLIENTS {
            println!("HAProxy {version:?}, {clients} clients, {} s a run", effort.seconds());
            measure(version, &mut throttlings, clients, effort);
        }
    }
}

const FIGURES: [(&str, &str); 5] =
    [("requests", "1/s"), ("p50", "µs"), ("p99", "µs"), (CPU_OF_HAPROXY, "µs"), (CPU_OF_AGENT, "µs")];

const CPU_OF_HAPROXY: &str = "CPU of HAProxy per request";

const CPU_OF_AGENT: &str = "CPU of the agent per request";

fn measure(version: Version, throttlings: &mut [Throttling], clients: usize, effort: Effort) {
    let mut rng = fastrand::Rng::with_seed(7);
    let medians = effort.in_turns(throttlings, |throttling| {
        let clients = Clients { address: throttling.address(), count: clients, answer: "HTTP/1.1 200 " };
        if throttling.is_pushed() {
            let time = effort.time.min(PUSHES_MAX);
            clients.run(time, |out: &mut Vec<u8>| ask(throttling.sources, &mut rng, out), || []);
        }
        let outcome = throttling.outcome();
        let write = |out: &mut Vec<u8>| ask(throttling.sources, &mut rng, out);
        let ran = clients.run(effort.time, write, || throttling.cpu_ns());
        throttling.assert_that_sources_were_taught(&ran, effort.time, outcome);
        if !effort.is_short() {
            throttling.calm_down();
        }
        let Ran { per_second, p50_us, p99_us, cpu_us: [haproxy_us, agent_us] } = ran;
        [per_second, p50_us, p99_us, haproxy_us, agent_us]
    });
    throttlings.iter().for_each(Throttling::assert_that_nobody_waited);
    for (place, (what, unit)) in FIGURES.into_iter().enumerate() {
        let all = throttlings.iter().zip(&medians);
        let all = all.filter(|(throttling, _)| what != CPU_OF_AGENT || throttling.has_agent());
        let all: Vec<_> = all.map(|(throttling, medians)| (throttling.name, medians[place])).collect();
        for &(name, figure) in &all {
            let rivals: Vec<_> = all.iter().copied().filter(|(other, _)| is_rival(name, other)).collect();
            print(what, name, figure, unit, &rivals);
        }
        if what == CPU_OF_HAPROXY {
            print_marks(version, |name| all.iter().find(|(all, _)| *all == name).expect("it was measured").1);
        }
    }
}

/// Whether two are compared: slowlane with all the other ways, and as a peer with stick tables and with its questions.
fn is_rival(name: &str, other: &str) -> bool {
    let others: &[&str] = match name {
        UNTHROTTLED => &[],
        SLOWLANE => &[UNTHROTTLED, BASELINE, BASELINE_OF_ALL, LUA],
        PEERS => &[UNTHROTTLED, TABLE, SLOWLANE],
        PEERS_MANY => &[UNTHROTTLED, TABLE_MANY, SLOWLANE],
        _ => &[UNTHROTTLED],
    };
    others.contains(&other)
}

/// The marks of slowlane as a peer: its CPU of HAProxy per request, compared with others'.
const MARKS: [(&str, f64); 2] = [(TABLE, 1.5), (SLOWLANE, 0.7)];

/// Prints the ratios that have a mark. They concern HAProxy 3.2; before 3.1, a question costs little.
fn print_marks(version: Version, cpu_us: impl Fn(&str) -> f64) {
    for (other, mark) in MARKS {
        let ratio = cpu_us(PEERS) / cpu_us(other);
        let mark = if version == Version::V3_2 { format!("mark: at most x{mark:.1}") } else { String::new() };
        let line = format!("CPU of HAProxy, {PEERS} / {other}: x{ratio:.2}   {mark}");
        println!("{}", line.trim_end());
    }
}

/// A request from one of many sources, which it names in a header that HAProxy trusts.
fn ask(sources: u32, rng: &mut fastrand::Rng, out: &mut Vec<u8>) {
    let source = source(rng.u32(0..sources));
    write!(out, "GET / HTTP/1.1\r\nHost: www.shop.example\r\nX-Api-Key: acme\r\nX-From: {source}\r\n\r\n")
        .expect("a vector takes it");
}
