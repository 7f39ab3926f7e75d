//! `law=protect` through real proxies: as many as fit go inside, the others wait, and a customer passes the crawler.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::backend::Backend;
use crate::support::client::{self, Client, connection_from};
use crate::support::haproxy::Version::{V3_0, V3_2, V3_4};
use crate::support::haproxy::{Delivery, EACH_DELIVERY, Haproxy, each, replace};
use crate::support::nginx::Nginx;
use crate::support::printed::Printed;
use crate::support::slowlane::Slowlane;
use crate::support::{eventually, own_address};

/// A busy machine gets more than the usual five seconds.
const POLICY: &[(&str, &str)] = &[
    (
        "slo.map",
        "0 rate=unlimited\n2001 law=protect max_delay=15s\n2002 law=protect max_delay=15s dry_run=yes\n",
    ),
    ("website.map", "shop.example 2001\ntried.example 2002\n"),
];

/// The limit at the beginning.
const PLACES: usize = 16;

const CRAWLER: &str = "127.9.0.66";

fn application(slowlane: &Slowlane, slo: u64) -> Option<Value> {
    let headers = [("Accept", "application/json")];
    let list = client::get(slowlane.admin, "/api/protect", &headers).body;
    let list: Vec<Value> = serde_json::from_str(&list).unwrap();
    list.into_iter().find(|application| application["slo"] == slo)
}

/// Waits until so many are inside and so many wait.
fn settles(slowlane: &Slowlane, inside: usize, waiting: usize) {
    eventually(&format!("{inside} are inside and {waiting} wait"), || {
        let application = application(slowlane, 2001)?;
        (application["inside"] == inside && application["waiting"] == waiting).then_some(())
    });
}

fn ask(proxy: SocketAddr, source: &str, path: &str) -> Client {
    let mut client = Client::over(connection_from(source, proxy)).unwrap();
    client.send("GET", path, &[("Host", "shop.example")], "").unwrap();
    client
}

/// A crawler with 40 connections fills the application. A customer comes last, and is served before those who wait.
fn a_customer_passes_the_crawler(slowlane: &Slowlane, app: &Backend, proxy: SocketAddr) {
    // Shows that ends are reported.
    let mut first = ask(proxy, CRAWLER, "/first");
    assert_eq!(first.receive("GET", Instant::now()).unwrap().status, 200);
    eventually("its end is known", || (application(slowlane, 2001)?["sees_ends"] == true).then_some(()));
    settles(slowlane, 0, 0);

    app.gate.close();
    let mut crawler: Vec<Client> = (0..40).map(|_| ask(proxy, CRAWLER, "/crawl")).collect();
    settles(slowlane, PLACES, 40 - PLACES);
    eventually("the rest is held in front of it", || (app.gate.inside() == PLACES).then_some(()));
    let mut customer = ask(proxy, "127.9.0.1", "/shop");
    settles(slowlane, PLACES, 41 - PLACES);
    // The first request that is released when others leave is the customer's. A probe may let fewer inside.
    let released = || app.seen().into_iter().map(|seen| seen.path).nth(1 + PLACES);
    for left in 1..=PLACES {
        app.gate.let_one_out();
        eventually("the place is free, or taken by another", || {
            let application = application(slowlane, 2001)?;
            let [inside, waiting] =
                ["inside", "waiting"].map(|key| application[key].as_u64().unwrap() as usize);
            (inside + waiting == 41 - left && app.gate.inside() == inside).then_some(())
        });
        if released().is_some() {
            break;
        }
    }
    assert_eq!(released().as_deref(), Some("/shop"));
    app.gate.takes(Duration::from_millis(20));
    app.gate.open();
    assert_eq!(customer.receive("GET", Instant::now()).unwrap().status, 200);
    for client in &mut crawler {
        assert_eq!(client.receive("GET", Instant::now()).unwrap().status, 200, "nobody is refused");
    }
    settles(slowlane, 0, 0);
    let limit = slowlane.metric("slowlane_protect_limit", "slo=\"2001\"");
    assert!((2.0..=64.0).contains(&limit), "{limit}");
}

#[test]
fn a_customer_passes_the_crawler_in_haproxy() {
    each(EACH_DELIVERY, |version, delivery| {
        let (app, slowlane) = (Backend::start(), Slowlane::with_policy(POLICY));
        let agent = slowlane.spop.to_string();
        let mut haproxy = Haproxy::shipped(version, delivery, &agent, app.address).unwrap();
        haproxy.wait_for_agent("UP");
        a_customer_passes_the_crawler(&slowlane, &app, haproxy.address);
    });
}

/// HAProxy does not hold uploads.
#[test]
fn a_crawler_does_not_get_around_its_turn_by_uploads() {
    each(EACH_DELIVERY, |version, delivery| {
        let (app, slowlane) = (Backend::start(), Slowlane::with_policy(POLICY));
        let agent = slowlane.spop.to_string();
        let mut haproxy = Haproxy::shipped(version, delivery, &agent, app.address).unwrap();
        haproxy.wait_for_agent("UP");
        ask(haproxy.address, CRAWLER, "/").receive("GET", Instant::now()).unwrap();
        eventually("its end is known", || (application(&slowlane, 2001)?["sees_ends"] == true).then_some(()));
        app.gate.close();
        let inside: Vec<Client> = (0..60).map(|_| ask(haproxy.address, CRAWLER, "/")).collect();
        settles(&slowlane, PLACES, 60 - PLACES);
        let upload = |source: &str| {
            let mut client = Client::over(connection_from(source, haproxy.address)).unwrap();
            client.send("POST", "/", &[("Host", "shop.example")], "x").unwrap();
            client
        };
        let refused = upload(CRAWLER).receive("POST", Instant::now()).unwrap();
        assert_eq!(refused.status, 429);
        // A network with little credit left would not pass either.
        let mut customer = upload("127.8.0.1");
        settles(&slowlane, PLACES + 1, 60 - PLACES);
        app.gate.open();
        assert_eq!(customer.receive("POST", Instant::now()).unwrap().status, 200);
        drop(inside);
    });
}

/// The shipped nginx configuration, but with reports of the end.
fn reporting_the_end(name: &str, text: String) -> String {
    if name == "nginx.conf" { replace(&text, "# post_action", "post_action") } else { text }
}

#[test]
fn a_customer_passes_the_crawler_in_nginx() {
    let (app, slowlane) = (Backend::start(), Slowlane::with_policy(POLICY));
    let nginx = Nginx::with_files(&slowlane.http.to_string(), app.address, reporting_the_end);
    a_customer_passes_the_crawler(&slowlane, &app, nginx.address);
}

/// Envoy's access log reports the ends.
#[test]
fn a_customer_passes_the_crawler_in_envoy() {
    let (app, grpc) = (Backend::start(), own_address());
    let config = format!("[policy]\nkey_secret_file = \"secret\"\n[grpc]\nlisten = [\"{grpc}\"]\n");
    let slowlane = Slowlane::with_config(POLICY, &config);
    let Some(envoy) = Printed::envoy("hold", &slowlane, grpc, &app, |file| file) else { return };
    a_customer_passes_the_crawler(&slowlane, &app, envoy.address);
}

/// nginx closes the connection of the check, so the place in the queue is free at once.
#[test]
fn a_client_that_leaves_nginx_leaves_the_queue() {
    let (app, slowlane) = (Backend::start(), Slowlane::with_policy(POLICY));
    let nginx = Nginx::with_files(&slowlane.http.to_string(), app.address, reporting_the_end);
    ask(nginx.address, CRAWLER, "/").receive("GET", Instant::now()).unwrap();
    eventually("its end is known", || (application(&slowlane, 2001)?["sees_ends"] == true).then_some(()));
    app.gate.close();
    let inside: Vec<Client> = (0..PLACES).map(|_| ask(nginx.address, CRAWLER, "/")).collect();
    settles(&slowlane, PLACES, 0);
    let leaving = ask(nginx.address, "127.9.0.1", "/");
    settles(&slowlane, PLACES, 1);
    drop(leaving);
    settles(&slowlane, PLACES, 0);
    app.gate.open();
    drop(inside);
    settles(&slowlane, 0, 0);
}

/// Without ends, nobody waits: the application has as many inside as ask.
#[test]
fn a_proxy_that_reports_no_ends_lets_everybody_pass() {
    let (app, slowlane) = (Backend::start(), Slowlane::with_policy(POLICY));
    let nginx = Nginx::shipped(&slowlane.http.to_string(), app.address);
    app.gate.close();
    let mut clients: Vec<Client> = (0..40).map(|_| ask(nginx.address, CRAWLER, "/")).collect();
    eventually("all are inside", || (app.gate.inside() == 40).then_some(()));
    assert_eq!(application(&slowlane, 2001).unwrap()["sees_ends"], false);
    let text = client::get(slowlane.admin, "/api/protect", &[]).body;
    assert!(text.contains("everything passes, because the proxy does not report when"), "{text}");
    app.gate.open();
    for client in &mut clients {
        assert_eq!(client.receive("GET", Instant::now()).unwrap().status, 200);
    }
}

/// slowlane is killed while requests wait: they proceed. HAProxy 2.6.12 may keep those whose message it was just sending:
/// it loses `timeout processing` when a stream is woken for another reason (mended in 2024 by its commit 3c066b1e3).
#[test]
fn held_requests_proceed_when_slowlane_dies() {
    let deliveries =
        [(V3_0, Delivery::Hold), (V3_2, Delivery::Pause), (V3_4, Delivery::Pause), (V3_4, Delivery::Hold)];
    each(&deliveries, |version, delivery| {
        let (app, mut slowlane) = (Backend::start(), Slowlane::with_policy(POLICY));
        let agent = slowlane.spop.to_string();
        let mut haproxy = Haproxy::shipped(version, delivery, &agent, app.address).unwrap();
        haproxy.wait_for_agent("UP");
        ask(haproxy.address, CRAWLER, "/").receive("GET", Instant::now()).unwrap();
        eventually("its end is known", || (application(&slowlane, 2001)?["sees_ends"] == true).then_some(()));
        app.gate.close();
        let mut clients: Vec<Client> = (0..60).map(|_| ask(haproxy.address, CRAWLER, "/")).collect();
        settles(&slowlane, PLACES, 60 - PLACES);
        slowlane.kill();
        eventually("all are inside", || (app.gate.inside() == 60).then_some(()));
        app.gate.open();
        for client in &mut clients {
            assert_eq!(client.receive("GET", Instant::now()).unwrap().status, 200);
        }
    });
}

#[test]
fn a_dry_run_holds_nobody_and_counts_who_would_wait() {
    let (app, slowlane) = (Backend::start(), Slowlane::with_policy(POLICY));
    let nginx = Nginx::with_files(&slowlane.http.to_string(), app.address, reporting_the_end);
    let get = || Client::connect(nginx.address).request("GET", "/", &[("Host", "tried.example")], "").status;
    assert_eq!(get(), 200);
    eventually("its end is known", || (application(&slowlane, 2002)?["sees_ends"] == true).then_some(()));
    app.gate.close();
    thread::scope(|scope| {
        let asked: Vec<_> = (0..40).map(|_| scope.spawn(get)).collect();
        eventually("all are inside", || (app.gate.inside() == 40).then_some(()));
        let would_wait = slowlane.metric("slowlane_shadow_verdicts_total", "verdict=\"delay\"");
        assert_eq!(would_wait, (40 - PLACES) as f64);
        app.gate.open();
        asked.into_iter().for_each(|client| assert_eq!(client.join().unwrap(), 200));
    });
}
