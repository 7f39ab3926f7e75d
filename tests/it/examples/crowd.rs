//! Other proxies while more than two thousand requests wait in slowlane: none passes uncounted.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use super::stage::{Stage, versions_of};
use crate::support::client::{self, Client};
use crate::support::eventually;

/// More than twice 1024: by default, that many connections ask for Envoy, and that many requests wait for one of them.
const CROWD: usize = 2_400;

/// A request that counts for this many puts eight seconds of queue before the crowd.
const AHEAD: &str = "8000";

/// `shop`: one request. `queue`: 1000/s, with delays that end before Envoy's patience.
const SLO_MAP: &str = "0 rate=unlimited\n2001 burst=1 rate=1/h law=token-bucket\n\
                       2002 burst=1 rate=1000/s max_delay=11s\n";

fn story(proxy: &str, flag: &str) {
    versions_of(proxy, flag).into_iter().for_each(|folder| story_of(proxy, folder));
}

fn story_of(proxy: &str, folder: PathBuf) {
    let mut stage = Stage::set(proxy);
    stage.proxies = folder;
    let maps = stage.own_folder().join("maps");
    fs::remove_file(maps.join("source.map")).unwrap();
    fs::write(maps.join("slo.map"), SLO_MAP).unwrap();
    fs::write(maps.join("website.map"), "shop.example 2001\nqueue.example 2002\n").unwrap();
    stage.start_slowlane();
    stage.start_proxy(proxy);
    eventually("it has read its files", || {
        (stage.client().request("GET", "/ready", &[("Host", "free.example")], "").status == 200).then_some(())
    });
    let mut over = stage.client();
    let mut ask = || over.request("GET", "/over", &[("Host", "shop.example")], "").status;
    assert_eq!([ask(), ask()], [200, 429]);

    let ahead = [("X-Slowlane-Website", "queue.example"), ("X-Slowlane-Cost", AHEAD)];
    assert_eq!(client::get(stage.at(9001), "/check?hold=off", &ahead).status, 204);
    let mut crowd: Vec<Client> = (0..CROWD).map(|_| stage.client()).collect();
    let at = Instant::now();
    for client in &mut crowd {
        client.send("GET", "/queue", &[("Host", "queue.example")], "").unwrap();
    }
    let holds = || stage.metric("slowlane_holds", "") as usize;
    let is_served = || stage.app.seen().iter().any(|seen| seen.path == "/queue");
    eventually("all wait, or one is served", || (holds() >= CROWD || is_served()).then_some(()));
    for number in 0..20 {
        assert_eq!(ask(), 429, "request {number} while {} wait", holds());
    }
    let answers: Vec<u16> =
        crowd.iter_mut().map(|client| client.receive("GET", at).unwrap().status).collect();
    // One was ahead.
    assert_eq!(stage.metric("slowlane_verdicts_total", "slo=\"2002\"") as usize, CROWD + 1);
    assert_eq!(answers, [200; CROWD]);
    stage.app.saw("/over");
}

#[test]
fn envoy_asks_for_each_request_of_a_crowd_that_waits() {
    story("envoy", "--version");
}

#[test]
fn caddy_asks_for_each_request_of_a_crowd_that_waits() {
    story("caddy", "version");
}

#[test]
fn traefik_asks_for_each_request_of_a_crowd_that_waits() {
    story("traefik", "version");
}
