//! What the benches stand on: their arguments, the clocks and counters of the system, medians and lines of figures.

#![allow(dead_code, reason = "each bench uses a part of it")]

pub mod effort;
pub mod five_maps;
pub mod histogram;
pub mod keyed;

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use slowlane::key::Key;

/// What this thread has run: others on the machine have no part in it, but for its caches.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The CPU time that a thing takes which is done again and again.
pub struct Cost {
    time: Duration,
    spent: Duration,
    count: u64,
}

impl Cost {
    /// It is done until it has taken so much time in all.
    pub fn within(time: Duration) -> Cost {
        Cost { time, spent: Duration::ZERO, count: 0 }
    }

    pub fn has_time(&self) -> bool {
        self.spent < self.time
    }

    /// Does it `count` times over.
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

/// Keys as far apart as hashes are, and no two the same: the last steps of splitmix64.
pub fn key(number: u32) -> Key {
    let mut bits = u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    Key::from_bits(bits ^ (bits >> 31))
}

/// The memory of this process that the system has backed, in bytes.
pub fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux tells of a process in /proc");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number of KiB");
    kib * 1_024
}

/// Runs this bench once more with these arguments, in a process of its own, so that no memory of anything else is left
/// over in it. Gives back the numbers that it prints.
pub fn alone<const N: usize>(arguments: &[&str]) -> [f64; N] {
    let bench = std::env::current_exe().expect("a running program has a file");
    let ran = Command::new(bench).args(arguments).stderr(Stdio::inherit()).output().unwrap();
    assert!(ran.status.success(), "{arguments:?} failed");
    let printed = String::from_utf8(ran.stdout).unwrap();
    let mut numbers = printed.split_whitespace().map(|number| number.parse().expect("only numbers"));
    std::array::from_fn(|_| numbers.next().expect("a number for each figure"))
}

pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Measures one after the other, and so on in turns; the median of each figure counts.
pub fn in_turns<S, const N: usize>(
    turns: usize,
    subjects: &mut [S],
    mut measure: impl FnMut(&mut S) -> [f64; N],
) -> Vec<[f64; N]> {
    let mut runs: Vec<Vec<[f64; N]>> = subjects.iter().map(|_| Vec::new()).collect();
    for _ in 0..turns {
        for (subject, runs) in subjects.iter_mut().zip(&mut runs) {
            runs.push(measure(subject));
        }
    }
    let medians =
        |runs: &Vec<[f64; N]>| std::array::from_fn(|place| median(runs.iter().map(|run| run[place])));
    runs.iter().map(medians).collect()
}

/// Prints one figure, and its ratio to what each of some others has.
pub fn print(what: &str, whose: &str, figure: f64, unit: &str, others: &[(&str, f64)]) {
    let ratios: Vec<String> =
        others.iter().map(|(other, theirs)| format!("x{:.2} of {other}", figure / theirs)).collect();
    let digits = if figure >= 1_000.0 || figure.fract() == 0.0 { 0 } else { 2 };
    let line = format!("{what:<44} {whose:<20} {figure:>12.digits$} {unit:<12} {}", ratios.join(", "));
    println!("{}", line.trim_end());
}
