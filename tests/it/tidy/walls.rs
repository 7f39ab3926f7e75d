//! Which file may name what.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::house::{House, module, room};
use super::{CORE, FLOORS, holds};
use crate::support::project;

/// Crates of the world outside, which no room of the core names.
const OUTSIDE: &[&str] = &[
    "fastrand",
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
    &["std", "path", "absolute"],
    &["std", "io", "stdin"],
    &["std", "io", "stdout"],
    &["std", "io", "stderr"],
    &["std", "io", "pipe"],
    &["std", "sync", "mpsc"],
    &["std", "sync", "Barrier"],
    &["std", "sync", "Condvar"],
    &["std", "hash", "RandomState"],
    &["std", "collections", "hash_map", "RandomState"],
];

/// Macros that write to the terminal.
const PRINTING: &[&str] = &["dbg", "eprint", "eprintln", "print", "println"];

/// Files of the core that may look outside after all, each for one reason.
const OPENINGS: &[(&str, &[&str])] = &[
    // A policy is read from files, and its directory is listed.
    ("policy/read/file.rs", &["std", "fs"]),
    ("policy/read/strays.rs", &["std", "fs"]),
    // The index of the table has a secret. It says where a row is found, and no verdict depends on it.
    ("table/spread.rs", &["std", "hash", "RandomState"]),
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
            let Some(other) = path.first() else {
                faults.push(format!("{file}: {room} may not name the whole crate"));
                continue;
            };
            if other != room && floor(other).is_none_or(|floor| floor >= own) {
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
        let is_own = |path: &[String]| {
            house.rooted(path, file).is_some_and(|path| path.first().is_some_and(|first| first == room(file)))
        };
        for path in code.reexports.iter().filter(|path| !is_own(path)) {
            faults.push(format!("{file}: hands out {}, which is not its own", path.join("::")));
        }
    }
    faults
}

/// Every path says what it names. A file is a module, and `lib.rs` and `mod.rs` hand down no macro.
fn hidden(house: &House) -> Vec<String> {
    let mut faults = Vec::new();
    for (file, code) in &house.codes {
        faults.extend(code.hidden.iter().map(|way| format!("{file}: {way}")));
        let is_above = file == "lib.rs" || file.ends_with("/mod.rs");
        if is_above && code.macros.iter().any(|name| name == "macro_rules") {
            faults.push(format!("{file}: hands a macro down to the files below it"));
        }
    }
    faults
}

/// The core has no clock, no socket, no file, no thread and no dice of its own.
fn outside(house: &House) -> Vec<String> {
    let mut faults = Vec::new();
    for (file, code) in house.codes.iter().filter(|(file, _)| is_core(file)) {
        let is_opening =
            |path: &[String]| OPENINGS.iter().any(|(name, to)| name == file && begins_with(path, to));
        let is_open = OPENINGS.iter().any(|(name, _)| name == file);
        if !is_open && code.paths.iter().any(|path| lifts_clippy(path)) {
            faults.push(format!("{file}: lifts the walls of clippy.toml"));
        }
        for path in code.paths.iter().filter(|path| !is_opening(path)) {
            let is_of_std = OUTSIDE_OF_STD.iter().any(|names| begins_with(path, names));
            let is_crate = OUTSIDE.contains(&path[0].as_str()) && !house.is_child(&module(file), &path[0]);
            if is_of_std || is_crate {
                faults.push(format!("{file}: {} names {}", room(file), path.join("::")));
            }
        }
        for name in code.macros.iter().filter(|name| PRINTING.contains(&name.as_str())) {
            faults.push(format!("{file}: {} calls {name}!", room(file)));
        }
    }
    faults
}

/// Whether a file is of the core. What `lib.rs` allows it allows everywhere.
fn is_core(file: &str) -> bool {
    file == "lib.rs" || CORE.contains(&room(file))
}

/// Whether a path is a lint that holds the walls of clippy.toml, or a group with it.
fn lifts_clippy(path: &[String]) -> bool {
    let is_wall = |lint: &String| lint.starts_with("disallowed_") || lint == "all" || lint == "style";
    path[0] == "clippy" && path.get(1).is_some_and(is_wall)
}

/// Whether a path begins with these names, or with a glob that takes them in.
fn begins_with(path: &[String], names: &[&str]) -> bool {
    let length = path.iter().position(|name| name == "*").unwrap_or(names.len());
    path.len() >= length && path.iter().zip(names).take(length).all(|(one, other)| one == other)
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
            (
                &[
                    ("law/mod.rs", "#[cfg(test)] mod x;\n#[cfg(not(test))] mod x;"),
                    ("law/x.rs", "use crate::cli;"),
                ],
                "cli",
            ),
            // Globs, other names of the crate, and every other way to write a path.
            (&[("law/pace.rs", "use crate::*;")], "may not name *"),
            (&[("law/pace.rs", "use crate::server::*;")], "server::*"),
            (
                &[("law/pace.rs", "use crate::{base::key::*, server::{self as s, agent::*}};")],
                "server::agent::*",
            ),
            (&[("law/a/mod.rs", "use super::super::*;")], "may not name *"),
            (&[("law/pace.rs", "use crate::{self as c};")], "the whole crate"),
            (&[("law/pace.rs", "use super::super as c; fn f() { c::server::f() }")], "the whole crate"),
            (&[("law/pace.rs", "use super::super as c; fn f() { c::server::f() }")], "server::f"),
            (&[("law/pace.rs", "use self::super::super::server;")], "server"),
            (&[("law/pace.rs", "use {crate::server};")], "server"),
            (&[("law/pace.rs", "fn f() -> u64 { 0..crate::server::LAST }")], "server::LAST"),
            (&[("law/pace.rs", "fn f(x: u8) { x as crate::server::Number }")], "server::Number"),
            (&[("law/pace.rs", "fn f() { <Pace as crate::server::Served>::serve() }")], "server::Served"),
            (&[("law/pace.rs", "fn f(x: &dyn crate::server::Served) {}")], "server::Served"),
            (&[("law/pace.rs", "use crate::r#server::Agent;")], "server::Agent"),
            (&[("law/pace.rs", "macro_rules! m { () => { $crate::server::f() } }")], "server::f"),
            (&[("law/pace.rs", "#[serde(with = \"crate::server::words\")] struct S;")], "server::words"),
            (&[("law/pace.rs", "/* /* */ \" */ use crate::server::Agent; /* \" */")], "server::Agent"),
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
            (&[("base/mod.rs", "pub use {crate::law::Law};")], "law::Law"),
            (&[("base/mod.rs", "pub use ::std::fs;")], "std::fs"),
            (&[("law/pace.rs", "pub use super::super::base::Key;")], "base::Key"),
            (&[("law/pace.rs", "pub(crate) use crate::base::*;")], "base::*"),
        ],
    );
}

#[test]
fn nothing_is_named_unseen() {
    holds(
        hidden,
        &[
            (&[("base/mod.rs", "use crate as house;")], "another name"),
            (&[("lib.rs", "extern crate self as house; extern crate tokio as t;")], "another name"),
            (&[("law/pace.rs", "m!(crate, server);")], "another name"),
            (&[("law/pace.rs", "use super as room;")], "another name"),
            (&[("law/pace.rs", "use crate::law::{pace, warm_up::*};")], "imports a glob"),
            (&[("law/pace.rs", "macro_rules! m { ($x:ident) => { crate::$x::f() } }")], "makes up a path"),
            (&[("law/pace.rs", "include!(\"../server/agent.rs\");")], "includes another file"),
            (&[("law/mod.rs", "#[path = \"../server/agent.rs\"] mod agent;")], "moves a module"),
            (
                &[("law/mod.rs", "#[cfg_attr(all(), path = \"../server/agent.rs\")] mod agent;")],
                "moves a module",
            ),
            (&[("lib.rs", "#[macro_use] mod server;")], "hands out a macro"),
            (&[("server/mod.rs", "#[macro_export] macro_rules! m { () => {} }")], "hands out a macro"),
            (&[("lib.rs", "macro_rules! m { () => { crate::server::f() } }")], "hands a macro down"),
            (&[("law/pace.rs", "mod inner { use super::super::super::server; }")], "a module inside"),
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
            (&[("wire/spop.rs", "use tokio;")], "tokio"),
            (&[("law/pace.rs", "use std::*;")], "std::*"),
            (&[("law/pace.rs", "use std::time::*;")], "std::time::*"),
            (&[("law/pace.rs", "use std::time; fn f() { time::Instant::now(); }")], "std::time::Instant"),
            (&[("law/pace.rs", "use std as s; fn f() { s::fs::read(x); }")], "std::fs::read"),
            (&[("law/pace.rs", "use ::std::fs;")], "std::fs"),
            (&[("law/pace.rs", "fn f() { return ::std::fs::read(x) }")], "std::fs::read"),
            (&[("law/pace.rs", "use fastrand as dice; fn f() { dice::u64(..) }")], "fastrand::u64"),
            (&[("law/pace.rs", "use fastrand::Rng;")], "fastrand::Rng"),
            (&[("law/pace.rs", "use std::{hash::RandomState, io};")], "RandomState"),
            (&[("law/pace.rs", "use std::io; fn f() { io::stderr(); }")], "std::io::stderr"),
            (&[("law/pace.rs", "fn f() { println!(); }")], "println!"),
            (&[("law/mod.rs", "#![allow(clippy::disallowed_types)]")], "lifts the walls"),
            (&[("law/pace.rs", "#[expect(clippy::style)] fn f() {}")], "lifts the walls"),
            (&[("lib.rs", "#![allow(clippy::all)]")], "lifts the walls"),
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
            (&[types, ("law/pace.rs", "use super::*;")], "law::*"),
            (&[types, ("law/pace.rs", "use crate::law::{pace, *};")], "law::*"),
            (&[types, ("law/pace.rs", "use crate::law; fn f() { law::Law::new() }")], "law::Law"),
            (&[types, ("law/pace.rs", "use super as room; type L = room::Law;")], "law::Law"),
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
            (
                &[
                    ("law/a.rs", "use crate::law::b; fn f() { b::c::f() }"),
                    ("law/b/mod.rs", ""),
                    ("law/b/c.rs", "use crate::law::a::*;"),
                ],
                "law/b/c.rs",
            ),
        ],
    );
}

#[test]
fn every_wall_of_clippy_has_its_reason() {
    let text = fs::read_to_string(project("clippy.toml")).unwrap();
    assert_eq!(unreasoned(&text), [""; 0]);
    let entry = |path: &str, reason: &str| format!("    {{ path = \"{path}\", reason = \"{reason}\" }},\n");
    assert_eq!(unreasoned("    \"std::fs::read\",\n"), ["\"std::fs::read\","]);
    assert_eq!(unreasoned(&entry("a::b", "")).len(), 1);
    assert_eq!(unreasoned(&entry("a::b", "it waits").repeat(2)).len(), 1);
}

/// The entries of clippy.toml without a reason, and those that stand twice.
fn unreasoned(text: &str) -> Vec<&str> {
    let mut seen = BTreeSet::new();
    let entries = text.lines().filter(|line| line.starts_with(' ')).map(str::trim);
    let is_whole = |entry: &str| {
        let reason = entry.strip_prefix("{ path = \"").and_then(|entry| entry.split_once("\", reason = \""));
        reason.is_some_and(|(_, reason)| reason.len() > "\" },".len())
    };
    entries.filter(|entry| !is_whole(entry) || !seen.insert(*entry)).collect()
}
