//! Held requests of several nodes: their turns come from the store, and may move while they wait.

use std::thread;
use std::time::Instant;

use spop::Data;

use crate::redis::is_joined;
use crate::support::client::{Client, Response};
use crate::support::eventually;
use crate::support::slowlane::Slowlane;
use crate::support::spop::{Line, hold_turn, request_held};
use crate::support::token_server::TokenServer;

/// A request has a slot every half second.
const POLICY: &[(&str, &str)] = &[
    ("slo.map", "0 rate=unlimited\n2001 burst=1 rate=2/s\n2002 burst=1 rate=2/s\n"),
    ("website.map", "shop.example 2001\nother.example 2002\n"),
];

fn nodes(server: &TokenServer) -> [Slowlane; 2] {
    let nodes = ["one", "other"].map(|name| {
        let config = format!("[cluster]\nstore = \"{}\"\nnode = \"{name}\"\n", server.url());
        Slowlane::with_config(POLICY, &config)
    });
    nodes.iter().for_each(|node| is_joined(node, 2));
    nodes
}

/// A request whose answer is not read yet.
struct Asked(Client, Instant);

impl Asked {
    fn of(node: &Slowlane, website: &str) -> Asked {
        let (mut client, now) = (Client::connect(node.http), Instant::now());
        client.send("GET", "/check", &[("X-Slowlane-Website", website)], "").unwrap();
        Asked(client, now)
    }

    fn answer(mut self) -> Response {
        self.0.receive("GET", self.1).unwrap()
    }
}

/// Of four requests each, one passes at once, and the others wait for a half, one and one and a half seconds. Without
/// the one that hangs up, the last of its website passes after one second.
#[test]
fn a_request_moves_up_when_the_client_before_it_hangs_up() {
    let server = TokenServer::start("");
    let [node, _other] = nodes(&server);
    let held = ["shop.example", "other.example"].map(|website| {
        assert_eq!(Asked::of(&node, website).answer().status, 204);
        (0..3).map(|_| Asked::of(&node, website)).collect::<Vec<_>>()
    });
    eventually("all are held", || (node.metric("slowlane_holds", "") == 6.0).then_some(()));
    let [mut left, whole] = held;
    drop(left.remove(0));
    let last = [left, whole].map(|asked| {
        let answers: Vec<_> = asked.into_iter().map(|asked| thread::spawn(|| asked.answer())).collect();
        answers
            .into_iter()
            .map(|answer| {
                let answer = answer.join().unwrap();
                assert_eq!(answer.status, 204);
                answer.answered_at()
            })
            .max()
            .unwrap()
    });
    assert!(last[0] < last[1], "the others move up");
    assert_eq!(node.metric("slowlane_holds_abandoned_total", ""), 1.0);
}

/// HAProxy says that it can hold, gets a turn with the delay, and returns it with the hold.
#[test]
fn haproxy_holds_a_request_until_its_turn() {
    let server = TokenServer::start("");
    let [node, _other] = nodes(&server);
    let mut line = Line::greeted(node.spop);
    // A proxy that does not hold gets a delay that is final.
    let delays: Vec<_> = (1..4).map(|stream_id| line.ask(stream_id, "192.0.2.1", "other.example")).collect();
    assert!(delays.iter().all(|heard| heard.variable("turn").is_none()), "{delays:?}");
    let mut turn = None;
    for stream_id in 1..4 {
        line.say(&request_held(stream_id, "shop.example"));
        let heard = line.hear();
        assert_ne!(heard.variable("verdict"), Some("deny"), "{heard:?}");
        turn = heard.variable("turn").map(str::to_owned).zip(heard.variable("key").map(str::to_owned));
    }
    let (number, key) = turn.expect("the third request waits");
    let [number, key] = [number, key].map(|number| Data::Int64(number.parse().unwrap()));
    line.say(&hold_turn(9, key, number));
    assert_eq!(line.hear().variable("verdict"), Some("pass"));
    // A turn that has passed, or that never was, is no reason to wait.
    for number in [number, Data::Int64(7), Data::Str(b"7")] {
        line.say(&hold_turn(10, key, number));
        assert_eq!(line.hear().variable("verdict"), Some("pass"));
    }
}

/// The store dies while requests wait, and the process is replaced: they pass all the same.
#[test]
fn held_requests_pass_without_the_store_and_through_an_upgrade() {
    let server = TokenServer::start("");
    let [mut node, _other] = nodes(&server);
    let asked: Vec<_> = (0..4).map(|_| Asked::of(&node, "shop.example")).collect();
    node.upgrade();
    drop(server);
    let more: Vec<_> = (0..2).map(|_| Asked::of(&node, "shop.example")).collect();
    for asked in asked.into_iter().chain(more) {
        assert_eq!(asked.answer().status, 204);
    }
}
