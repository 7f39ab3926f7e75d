//! The groups with the most requests, beside exact counts of the same stream.
//!
//! `cargo bench --bench groups [-- SECONDS]`. Ten million requests (fewer with SECONDS below 1) of a Zipf distribution over
//! a million addresses and as many user agents come in ten minutes of virtual time. The exact counts are damped in the
//! same way. The cost is CPU time, beside that of decisions on the same requests.
//!
//! Targets: 19 of the first 20; 3 % of a decision.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests and benches are the world outside"
)]
#![allow(unreachable_pub, reason = "nothing here is reachable from outside, and pub(crate) is noise")]

#[path = "../support/mod.rs"]
mod support;

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use fastrand::Rng;
use slowlane::observe::status::{Groups, Lookback, RankedBy};
use slowlane_core::base::{Decision, Request, Sample, SloId, Timestamp, Value};
use slowlane_core::policy::{Batch, Policy};
use slowlane_core::table::Sizing;
use slowlane_core::throttle::Throttle;
use support::effort::Effort;
use support::{cpu_time, print};

const SOURCES: usize = 1_000_000;
const REQUESTS: usize = 10_000_000;
const SECONDS: u64 = 600;
const TOP: usize = 20;

fn main() {
    let effort = Effort::from_arguments(1.0);
    let requests = (REQUESTS as f64 * effort.seconds().min(1.0)) as usize;
    let zipf = Zipf::new(SOURCES);
    for (name, span, over_s) in
        [("1 minute", Lookback::Minute, 60.0), ("10 minutes", Lookback::TenMinutes, 600.0)]
    {
        rank(&zipf, requests, name, span, over_s);
    }
    cost(&zipf, requests / 10);
}

/// Numbers from 0, each with a probability of 1 / (number + 1).
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(numbers: usize) -> Zipf {
        let mut sum = 0.0;
        Zipf(
            (1..=numbers)
                .map(|number| {
                    sum += 1.0 / number as f64;
                    sum
                })
                .collect(),
        )
    }

    fn draw(&self, rng: &mut Rng) -> usize {
        let drawn = rng.f64() * self.0.last().expect("there are numbers");
        self.0.partition_point(|&sum| sum < drawn)
    }
}

/// Addresses all over the networks.
fn source(number: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits((number as u32).wrapping_mul(0x9e37_79b1))
}

fn with_request<T>(policy: &Policy, number: usize, work: impl FnOnce(&Batch<'_, '_>) -> T) -> T {
    let (mut batch, mut request) = (Batch::of(policy), Request::new());
    request.push(b"source", Value::Address(source(number).into()));
    request.push(b"website", Value::Text(b"shop.example"));
    batch.push(&request);
    work(&batch)
}

/// Ranks the addresses of a stream, beside exact counts with the same damping.
fn rank(zipf: &Zipf, requests: usize, name: &str, span: Lookback, over_s: f64) {
    let (groups, policy, mut rng) = (Groups::default(), Policy::builtin(), Rng::with_seed(7));
    let decision = passed();
    let (mut exact, mut second) = (vec![0.0_f64; SOURCES], 0);
    for at in 0..requests {
        let now_s = at as u64 * SECONDS / requests as u64;
        if now_s != second {
            second = now_s;
            groups.tick(Timestamp::from_millis(second * 1_000), requests as f64 / SECONDS as f64);
        }
        let number = zipf.draw(&mut rng);
        // As far as it will be damped by the end.
        exact[number] += (-((SECONDS - second) as f64) / over_s).exp();
        if rng.u32(..groups.one_in()) == 0 {
            with_request(&policy, number, |batch| {
                groups.note(&decision, None, |each| batch.facts(0, SloId::DEFAULT, each));
            });
        }
    }
    groups.tick(Timestamp::from_millis(SECONDS * 1_000), 0.0);
    let total: f64 = exact.iter().sum();
    let mut first: Vec<usize> = (0..SOURCES).collect();
    first.sort_by(|&one, &other| exact[other].total_cmp(&exact[one]));
    let shares: HashMap<String, f64> = first
        .iter()
        .take(10 * TOP)
        .map(|&number| (source(number).to_string(), exact[number] / total))
        .collect();
    let found = groups.first(span, RankedBy::Requests, Some("source")).groups;
    let top: Vec<String> = first.iter().take(TOP).map(|&number| source(number).to_string()).collect();
    let recalled = found.iter().take(TOP).filter(|row| top.contains(&row.value)).count();
    let errors =
        found.iter().take(TOP).filter_map(|row| Some((row.share / shares.get(&row.value)? - 1.0).abs()));
    let errors: Vec<f64> = errors.collect();
    print("found of the first 20", name, recalled as f64, "addresses", &[]);
    print(
        "mean error of their requests",
        name,
        errors.iter().sum::<f64>() / errors.len() as f64 * 100.0,
        "%",
        &[],
    );
}

/// The cost of the sample for each request, beside its decision.
fn cost(zipf: &Zipf, requests: usize) {
    let (groups, mut rng) = (Groups::default(), Rng::with_seed(7));
    let sizing = Sizing { entries_max: 2_000_000, expire: Duration::from_secs(600) };
    let throttle = Throttle::new(Policy::builtin(), sizing, 0);
    let policy = throttle.policy();
    let decision = passed();
    let numbers: Vec<usize> = (0..requests).map(|_| zipf.draw(&mut rng)).collect();
    let at = |number: usize| Timestamp::from_millis(1_000_000 + number as u64 / 100);
    let start = cpu_time();
    for (place, &number) in numbers.iter().enumerate() {
        let mut request = Request::new();
        request.push(b"source", Value::Address(source(number).into()));
        request.push(b"website", Value::Text(b"shop.example"));
        std::hint::black_box(throttle.decide_one(&request, at(place), Sample::MIDDLE));
    }
    let decided = (cpu_time() - start).as_nanos() as f64 / requests as f64;
    let start = cpu_time();
    for (place, &number) in numbers.iter().enumerate() {
        if place.is_multiple_of(100_000) {
            groups.tick(at(place), 100_000.0);
        }
        if rng.u32(..groups.one_in()) == 0 {
            with_request(&policy, number, |batch| {
                groups.note(&decision, None, |each| batch.facts(0, SloId::DEFAULT, each));
            });
        }
    }
    let noted = (cpu_time() - start).as_nanos() as f64 / requests as f64;
    print("a decision", "core", decided, "ns", &[]);
    print("the sample, at 100,000 requests/s", "groups", noted, "ns", &[("a decision", decided)]);
}

fn passed() -> Decision {
    let sizing = Sizing { entries_max: 1_000, expire: Duration::from_secs(60) };
    let mut request = Request::new();
    request.push(b"website", Value::Text(b"shop.example"));
    Throttle::new(Policy::builtin(), sizing, 0).decide_one(
        &request,
        Timestamp::from_millis(1),
        Sample::MIDDLE,
    )
}
