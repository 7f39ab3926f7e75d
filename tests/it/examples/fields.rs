//! What a client writes into headers, absent, empty, twice and in odd forms, against the fields that slowlane counts by.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::stage::{Stage, versions_of};
use crate::support::client::Client;
use crate::support::eventually;

const LOG: &str = "[decision_log]\npath = 'decisions.json'\nverdicts = ['pass']\nper_second = 100000\n";

/// The name of a field of slowlane, or a header from which it can be taken.
const NAMES: [&str; 12] = [
    "X-Slowlane-Source",
    "X-Slowlane-Website",
    "X-Slowlane-Owner",
    "X-Slowlane-Method",
    "X-Slowlane-Cost",
    "X-Slowlane-Api-Key",
    "X-Slowlane-Ticket",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Method",
    "X-Forwarded-Uri",
    "X-Real-Ip",
];

type Headers = Vec<(String, String)>;

/// Each header alone, empty, twice, in odd case, with `_`; and named by `Connection`, so that a proxy takes it away.
fn attacks() -> Vec<Headers> {
    let mut attacks: Vec<Headers> = vec![Vec::new()];
    let mut add =
        |headers: &[(&str, &str)]| attacks.push(headers.iter().map(|&(n, v)| (n.into(), v.into())).collect());
    for name in NAMES {
        let value =
            if name.ends_with("Source") || name.ends_with("For") { "10.0.0.7" } else { "victim.example" };
        let (upper, under) = (name.to_uppercase(), name.replace('-', "_"));
        add(&[(name, value)]);
        add(&[(name, "")]);
        add(&[(name, " \t")]);
        add(&[(name, ""), (name, value)]);
        add(&[(name, value), (name, "")]);
        add(&[(&upper, value)]);
        add(&[(&under, value)]);
        add(&[("Connection", name)]);
        add(&[(name, value), ("Connection", &format!("keep-alive, {name}"))]);
        add(&[("Host", ""), (name, value)]);
    }
    add(&[("X-Slowlane-Cost", "0")]);
    add(&[("X-Slowlane-Cost", "-5")]);
    add(&[("Connection", "X-Slowlane-Source, X-Slowlane-Website, X-Forwarded-For, X-Forwarded-Host")]);
    attacks
}

/// Waits until as many requests are logged, and returns the last of them.
fn counted(stage: &Stage, requests: usize) -> Value {
    let path = stage.own_folder().join("decisions.json");
    let text = eventually("the decision is logged", || {
        let text = fs::read_to_string(&path).unwrap_or_default();
        (text.lines().count() >= requests).then_some(text)
    });
    assert_eq!(text.lines().count(), requests, "{text}");
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

/// Each request that is served was counted once, under its own source and the host that the application read.
fn no_header_chooses_what_is_counted(stage: &Stage) {
    // The proxy may have asked about a request that it could not pass on.
    let (mut served, mut logged) = (stage.app.count(), stage.judged() as usize);
    let plain = counted(stage, logged);
    for (number, attack) in attacks().into_iter().enumerate() {
        let mut headers: Vec<(&str, &str)> = attack.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        if !headers.iter().any(|&(name, _)| name == "Host") {
            headers.push(("Host", "shop.example"));
        }
        let path = format!("/{number}");
        let status = Client::connect(stage.at(8080)).request("GET", &path, &headers, "").status;
        assert!([200, 400, 403, 404].contains(&status), "{status}: {attack:?}");
        if stage.app.count() == served {
            assert_ne!(status, 200, "{attack:?}");
            // Envoy asks before it refuses a host.
            logged = stage.judged() as usize;
            continue;
        }
        (served, logged) = (served + 1, logged + 1);
        let outcome = counted(stage, logged);
        let mut expected = plain["fields"].clone();
        if expected["page"].is_string() {
            expected["page"] = path.as_str().into();
        }
        let seen = stage.app.saw(&path);
        let host = seen.headers.iter().find_map(|header| header.strip_prefix("host:")).unwrap_or("").trim();
        // Without a host, Traefik names the application itself.
        match host.replace(&stage.app.address.to_string(), "").as_str() {
            "" => drop(expected.as_object_mut().unwrap().remove("website")),
            host => expected["website"] = host.into(),
        }
        assert_eq!((&outcome["fields"], &outcome["cost"]), (&expected, &1.into()), "{attack:?}");
    }
    assert!(served > NAMES.len(), "most are served");
}

fn story(proxy: &str, flag: &str) {
    versions_of(proxy, flag).into_iter().for_each(|folder| story_of(proxy, folder));
}

fn story_of(proxy: &str, folder: PathBuf) {
    let mut stage = Stage::set(proxy);
    stage.proxies = folder;
    stage.edit("maps/slo.map", "3001 burst=5 rate=6/m law=token-bucket", "3001 rate=unlimited");
    stage.start_slowlane_with(LOG);
    stage.start_proxy(proxy);
    eventually("it has read its files", || {
        let status = stage.client().request("GET", "/ready", &[("Host", "shop.example")], "").status;
        (status == 200).then_some(())
    });
    no_header_chooses_what_is_counted(&stage);
}

#[test]
fn no_header_of_a_client_chooses_what_caddy_has_counted() {
    story("caddy", "version");
}

#[test]
fn no_header_of_a_client_chooses_what_traefik_has_counted() {
    story("traefik", "version");
}

#[test]
fn no_header_of_a_client_chooses_what_envoy_has_counted() {
    story("envoy", "--version");
}
