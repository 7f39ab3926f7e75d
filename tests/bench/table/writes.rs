//! Writes per second of one thread and of two, on separate keys and on one shared key.

use std::ops::Range;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use slowlane_core::base::Timestamp;

use crate::ENTRIES;
use crate::stores::{self, START, Store};
use crate::support::effort::Effort;
use crate::support::{cpu_time, print as line};

/// The number of writes between two reads of the clock.
const BATCH: usize = 256;

/// The virtual time of a batch: five million requests per second.
const BATCH_TIME: Duration = Duration::from_micros(50);

/// The virtual time before each measurement.
///
/// It is longer than any measurement and shorter than the life of entries. After it, the filling of the table does not
/// count as a flood.
const PAUSE: Duration = Duration::from_secs(300);

/// Indices of the subjects to compare.
const TABLE: usize = 0;
const DECIDE: usize = 1;
const RIVALS: Range<usize> = 2..5;

struct Subject {
    name: &'static str,
    store: Box<dyn Store>,
    now: Timestamp,
}

pub fn print(effort: Effort) {
    let entries = effort.count(ENTRIES);
    let subject = |name, store: Box<dyn Store>| {
        (0..entries).for_each(|number| store.write(number, START));
        Subject { name, store, now: START }
    };
    let mut subjects = [
        subject("slowlane table", Box::new(stores::table(entries + entries / 4))),
        subject("slowlane decide", Box::new(stores::throttle(entries + entries / 4))),
        subject("dashmap", Box::<stores::Dashmap>::default()),
        subject("governor", Box::new(stores::governor())),
        subject("pingora Rate", Box::new(stores::pingora())),
        subject("nothing", Box::new(stores::Nothing)),
    ];
    let halves = [0..entries / 2, entries / 2..entries];
    let hot = [0..1, 0..1];
    let figures = effort.in_turns(&mut subjects, |subject| {
        let [alone, alone_ns] = subject.writes(&halves[..1], effort.time);
        let [both, both_ns] = subject.writes(&halves, effort.time);
        let [hot_alone, _] = subject.writes(&hot[..1], effort.time);
        let [hot_both, _] = subject.writes(&hot, effort.time);
        [alone, both, hot_alone, hot_both, alone_ns, both_ns]
    });
    let others = |place: usize, figure: usize| {
        let others = match place {
            TABLE => RIVALS,
            DECIDE => TABLE..TABLE + 1,
            _ => 0..0,
        };
        others.map(|other| (subjects[other].name, figures[other][figure])).collect::<Vec<_>>()
    };
    for (place, Subject { name, .. }) in subjects.iter().enumerate() {
        let [alone, both, hot_alone, hot_both, alone_ns, both_ns] = figures[place];
        line("one thread", name, alone, "writes/s", &others(place, 0));
        line("one thread, CPU", name, alone_ns, "ns/write", &others(place, 4));
        line("two threads, keys of their own", name, both, "writes/s", &[("one thread", alone)]);
        line("two threads, keys of their own, CPU", name, both_ns, "ns/write", &[("one thread", alone_ns)]);
        line("one thread, one hot key", name, hot_alone, "writes/s", &others(place, 2));
        line("two threads, one hot key", name, hot_both, "writes/s", &[("one thread", hot_alone)]);
    }
}

impl Subject {
    /// Writes per second, and nanoseconds of CPU per write, of one thread per range of keys.
    fn writes(&mut self, ranges: &[Range<u32>], time: Duration) -> [f64; 2] {
        self.now = self.now + PAUSE;
        let (store, start, now) = (&*self.store, Barrier::new(ranges.len()), self.now);
        let runs: Vec<Run> = thread::scope(|scope| {
            let write = |numbers: &Range<u32>| {
                let numbers = numbers.clone();
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    Run::of(store, &numbers, now, time)
                })
            };
            let threads: Vec<_> = ranges.iter().map(write).collect();
            threads.into_iter().map(|thread| thread.join().expect("a store can be written to")).collect()
        });
        let count: u64 = runs.iter().map(|run| run.count).sum();
        let cpu: Duration = runs.iter().map(|run| run.cpu).sum();
        let per_second = runs.iter().map(|run| run.count as f64 / run.took.as_secs_f64()).sum();
        [per_second, cpu.as_nanos() as f64 / count as f64]
    }
}

/// The result of one thread.
struct Run {
    count: u64,
    took: Duration,
    cpu: Duration,
}

impl Run {
    fn of(store: &dyn Store, numbers: &Range<u32>, mut now: Timestamp, time: Duration) -> Run {
        let mut rng = fastrand::Rng::with_seed(numbers.start.into());
        let (started, cpu_before) = (Instant::now(), cpu_time());
        let mut count = 0;
        while started.elapsed() < time {
            now = now + BATCH_TIME;
            store.write_many(BATCH, numbers, &mut rng, now);
            count += BATCH as u64;
        }
        Run { count, took: started.elapsed(), cpu: cpu_time() - cpu_before }
    }
}
