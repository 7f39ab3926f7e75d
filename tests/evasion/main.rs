//! Two readers of one request: whatever bytes a client sends, the application serves what slowlane counted, or nothing.
//!
//! A grammar writes requests, each front sends them on to a real nginx, and both logs are compared: what the application
//! served, and the decisions. `SLOWLANE_EVASION=100000` is the number of requests for each front and policy, and
//! `SLOWLANE_EVASION_SEED=7` their seed; without them it takes seconds.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests and benches are the world outside"
)]
#![allow(unreachable_pub, reason = "nothing here is reachable from outside, and pub(crate) is noise")]

mod app;
mod client;
mod found;
mod fronts;
mod grammar;
mod http2;
mod http3;
mod logs;
mod oracle;
mod policies;
mod rig;
mod shot;
#[path = "../it/support/mod.rs"]
mod support;

use fronts::{Http, Kind};
use rig::Rig;
use support::haproxy::Version;
use support::skipped;

const HOLD: &str = "haproxy-2.6-hold.cfg";
const LUA: &str = "haproxy-2.6-lua.cfg";
const PAUSE: &str = "haproxy-3.2-pause.cfg";
const PEERS_LUA: &str = "haproxy-2.6-peers.cfg";
const PEERS: &str = "haproxy-3.2-peers.cfg";

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().map_or(default, |text| text.parse().expect("a number"))
}

/// Sends requests with each policy, and tells the sums.
fn attack(kind: Kind) {
    let (requests, seed) = (number("SLOWLANE_EVASION", 400), number("SLOWLANE_EVASION_SEED", 26));
    let mut found = Vec::new();
    for &policy in kind.policies() {
        let Some(mut rig) = Rig::start(kind, policy, seed) else {
            return skipped(&format!("{kind} cannot be had on this machine"));
        };
        found.extend(rig.run(requests as usize));
        let sums = rig.sums;
        println!(
            "{kind}, {}, seed {seed}: {} sent, {} counted, {} served, {} divergences",
            policy.name, sums.sent, sums.counted, sums.served, sums.divergences
        );
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

macro_rules! attacks {
    ($($name:ident: $kind:expr;)*) => {
        $(#[test]
        fn $name() {
            attack($kind);
        })*
    };
}

attacks! {
    haproxy_2_6_hold: Kind::Haproxy(Version::V2_6, "hold", HOLD);
    haproxy_2_6_lua: Kind::Haproxy(Version::V2_6, "lua", LUA);
    haproxy_2_6_peers: Kind::Haproxy(Version::V2_6, "peers", PEERS_LUA);
    haproxy_3_0_hold: Kind::Haproxy(Version::V3_0, "hold", HOLD);
    haproxy_3_0_lua: Kind::Haproxy(Version::V3_0, "lua", LUA);
    haproxy_3_0_peers: Kind::Haproxy(Version::V3_0, "peers", PEERS_LUA);
    haproxy_3_2_hold: Kind::Haproxy(Version::V3_2, "hold", HOLD);
    haproxy_3_2_lua: Kind::Haproxy(Version::V3_2, "lua", LUA);
    haproxy_3_2_pause: Kind::Haproxy(Version::V3_2, "pause", PAUSE);
    haproxy_3_2_peers: Kind::Haproxy(Version::V3_2, "peers", PEERS);
    haproxy_3_4_hold: Kind::Haproxy(Version::V3_4, "hold", HOLD);
    haproxy_3_4_lua: Kind::Haproxy(Version::V3_4, "lua", LUA);
    haproxy_3_4_pause: Kind::Haproxy(Version::V3_4, "pause", PAUSE);
    haproxy_3_4_peers: Kind::Haproxy(Version::V3_4, "peers", PEERS);
    nginx: Kind::Nginx;
    nginx_1_30_http2: Kind::UnpackedNginx("1.30", Http::Two);
    nginx_1_26_http3: Kind::UnpackedNginx("1.26", Http::Three);
    nginx_1_30_http3: Kind::UnpackedNginx("1.30", Http::Three);
    caddy: Kind::Caddy(None);
    caddy_2_11: Kind::Caddy(Some("2.11"));
    traefik: Kind::Traefik;
    envoy: Kind::Envoy;
    envoy_ratelimit: Kind::EnvoyRateLimit;
}
