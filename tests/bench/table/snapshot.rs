//! The snapshot of a full table: the time to write and to read it, and what decisions notice of it.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use slowlane_core::base::{Request, Sample, Timestamp, Value};
use slowlane_core::policy::{Layout, Policy};
use slowlane_core::snapshot::{Head, Parts, restore, save};
use slowlane_core::table::Sizing;
use slowlane_core::throttle::Throttle;

use crate::ENTRIES;
use crate::support::effort::Effort;
use crate::support::histogram::Histogram;
use crate::support::usage::{CpuTime, resident_bytes};

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const BUFFER_BYTES: usize = 256 << 10;

fn throttle(entries: u32) -> Throttle {
    let read = |path: &Path| match path.to_str() {
        Some("slo.map") => Ok("0 rate=unlimited\n3001 burst=20 rate=10/s\n".into()),
        Some("source.map") => Ok("0.0.0.0/0 3001\n".into()),
        _ => Err(io::ErrorKind::NotFound.into()),
    };
    let policy = Policy::parse(Path::new(""), &Layout::default(), read).expect("the policy is valid");
    let sizing = Sizing { entries_max: entries + entries / 4, expire: Duration::from_secs(600) };
    Throttle::new(policy, sizing, 1 << 20)
}

fn ask(throttle: &Throttle, source: u32, now: Timestamp) {
    let mut request = Request::new();
    request.push(b"source", Value::Address(std::net::Ipv4Addr::from_bits(source).into()));
    throttle.decide_one(&request, now, Sample::MIDDLE);
}

/// Decides for a time, and takes the time of each decision.
fn decide(throttle: &Throttle, entries: u32, time: Duration) -> Histogram {
    let (mut rng, mut times) = (fastrand::Rng::with_seed(7), Histogram::new());
    let start = Instant::now();
    while start.elapsed() < time {
        for _ in 0..1_000 {
            let (source, begun) = (rng.u32(0..entries), Instant::now());
            ask(throttle, source, NOW);
            times.add(begun.elapsed().as_nanos() as u64);
        }
    }
    times
}

fn save_to(throttle: &Throttle, path: &Path) -> u64 {
    let head = Head::new(NOW, Duration::ZERO, throttle.policy().key_secret(), Vec::new());
    let mut to = BufWriter::with_capacity(BUFFER_BYTES, File::create(path).expect("a file can be written"));
    let saved = save(throttle, head, None, Some(&[]), &mut to).expect("the disk has room");
    to.flush().expect("the disk has room");
    saved.bytes
}

pub fn print(effort: Effort) {
    let entries = effort.count(ENTRIES);
    let (folder, before) = (tempfile::tempdir().expect("a folder"), CpuTime::now());
    let path = folder.path().join("state");
    let throttle = throttle(entries);
    (0..entries).for_each(|source| ask(&throttle, source, NOW));

    let resident = || resident_bytes(std::process::id()) as f64 / 1e6;
    let resident_before = resident();
    let mut writes = Vec::new();
    let mut bytes = 0;
    for _ in 0..effort.turns() {
        let begun = Instant::now();
        bytes = save_to(&throttle, &path);
        writes.push(begun.elapsed().as_secs_f64());
    }
    println!(
        "snapshot of {entries} entries: {:.1} MB, {:.0} bytes an entry",
        bytes as f64 / 1e6,
        bytes as f64 / f64::from(entries)
    );
    println!("  written in {writes:.3?} s, without the sync");
    println!("  resident memory {resident_before:.1} MB before, {:.1} MB after", resident());

    let mut reads = Vec::new();
    for _ in 0..effort.turns() {
        let second = self::throttle(entries);
        let begun = Instant::now();
        let parts = || {
            Parts::new(BufReader::with_capacity(BUFFER_BYTES, File::open(&path).expect("it is there")))
                .expect("it is whole")
        };
        parts().check().expect("it is whole");
        let restored = restore(parts(), true, &second, NOW).expect("it is whole");
        reads.push(begun.elapsed().as_secs_f64());
        assert_eq!(restored.rows, u64::from(entries));
    }
    println!("  checked and read in {reads:.3?} s");

    println!("  a decision, in ns          p50     p99   p99.9");
    for _ in 0..effort.turns() {
        let show = |name: &str, times: &Histogram| {
            let [p50, p99, p999] = [50.0, 99.0, 99.9].map(|percent| times.percentile_ns(percent));
            println!("  {name:<22}{p50:>8}{p99:>8}{p999:>8}");
        };
        show("alone", &decide(&throttle, entries, effort.time));
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    save_to(&throttle, &path);
                }
            });
            show("while it is written", &decide(&throttle, entries, effort.time));
            is_over.store(true, Relaxed);
        });
    }
    println!("  CPU time that other machines took: {:.1} %", before.stolen_since());
}
