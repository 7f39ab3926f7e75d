//! Which file may name what.

use std::collections::{BTreeMap, BTreeSet};

use super::house::{House, module, room};
use super::{CORE, FLOORS, holds};

/// Crates of the world outside, which no room of the core names.
const OUTSIDE: &[&str] = &[
    "hyper_util",
    "http_body_util",
    "listenfd",
    "notify",
    "prometheus_client",
    "rustix",
    "sd_notify",
    "signal_hook",
    "socket2",
    "tempfile",
    "tokio",
    "tracing",
    "tracing_subscriber",
];

/// Parts of the standard library that are of the world outside. clippy.toml names their functions one by one.
const OUTSIDE_OF_STD: &[&[&str]] = &[
    &["std", "fs"],
    &["std", "env"],
    &["std", "process"],
    &["std", "thread"],
    &["std", "os"],
    &["std", "time", "Instant"],
    &["std", "time", "SystemTime"],
    &["std", "net", "TcpListener"],
    &["std", "net", "TcpStream"],
    &["std", "net", "UdpSocket"],
    &["std", "net", "ToSocketAddrs"],
];

/// Files of the core that may look outside after all, each for one reason.
const OPENINGS: &[(&str, &[&str])] = &[
    // A policy is read from files, and its directory is listed.
    ("policy/read/file.rs", &["std", "fs"]),
    ("policy/read/strays.rs", &["std", "fs"]),
];

fn floor(room: &str) -> Option<usize> {
    FLOORS.iter().position(|rooms| rooms.contains(&room))
}

/// A file names its own room, and rooms on lower floors.
fn upward(house: &House) -> Vec<String> {
    let mut faults = Vec::new();
    for file in house.codes.keys().filter(|file| *file != "lib.rs") {
        let room = room(file);
        let Some(own) = floor(room) else {
            faults.push(format!("{file}: the room {room} stands on no floor"));
            continue;
        };
        for path in house.own_paths(file) {
            let Some(other) = path.first().filter(|other| *other != room) else { continue };
            if floor(other).is_none_or(|floor| floor >= own) {
                faults.push(format!("{file}: {room} may not name {}", path.join("::")));
            }
        }
    }
    faults
}

/// Everything has one place: a room hands out what is its own, the crate nothing but its rooms.
fn aliases(house: &House) -> Vec<String> {
    let mut faults = Vec::new();
    for (file, code) in &house.codes {
        let foreign = |path: &Vec<String>| {
            let own = path[0] == "self" || path[0] == "super";
            let own = own
                || (path[0] == "crate" && path[1] == room(file))
                || house.is_child(&module(file), &path[0]);
            file == "lib.rs" || !own
        };
        for path in code.reexports.iter().filter(|path| foreign(path)) {
            faults.push(format!("{file}: hands out {}, which is not its own", path.join("::")));
        }
        for words in code.words.windows(2) {
            if words == ["crate", "as"] || words == ["extern", "crate"] {
                faults.push(format!("{file}: gives the crate another name"));
            }
        }
    }
    faults
}

/// The core has no clock, no socket, no file, no thread and no dice of its own.
fn outside(house: &House) -> Vec<String> {
    let mut faults = Vec::new();
    for (file, code) in house.codes.iter().filter(|(file, _)| CORE.contains(&room(file))) {
        let is_opening = |path: &[String]| {
            OPENINGS
                .iter()
                .any(|(name, to)| name == file && path.iter().zip(*to).all(|(one, other)| one == other))
        };
        for path in code.paths.iter().filter(|path| !is_opening(path)) {
            let is_of_std = OUTSIDE_OF_STD.iter().any(|names| {
                path.len() >= names.len() && names.iter().zip(path).all(|(one, other)| one == other)
            });
            // The functions of the crate itself throw dice that nobody handed down. `Rng` is handed down.
            let is_dice = path[0] == "fastrand" && path[1].starts_with(|c: char| c.is_lowercase());
            let is_crate = OUTSIDE.contains(&path[0].as_str()) && !house.is_child(&module(file), &path[0]);
            if is_of_std || is_dice || is_crate {
                faults.push(format!("{file}: {} names {}", room(file), path.join("::")));
            }
        }
    }
    faults
}

/// A type that files of a room share has a file of its own: `mod.rs` stands above them all.
fn parents(house: &House) -> Vec<String> {
    let mut faults = Vec::new();
    for file in house.codes.keys() {
        let dir = module(file);
        for path in house.own_paths(file) {
            let Some((target, length)) = house.file(&path) else { continue };
            let is_above = target.ends_with("/mod.rs") && target != *file && dir.starts_with(&path[..length]);
            let name = path.join("::");
            if is_above && path.len() > length {
                faults.push(format!("{file}: takes {name} from {target}, above it"));
            }
        }
    }
    faults
}

/// No file needs a file that needs it.
fn circles(house: &House) -> Vec<String> {
    let needs = |file: &String| -> BTreeSet<String> {
        let files =
            house.own_paths(file).into_iter().filter_map(|path| house.file(&path).map(|(target, _)| target));
        files.filter(|target| target != file).collect()
    };
    let graph: BTreeMap<&String, BTreeSet<String>> =
        house.codes.keys().map(|file| (file, needs(file))).collect();
    let circular = graph.keys().filter(|&&file| reached(file, &graph).contains(file));
    circular.map(|file| format!("{file}: stands in a circle, over {:?}", graph[file])).collect()
}

/// All files that a file needs, and those that they need.
fn reached(from: &str, graph: &BTreeMap<&String, BTreeSet<String>>) -> BTreeSet<String> {
    let (mut seen, mut ahead) = (BTreeSet::new(), vec![from.to_owned()]);
    while let Some(file) = ahead.pop() {
        let new = graph[&file].iter().filter(|&next| seen.insert(next.clone()));
        ahead.extend(new.cloned());
    }
    seen
}

#[test]
fn a_file_names_only_its_own_room_and_those_below() {
    holds(
        upward,
        &[
            (
                &[("law/pace.rs", "use crate::observe::clock::Clock;")],
                "law may not name observe::clock::Clock",
            ),
            (&[("law/pace.rs", "use crate::{base::key::Key, throttle};")], "throttle"),
            (&[("law/pace.rs", "use super::super::server::Agent;")], "server::Agent"),
            (&[("law/pace.rs", "fn f() { crate::policy::now() }")], "policy::now"),
            (&[("wire/spop.rs", "use crate::table::Table;")], "table::Table"),
            (&[("law/pace.rs", "use crate::Clock;")], "Clock"),
            (&[("attic/mod.rs", "")], "stands on no floor"),
            // What stands behind a test module is code as well.
            (&[("law/pace.rs", "#[cfg(test)]\nmod tests {}\nuse crate::cli::main;")], "cli::main"),
            (&[("law/pace.rs", "#[cfg(test)]\nuse crate::cli::main;")], "cli::main"),
        ],
    );
}

#[test]
fn nothing_has_a_second_address() {
    holds(
        aliases,
        &[
            (&[("law/mod.rs", "pub use crate::base::time::Timestamp;")], "base::time::Timestamp"),
            (&[("base/mod.rs", "pub use std::time::SystemTime as Moment;")], "std::time::SystemTime"),
            (&[("base/mod.rs", "pub(crate) use tokio::{net, time::Instant};")], "tokio::time::Instant"),
            (
                &[("lib.rs", "pub use observe::clock::Clock;"), ("observe/clock.rs", "")],
                "observe::clock::Clock",
            ),
            (&[("base/mod.rs", "use crate as house;")], "another name"),
            (&[("lib.rs", "extern crate self as house;")], "another name"),
        ],
    );
}

#[test]
fn the_core_has_no_view_of_the_outside() {
    holds(
        outside,
        &[
            (&[("law/pace.rs", "use std::time::{Duration, Instant};")], "std::time::Instant"),
            (&[("law/pace.rs", "fn f() { std::time::SystemTime::now(); }")], "SystemTime"),
            (&[("table/mod.rs", "use std::os::unix::net::UnixStream;")], "UnixStream"),
            (&[("policy/slo.rs", "use std::{fs, io};")], "std::fs"),
            (&[("policy/read/file.rs", "use std::{fs, thread};")], "std::thread"),
            (&[("throttle/mod.rs", "fn f() -> u64 { fastrand::u64(..) }")], "fastrand::u64"),
            (&[("wire/spop.rs", "use tokio::net::TcpStream;")], "tokio::net::TcpStream"),
            (
                &[("base/x.rs", "#[cfg(test)]\nmod tests {}\nfn f() { std::thread::yield_now() }")],
                "std::thread",
            ),
        ],
    );
    assert_eq!(
        outside(&House::made_up(&[("law/x.rs", "#[cfg(test)]\nmod tests { use std::fs; }")])),
        [""; 0]
    );
}

#[test]
fn no_file_takes_anything_from_the_mod_rs_above_it() {
    let types = ("law/mod.rs", "pub struct Law;");
    holds(
        parents,
        &[
            (&[types, ("law/pace.rs", "use crate::law::Law;")], "law::Law"),
            (&[types, ("law/pace.rs", "use super::{Law, pace};")], "law::Law"),
            (&[types, ("law/a/mod.rs", ""), ("law/a/b.rs", "use crate::law::Law;")], "law::Law"),
        ],
    );
}

#[test]
fn no_files_stand_in_a_circle() {
    holds(
        circles,
        &[
            (
                &[
                    ("law/a.rs", "use crate::law::b::B;"),
                    ("law/b.rs", "use super::c::C;"),
                    ("law/c.rs", "use crate::law::a::A;"),
                ],
                "law/a.rs",
            ),
            (&[("law/mod.rs", "pub use a::A;"), ("law/a.rs", "use crate::law::B;")], "law/mod.rs"),
        ],
    );
}
