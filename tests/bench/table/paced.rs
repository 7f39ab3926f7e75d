//! Decisions at a fixed rate, each timed from its planned start.

use std::hint::spin_loop;
use std::time::{Duration, Instant};

use crate::support::histogram::Histogram;
use crate::support::{cores, cpu_time, print as line};

/// The time between two planned starts: 100,000 decisions per second.
pub const EVERY: Duration = Duration::from_micros(10);

const PERCENTILES: [(&str, f64); 6] =
    [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9), ("p99.99", 99.99), ("longest", 100.0)];

/// Times from the planned start to the end, and CPU times.
pub type Times = [Histogram; 2];

/// Calls `decide` with the number of each decision and its planned start, on the first core. Those before `from` do
/// not count: memory grows meanwhile.
///
/// The time counts from the planned start, so a late decision also counts in those that it delays (Gil Tene's
/// "coordinated omission").
pub fn run(from: Duration, time: Duration, mut decide: impl FnMut(u32, Duration)) -> Times {
    cores::on_first(|| {
        let (begun, mut times) = (Instant::now(), [Histogram::new(), Histogram::new()]);
        for number in 0..((from + time).as_nanos() / EVERY.as_nanos()) as u32 {
            let planned = EVERY * number;
            while begun.elapsed() < planned {
                spin_loop();
            }
            let cpu_before = cpu_time();
            decide(number, planned);
            let took = [begun.elapsed() - planned, cpu_time() - cpu_before];
            if planned >= from {
                times.iter_mut().zip(took).for_each(|(times, took)| times.add(took.as_nanos() as u64));
            }
        }
        times
    })
}

pub fn print(what: &str, times: &Times) {
    for (clock, times) in ["", ", CPU"].into_iter().zip(times) {
        for (name, percent) in PERCENTILES {
            let ns = times.percentile_ns(percent) as f64;
            line(&format!("{what}, {name}{clock}"), "slowlane decide", ns, "ns", &[]);
        }
    }
}
