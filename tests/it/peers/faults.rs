//! Faults between slowlane and real HAProxys: lost acknowledgements, other tables, and resync answers at the wrong time.

use std::time::Duration;

use super::relay::{ACK, FINISHED, Fate, Faults, Kind, Relay, Seen, Side, UPDATES};
use super::started::{EACH, FIVE, ask, counted, edited, haproxy, pushed, slowlane, synced};
use crate::support::backend::Backend;
use crate::support::haproxy::{Delivery, Haproxy, Version, each, replace};
use crate::support::slowlane::Slowlane;
use crate::support::{eventually, own_address};

/// Each request passes, and each is charged.
const MANY: &str = "0 rate=unlimited\n3001 burst=1000 rate=10/s\n";

const SOURCES: [&str; 2] = ["192.0.2.20", "192.0.2.21"];

/// It asks once, at the beginning.
const QUIET: &str = "192.0.2.22";

/// Requests that proxies have let through, as slowlane has counted them.
fn admitted(slowlane: &Slowlane) -> f64 {
    slowlane.metric("slowlane_peers_admitted_total", "")
}

#[test]
fn counts_that_nobody_acknowledges_are_charged_once() {
    let no_acks = |seen: Seen| if seen.kind == ACK { Fate::Dropped } else { Fate::Passes };
    each(EACH, |version, delivery| {
        let ((slowlane, peers), app) = (slowlane(MANY, ""), Backend::start());
        let relay = Relay::start(peers, Faults { early: b"", fate: no_acks });
        let at = (version, delivery);
        let Some(haproxy) = haproxy(at, "lb1", own_address(), &slowlane, relay.address, &app) else { return };
        let passes = |times: usize| {
            for source in (0..times).map(|time| SOURCES[time % SOURCES.len()]) {
                assert_eq!(ask(&haproxy, source), 200);
            }
        };
        passes(20);
        assert_eq!(ask(&haproxy, QUIET), 200);
        eventually("all requests are counted", || (admitted(&slowlane) == 21.0).then_some(()));
        eventually("slowlane acknowledges, and HAProxy does not see it", || {
            (relay.count(0, Side::Slowlane, ACK) > 0).then_some(())
        });
        eventually("HAProxy's acknowledgements are lost, too", || {
            (slowlane.metric("slowlane_peers_acks_behind", "") > 0.0).then_some(())
        });
        passes(2);
        eventually("HAProxy goes on", || (admitted(&slowlane) == 23.0).then_some(()));
        assert_eq!(relay.connections(), 1);

        // HAProxy counts on without slowlane. In the next connection it sends all entries again.
        relay.cut();
        eventually("the connection is over", || {
            (slowlane.metric("slowlane_peers_sessions", "") == 0.0).then_some(())
        });
        passes(4);
        eventually("HAProxy has dialled again", || (relay.connections() > 1).then_some(()));
        synced(&slowlane, "lb1");
        eventually("only new requests are counted", || (admitted(&slowlane) == 27.0).then_some(()));
        let again = |kind: &Kind| {
            let later = 1..relay.connections();
            later.map(|connection| relay.count(connection, Side::Haproxy, *kind)).sum::<usize>()
        };
        let again: usize = UPDATES.iter().map(again).sum();
        assert!(again > SOURCES.len(), "{again} of three entries came again");
        counted(&slowlane, QUIET, 1);
        SOURCES.iter().for_each(|source| counted(&slowlane, source, 13));
        passes(2);
        eventually("so are later ones", || (admitted(&slowlane) == 29.0).then_some(()));
        SOURCES.iter().for_each(|source| counted(&slowlane, source, 14));
        assert_eq!(slowlane.metric("slowlane_peers_malformed_total", ""), 0.0);
    });
}

/// A HAProxy whose tables for counts and limits have other keys than the shipped ones.
fn with_keys(
    at: (Version, Delivery),
    [pace, limits]: [&str; 2],
    slowlane: &Slowlane,
    peers: std::net::SocketAddr,
    app: &Backend,
) -> Option<Haproxy> {
    let edit = |text: String| {
        let text = replace(
            &text,
            "type string len 128 size 100k expire 60s",
            &format!("type {pace} size 100k expire 60s"),
        );
        replace(
            &text,
            "type string len 128 size 100k expire 2s",
            &format!("type {limits} size 100k expire 2s"),
        )
    };
    let haproxy = edited(at, "lb1", own_address(), slowlane, peers, app, edit)?;
    synced(slowlane, "lb1");
    Some(haproxy)
}

#[test]
fn tables_may_have_keys_of_any_length() {
    each(EACH, |version, delivery| {
        for keys in [["string len 64"; 2], ["string len 200"; 2], ["string len 64", "string len 200"]] {
            let ((slowlane, peers), app) = (slowlane(FIVE, ""), Backend::start());
            let at = (version, delivery);
            let Some(haproxy) = with_keys(at, keys, &slowlane, peers, &app) else { return };
            assert_eq!(ask(&haproxy, SOURCES[0]), 200);
            pushed(&haproxy, SOURCES[0]);
            eventually("the limit holds", || (ask(&haproxy, SOURCES[0]) == 429).then_some(()));
            assert_eq!(slowlane.metric("slowlane_peers_malformed_total", ""), 0.0, "{keys:?}");
        }
    });
}

#[test]
fn limits_with_keys_of_another_type_are_not_taught() {
    each(EACH, |version, delivery| {
        for (keys, outcome) in [
            (["string len 128", "ip"], "slowlane_limits must be `type string`"),
            (["string len 128", "binary len 10"], "slowlane_limits must be `type string`"),
            (["ip", "string len 128"], "slowlane_pace must be `type string`"),
        ] {
            let ((mut slowlane, peers), app) = (slowlane(FIVE, ""), Backend::start());
            let at = (version, delivery);
            let Some(haproxy) = with_keys(at, keys, &slowlane, peers, &app) else { return };
            slowlane.process.logged(outcome);
            for _ in 0..10 {
                assert_eq!(ask(&haproxy, SOURCES[0]), 200, "{keys:?}");
            }
            eventually("the requests are counted", || (admitted(&slowlane) == 10.0).then_some(()));
            assert_eq!(slowlane.metric("slowlane_peers_pushes_total", ""), 0.0, "{keys:?}");
            let table = haproxy.runtime("show table slowlane_limits\n").unwrap();
            assert!(table.contains("used:0"), "{keys:?}: {table}");
            assert_eq!(slowlane.metric("slowlane_peers_sessions", ""), 1.0);
            assert_eq!(slowlane.metric("slowlane_peers_malformed_total", ""), 0.0, "{keys:?}");
        }
    });
}

fn is_answer(seen: Seen) -> bool {
    seen.from == Side::Slowlane && seen.kind == FINISHED
}

/// While its question is open, HAProxy sends no counts. If it has some, it closes after 5 s, dials again, and goes on.
#[test]
fn a_resync_answer_that_is_late_or_lost_costs_one_connection() {
    const LATE: Fate = Fate::Late(Duration::from_secs(7));
    for fate in [
        |seen| if is_answer(seen) { LATE } else { Fate::Passes },
        |seen| if is_answer(seen) { Fate::Dropped } else { Fate::Passes },
    ] {
        each(EACH, |version, delivery| {
            let Some(relay) = resynced(Faults { early: b"", fate }, (version, delivery)) else { return };
            assert!(relay.connections() > 1);
        });
    }
}

/// HAProxy 2.6 may then ask no more. From 3.0 on it ignores the answer, and asks.
#[test]
fn a_resync_answer_that_is_early_does_no_harm() {
    each(EACH, |version, delivery| {
        let early = Faults { early: b"\0\x01", fate: |_| Fate::Passes };
        let Some(relay) = resynced(early, (version, delivery)) else { return };
        let is_answered = relay.count(0, Side::Slowlane, FINISHED) > 0;
        assert!(is_answered || version == Version::V2_6, "slowlane answers the question");
    });
}

/// Waits until a limit holds in spite of these faults.
fn resynced(faults: Faults, at: (Version, Delivery)) -> Option<Relay> {
    let ((slowlane, peers), app) = (slowlane(FIVE, ""), Backend::start());
    let relay = Relay::start(peers, faults);
    let haproxy = edited(at, "lb1", own_address(), &slowlane, relay.address, &app, |text| text)?;
    synced(&slowlane, "lb1");
    eventually("the limit holds", || (ask(&haproxy, SOURCES[0]) == 429).then_some(()));
    assert_eq!(slowlane.metric("slowlane_peers_malformed_total", ""), 0.0);
    Some(relay)
}
