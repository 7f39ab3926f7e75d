//! Real HAProxys that enforce limits locally, with the shipped files.

use std::time::Duration;

use super::started::{EACH, FIVE, SOURCES, ask, counted, haproxy, json, pushed, slowlane};
use crate::cli::ran;
use crate::support::backend::Backend;
use crate::support::client::Client;
use crate::support::haproxy::Version::{V2_6, V3_2, V3_4};
use crate::support::haproxy::{Delivery, Haproxy, each};
use crate::support::slowlane::Slowlane;
use crate::support::{eventually, own_address};

const FREE: &str = "0 rate=unlimited\n3001 rate=unlimited\n";

/// X of a source as HAProxy has it. None: it is 0.
fn common_clock(haproxy: &Haproxy, source: &str) -> Option<u32> {
    let table = haproxy.runtime(&format!("show table slowlane_limits key {source}\n"))?;
    let (_, clock) = table.split_once("gpt3=")?;
    clock.split_whitespace().next()?.parse().ok().filter(|clock| *clock != 0)
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
        pushed(&one, source);
        assert_eq!([ask(&one, source), ask(&one, source)], [200, 200]);
        counted(&slowlane, source, 3);
        // A question over HTTP is the fourth, and one through the other proxy the fifth.
        assert_eq!(slowlane.check("", &[("X-Slowlane-Source", source)]).status, 204);
        assert_eq!(ask(&other, source), 200);
        pushed(&other, source);
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
        let outcome: Vec<_> =
            counts.iter().map(|count| (count["peer"].as_str(), count["admitted"].as_u64())).collect();
        assert_eq!(outcome, [(Some("lb1"), Some(3)), (Some("lb2"), Some(1))]);
        assert_eq!(counts[0]["pushed"][0].as_u64(), Some(60_000_000));
        let listed = ran(&["status", "peers", "--admin", &slowlane.admin.to_string()]).out;
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
            (key["denied"].as_u64()? >= 2).then_some(())
        });
        let top = ran(&["top", "--once", "--admin", &slowlane.admin.to_string()]).out;
        assert!(top.contains("; peers 2, keys 3"), "{top}");
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
        pushed(&haproxy, source);
        eventually("the burst is used", || (ask(&haproxy, source) == 429).then_some(()));
        slowlane.replace("slo.map", FREE);
        eventually("the edit is taught", || (ask(&haproxy, source) == 200).then_some(()));
        let admin = slowlane.admin.to_string();
        let block = |action: &str, more: &[&str]| {
            let words = ["block", action, "source=192.0.2.7", "--admin", &admin];
            assert_eq!(ran(&[&words, more].concat()).code, 0);
        };
        block("add", &["--for", "10m"]);
        eventually("the block is taught", || (ask(&haproxy, source) == 429).then_some(()));
        block("rm", &[]);
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
        pushed(&haproxy, source);
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
    each(
        &[(V2_6, Delivery::PeersLua), (V3_2, Delivery::Peers), (V3_4, Delivery::Peers)],
        |version, delivery| {
            let (own, app) = (own_address(), Backend::start());
            let config = format!("[policy]\nkey_secret_file = \"secret\"\n[peers]\ndial = [\"lb1@{own}\"]\n");
            let slowlane = Slowlane::with_config(&[("slo.map", FIVE), ("source.map", SOURCES)], &config);
            // Nobody listens at the address that HAProxy dials.
            let nobody = own_address();
            let Some(haproxy) = haproxy((version, delivery), "lb1", own, &slowlane, nobody, &app) else {
                return;
            };
            let source = "192.0.2.10";
            assert_eq!(json(&slowlane, "/api/peers")["proxies"][0]["connection"]["is_dialled"], true);
            assert_eq!(ask(&haproxy, source), 200);
            pushed(&haproxy, source);
            eventually("the burst is used", || (ask(&haproxy, source) == 429).then_some(()));
            counted_at_most(&slowlane, source);
        },
    );
}

/// Five requests were admitted, and those that passed before the limit was there.
fn counted_at_most(slowlane: &Slowlane, source: &str) {
    let why = json(slowlane, &format!("/api/why?source={source}"));
    let admitted = why["slos"][0]["peers"][0]["admitted"].as_u64().unwrap();
    assert!((5..=6).contains(&admitted), "{admitted}");
}
