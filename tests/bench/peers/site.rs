//! The programs of a measurement: a slowlane that teaches, and HAProxys that keep the pace.

use std::net::SocketAddr;

use crate::support::peers;
use crate::support::programs::backend::Backend;
use crate::support::programs::haproxy::{CONFIG, Haproxy, Version, replace};
use crate::support::programs::slowlane::Slowlane;
use crate::support::programs::{eventually, own_address};

/// The SLO of most measurements.
pub const SLO: &str = "3001 burst=100 rate=50/s max_delay=5s\n";
pub const RATE: f64 = 50.0;
pub const BURST: f64 = 100.0;

/// The sources of most measurements: each has a key of its own.
pub const SOURCES: &str = "127.0.0.1 3001\n192.0.2.1 3001\n192.0.2.2 3001\n192.0.2.3 3001\n192.0.2.4 3001\n";

/// A slowlane with its listener for peers.
pub struct Pusher {
    pub slowlane: Slowlane,
    pub peers: SocketAddr,
}

impl Pusher {
    pub fn start(slos: &str, sources: &str) -> Pusher {
        Pusher::dialling(slos, sources, &[])
    }

    /// One that also connects to HAProxys itself, by their names and addresses.
    pub fn dialling(slos: &str, sources: &str, dial: &[(&str, SocketAddr)]) -> Pusher {
        let peers = own_address();
        let dial: Vec<String> = dial.iter().map(|(name, address)| format!("{name}@{address}")).collect();
        let section = peers::section(peers);
        let config = format!("[policy]\nkey_secret_file = \"secret\"\n{section}dial = {dial:?}\n");
        let slo_map = slo_map(slos);
        let files = [("slo.map", slo_map.as_str()), ("source.map", sources)];
        Pusher { slowlane: Slowlane::with_config(&files, &config), peers }
    }
}

/// The text of `slo.map`: sources without an SLO have no limit.
pub fn slo_map(slos: &str) -> String {
    format!("0 rate=unlimited\n{slos}")
}

/// A HAProxy to start.
#[derive(Clone, Copy)]
pub struct Pupil {
    pub version: Version,
    pub name: &'static str,
    pub own: SocketAddr,
    /// The life of limits, instead of the shipped one.
    pub expire: Option<&'static str>,
}

impl Pupil {
    pub fn new(version: Version, name: &'static str) -> Pupil {
        Pupil { version, name, own: own_address(), expire: None }
    }

    /// Starts it, and waits until it is connected. `None` if the version is not installed.
    pub fn start(self, pusher: &Pusher, app: &Backend) -> Option<Haproxy> {
        let edit = |file: &str, text: String| if file == CONFIG { self.edited(&text, pusher) } else { text };
        let delivery = peers::delivery(self.version);
        let agent = pusher.slowlane.spop.to_string();
        let before = pusher.slowlane.metric("slowlane_peers_sessions", "");
        let haproxy = Haproxy::with(self.version, delivery, &agent, app.address, edit)?;
        eventually("HAProxy is a peer", || {
            (pusher.slowlane.metric("slowlane_peers_sessions", "") > before).then_some(())
        });
        Some(haproxy)
    }

    /// The shipped file; clients choose their source by a header.
    fn edited(self, text: &str, pusher: &Pusher) -> String {
        let text = peers::named(text, self.name, self.own, pusher.peers);
        let text = match self.expire {
            Some(expire) => replace(&text, "expire 10s", &format!("expire {expire}")),
            None => text,
        };
        let source = "    http-request set-src req.hdr(x-from)\n";
        replace(&text, "\nfrontend www\n", &format!("\nfrontend www\n{source}"))
    }
}

/// Whether each of these sources has been taught, which every figure rests on.
pub fn assert_pushed(haproxy: &Haproxy, sources: &[&str]) {
    for source in sources {
        let slot_us = peers::slot_us(haproxy, source);
        assert!(slot_us.is_some_and(|slot_us| slot_us > 0), "{source} has no limit: {slot_us:?}");
    }
}
