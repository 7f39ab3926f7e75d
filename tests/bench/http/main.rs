//! The HTTP check: the cost of a question of nginx, the time to the first answer, and the memory.
//!
//! `cargo bench --bench http [-- SECONDS]`. slowlane has a full policy and its own core. In the same run, so do a baseline,
//! a server that only finds the end of a question and answers a constant, and a minimal check on hyper with the same policy:
//! slowlane's own HTTP reader stays for as long as it pays. Each of eight connections asks again after its answer. Then
//! the same through a real nginx with 64 connections, with and without keep-alive to the check, beside a second nginx that
//! answers each question with `return 204`.
//!
//! Targets: 8 µs of CPU per question, 1.2 times that of `return 204` (1.3 without keep-alive) and as many answers a
//! second, 50 ms from the start to the first verdict, 8 MB.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests and benches are the world outside"
)]
#![allow(unreachable_pub, reason = "nothing here is reachable from outside, and pub(crate) is noise")]

mod baseline;
mod hyper;
mod nginx;
mod start;
#[path = "../support/mod.rs"]
mod support;

use std::fs;
use std::io::Write;
use std::net::SocketAddr;

use support::clients::{Clients, Ran};
use support::effort::Effort;
use support::five_maps::{self, LINES};
use support::programs::process::Process;
use support::programs::slowlane::BINARY;
use support::{cores, print, print_each, spop_baseline, this_program, usage};

const CONNECTIONS: usize = 8;

/// A server under load: its name, process id and address.
type Server = (&'static str, u32, SocketAddr);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some(baseline::ARGUMENT) => return baseline::run(&arguments[1]),
        Some(hyper::ARGUMENT) => return hyper::run(&arguments[1]),
        Some(spop_baseline::ARGUMENT) => {
            return spop_baseline::run(&arguments[1], spop_baseline::Answer::Verdict);
        }
        _ => {}
    }
    let effort = Effort::from_arguments(3.0);
    cores::stay_on_last();
    questions(effort);
    [true, false].into_iter().for_each(|keeps_alive| nginx::print_questions(effort, keeps_alive));
    start::print_times(effort);
    let bytes = fs::metadata(BINARY).expect("the binary is built").len();
    print("size of the binary, with what benches add", "slowlane", bytes as f64 / 1e6, "MB", &[]);
}

fn questions(effort: Effort) {
    let slowlane = cores::on_first(|| five_maps::slowlane(five_maps::UNDELAYED, "pace"));
    let ((baseline, baseline_at), (hyper, hyper_at)) = (server(baseline::ARGUMENT), server(hyper::ARGUMENT));
    let mut servers: [Server; 3] = [
        ("the baseline", baseline.id(), baseline_at),
        ("hyper", hyper.id(), hyper_at),
        ("slowlane", slowlane.process.id(), slowlane.http),
    ];
    let mut rng = fastrand::Rng::with_seed(7);
    let medians = effort.in_turns(&mut servers, |&mut (_, process, address)| {
        let clients = Clients { address, count: CONNECTIONS, answer: "HTTP/1.1 204 " };
        let write = |out: &mut Vec<u8>| ask(&mut rng, out);
        let Ran { per_second, p50_us, p99_us, cpu_us: [cpu_us] } =
            clients.run(effort.time, write, || [usage::cpu_ns(process)]);
        [per_second, p50_us, p99_us, cpu_us]
    });
    let verdicts = |labels| slowlane.metric("slowlane_verdicts_total", labels);
    assert_eq!(verdicts(""), verdicts("verdict=\"pass\""), "somebody had to wait or was refused");
    println!("{CONNECTIONS} connections, {} s a run", effort.seconds());
    let figures = [("answers", "1/s"), ("p50", "µs"), ("p99", "µs"), ("CPU per question", "µs")];
    print_each(figures, &["the baseline", "hyper", "slowlane"], &medians);
    let [_, [.., hyper_us], [.., slowlane_us]] = medians[..] else { unreachable!("three were measured") };
    print("CPU per question", "slowlane", slowlane_us, "µs", &[("hyper", hyper_us)]);
}

/// This bench as one of its servers, with its address.
fn server(argument: &str) -> (Process, SocketAddr) {
    let mut program = cores::on_first(|| this_program(&[argument, "127.0.0.1:0"]));
    let address = program.logged("HTTP on ").parse().expect("it says where it is");
    (program, address)
}

/// The question of nginx with the shipped configuration, each with a new request id.
fn ask(rng: &mut fastrand::Rng, out: &mut Vec<u8>) {
    let (source, id) = (five_maps::source(rng.u32(0..LINES)), rng.u128(..));
    write!(
        out,
        "GET /check HTTP/1.1\r\nX-Slowlane-Source: {source}\r\nX-Slowlane-Website: www.shop.example\r\n\
        X-Slowlane-Owner: acme\r\nX-Slowlane-Method: GET\r\nX-Request-Id: {id:032x}\r\nHost: slowlane\r\n\r\n"
    )
    .expect("a vector takes it");
}
