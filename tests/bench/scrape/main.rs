//! The cost of scraping a thousand SLOs, alone and beside verdicts.
//!
//! `cargo bench --bench scrape [-- SECONDS]`. Each SLO has passed, delayed and denied requests, so that each has all its
//! series. slowlane has the first core. Eight clients and the scraper have the last one.
//!
//! Target: 10 ms for a scrape.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests and benches are the world outside"
)]
#![allow(unreachable_pub, reason = "nothing here is reachable from outside, and pub(crate) is noise")]

#[path = "../support/mod.rs"]
mod support;

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use support::clients::{Clients, Ran};
use support::effort::Effort;
use support::programs::client::Client;
use support::programs::slowlane::Slowlane;
use support::{cores, percentile, print, print_each, usage};

/// The SLOs of the type "website": all its ids.
const SLOS: std::ops::Range<u32> = 2_000..3_000;

/// Series of an SLO: three verdicts, and the sum of its delays.
const SERIES: usize = 4;

const CONNECTIONS: usize = 8;

/// The time between two scrapes. None: nobody scrapes.
type Pause = Option<Duration>;

const PAUSES: [(&str, Pause); 3] = [
    ("no scrape", None),
    ("a scrape each second", Some(Duration::from_secs(1))),
    ("scrape after scrape", Some(Duration::ZERO)),
];

fn main() {
    let effort = Effort::from_arguments(3.0);
    cores::stay_on_last();
    let slowlane = cores::on_first(start);
    use_each_slo(&slowlane);
    alone(&slowlane, effort);
    beside_verdicts(&slowlane, effort);
}

/// A slowlane with a thousand SLOs, each of one website.
fn start() -> Slowlane {
    let (mut slos, mut websites) = ("0 rate=unlimited\n".to_owned(), String::new());
    for slo in SLOS {
        writeln!(slos, "{slo} burst=1 rate=1/m max_delay=90s").expect("a string takes it");
        writeln!(websites, "site-{slo}.example {slo}").expect("a string takes it");
    }
    Slowlane::with_policy(&[("slo.map", &slos), ("website.map", &websites)])
}

/// Makes each SLO pass, delay and deny.
fn use_each_slo(slowlane: &Slowlane) {
    let mut client = Client::connect(slowlane.http);
    for slo in SLOS {
        let website = format!("site-{slo}.example");
        let headers = [("X-Slowlane-Website", website.as_str())];
        let mut status = || client.request("GET", "/check?hold=off", &headers, "").status;
        assert_eq!([status(), status(), status()], [204, 204, 403]);
    }
}

fn scrape(client: &mut Client) -> (f64, String) {
    let answer = client.request("GET", "/metrics", &[], "");
    assert_eq!(answer.status, 200);
    (answer.took.as_secs_f64() * 1_000.0, answer.body)
}

fn alone(slowlane: &Slowlane, effort: Effort) {
    let mut client = Client::connect(slowlane.admin);
    let (_, body) = scrape(&mut client);
    let series = body.lines().filter(|line| line.contains("{slo=\"2")).count();
    assert_eq!(series, SLOS.len() * SERIES, "each SLO has all its series");
    let (mut times_ms, mut spent_ms) = (Vec::new(), 0.0);
    let cpu_before = usage::cpu_ns(slowlane.process.id());
    while spent_ms < effort.seconds() * 1_000.0 {
        let (took_ms, _) = scrape(&mut client);
        times_ms.push(took_ms);
        spent_ms += took_ms;
    }
    let cpu_ns = usage::cpu_ns(slowlane.process.id()) - cpu_before;
    let cpu_ms = cpu_ns as f64 / 1_000_000.0 / times_ms.len() as f64;
    times_ms.sort_by(f64::total_cmp);
    let whose = "slowlane";
    print("a scrape of 1000 SLOs", whose, body.len() as f64 / 1_000.0, "kB", &[]);
    print("its time, p50", whose, percentile(&times_ms, 50), "ms", &[]);
    print("its time, p99", whose, percentile(&times_ms, 99), "ms", &[]);
    print("its CPU", whose, cpu_ms, "ms", &[]);
}

fn beside_verdicts(slowlane: &Slowlane, effort: Effort) {
    let process = slowlane.process.id();
    let mut pauses = PAUSES;
    let medians = effort.in_turns(&mut pauses, |&mut (_, pause)| {
        let is_over = &AtomicBool::new(false);
        thread::scope(|scope| {
            if let Some(pause) = pause {
                scope.spawn(move || scrape_until(is_over, pause, slowlane));
            }
            let clients = Clients { address: slowlane.http, count: CONNECTIONS, answer: "HTTP/1.1 204 " };
            let write = |out: &mut Vec<u8>| {
                let question =
                    "GET /check HTTP/1.1\r\nX-Slowlane-Website: other.example\r\nHost: slowlane\r\n\r\n";
                out.write_all(question.as_bytes()).expect("a vector takes it");
            };
            let Ran { per_second, p50_us, p99_us, cpu_us: [_] } =
                clients.run(effort.time, write, || [usage::cpu_ns(process)]);
            is_over.store(true, Relaxed);
            [per_second, p50_us, p99_us]
        })
    });
    println!("{CONNECTIONS} connections, {} s a run", effort.seconds());
    let figures = [("answers", "1/s"), ("p50", "µs"), ("p99", "µs")];
    print_each(figures, &PAUSES.map(|(name, _)| name), &medians);
}

fn scrape_until(is_over: &AtomicBool, pause: Duration, slowlane: &Slowlane) {
    let mut client = Client::connect(slowlane.admin);
    while !is_over.load(Relaxed) {
        scrape(&mut client);
        thread::sleep(pause);
    }
}
