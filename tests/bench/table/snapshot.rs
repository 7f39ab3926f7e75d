//! The snapshot of a full table: the time to write and to read it, and what decisions notice of it.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use slowlane_core::base::{Request, Sample, Timestamp, Value};
use slowlane_core::policy::{Layout, Policy};
use slowlane_core::snapshot::{Parts, SnapshotHead, restore, save};
use slowlane_core::table::Sizing;
use slowlane_core::throttle::Throttle;

use crate::ENTRIES;
use crate::paced::{self, Times};
use crate::support::cores;
use crate::support::effort::Effort;
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

/// Decides about sources drawn evenly.
fn decide(throttle: &Throttle, entries: u32, time: Duration) -> Times {
    let mut rng = fastrand::Rng::with_seed(7);
    paced::run(Duration::ZERO, time, |_, planned| ask(throttle, rng.u32(0..entries), NOW + planned))
}

fn save_to(throttle: &Throttle, path: &Path) -> u64 {
    let head = SnapshotHead::new(NOW, Duration::ZERO, throttle.policy().key_secret(), Vec::new());
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

    paced::print("no snapshot at 100 k/s", &decide(&throttle, entries, effort.time * 10));
    let is_over = AtomicBool::new(false);
    let write = || {
        while !is_over.load(Relaxed) {
            save_to(&throttle, &path);
        }
    };
    let times = thread::scope(|scope| {
        cores::on_second(|| scope.spawn(write));
        let times = decide(&throttle, entries, effort.time * 10);
        is_over.store(true, Relaxed);
        times
    });
    paced::print("snapshots at 100 k/s", &times);
    println!("  CPU time that other machines took: {:.1} %", before.stolen_since());
}
