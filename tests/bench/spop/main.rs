//! The throughput, latency and CPU cost of NOTIFYs.
//!
//! `cargo bench --bench spop [-- SECONDS]` runs slowlane on one core with a full policy. The same run measures a
//! baseline: an agent that only reads the two ids of a NOTIFY and answers a constant. The generator on the other core takes
//! the part of HAProxy and checks every ACK. One of the agents speaks TLS, and the last figure is the cost of a handshake.
//!
//! Target: a million NOTIFYs per second, with 8 connections and 64 in flight on each.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests and benches are the world outside"
)]
#![allow(unreachable_pub, reason = "nothing here is reachable from outside, and pub(crate) is noise")]

mod load;
#[path = "../support/mod.rs"]
mod support;

use std::net::SocketAddr;
use std::sync::Arc;

use load::Load;
use rustls::ClientConfig;
use support::effort::Effort;
use support::five_maps::{BUSY, slowlane, slowlane_with};
use support::programs::slowlane::Slowlane;
use support::programs::tls::Authority;
use support::spop_baseline as baseline;
use support::{connection, cores, print, print_each, this_program, usage};

/// Connections and NOTIFYs in flight on each.
const SHAPES: [Load; 4] = [
    Load { connections: 8, in_flight: 16 },
    Load { connections: 8, in_flight: 64 },
    Load { connections: 64, in_flight: 1 },
    Load { connections: 4, in_flight: 20 },
];

/// An agent under load.
pub struct Agent {
    name: &'static str,
    process: u32,
    address: SocketAddr,
    /// None: without TLS.
    client: Option<Arc<ClientConfig>>,
}

impl Agent {
    fn of(name: &'static str, slowlane: &Slowlane) -> Agent {
        Agent { name, process: slowlane.process.id(), address: slowlane.spop, client: None }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, at] = arguments.as_slice()
        && first == baseline::ARGUMENT
    {
        return baseline::run(at, baseline::Answer::Verdict);
    }
    cores::stay_on_last();
    let effort = Effort::from_arguments(3.0);
    SHAPES.into_iter().for_each(|load| measure(load, effort));
    handshakes(effort);
}

/// The CPU of a handshake with a new client: no ticket of an earlier connection shortens it.
fn handshakes(effort: Effort) {
    const HANDSHAKES: u32 = 500;
    let authority = Authority::new("servers");
    let tls = format!("[spop.tls]\n{}", authority.pair("server").lines());
    let slowlane = cores::on_first(|| slowlane_with(BUSY, "pace", &tls));
    let count = effort.count(HANDSHAKES);
    let clients: Vec<_> = (0..count).map(|_| authority.client(None)).collect();
    let before = usage::cpu_ns(slowlane.process.id());
    clients.iter().for_each(|client| drop(connection::greeted(slowlane.spop, Some(client))));
    let cpu_ns = usage::cpu_ns(slowlane.process.id()) - before;
    let us = cpu_ns as f64 / 1_000.0 / f64::from(count);
    print("CPU of a TLS handshake, ECDSA P-256", "slowlane", us, "µs", &[]);
}

fn measure(load: Load, effort: Effort) {
    let mut baseline = cores::on_first(|| this_program(&[baseline::ARGUMENT, "127.0.0.1:0"]));
    let baseline_address = baseline.logged("SPOP on ").parse().expect("the baseline says where it is");
    let [pace, adaptive] = ["pace", "adaptive"].map(|law| cores::on_first(|| slowlane(BUSY, law)));
    let authority = Authority::new("servers");
    let tls = format!("[spop.tls]\n{}", authority.pair("server").lines());
    let secured = cores::on_first(|| slowlane_with(BUSY, "pace", &tls));
    let mut agents = [
        Agent { name: "the baseline", process: baseline.id(), address: baseline_address, client: None },
        Agent::of("slowlane pace", &pace),
        Agent { client: Some(authority.client(None)), ..Agent::of("slowlane pace, TLS", &secured) },
        Agent::of("slowlane adaptive", &adaptive),
    ];
    let medians = effort.in_turns(&mut agents, |agent| load.run(agent, effort.time));
    println!("{} connections x {} in flight, {} s a run", load.connections, load.in_flight, effort.seconds());
    let figures = [("notifies", "1/s"), ("p50", "µs"), ("p99", "µs"), ("CPU per NOTIFY", "µs")];
    print_each(figures, &agents.each_ref().map(|agent| agent.name), &medians);
}
