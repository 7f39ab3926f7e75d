//! A policy with all five maps full, of which the third answers: an SLO of the type "source" for each of many sources.

use std::net::Ipv4Addr;

/// Lines in each map, and sources that are asked about.
pub const LINES: u32 = 100_000;

/// What stands in `slo.map` behind the id of the SLO that all sources have. So much is never asked of one of them that it
/// would be delayed.
pub const OBJECTIVE: &str = "burst=2000000 rate=1000000/s";

/// The names and the texts of its files.
pub fn files(law: &str) -> [(&'static str, String); 6] {
    let addresses = |rest: &str, id: u32| (0..LINES).map(|n| format!("{}{rest} {id}\n", source(n))).collect();
    let names = |kind: &str| (0..LINES).map(|n| format!("{kind}-{n}.example 0\n")).collect();
    [
        ("slo.map", format!("0 burst=10000 rate=5000/s\n3001 {OBJECTIVE} law={law}\n")),
        ("source+website.map", addresses("+elsewhere.example", 0)),
        ("source+owner.map", addresses("+nobody", 0)),
        ("source.map", addresses("", 3001)),
        ("website.map", names("site")),
        ("owner.map", names("owner")),
    ]
}

/// The address of a source: 10.0.0.0 and up.
pub fn source(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a00_0000 + number)
}
