//! How files begin, how long they are, and which words they use.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::holds;
use super::house::{House, room};
use crate::support::lexicon::BANNED;

/// Longer files have two subjects.
const LINES_MAX: usize = 600;

/// The entries of `src/` that a stranger can take in at a glance.
const ENTRIES_MAX: usize = 16;

/// Rooms that come with their own issues.
const LATER: &[&str] = &["cluster", "peers", "snapshot", "sync", "upgrade"];

/// The first line says what a file is.
fn unnamed(house: &House) -> Vec<String> {
    let is_said = |text: &str| {
        let first = text.lines().next().unwrap_or_default();
        first.starts_with("//! ") && first.len() > 10
    };
    let unnamed = house.texts.iter().filter(|(_, text)| !is_said(text));
    unnamed.map(|(file, _)| format!("{file}: begins without a sentence that says what it is")).collect()
}

fn long(house: &House) -> Vec<String> {
    let lines = house.texts.iter().map(|(file, text)| (file, text.lines().count()));
    let long = lines.filter(|&(_, lines)| lines > LINES_MAX);
    long.map(|(file, lines)| format!("{file}: {lines} lines, at most {LINES_MAX}")).collect()
}

fn entries(house: &House) -> Vec<String> {
    let entries: BTreeSet<&str> =
        house.texts.keys().map(|file| room(file)).filter(|room| !LATER.contains(room)).collect();
    match entries.len() {
        0..=ENTRIES_MAX => Vec::new(),
        count => vec![format!("src/ has {count} entries, at most {ENTRIES_MAX}: {entries:?}")],
    }
}

/// The words of a text, in lower case: `answerFrames` and `answer_frames` are two each.
fn words(text: &str) -> impl Iterator<Item = String> {
    let is_start = |(one, other): (char, char)| one.is_lowercase() && other.is_uppercase();
    let mut parted = String::new();
    for pair in text.chars().zip(text.chars().skip(1)) {
        parted.push(pair.0);
        if is_start(pair) {
            parted.push(' ');
        }
    }
    parted.extend(text.chars().last());
    let words: Vec<String> = parted
        .split(|c: char| !c.is_alphabetic())
        .map(str::to_lowercase)
        .filter(|word| !word.is_empty())
        .collect();
    words.into_iter()
}

fn banned(house: &House) -> Vec<String> {
    let mut faults = Vec::new();
    for (file, text) in &house.texts {
        for (line, number) in text.lines().zip(1..) {
            for word in words(line).filter(|word| BANNED.contains(&word.as_str())) {
                faults.push(format!("{file}:{number}: {word:?} is not in the lexicon"));
            }
        }
    }
    faults
}

#[test]
fn every_file_begins_with_what_it_is() {
    holds(
        unnamed,
        &[
            (&[("law/pace.rs", "use std::fmt;")], "law/pace.rs"),
            (&[("law/pace.rs", "//! Pace")], "law/pace.rs"),
        ],
    );
}

#[test]
fn no_file_is_longer_than_six_hundred_lines() {
    let long_text = "x\n".repeat(LINES_MAX + 1);
    holds(long, &[(&[("law/pace.rs", &long_text)], "601 lines")]);
}

#[test]
fn src_is_taken_in_at_a_glance() {
    let names: Vec<String> = (0..=ENTRIES_MAX).map(|number| format!("room{number}/mod.rs")).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
    holds(entries, &[(&files, "src/ has 17 entries")]);
    let stands = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap();
    let rooms: BTreeSet<_> =
        stands.map(|entry| entry.unwrap().path().file_stem().map(ToOwned::to_owned)).collect();
    let stands = rooms.len();
    assert!(stands <= ENTRIES_MAX + LATER.len(), "also with files that are not Rust");
}

#[test]
fn the_words_are_those_of_the_lexicon() {
    holds(
        banned,
        &[
            (&[("law/pace.rs", "fn f(docket: &mut Docket) {}")], "docket"),
            (&[("law/pace.rs", "\n/// The sitting of a judge.")], "law/pace.rs:2"),
            (&[("law/pace.rs", "fn hear_all() {}")], "hear"),
            (&[("law/pace.rs", "struct OpenFiling;")], "filing"),
            (&[("law/pace.rs", "/// He waits.")], "he"),
            (&[("law/pace.rs", "struct RateLimiter;")], "limiter"),
        ],
    );
}
