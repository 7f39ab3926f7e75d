//! What an agent may log during the soak, each with its reason.

use std::collections::BTreeMap;

/// Texts of warnings and errors, and the fault of the soak that explains each.
const EXPECTED: [(&str, &str); 8] = [
    ("the table is full: ", "the floods have more keys than the table"),
    ("cannot write to the decision log: No space left on device", "its disk is full"),
    ("policy not reloaded from ", "an edit has a mistake"),
    ("rate \"5x/s\": expected a whole number per period", "the mistake of that edit"),
    ("\"300.0.0.1\": expected an address or a network", "the mistake of that edit"),
    ("website.map is missing (it had ", "an edit deletes the map for a second"),
    ("policy files changed while slowlane read them", "edits follow one another"),
    ("timeout: a frame or the hello is incomplete", "peers over SPOP stall"),
];

/// The expected lines of a log by their reason, and all that nothing explains: also a panic, which has no level.
pub fn judged(log: &[String]) -> (BTreeMap<&'static str, u64>, Vec<&String>) {
    let (mut explained, mut unexplained) = (BTreeMap::new(), Vec::new());
    for line in log.iter().filter(|line| !line.contains(" INFO ")) {
        match EXPECTED.iter().find(|(text, _)| line.contains(text)) {
            Some((_, reason)) => *explained.entry(*reason).or_default() += 1,
            None => unexplained.push(line),
        }
    }
    (explained, unexplained)
}

#[test]
fn a_line_without_a_reason_is_a_fault() {
    let log = [
        "2026-11-01T00:00:00.000Z  INFO admin on 127.0.0.1:9002",
        "2026-11-01T00:00:00.000Z  WARN the table is full: it evicted 3 of its live entries; raise [table] size",
        "2026-11-01T00:00:00.000Z ERROR cannot accept a connection: Too many open files",
        "thread 'main' panicked at src/main.rs:1:1:",
    ];
    let log = log.map(str::to_owned);
    let (explained, unexplained) = judged(&log);
    assert_eq!(explained, BTreeMap::from([("the floods have more keys than the table", 1)]));
    assert_eq!(unexplained, [&log[2], &log[3]]);
}
