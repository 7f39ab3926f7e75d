//! `slowlane groups`: who sends the requests, of real daemons behind real proxies.

use std::time::Duration;

use serde_json::Value;

use crate::cli::ran;
use crate::support::backend::Backend;
use crate::support::chromium::Chromium;
use crate::support::client::{self, Client, connection_from};
use crate::support::eventually;
use crate::support::printed::{EACH, Printed};
use crate::support::slowlane::Slowlane;

const POLICY: &[(&str, &str)] = &[
    ("slo.map", "0 rate=unlimited\n2001 burst=1 rate=1/s law=concurrency max=9\n"),
    ("website.map", "shop.example 2001\n"),
];

/// The rows of a field, in their order.
fn rows(slowlane: &Slowlane, query: &str) -> Vec<Value> {
    let answer = client::get(slowlane.admin, &format!("/api/groups?{query}"), &[]);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let mut ranking: Value = serde_json::from_str(&answer.body).unwrap();
    serde_json::from_value(ranking["groups"].take()).unwrap()
}

fn values(slowlane: &Slowlane, query: &str) -> Vec<String> {
    rows(slowlane, query).iter().map(|row| row["value"].as_str().unwrap().to_owned()).collect()
}

/// A crawler from 100 addresses in each of two networks, and a customer.
fn crawl(slowlane: &Slowlane) {
    let mut client = Client::connect(slowlane.http);
    for number in 0..100 {
        for source in ["203.0.113.", "198.51.100."].map(|network| format!("{network}{number}")) {
            let fields = [("X-Slowlane-Source", source.as_str()), ("X-Slowlane-User-Agent", "crawler/1.0")];
            client.request("GET", "/check?hold=off", &fields, "");
        }
        let fields = [("X-Slowlane-Source", "192.0.2.7"), ("X-Slowlane-User-Agent", "Mozilla/5.0")];
        client.request("GET", "/check?hold=off", &fields, "");
    }
}

#[test]
fn a_crawler_with_many_addresses_is_found_by_its_networks_and_its_user_agent() {
    let slowlane = Slowlane::with_config(POLICY, "[policy]\nrank = ['user_agent']\n");
    // Of many requests at once a sample is noted. Further requests make it better.
    let networks = eventually("the sample is good", || {
        crawl(&slowlane);
        let rows = rows(&slowlane, "over=1m&field=network");
        let shares: f64 = rows.iter().map(|row| row["share"].as_f64().unwrap()).sum();
        ((shares - 2.0 / 3.0).abs() < 0.1).then_some(rows)
    });
    let mut names: Vec<&str> = networks.iter().map(|row| row["value"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["198.51.100.0/24", "203.0.113.0/24"], "that of the customer has one address");
    for network in &networks {
        let addresses = network["addresses"].as_u64().unwrap();
        assert!((40..=150).contains(&addresses), "100, of which a sample is seen: {network}");
    }
    assert_eq!(values(&slowlane, "over=10m&field=user_agent"), ["crawler/1.0", "Mozilla/5.0"]);
    assert_eq!(values(&slowlane, "over=1h&field=source")[0], "192.0.2.7");
    let admin = slowlane.admin.to_string();
    let outcome = ran(&["groups", "network", "--over", "1m", "--admin", &admin]);
    assert_eq!(outcome.code, 0, "{:?}", outcome.problems);
    assert!(
        outcome.out.contains("network=203.0.113.0/24") && outcome.out.contains("averaged over 1m"),
        "{}",
        outcome.out
    );
    let status = ran(&["status", "--admin", &admin]).out;
    assert!(status.contains("user_agent=crawler/1.0"), "{status}");
    for wrong in ["over=2m", "by=size", "top=3"] {
        let answer = client::get(slowlane.admin, &format!("/api/groups?{wrong}"), &[]);
        assert_eq!((answer.status, answer.body.contains("over=1m, 10m or 1h")), (400, true), "{wrong}");
    }
}

/// A derived field may be ranked, too. Clients cannot send it.
#[test]
fn networks_of_one_owner_are_found_by_a_map() {
    let config =
        "[policy]\nrank = ['asn']\n[policy.derived.asn]\nfrom = 'source'\nmap = 'asn.map'\nmatch = 'ip'\n";
    let asns = ("asn.map", "203.0.113.0/24 AS64500 Example Net\n198.51.100.0/24 AS64500 Example Net\n");
    let slowlane = Slowlane::with_config(&[POLICY[0], POLICY[1], asns], config);
    eventually("the owner is ranked", || {
        crawl(&slowlane);
        slowlane.check("?hold=off", &[("X-Slowlane-Source", "192.0.2.7"), ("X-Slowlane-Asn", "AS64501")]);
        let rows = rows(&slowlane, "over=1m&field=asn");
        let [row] = rows.as_slice() else { return None };
        assert_eq!(row["value"], "AS64500 Example Net");
        (row["share"].as_f64()? > 0.5).then_some(())
    });
}

#[test]
fn a_network_is_blocked_from_the_page() {
    let slowlane = Slowlane::with_policy(POLICY);
    crawl(&slowlane);
    let mut page = Chromium::open(&format!("http://{}/", slowlane.admin), 1200, 900);
    page.shows("#groups", "network=203.0.113.0/24");
    page.value("[...document.querySelectorAll('#groups td button')].find(b => b.textContent === 'network=203.0.113.0/24').click()");
    page.shows("#why-who", "network=203.0.113.0/24");
    page.value("document.querySelector('#block button').click()");
    page.shows("#block-done", "203.0.113.0/24");
    let check = |source| slowlane.check("?hold=off", &[("X-Slowlane-Source", source)]).status;
    assert_eq!([check("203.0.113.200"), check("198.51.100.200")], [403, 204]);
    assert_eq!(page.problems(), [""; 0]);
}

#[test]
fn names_that_clients_choose_are_text_on_the_page() {
    let slowlane = Slowlane::with_policy(POLICY);
    slowlane.check("?hold=off", &[("X-Slowlane-Owner", "<b>acme</b>")]);
    eventually("it is ranked", || (values(&slowlane, "field=owner") == ["<b>acme</b>"]).then_some(()));
    let mut page = Chromium::open(&format!("http://{}/", slowlane.admin), 1200, 900);
    page.shows("#groups", "owner=<b>acme</b>");
    assert_eq!(page.value("document.querySelectorAll('#groups b').length"), 0);
}

/// The ends that HAProxy reports tell how long the requests of a group take.
#[test]
fn haproxy_sends_the_fields_that_are_only_ranked() {
    for version in [EACH[0], EACH[5], EACH[9]] {
        let config = "[policy]\nrank = ['user_agent']\n";
        let (app, slowlane) = (Backend::start(), Slowlane::with_config(POLICY, config));
        let [file, policy] =
            ["slowlane.toml", "policy"].map(|name| slowlane.folder().join(name).display().to_string());
        let Some(haproxy) =
            Printed::haproxy(version, &slowlane, &app, &["--config", &file, "--policy", &policy])
        else {
            continue;
        };
        let ask = |source: &str, agent: &str| {
            let mut client = Client::over(connection_from(source, haproxy.address)).unwrap();
            let headers = [("Host", "shop.example"), ("User-Agent", agent)];
            assert_eq!(client.request("GET", "/", &headers, "").status, 200);
        };
        (0..20).for_each(|_| ask("127.9.0.1", "customer"));
        app.gate.takes(Duration::from_millis(100));
        (0..5).for_each(|number| ask(&format!("127.9.1.{number}"), "crawler"));
        eventually("the customer sends more, and the crawler takes more", || {
            let by = |measure: &str| values(&slowlane, &format!("over=1m&field=user_agent&by={measure}"));
            (by("requests") == ["customer", "crawler"] && by("work")[0] == "crawler").then_some(())
        });
    }
}
