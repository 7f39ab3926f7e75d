//! Real HAProxys that keep the pace by themselves, with the shipped files.

use std::net::SocketAddr;
use std::time::Duration;

use crate::cli::ran;
use crate::support::backend::Backend;
use crate::support::client::Client;
use crate::support::haproxy::Version::{V2_6, V3_0, V3_2};
use crate::support::haproxy::{CONFIG, Delivery, Haproxy, Version, each, replace, telling};
use crate::support::slowlane::Slowlane;
use crate::support::{client, eventually, own_address};

const EACH: &[(Version, Delivery)] =
    &[(V2_6, Delivery::PeersLua), (V3_0, Delivery::PeersLua), (V3_2, Delivery::Peers)];

/// One request a minute after the first five: what is admitted can be counted.
const FIVE: &str = "0 rate=unlimited\n3001 burst=5 rate=1/m max_delay=1s\n";
const FREE: &str = "0 rate=unlimited\n3001 rate=unlimited\n";
const SOURCES: &str = "192.0.2.0/24 3001\n";

/// A slowlane with a listener for peers, and its address.
fn slowlane(slo_map: &str, more: &str) -> (Slowlane, SocketAddr) {
    let peers = own_address();
    let config = format!(
        "[policy]\nkey_secret_file = \"secret\"\n[peers]\nlisten = [\"{peers}\"]\nallow = [\"lb1\", \"lb2\"]\n{more}"
    );
    (Slowlane::with_config(&[("slo.map", slo_map), ("source.map", SOURCES)], &config), peers)
}

/// A HAProxy with the shipped file and this name, whose clients choose their source by a header.
fn haproxy(
    (version, delivery): (Version, Delivery),
    name: &str,
    own: SocketAddr,
    slowlane: &Slowlane,
    peers: SocketAddr,
    app: &Backend,
) -> Option<Haproxy> {
    let edit = |file: &str, text: String| {
        if file != CONFIG {
            return text;
        }
        let text = replace(&text, "localpeer lb1", &format!("localpeer {name}"));
        let text = replace(&text, "peer lb1 127.0.0.1:10000", &format!("peer {name} {own}"));
        let text = replace(&text, "peer slowlane 127.0.0.1:9003", &format!("peer slowlane {peers}"));
        let text = text.replace("expire 10s", "expire 2s");
        telling(file, text)
    };
    let haproxy = Haproxy::with(version, delivery, &slowlane.spop.to_string(), app.address, edit)?;
    // What HAProxy counts before it has told all its entries is from the time before slowlane.
    synced(slowlane, name);
    Some(haproxy)
}

/// Waits until a proxy has told all its entries.
fn synced(slowlane: &Slowlane, name: &str) {
    eventually("the proxy is connected", || {
        let status = json(slowlane, "/api/peers");
        let proxies = status["proxies"].as_array()?;
        let proxy = proxies.iter().find(|proxy| proxy["name"] == name)?;
        (proxy["connection"]["is_synced"] == true).then_some(())
    });
}

/// The status of a request from a source.
fn ask(haproxy: &Haproxy, source: &str) -> u16 {
    let mut client = Client::connect(haproxy.address);
    client.request("GET", "/", &[("x-from", source), ("Host", "any.example")], "").status
}

/// Waits until HAProxy has the limit of a source.
fn taught(haproxy: &Haproxy, source: &str) {
    eventually("the limit is taught", || {
        let table = haproxy.runtime(&format!("show table slowlane_limits key {source}\n"))?;
        table.contains("gpt0=60000000").then_some(())
    });
}

/// X of a source as HAProxy has it. None: it is 0.
fn common_clock(haproxy: &Haproxy, source: &str) -> Option<u32> {
    let table = haproxy.runtime(&format!("show table slowlane_limits key {source}\n"))?;
    let (_, clock) = table.split_once("gpt3=")?;
    clock.split_whitespace().next()?.parse().ok().filter(|clock| *clock != 0)
}

fn json(slowlane: &Slowlane, path: &str) -> serde_json::Value {
    let answer = client::get(slowlane.admin, path, &[("Accept", "application/json")]);
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

/// Waits until slowlane has counted so many requests of a source, of all proxies and ways.
fn counted(slowlane: &Slowlane, source: &str, requests: u64) {
    eventually("slowlane counts the requests", || {
        let why = json(slowlane, &format!("/api/why?source={source}"));
        (why["slos"][0]["entry"]["http_req_cnt"].as_u64()? == requests).then_some(())
    });
}

#[test]
fn a_limit_holds_for_all_proxies_and_ways_together() {
    each(EACH, |version, delivery| {
        let ((slowlane, peers), app) = (slowlane(FIVE, ""), Backend::start());
        let [one, other] = ["lb1", "lb2"]
            .map(|name| haproxy((version, delivery), name, own_address(), &slowlane, peers, &app));
        let (Some(one), Some(other)) = (one, other) else { return };
        let source = "192.0.2.66";
        // Unlimited sources pass, and nothing is taught.
        assert_eq!(ask(&one, "198.51.100.1"), 200);
        assert_eq!(ask(&one, source), 200);
        taught(&one, source);
        assert_eq!([ask(&one, source), ask(&one, source)], [200, 200]);
        counted(&slowlane, source, 3);
        // A question over HTTP is the fourth, and one through the other proxy the fifth.
        assert_eq!(slowlane.check("", &[("X-Slowlane-Source", source)]).status, 204);
        assert_eq!(ask(&other, source), 200);
        taught(&other, source);
        counted(&slowlane, source, 5);
        eventually("both have the common clock", || {
            let [one, other] = [&one, &other].map(|haproxy| common_clock(haproxy, source));
            (one?.abs_diff(other?) < 1_000).then_some(())
        });
        assert_eq!([ask(&one, source), ask(&other, source)], [429, 429]);
        assert_eq!(slowlane.check("", &[("X-Slowlane-Source", source)]).status, 403);
        let refused = Client::connect(one.address).request("GET", "/", &[("x-from", source)], "");
        let retry_after: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&retry_after), "{retry_after}");

        let why = json(&slowlane, &format!("/api/why?source={source}"));
        let counts = why["slos"][0]["peers"].as_array().unwrap();
        let told: Vec<_> =
            counts.iter().map(|count| (count["peer"].as_str(), count["admitted"].as_u64())).collect();
        assert_eq!(told, [(Some("lb1"), Some(3)), (Some("lb2"), Some(1))]);
        assert_eq!(counts[0]["taught"][0].as_u64(), Some(60_000_000));
        let listed = ran(&["peers", "--admin", &slowlane.admin.to_string()]).out;
        assert!(listed.starts_with("this slowlane is the peer slowlane\nlb1  connected for "), "{listed}");
        assert!(listed.contains("slowlane_pace: 2 keys in all\n"), "{listed}");
        assert_eq!(slowlane.metric("slowlane_peers_sessions", ""), 2.0);
        // The page and `top` show the key, which no question has throttled, and the proxies.
        eventually("the status has the key", || {
            let status = json(&slowlane, "/api/status");
            assert_eq!(
                (status["peers"]["connected"].as_u64(), status["peers"]["keys"].as_u64()),
                (Some(2), Some(3))
            );
            let key = status["keys"].as_array()?.iter().find(|key| key["fields"][0]["value"] == source)?;
            (key["proxies"] == 2 && key["denied"].as_u64()? >= 2).then_some(())
        });
        let top = ran(&["top", "--once", "--admin", &slowlane.admin.to_string()]).out;
        assert!(top.contains("; peers 2 with 3 keys") && top.contains("(2 proxies pace it)"), "{top}");
        assert!(slowlane.metric("slowlane_peers_denied_total", "") >= 2.0);
    });
}

#[test]
fn edits_and_blocks_are_taught() {
    each(EACH, |version, delivery| {
        let ((slowlane, peers), app) = (slowlane(FIVE, ""), Backend::start());
        let Some(haproxy) = haproxy((version, delivery), "lb1", own_address(), &slowlane, peers, &app) else {
            return;
        };
        let source = "192.0.2.7";
        assert_eq!(ask(&haproxy, source), 200);
        taught(&haproxy, source);
        eventually("the burst is used", || (ask(&haproxy, source) == 429).then_some(()));
        slowlane.replace("slo.map", FREE);
        eventually("the edit is taught", || (ask(&haproxy, source) == 200).then_some(()));
        let admin = slowlane.admin.to_string();
        let block = |command: &str| {
            let mut words = vec![command, "source=192.0.2.7", "--admin", &admin];
            words.extend(if command == "block" { &["--for", "10m"][..] } else { &[] });
            assert_eq!(ran(&words).code, 0);
        };
        block("block");
        eventually("the block is taught", || (ask(&haproxy, source) == 429).then_some(()));
        block("unblock");
        eventually("its end is taught", || (ask(&haproxy, source) == 200).then_some(()));
    });
}

#[test]
fn a_delay_is_waited_for_by_haproxy() {
    each(EACH, |version, delivery| {
        let slos = "0 rate=unlimited\n3001 burst=1 rate=5/s max_delay=10s\n";
        let ((slowlane, peers), app) = (slowlane(slos, ""), Backend::start());
        let Some(haproxy) = haproxy((version, delivery), "lb1", own_address(), &slowlane, peers, &app) else {
            return;
        };
        let source = "192.0.2.8";
        assert_eq!(ask(&haproxy, source), 200);
        eventually("the limit is taught", || {
            let table = haproxy.runtime("show table slowlane_limits\n")?;
            table.contains("gpt0=200000").then_some(())
        });
        let begun = std::time::Instant::now();
        for method in ["GET", "POST", "GET", "PUT"] {
            let mut client = Client::connect(haproxy.address);
            let answer = client.request(method, "/", &[("x-from", source)], "");
            assert_eq!(answer.status, 200);
        }
        // At most one of the four finds a free slot.
        assert!(begun.elapsed() >= Duration::from_millis(590), "{:?}", begun.elapsed());
        counted(&slowlane, source, 5);
    });
}

#[test]
fn either_side_may_end_and_come_again() {
    each(EACH, |version, delivery| {
        let ((mut slowlane, peers), app) = (slowlane(FIVE, "[state]\nfile = \"state\"\n"), Backend::start());
        let Some(mut haproxy) = haproxy((version, delivery), "lb1", own_address(), &slowlane, peers, &app)
        else {
            return;
        };
        let source = "192.0.2.9";
        assert_eq!(ask(&haproxy, source), 200);
        taught(&haproxy, source);
        eventually("the burst is used", || (ask(&haproxy, source) == 429).then_some(()));

        // A reload hands counts and limits over to the new process, within some milliseconds.
        let mut old = haproxy.reload();
        eventually("the new process has the limit", || (ask(&haproxy, source) == 429).then_some(()));
        old.wait();
        eventually("the new process is connected", || {
            (slowlane.metric("slowlane_peers_sessions", "") == 1.0).then_some(())
        });
        assert_eq!(ask(&haproxy, source), 429);

        // slowlane dies: limits end with their expiry. Nobody is refused then.
        slowlane.process.signal("KILL");
        slowlane.process.wait();
        eventually("limits are gone", || (ask(&haproxy, source) == 200).then_some(()));
        // What HAProxy counted meanwhile is not charged: nobody knows when it was.
        slowlane.restart();
        eventually("limits are back", || {
            ask(&haproxy, source);
            let table = haproxy.runtime(&format!("show table slowlane_limits key {source}\n"))?;
            table.contains("gpt0=60000000").then_some(())
        });
        eventually("and hold", || (ask(&haproxy, source) == 429).then_some(()));
    });
}

#[test]
fn slowlane_may_dial() {
    each(&[(V2_6, Delivery::PeersLua), (V3_2, Delivery::Peers)], |version, delivery| {
        let (own, app) = (own_address(), Backend::start());
        let config = format!("[policy]\nkey_secret_file = \"secret\"\n[peers]\ndial = [\"lb1@{own}\"]\n");
        let slowlane = Slowlane::with_config(&[("slo.map", FIVE), ("source.map", SOURCES)], &config);
        // Nobody listens at the address that HAProxy dials.
        let nobody = own_address();
        let Some(haproxy) = haproxy((version, delivery), "lb1", own, &slowlane, nobody, &app) else { return };
        let source = "192.0.2.10";
        assert_eq!(json(&slowlane, "/api/peers")["proxies"][0]["connection"]["is_dialled"], true);
        assert_eq!(ask(&haproxy, source), 200);
        taught(&haproxy, source);
        eventually("the burst is used", || (ask(&haproxy, source) == 429).then_some(()));
        counted_at_most(&slowlane, source);
    });
}

/// Five requests were admitted, and those that passed before the limit was there.
fn counted_at_most(slowlane: &Slowlane, source: &str) {
    let why = json(slowlane, &format!("/api/why?source={source}"));
    let admitted = why["slos"][0]["peers"][0]["admitted"].as_u64().unwrap();
    assert!((5..=6).contains(&admitted), "{admitted}");
}
