//! How many NOTIFYs an agent answers, how fast, and what one costs it.
//!
//! `cargo bench --bench spop [-- SECONDS]` runs slowlane on one core with a full policy, and beside it in the
//! same run a floor: an agent that reads no more of a NOTIFY than its two ids and answers a constant.
//! The generator plays HAProxy on the other core and checks every ACK.

#![allow(unreachable_pub, reason = "nothing here is reachable from outside, and pub(crate) is noise")]

mod agent;
mod floor;
mod load;
#[path = "../support/plain_server.rs"]
mod plain_server;
#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

use agent::Agent;
use load::{Figures, Load};

/// Connections and NOTIFYs in flight on each.
const SHAPES: [Load; 3] = [
    Load { connections: 8, in_flight: 16 },
    Load { connections: 64, in_flight: 1 },
    Load { connections: 4, in_flight: 20 },
];

/// Each agent is measured so often, in turns; the median of each figure counts.
const TURNS: usize = 3;

fn main() {
    let mut seconds = 3.0;
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            floor::ARGUMENT => return floor::run("127.0.0.1:0", floor::Answer::Verdict),
            "--bench" => {}
            number => seconds = number.parse().expect("the argument is a number of seconds"),
        }
    }
    let time = Duration::from_secs_f64(seconds);
    println!(
        "{:>8}  {:<18} {:>11} {:>9} {:>9} {:>14}",
        "load", "agent", "notifies/s", "p50 µs", "p99 µs", "CPU µs/notify"
    );
    for load in SHAPES {
        let agents = [Agent::floor(), Agent::slowlane("pace"), Agent::slowlane("adaptive")];
        let mut runs: Vec<Vec<Figures>> = vec![Vec::new(); agents.len()];
        for _ in 0..TURNS {
            for (agent, runs) in agents.iter().zip(&mut runs) {
                runs.push(load.run(agent, time));
            }
        }
        let floor = median(&runs[0]);
        for (agent, runs) in agents.iter().zip(&runs) {
            print(load, agent, &median(runs), &floor);
        }
    }
}

fn median(runs: &[Figures]) -> Figures {
    let middle = |figure: fn(&Figures) -> f64| support::median(runs.iter().map(figure));
    Figures {
        per_second: middle(|figures| figures.per_second),
        p50_us: middle(|figures| figures.p50_us),
        p99_us: middle(|figures| figures.p99_us),
        cpu_us: middle(|figures| figures.cpu_us),
    }
}

fn print(load: Load, agent: &Agent, figures: &Figures, floor: &Figures) {
    let shape = format!("{} x {}", load.connections, load.in_flight);
    println!(
        "{shape:>8}  {:<18} {:>11.0} {:>9.0} {:>9.0} {:>9.2} x{:.2}",
        agent.name,
        figures.per_second,
        figures.p50_us,
        figures.p99_us,
        figures.cpu_us,
        figures.cpu_us / floor.cpu_us,
    );
}
