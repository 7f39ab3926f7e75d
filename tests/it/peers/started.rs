//! A slowlane and real HAProxys that are its peers, with the shipped files.

use std::net::SocketAddr;

use crate::support::backend::Backend;
use crate::support::client::Client;
use crate::support::haproxy::Version::{V2_6, V3_0, V3_2, V3_4};
use crate::support::haproxy::{CONFIG, Delivery, Haproxy, Version, replace, showing_verdicts};
use crate::support::slowlane::Slowlane;
use crate::support::{client, eventually, own_address};

pub const EACH: &[(Version, Delivery)] = &[
    (V2_6, Delivery::PeersLua),
    (V3_0, Delivery::PeersLua),
    (V3_2, Delivery::Peers),
    (V3_4, Delivery::Peers),
];

/// One request a minute after the first five: what is admitted can be counted.
pub const FIVE: &str = "0 rate=unlimited\n3001 burst=5 rate=1/m max_delay=1s\n";
pub const SOURCES: &str = "192.0.2.0/24 3001\n";

/// A slowlane with a listener for peers, and its address.
pub fn slowlane(slo_map: &str, more: &str) -> (Slowlane, SocketAddr) {
    let peers = own_address();
    let config = format!(
        "[policy]\nkey_secret_file = \"secret\"\n[peers]\nlisten = [\"{peers}\"]\nallow = [\"lb1\", \"lb2\"]\n{more}"
    );
    (Slowlane::with_config(&[("slo.map", slo_map), ("source.map", SOURCES)], &config), peers)
}

/// A HAProxy with the shipped file and this name, whose clients choose their source by a header.
pub fn haproxy(
    (version, delivery): (Version, Delivery),
    name: &str,
    own: SocketAddr,
    slowlane: &Slowlane,
    peers: SocketAddr,
    app: &Backend,
) -> Option<Haproxy> {
    let haproxy = edited((version, delivery), name, own, slowlane, peers, app, |text| text)?;
    // What HAProxy counts before it has told all its entries is from the time before slowlane.
    synced(slowlane, name);
    Some(haproxy)
}

/// The same with an edit of its file. It may not be connected yet.
pub fn edited(
    (version, delivery): (Version, Delivery),
    name: &str,
    own: SocketAddr,
    slowlane: &Slowlane,
    peers: SocketAddr,
    app: &Backend,
    edit: impl Fn(String) -> String,
) -> Option<Haproxy> {
    let edit = |file: &str, text: String| {
        if file != CONFIG {
            return text;
        }
        let text = replace(&text, "localpeer lb1", &format!("localpeer {name}"));
        let text = replace(&text, "peer lb1 127.0.0.1:10000", &format!("peer {name} {own}"));
        let text = replace(&text, "peer slowlane 127.0.0.1:9003", &format!("peer slowlane {peers}"));
        let text = text.replace("expire 10s", "expire 2s");
        showing_verdicts(file, edit(text))
    };
    Haproxy::with(version, delivery, &slowlane.spop.to_string(), app.address, edit)
}

/// Waits until a proxy has told all its entries.
pub fn synced(slowlane: &Slowlane, name: &str) {
    eventually("the proxy is connected", || {
        let status = json(slowlane, "/api/peers");
        let proxies = status["proxies"].as_array()?;
        let proxy = proxies.iter().find(|proxy| proxy["name"] == name)?;
        (proxy["connection"]["is_synced"] == true).then_some(())
    });
}

/// The status of a request from a source.
pub fn ask(haproxy: &Haproxy, source: &str) -> u16 {
    let mut client = Client::connect(haproxy.address);
    client.request("GET", "/", &[("x-from", source), ("Host", "any.example")], "").status
}

/// Waits until HAProxy has the limit of a source.
pub fn pushed(haproxy: &Haproxy, source: &str) {
    eventually("the limit is taught", || {
        let table = haproxy.runtime(&format!("show table slowlane_limits key {source}\n"))?;
        table.contains("gpt0=60000000").then_some(())
    });
}

pub fn json(slowlane: &Slowlane, path: &str) -> serde_json::Value {
    let answer = client::get(slowlane.admin, path, &[("Accept", "application/json")]);
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

/// Waits until slowlane has counted this many requests of a source, of all proxies and ways.
pub fn counted(slowlane: &Slowlane, source: &str, requests: u64) {
    eventually("slowlane counts the requests", || {
        let why = json(slowlane, &format!("/api/why?source={source}"));
        (why["slos"][0]["entry"]["http_req_cnt"].as_u64()? == requests).then_some(())
    });
}
