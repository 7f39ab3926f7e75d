//! The time from the start of a program to its first verdict.

use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::effort::Effort;
use crate::support::programs::own_address;
use crate::support::programs::process::Process;
use crate::support::programs::slowlane::BINARY;
use crate::support::programs::spop::Line;
use crate::support::{cores, median, print_each, spop_baseline, this_program};

/// The pause between two attempts to connect.
const PAUSE: Duration = Duration::from_micros(200);

/// The number of starts of each program.
const STARTS: u32 = 21;

pub fn print_times(effort: Effort) {
    let starts = effort.count(STARTS);
    println!("each program is started {starts} times");
    let each: Vec<[f64; 2]> =
        (0..starts).map(|_| [first_verdict_ms(baseline), first_verdict_ms(slowlane)]).collect();
    let medians = [0, 1].map(|program| [median(each.iter().map(|times| times[program]))]);
    print_each([("start to first verdict", "ms")], &["the baseline", "slowlane"], &medians);
}

fn first_verdict_ms(start: impl FnOnce(SocketAddr) -> Process) -> f64 {
    let address = own_address();
    let started = Instant::now();
    let _process = cores::on_first(|| start(address));
    while TcpStream::connect(address).is_err() {
        assert!(started.elapsed() < Duration::from_secs(10), "nobody listens on {address}");
        thread::sleep(PAUSE);
    }
    let answer = Line::greeted(address).ask(1, "192.0.2.1", "shop.example");
    let took = started.elapsed();
    assert_eq!(answer.variable("verdict"), Some("pass"));
    took.as_secs_f64() * 1_000.0
}

/// slowlane with its default configuration, but on free addresses.
fn slowlane(spop: SocketAddr) -> Process {
    let mut command = Command::new(BINARY);
    command.arg("run");
    for (flag, address) in [("--spop", spop), ("--http", own_address()), ("--admin", own_address())] {
        command.arg(flag).arg(address.to_string());
    }
    Process::start(&mut command)
}

fn baseline(spop: SocketAddr) -> Process {
    this_program(&[spop_baseline::ARGUMENT, &spop.to_string()])
}
