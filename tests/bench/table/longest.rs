//! The longest single write while the table grows, while it is full, and after all entries have expired.

use std::ops::Range;
use std::time::{Duration, Instant};

use slowlane_core::base::Timestamp;
use slowlane_core::table::{Sizing, Table};

use crate::ENTRIES;
use crate::stores::{Dashmap, START, Store};
use crate::support::effort::Effort;
use crate::support::{cpu_time, print as line};

const EXPIRE: Duration = Duration::from_secs(30);

const PHASES: [&str; 3] = ["growing", "evicting", "expiring"];

pub fn print(effort: Effort) {
    let entries = effort.count(ENTRIES);
    let mut subjects: [(&str, Measure); 2] = [("slowlane table", of_table), ("dashmap", of_dashmap)];
    let figures = effort.in_turns(&mut subjects, |(_, measure)| measure(entries));
    for (place, phase) in PHASES.into_iter().enumerate() {
        let (wall, cpu) = (2 * place, 2 * place + 1);
        let rival = |figure: usize| if place == 0 { vec![("dashmap", figures[1][figure])] } else { vec![] };
        let what = format!("longest write, {phase}");
        line(&what, "slowlane table", figures[0][wall], "µs", &rival(wall));
        line(&format!("{what}, CPU"), "slowlane table", figures[0][cpu], "µs", &rival(cpu));
    }
    line("longest write, growing", "dashmap", figures[1][0], "µs", &[]);
    line("longest write, growing, CPU", "dashmap", figures[1][1], "µs", &[]);
}

/// Wall time and CPU time of the longest write of each phase, in microseconds.
type Measure = fn(u32) -> [f64; 6];

fn of_table(entries: u32) -> [f64; 6] {
    let table = Table::new(Sizing { entries_max: entries, expire: EXPIRE });
    let numbers = |phase: u32| phase * entries..(phase + 1) * entries;
    let later = START + 2 * EXPIRE;
    let [growing, evicting] = [numbers(0), numbers(1)].map(|numbers| longest(&table, numbers, START));
    assert_eq!(table.usage().entries, u64::from(entries), "it is full");
    let expiring = longest(&table, numbers(2), later);
    [growing, evicting, expiring].concat().try_into().expect("two figures for each phase")
}

/// A DashMap only grows.
fn of_dashmap(entries: u32) -> [f64; 6] {
    let [wall, cpu] = longest(&Dashmap::default(), 0..entries, START);
    [wall, cpu, 0.0, 0.0, 0.0, 0.0]
}

/// The longest write in wall time and in CPU time, which excludes other programs.
fn longest(store: &impl Store, numbers: Range<u32>, now: Timestamp) -> [f64; 2] {
    let mut longest = [Duration::ZERO; 2];
    for number in numbers {
        let (start, cpu_before) = (Instant::now(), cpu_time());
        store.write(number, now);
        let took = [start.elapsed(), cpu_time() - cpu_before];
        longest = [longest[0].max(took[0]), longest[1].max(took[1])];
    }
    longest.map(|time| time.as_nanos() as f64 / 1_000.0)
}
