//! The throughput, latency and CPU cost of NOTIFYs.
//!
//! `cargo bench --bench spop [-- SECONDS]` runs slowlane on one core with a full policy. The same run measures a
//! floor: an agent that only reads the two ids of a NOTIFY and answers a constant. The generator on the other core takes
//! the part of HAProxy and checks every ACK.
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

use load::Load;
use support::effort::Effort;
use support::five_maps::{BUSY, slowlane};
use support::spop_floor as floor;
use support::{cores, print_each, this_program};

/// Connections and NOTIFYs in flight on each.
const SHAPES: [Load; 4] = [
    Load { connections: 8, in_flight: 16 },
    Load { connections: 8, in_flight: 64 },
    Load { connections: 64, in_flight: 1 },
    Load { connections: 4, in_flight: 20 },
];

/// An agent under load: its name, process id and address.
type Agent<'a> = (&'a str, u32, SocketAddr);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, at] = arguments.as_slice()
        && first == floor::ARGUMENT
    {
        return floor::run(at, floor::Answer::Verdict);
    }
    cores::stay_on_last();
    let effort = Effort::from_arguments(3.0);
    SHAPES.into_iter().for_each(|load| measure(load, effort));
}

fn measure(load: Load, effort: Effort) {
    let mut floor = cores::on_first(|| this_program(&[floor::ARGUMENT, "127.0.0.1:0"]));
    let floor_address = floor.logged("SPOP on ").parse().expect("the floor says where it is");
    let [pace, adaptive] = ["pace", "adaptive"].map(|law| cores::on_first(|| slowlane(BUSY, law)));
    let mut agents: [Agent; 3] = [
        ("the floor", floor.id(), floor_address),
        ("slowlane pace", pace.process.id(), pace.spop),
        ("slowlane adaptive", adaptive.process.id(), adaptive.spop),
    ];
    let medians = effort.in_turns(&mut agents, |agent| load.run(agent, effort.time));
    println!("{} connections x {} in flight, {} s a run", load.connections, load.in_flight, effort.seconds());
    let figures = [("notifies", "1/s"), ("p50", "µs"), ("p99", "µs"), ("CPU per NOTIFY", "µs")];
    print_each(figures, &agents.map(|(name, ..)| name), &medians);
}
