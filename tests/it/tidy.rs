//! The tidiness of the sources: how files begin, how long they are, which words they use, and what they import.
//!
//! Cargo holds the walls between the crates. Within a crate, a module imports only from modules below it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::support::lexicon::BANNED;
use crate::support::project;

/// Longer files have two subjects.
const LINES_MAX: usize = 600;

/// The modules of each crate, lowest floor first.
const CRATES: &[(&str, &[&[&str]])] = &[
    ("crates/spop/src", &[]),
    ("crates/grpc/src", &[]),
    (
        "crates/core/src",
        &[&["base"], &["table"], &["law"], &["cluster", "policy"], &["throttle"], &["peers", "snapshot"]],
    ),
    (
        "crates/lab/src",
        &[
            &["columns", "events"],
            &["access_log", "policy_test", "protect", "simulate"],
            &["replay"],
            &["advise"],
        ],
    ),
    (
        "src",
        &[
            &["http", "store_protocol"],
            &["proxy"],
            &["import", "observe"],
            &["server", "watch"],
            &["sync", "upgrade"],
            &["config"],
            &["daemon", "admin_client"],
            &["demo", "top"],
            &["cli"],
            &["main"],
        ],
    ),
    ("tools/check/src", &[&["card", "endpoint", "tls"], &["rls", "spoa"], &["cli"], &["main"]]),
];

/// A source file: its path below the root of the crate, and its text.
type File = (String, String);

fn sources(root: &str) -> Vec<File> {
    let root = project(root);
    let (mut files, mut dirs) = (Vec::new(), vec![root.clone()]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(&root).unwrap().display().to_string();
                files.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(!files.is_empty(), "{}", root.display());
    files
}

fn file(name: &str, text: &str) -> Vec<File> {
    vec![(name.into(), text.into())]
}

/// Asserts that a rule finds nothing in the sources, and something in each planted file.
fn holds(rule: impl Fn(&[File], &[&[&str]]) -> Vec<String>, planted: &[(&str, &str)]) {
    for (root, floors) in CRATES {
        let faults = rule(&sources(root), floors);
        assert!(faults.is_empty(), "{root}:\n{}", faults.join("\n"));
    }
    for (name, text) in planted {
        assert!(!rule(&file(name, text), CRATES[2].1).is_empty(), "{name}: {text}");
    }
}

fn unnamed(files: &[File], _: &[&[&str]]) -> Vec<String> {
    let is_said = |text: &str| {
        let first = text.lines().next().unwrap_or_default();
        first.starts_with("//! ") && first.len() > 10
    };
    let unnamed = files.iter().filter(|(_, text)| !is_said(text));
    unnamed.map(|(name, _)| format!("{name}: begins without a sentence that says what it is")).collect()
}

fn long(files: &[File], _: &[&[&str]]) -> Vec<String> {
    let lines = files.iter().map(|(name, text)| (name, text.lines().count()));
    let long = lines.filter(|&(_, lines)| lines > LINES_MAX);
    long.map(|(name, lines)| format!("{name}: {lines} lines, at most {LINES_MAX}")).collect()
}

/// The words of a line, in lower case: `answerFrames` and `answer_frames` are two each.
fn words(line: &str) -> Vec<String> {
    let mut parted = String::new();
    let mut was_lower = false;
    for c in line.chars() {
        if was_lower && c.is_uppercase() {
            parted.push(' ');
        }
        was_lower = c.is_lowercase();
        parted.extend(c.to_lowercase());
    }
    parted.split(|c: char| !c.is_alphabetic()).map(str::to_owned).collect()
}

fn banned(files: &[File], _: &[&[&str]]) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, text) in files {
        for (line, number) in text.lines().zip(1..) {
            let banned = words(line).into_iter().filter(|word| BANNED.contains(&word.as_str()));
            faults.extend(banned.map(|word| format!("{name}:{number}: {word:?} is not in the glossary")));
        }
    }
    faults
}

/// Imports of another module that is not below the file's own. A policy knows no table: what lives while it is in force
/// belongs to the throttle.
fn upward(files: &[File], floors: &[&[&str]]) -> Vec<String> {
    let floor = |module: &str| floors.iter().position(|modules| modules.contains(&module));
    let mut faults = Vec::new();
    for (name, text) in files.iter().filter(|(name, _)| !floors.is_empty() && name != "lib.rs") {
        let own = name.split('/').next().unwrap().trim_end_matches(".rs");
        let code = text.split("\n#[cfg(test)]\nmod tests").next().unwrap();
        let code: Vec<_> = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        // A module that is named from where the file stands, or by another name for the crate, would go unseen.
        let is_hidden = |line: &str| {
            line.replace("super::*", "").contains("super::")
                || line.contains("crate as")
                || line.contains("crate ::")
        };
        let hidden = code.iter().filter(|line| is_hidden(line));
        faults.extend(hidden.map(|line| format!("{name}: name it from crate:: on, not {line:?}")));
        for rest in code.iter().flat_map(|line| line.split("crate::").skip(1)) {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            let other = &rest[..end];
            let is_apart = (own, other) == ("policy", "table");
            if is_apart
                || other != own && floor(other).is_none_or(|other| floor(own).is_none_or(|own| other >= own))
            {
                faults.push(format!("{name}: {own} may not import from {other}"));
            }
        }
    }
    faults
}

#[test]
fn every_file_begins_with_what_it_is() {
    holds(unnamed, &[("law/pace.rs", "use std::fmt;"), ("law/pace.rs", "//! Pace")]);
}

#[test]
fn no_file_is_longer_than_six_hundred_lines() {
    holds(long, &[("law/pace.rs", &"x\n".repeat(LINES_MAX + 1))]);
}

#[test]
fn the_words_are_those_of_the_glossary() {
    let planted = [
        "docket: &mut Docket",
        "/// The sitting of a judge.",
        "fn hear_all()",
        "struct OpenFiling;",
        "/// He waits.",
    ];
    holds(banned, &planted.map(|text| ("law/pace.rs", text)));
}

#[test]
fn a_module_imports_only_from_those_below() {
    let planted = [
        "use crate::policy::Policy;",
        "fn f() { crate::throttle::f() }",
        "use crate::cluster::{self, Node};",
        "use crate::{base::key, policy};",
        "use super::super::policy::Policy;",
        "use crate as core;",
    ];
    holds(upward, &planted.map(|text| ("law/pace.rs", text)));
}

/// The names of the types that a file of the product defines, outside of functions and tests.
fn types(text: &str) -> impl Iterator<Item = &str> {
    let text = text.split("\nmod tests {").next().unwrap_or_default();
    text.lines().filter_map(|line| {
        let is_item = |word: &str| matches!(word, "struct" | "enum" | "trait" | "type");
        let first = line.split(['(', ' ']).next()?;
        let mut words =
            line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
        ((first == "pub" || is_item(first)) && words.any(is_item)).then(|| words.next())?
    })
}

/// Types with one name, three or more in all crates.
fn alike<'f>(files: &'f [File]) -> Vec<String> {
    let mut places: BTreeMap<&'f str, Vec<&'f str>> = BTreeMap::new();
    for (name, text) in files.iter().filter(|(name, _)| !name.ends_with("tests.rs")) {
        types(text).for_each(|named| places.entry(named).or_default().push(name));
    }
    // A README is a doc comment of nothing.
    let alike = places.iter().filter(|(named, places)| places.len() > 2 && **named != "Readme");
    alike.map(|(named, places)| format!("{named}: {}", places.join(", "))).collect()
}

/// Exports whose names only another file tells.
fn starred(files: &[File], _: &[&[&str]]) -> Vec<String> {
    let is_starred = |line: &&str| line.starts_with("pub") && line.contains("use ") && line.contains("::*");
    let lines = files.iter().flat_map(|(name, text)| text.lines().map(move |line| (name, line.trim_start())));
    lines.filter(|(_, line)| is_starred(line)).map(|(name, line)| format!("{name}: {line:?}")).collect()
}

#[test]
fn no_module_exports_a_star() {
    holds(starred, &[("law/mod.rs", "pub use pace::*;"), ("law/mod.rs", "pub(crate) use pace::*;")]);
}

#[test]
fn no_name_is_that_of_three_types() {
    let product = CRATES.iter().filter(|(root, _)| !root.starts_with("tools/"));
    let files: Vec<File> = product.flat_map(|(root, _)| sources(root)).collect();
    let faults = alike(&files);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let planted = ["pub struct Row(u8);", "pub(in crate::law) enum Row {}", "type Row = u8;"];
    let planted: Vec<File> = planted.iter().flat_map(|text| file("law/pace.rs", text)).collect();
    assert_eq!(alike(&planted).len(), 1);
    assert!(alike(&planted[..2]).is_empty());
}

#[test]
fn every_wall_of_clippy_has_its_reason() {
    for name in
        ["clippy.toml", "crates/core/clippy.toml", "crates/lab/clippy.toml", "tools/check/clippy.toml"]
    {
        let text = fs::read_to_string(project(name)).unwrap();
        let rules: Vec<_> = text.lines().filter(|line| line.contains("path = ")).collect();
        assert!(!rules.is_empty(), "{name}");
        let unreasoned: Vec<_> = rules.iter().filter(|line| !line.contains("reason = \"")).collect();
        assert!(unreasoned.is_empty(), "{name}: {unreasoned:?}");
    }
    assert!(Path::new(&project("crates/spop/clippy.toml")).is_symlink(), "the same walls");
}
