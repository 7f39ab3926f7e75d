//! The memory of live entries.

use std::process;

use crate::ENTRIES;
use crate::stores::{self, START, Store};
use crate::support::effort::Effort;
use crate::support::usage::resident_bytes;
use crate::support::{alone, print as line};

/// Makes this bench print the memory of one store, and the entries in it.
pub const ALONE: &str = "--resident";

/// The number of writes between two counts of the live entries.
const STEP: u32 = 1_000;

pub fn print(effort: Effort) {
    let entries = effort.count(ENTRIES).to_string();
    let mut names = ["slowlane", "dashmap", "governor"];
    let figures = effort.in_turns(&mut names, |name| alone::<2>(&[ALONE, name, &entries]));
    let bytes = |place: usize| figures[place][0] / figures[place][1];
    for (place, [bytes_in_all, entries]) in figures.iter().enumerate() {
        line(&format!("resident, {entries} live entries"), names[place], bytes_in_all / 1e6, "MB", &[]);
    }
    line("resident", names[0], bytes(0), "bytes/entry", &[(names[1], bytes(1)), (names[2], bytes(2))]);
    line("resident", names[1], bytes(1), "bytes/entry", &[]);
    line("resident", names[2], bytes(2), "bytes/entry", &[]);
}

/// Prints the memory in bytes, and the number of entries.
pub fn measure(name: &str, entries: u32) {
    let (bytes, live) = match name {
        "slowlane" => fill(|| stores::table(entries), |table| table.usage().entries, entries),
        "dashmap" => fill(stores::Dashmap::default, |map| map.len() as u64, entries),
        "governor" => fill(stores::governor, |governor| governor.len() as u64, entries),
        _ => panic!("no store is named {name}"),
    };
    println!("{bytes} {live}");
}

/// Writes to new keys until enough are live. Shards fill unevenly, so some entries are evicted before the table is full.
fn fill<S: Store>(create: impl FnOnce() -> S, live: impl Fn(&S) -> u64, entries: u32) -> (u64, u64) {
    let before = resident_bytes(process::id());
    let store = create();
    for number in 0..2 * entries {
        store.write(number, START);
        if number % STEP == STEP - 1 && live(&store) >= u64::from(entries) {
            break;
        }
    }
    let bytes = resident_bytes(process::id()) - before;
    (bytes, live(&store))
}
