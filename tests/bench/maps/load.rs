//! Loading a map, its memory, and lookups: whole requests are classified under a policy with only this map.

use std::collections::HashMap;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::process;
use std::time::{Duration, Instant};

use slowlane_core::policy::{LIST_LINES_MAX, Method, map};

use crate::LINES;
use crate::kind::{self, Asked};
use crate::support::effort::Effort;
use crate::support::usage::resident_bytes;
use crate::support::{Cost, alone, print as line};

/// Makes this bench print the figures of one map: milliseconds, megabytes, nanoseconds per hit and per miss.
pub const ALONE: &str = "--map";

/// For comparison with `str`: a standard hash map, with an allocation per name.
const RIVAL: &str = "HashMap";

/// The baseline: a request without a lookup.
const NO_MAP: &str = "no map";

const BATCH: usize = 64;

pub fn print(effort: Effort) {
    let folder = tempfile::tempdir().unwrap();
    let methods = Method::ALL.map(|method| (method.name(), method, lines(method, effort)));
    let others = [(RIVAL, Method::Str, lines(Method::Str, effort)), (NO_MAP, Method::Str, 0)];
    let mut subjects = [&methods[..], &others].concat();
    for &(name, method, lines) in &subjects {
        fs::create_dir(folder.path().join(name)).unwrap();
        kind::write(&folder.path().join(name), method, lines);
    }
    let figures = effort.in_turns(&mut subjects, |(name, _, lines)| {
        let folder = folder.path().join(*name);
        let folder = folder.to_str().expect("the name of a temporary folder is a text");
        alone::<4>(&[ALONE, name, &lines.to_string(), folder, &effort.seconds().to_string()])
    });
    let rival = figures[methods.len()];
    for ((name, _, lines), figures) in subjects.into_iter().zip(&figures) {
        let others = |place: usize| [(RIVAL, rival[place])].into_iter().filter(|_| name == "str");
        let print = |place: usize, what: &str, unit| {
            let others: Vec<_> = others(place).collect();
            line(&format!("{what}, {lines} lines"), name, figures[place], unit, &others);
        };
        print(0, "load", "ms");
        print(1, "resident", "MB");
        print(2, "look up, hit", "ns");
        print(3, "look up, miss", "ns");
    }
}

/// The number of lines, cut to the limit of slowlane, if it has one.
fn lines(method: Method, effort: Effort) -> u32 {
    match method {
        Method::Str | Method::Ip | Method::Beg | Method::Dom => effort.count(LINES),
        Method::End | Method::Sub | Method::Reg => LIST_LINES_MAX as u32,
    }
}

pub fn measure(name: &str, lines: &str, folder: &str, seconds: &str) {
    let lines: u32 = lines.parse().expect("a number of lines");
    let time = Duration::from_secs_f64(seconds.parse().expect("a number of seconds"));
    let folder = Path::new(folder);
    let [load_ms, megabytes, hit_ns, miss_ns] = match name {
        RIVAL => {
            let (names, load_ms, megabytes) = loaded(|| hash_map(&kind::text(folder)));
            let find = |asked: &Asked| names.get(asked.bytes()) == Some(&1);
            let (hit, miss) = look_up(Method::Str, lines, time, find);
            [load_ms, megabytes, hit, miss]
        }
        _ => {
            let method = Method::ALL.into_iter().find(|method| method.name() == name).unwrap_or(Method::Str);
            let (policy, load_ms, megabytes) = loaded(|| kind::read(folder, method));
            let find = |asked: &Asked| policy.cases(&asked.request()).list[0].slo.id.number() == 1;
            let (hit, miss) = look_up(method, lines, time, find);
            [load_ms, megabytes, hit, miss]
        }
    };
    println!("{load_ms} {megabytes} {hit_ns} {miss_ns}");
}

/// The loaded map, the time in milliseconds, and its memory in megabytes.
fn loaded<M>(load: impl FnOnce() -> M) -> (M, f64, f64) {
    let (before, start) = (resident_bytes(process::id()), Instant::now());
    let map = load();
    let load_ms = start.elapsed().as_secs_f64() * 1e3;
    (map, load_ms, (resident_bytes(process::id()) as f64 - before as f64) / 1e6)
}

/// A hash map of the same lines.
fn hash_map(text: &[u8]) -> HashMap<Box<[u8]>, u16> {
    let number = |value: &[u8]| str::from_utf8(value).ok().and_then(|value| value.parse().ok());
    let entry = |line: map::Line<'_>| (line.key.into(), number(line.value).expect("the number of an SLO"));
    map::lines(text).map(|line| entry(line.expect("a line without a fault"))).collect()
}

/// Nanoseconds per hit, with lines drawn evenly, and per miss.
fn look_up(method: Method, lines: u32, time: Duration, find: impl Fn(&Asked) -> bool) -> (f64, f64) {
    let hit =
        one_by_one(lines, time, |number| Asked::hit(method, number), |asked| find(asked) == (lines > 0));
    let miss = one_by_one(lines, time, |number| Asked::miss(method, number), |asked| !find(asked));
    (hit, miss)
}

fn one_by_one(
    lines: u32,
    time: Duration,
    ask: impl Fn(u32) -> Asked,
    is_right: impl Fn(&Asked) -> bool,
) -> f64 {
    let mut rng = fastrand::Rng::with_seed(7);
    let mut cost = Cost::within(time);
    while cost.has_time() {
        let batch: [Asked; BATCH] = std::array::from_fn(|_| ask(rng.u32(0..lines.max(1))));
        cost.of(BATCH, || {
            for asked in &batch {
                assert!(is_right(black_box(asked)));
            }
        });
    }
    cost.ns_each()
}
