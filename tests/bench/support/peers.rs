//! HAProxys that are peers of a slowlane, with the shipped files.

use std::net::SocketAddr;

use super::programs::haproxy::{Delivery, Haproxy, Version, replace};

/// The shipped file of a version.
pub fn delivery(version: Version) -> Delivery {
    match version {
        Version::V2_6 | Version::V3_0 => Delivery::PeersLua,
        Version::V3_2 | Version::V3_4 => Delivery::Peers,
    }
}

/// A section of slowlane's config: a listener for peers.
pub fn section(listen: SocketAddr) -> String {
    format!("[peers]\nlisten = [\"{listen}\"]\n")
}

/// A main file of HAProxy with this name, and with the addresses of both ends.
pub fn named(text: &str, name: &str, own: SocketAddr, slowlane: SocketAddr) -> String {
    let text = replace(text, "localpeer lb1", &format!("localpeer {name}"));
    let text = replace(&text, "peer lb1 127.0.0.1:10000", &format!("peer {name} {own}"));
    replace(&text, "peer slowlane 127.0.0.1:9003", &format!("peer slowlane {slowlane}"))
}

/// The time of one request, in µs, in the limit of a source; `None` if HAProxy does not know it.
pub fn slot_us(haproxy: &Haproxy, source: &str) -> Option<u64> {
    let entry = haproxy.runtime(&format!("show table slowlane_limits key {source}\n"))?;
    let slot = entry.split_whitespace().find_map(|word| word.strip_prefix("gpt0="))?;
    slot.parse().ok()
}

/// The number of sources that HAProxy knows a limit of.
pub fn limits(haproxy: &Haproxy) -> u64 {
    let tables = haproxy.runtime("show table\n").expect("HAProxy answers");
    let table = tables.lines().find(|line| line.contains("slowlane_limits,")).expect("it is shipped");
    let used = table.split("used:").nth(1).expect("a table says how many entries it has");
    used.trim().parse().expect("a number")
}
