//! Shared code of the benches: clocks and counters of the system, programs, medians and output.

#![allow(dead_code, reason = "each bench uses a part of it")]

pub mod clients;
pub mod connection;
pub mod cores;
pub mod effort;
pub mod five_maps;
pub mod histogram;
pub mod keyed;
pub mod peers;
pub mod plain_server;
#[path = "../../it/support/mod.rs"]
pub mod programs;
pub mod spop_baseline;
pub mod usage;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use slowlane_core::base::Key;

use programs::process::Process;

/// The CPU time of this thread. Other programs affect it only through shared caches.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The CPU time of repeated work.
pub struct Cost {
    time: Duration,
    spent: Duration,
    count: u64,
}

impl Cost {
    /// Repeats the work until it has taken this time in total.
    pub fn within(time: Duration) -> Cost {
        Cost { time, spent: Duration::ZERO, count: 0 }
    }

    pub fn has_time(&self) -> bool {
        self.spent < self.time
    }

    /// Measures `work`, which repeats the work `count` times.
    pub fn of(&mut self, count: usize, work: impl FnOnce()) {
        let start = cpu_time();
        work();
        self.spent += cpu_time() - start;
        self.count += count as u64;
    }

    pub fn ns_each(&self) -> f64 {
        self.spent.as_nanos() as f64 / self.count as f64
    }
}

/// Distinct keys, distributed like hashes: the finalizer of splitmix64.
pub fn key(number: u32) -> Key {
    let mut bits = u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    Key::from_bits(bits ^ (bits >> 31))
}

/// This bench as another program, chosen by its arguments.
pub fn this_program(arguments: &[&str]) -> Process {
    Process::start(Command::new(own_path()).args(arguments))
}

/// Runs this bench in a new process with these arguments, and returns the numbers that it prints.
///
/// A new process has no memory left over from other measurements.
pub fn alone<const N: usize>(arguments: &[&str]) -> [f64; N] {
    let ran = Command::new(own_path()).args(arguments).stderr(Stdio::inherit()).output().unwrap();
    assert!(ran.status.success(), "{arguments:?} failed");
    let printed = String::from_utf8(ran.stdout).unwrap();
    let mut numbers = printed.split_whitespace().map(|number| number.parse().expect("only numbers"));
    std::array::from_fn(|_| numbers.next().expect("a number for each figure"))
}

fn own_path() -> PathBuf {
    std::env::current_exe().expect("a running program has a file")
}

pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A percentile of sorted values; NaN without values.
pub fn percentile<T: Copy + Into<f64>>(sorted: &[T], percent: usize) -> f64 {
    let rank = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(rank).map_or(f64::NAN, |&value| value.into())
}

/// Prints one figure, and its ratio to other figures.
pub fn print(what: &str, whose: &str, figure: f64, unit: &str, others: &[(&str, f64)]) {
    let ratios: Vec<String> =
        others.iter().map(|(other, theirs)| format!("x{:.2} of {other}", figure / theirs)).collect();
    let digits = if figure >= 1_000.0 || figure.fract() == 0.0 { 0 } else { 2 };
    let line = format!("{what:<40} {whose:<24} {figure:>12.digits$} {unit:<12} {}", ratios.join(", "));
    println!("{}", line.trim_end());
}

/// Prints several figures, each with its ratio to that of the first.
pub fn print_each<const N: usize>(whats: [(&str, &str); N], names: &[&str], figures: &[[f64; N]]) {
    for (place, (what, unit)) in whats.into_iter().enumerate() {
        let first = [(names[0], figures[0][place])];
        for (number, (name, figures)) in names.iter().zip(figures).enumerate() {
            print(what, name, figures[place], unit, if number == 0 { &[] } else { &first });
        }
    }
}
