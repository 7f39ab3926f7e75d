//! The precision of each law: closed-loop clients through a real HAProxy 2.6, with held answers.
//!
//! `cargo bench --bench closed_loop [-- SECONDS] [laws] [sharing]`. Each client asks again after its answer, or after
//! Retry-After if denied. The rate counts the requests that get through, by default from second 5 to 25. Each figure is
//! the median of three runs. All scenarios run at the same time, each with its own website. Then those with several
//! sources per key run, also together.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests and benches are the world outside"
)]
#![allow(unreachable_pub, reason = "nothing here is reachable from outside, and pub(crate) is noise")]

mod sharing;
#[path = "../support/mod.rs"]
mod support;

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use support::effort::{self, Effort, Part};
use support::programs::backend::Backend;
use support::programs::client::{self, Client, Response};
use support::programs::haproxy::{Delivery, Haproxy, Version};
use support::programs::key_hasher;
use support::programs::slowlane::Slowlane;
use support::{median, percentile};

const RATE: f64 = 50.0;

/// The longest warm-up, which uses up the bursts.
const FROM_MAX: Duration = Duration::from_secs(5);

/// The id of an SLO with burst 100 and rate 50/s, its description, and its number of clients.
const SCENARIOS: [(u16, &str, usize); 6] = [
    (2001, "pace", 1),
    (2002, "pace", 10),
    (2003, "pace", 50),
    (2004, "pace max_delay=10s", 200),
    (2005, "adaptive", 1),
    (2006, "adaptive", 10),
];

const PARTS: [Part; 2] = [("laws", laws), ("sharing", sharing::print)];

/// A run. Answers between the two times count.
#[derive(Clone, Copy)]
struct Run {
    start: Instant,
    from: Duration,
    until: Duration,
}

/// One answer, measured by its client.
struct Answer {
    at: Duration,
    took: Duration,
    refused: bool,
}

/// The figures of one scenario in one run.
struct Figures {
    error: f64,
    refused: f64,
    p50_ms: f64,
    p99_ms: f64,
    clients: f64,
}

fn main() {
    effort::run(&PARTS, Effort::from_arguments(20.0));
}

fn laws(effort: Effort) {
    let mut figures: Vec<Vec<Figures>> = SCENARIOS.iter().map(|_| Vec::new()).collect();
    for run in 1..=effort.turns() {
        eprintln!("laws, run {run} of {}", effort.turns());
        for (scenario, measured) in figures.iter_mut().zip(measure(effort)) {
            scenario.push(measured);
        }
    }
    println!("law                  clients     error   refused   delay p50   delay p99   gpt0/1000");
    for ((_, law, clients), runs) in SCENARIOS.iter().zip(&figures) {
        let median = |figure: fn(&Figures) -> f64| median(runs.iter().map(figure));
        println!(
            "{law:<20} {clients:>7} {:>+8.2} % {:>7.1} % {:>8.0} ms {:>8.0} ms {:>11.2}",
            median(|figures| figures.error),
            median(|figures| figures.refused),
            median(|figures| figures.p50_ms),
            median(|figures| figures.p99_ms),
            median(|figures| figures.clients),
        );
    }
}

/// One run of all scenarios.
fn measure(effort: Effort) -> Vec<Figures> {
    let slo_map: String =
        SCENARIOS.iter().map(|(id, law, _)| format!("{id} burst=100 rate=50/s law={law}\n")).collect();
    let website_map: String = SCENARIOS.iter().map(|(id, ..)| format!("{id}.example {id}\n")).collect();
    let slo_map = format!("0 burst=10000 rate=5000/s\n{slo_map}");
    let slowlane = Slowlane::with_policy(&[("slo.map", &slo_map), ("website.map", &website_map)]);
    let app = Backend::start();
    let agent = slowlane.spop.to_string();
    let mut haproxy = Haproxy::shipped(Version::V2_6, Delivery::Hold, &agent, app.address).unwrap();
    haproxy.wait_for_agent("UP");

    let run = Run::start(effort);
    let scenarios = SCENARIOS.map(|(id, _, clients)| {
        let ask = |_| {
            let address = haproxy.address;
            thread::spawn(move || closed_loop(address, &[("Host", &format!("{id}.example"))], run))
        };
        (0..clients).map(ask).collect::<Vec<_>>()
    });
    // Read the estimate while the clients are still active.
    thread::sleep(run.until.saturating_sub(run.start.elapsed()));
    let estimates =
        SCENARIOS.map(|(id, law, _)| gpt0(slowlane.admin, law, &format!("{id}.example")) / 1_000.0);
    let answers = scenarios.map(|clients| {
        clients
            .into_iter()
            .flat_map(|client| client.join().expect("no client met an error"))
            .collect::<Vec<_>>()
    });
    answers.iter().zip(estimates).map(|(answers, clients)| figures(answers, clients, run)).collect()
}

fn closed_loop(address: SocketAddr, headers: &[(&str, &str)], run: Run) -> Vec<Answer> {
    let mut client = Client::connect(address);
    let mut answers = Vec::new();
    while run.start.elapsed() < run.until {
        let response = client.request("GET", "/", headers, "");
        let answer = Answer::of(&response, run.start);
        if answer.refused {
            let seconds = response.header("retry-after").and_then(|seconds| seconds.parse().ok());
            thread::sleep(Duration::from_secs(seconds.expect("a 429 says when to come back")));
        }
        answers.push(answer);
    }
    answers
}

impl Run {
    fn start(effort: Effort) -> Run {
        let from = effort.time.min(FROM_MAX);
        Run { start: Instant::now(), from, until: from + effort.time }
    }
}

impl Answer {
    fn of(response: &Response, start: Instant) -> Answer {
        let refused = response.status == 429;
        assert!(refused || response.status == 200, "status {}", response.status);
        Answer { at: start.elapsed(), took: response.took, refused }
    }

    /// Whether the answer counts for the rate.
    fn is_steady(&self, run: Run) -> bool {
        !self.refused && self.at >= run.from && self.at < run.until
    }
}

/// The requests per second that got through.
fn rate<'a>(answers: impl IntoIterator<Item = &'a Answer>, run: Run) -> f64 {
    let steady = answers.into_iter().filter(|answer| answer.is_steady(run)).count();
    steady as f64 / (run.until - run.from).as_secs_f64()
}

/// The delays of requests that got through, in milliseconds, sorted.
fn delays<'a>(answers: impl IntoIterator<Item = &'a Answer>, run: Run) -> Vec<f64> {
    let steady = answers.into_iter().filter(|answer| answer.is_steady(run));
    let mut delays: Vec<f64> = steady.map(|answer| answer.took.as_secs_f64() * 1_000.0).collect();
    delays.sort_by(f64::total_cmp);
    delays
}

/// The denied requests, in percent.
fn refused<'a>(answers: impl IntoIterator<Item = &'a Answer>) -> f64 {
    let (mut all, mut refused) = (0.0, 0.0);
    for answer in answers {
        all += 1.0;
        refused += f64::from(u8::from(answer.refused));
    }
    refused / all * 100.0
}

/// The column `gpt0` of a website's entry, from the Runtime API.
fn gpt0(admin: SocketAddr, law: &str, website: &str) -> f64 {
    let options = format!("burst=100 rate=50/s law={law}");
    let key = key_hasher(2, &options).part(website.as_bytes()).finish();
    let row = client::get(admin, &format!("/api/table/{key}"), &[]);
    let gpt0 = row.body.split(' ').find_map(|column| column.strip_prefix("gpt0="));
    gpt0.expect("the table has the entry").parse().unwrap()
}

fn figures(answers: &[Answer], clients: f64, run: Run) -> Figures {
    let delays = delays(answers, run);
    Figures {
        error: (rate(answers, run) / RATE - 1.0) * 100.0,
        refused: refused(answers),
        p50_ms: percentile(&delays, 50),
        p99_ms: percentile(&delays, 99),
        clients,
    }
}
