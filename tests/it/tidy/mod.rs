//! The walls of the house: which file may name what, and how files begin, how long they are, which words they use.
//!
//! `clippy.toml` holds clocks, sockets, files, threads and dice; visibility holds what is nobody's business. Each rule
//! here is a function from a house to the faults in it, and a test plants a fault that it must find.

mod code;
mod files;
mod house;
mod tokens;
mod walls;

use house::House;

/// The floors, from the ground up. A file names its own room and rooms on lower floors.
const FLOORS: &[&[&str]] = &[
    &["base"],
    &["wire", "table"],
    &["law"],
    &["cluster", "policy"],
    &["throttle"],
    &["proxy", "peers", "snapshot"],
    &["observe"],
    &["server", "watch"],
    &["sync", "upgrade"],
    &["config"],
    &["daemon"],
    &["tools"],
    &["cli"],
    &["main"],
];

/// Rooms without a view of the outside world.
const CORE: &[&str] = &["base", "wire", "table", "law", "policy", "throttle", "proxy", "cluster", "snapshot"];

/// Asserts that a rule finds no fault in the sources, and finds each planted one in a made-up house.
fn holds(rule: impl Fn(&House) -> Vec<String>, planted: &[(&[(&str, &str)], &str)]) {
    let faults = rule(&House::stands());
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    for (files, want) in planted {
        let found = rule(&House::made_up(files));
        assert!(found.iter().any(|fault| fault.contains(want)), "{files:?}: {found:?}");
    }
}
