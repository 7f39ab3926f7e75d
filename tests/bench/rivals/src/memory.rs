//! The resident memory of a million keys.

use std::process::{self, Command};

use crate::libraries::LIBRARIES;
use crate::servers::{BINARY, DECIDERS, LOADS, Programs};
use crate::support::{Key, Limit, usage};

const KEYS: u32 = 1_000_000;

/// Makes this binary print the memory of one library: a new process has no memory left over from others.
pub const ARGUMENT: &str = "--resident";

/// The bytes that each program takes for all keys.
pub fn measure(programs: &Programs) -> Vec<(&'static str, u64)> {
    // Over another protocol, a server takes as much.
    let servers = DECIDERS.iter().filter(|rival| rival.loads == BINARY).map(|rival| {
        let server = rival.start(programs, Limit::LONG);
        let before = server.resident_bytes();
        let mut keys = (0..KEYS).map(Key::numbered);
        server.load(&LOADS[rival.loads[0]], &mut |_| keys.next());
        (rival.name, server.resident_bytes() - before)
    });
    servers.chain(LIBRARIES[1..].iter().map(|library| (library.name, alone(library.name)))).collect()
}

fn alone(library: &str) -> u64 {
    let itself = std::env::current_exe().expect("a running program has a file");
    let ran = Command::new(itself).args([ARGUMENT, library]).output().unwrap();
    assert!(ran.status.success(), "{library}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap().trim().parse().expect("a number")
}

pub fn print(name: &str) {
    let library = LIBRARIES.iter().find(|library| library.name == name).expect("a library");
    let before = usage::resident_bytes(process::id());
    let mut decide = (library.create)(Limit::LONG);
    (0..KEYS).for_each(|number| _ = decide(Key::numbered(number)));
    println!("{}", usage::resident_bytes(process::id()) - before);
}
