//! The rooms of the house: who may import what.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The floors of the house, from the ground up. A file may name its own room and those on floors below.
const FLOORS: &[&[&str]] = &[
    &["base"],
    &["wire", "table"],
    &["law"],
    &["policy"],
    &["throttle"],
    &["proxy"],
    &["observe"],
    &["server", "watch"],
    &["config"],
    &["daemon"],
    &["tools"],
    &["cli"],
    &["main"],
];

/// What only the rooms from `observe` up may use: the world outside.
const OUTSIDE: &[&str] =
    &["tokio", "hyper_util", " notify::", "std::net::Tcp", "prometheus_client", "Instant::now"];

/// The rooms below it.
const CORE: &[&str] = &["base", "wire", "table", "law", "policy", "throttle"];

fn floor(room: &str) -> Option<usize> {
    FLOORS.iter().position(|rooms| rooms.contains(&room))
}

/// Every source file with the room that it stands in.
fn sources() -> Vec<(String, PathBuf, String)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut dirs = vec![src.clone()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let first = path.strip_prefix(&src).unwrap().components().next().unwrap();
                let room = first.as_os_str().to_str().unwrap().trim_end_matches(".rs").to_owned();
                let text = fs::read_to_string(&path).unwrap();
                found.push((room, path, text));
            }
        }
    }
    found
}

/// The code of a file without its comments and its unit tests: both may name anything.
fn code(text: &str) -> String {
    let code = text.split("\n#[cfg(test)]").next().unwrap();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.map(|line| format!("{line}\n")).collect()
}

/// The rooms that a piece of code names: `crate::room` and `crate::{room, …}` anywhere.
fn named(code: &str) -> BTreeSet<String> {
    let first_word =
        |text: &str| -> String { text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect() };
    let mut rooms = BTreeSet::new();
    for after in code.split("crate::").skip(1) {
        match after.strip_prefix('{') {
            Some(list) => {
                let list = list.split('}').next().unwrap();
                rooms.extend(list.split(',').map(|item| first_word(item.trim())));
            }
            None => drop(rooms.insert(first_word(after))),
        }
    }
    rooms
}

#[test]
fn every_room_imports_only_what_it_may() {
    let mut broken = Vec::new();
    for (room, path, text) in sources().into_iter().filter(|(room, ..)| room != "lib") {
        let Some(own) = floor(&room) else {
            broken.push(format!("{}: the room {room} stands on no floor", path.display()));
            continue;
        };
        for name in named(&code(&text)) {
            if name != room && floor(&name).is_none_or(|other| other >= own) {
                broken.push(format!("{}: {room} may not import {name}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn the_core_has_no_clock_and_no_socket() {
    for (room, path, text) in sources().into_iter().filter(|(room, ..)| CORE.contains(&room.as_str())) {
        for outside in OUTSIDE {
            assert!(!code(&text).contains(outside), "{}: {room} uses {outside}", path.display());
        }
    }
}

#[test]
fn every_file_begins_with_what_it_is() {
    for (_, path, text) in sources() {
        let first = text.lines().next().unwrap_or_default();
        assert!(first.starts_with("//! ") && first.len() > 10, "{}: {first:?}", path.display());
    }
}

#[test]
fn the_table_of_imports_is_read_as_it_is_meant() {
    let code = "use crate::wire::spop::{Frame, Step};\nuse crate::{base::key::Key, table};\nlet x = crate::law::now();\n";
    let rooms: Vec<String> = named(code).into_iter().collect();
    assert_eq!(rooms, ["base", "law", "table", "wire"]);
}
