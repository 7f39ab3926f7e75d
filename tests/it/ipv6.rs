//! IPv6 from end to end: HAProxy and nginx listen on `[::1]`, and share the SLOs of networks and single addresses.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Mutex, PoisonError};

use crate::support::backend::Backend;
use crate::support::client::{self, Client};
use crate::support::haproxy::Version::{V2_6, V3_0, V3_2, V3_4};
use crate::support::haproxy::{
    CONFIG, Delivery, Haproxy, Version, each, replace, showing_verdicts_patiently,
};
use crate::support::nginx::Nginx;
use crate::support::slowlane::Slowlane;
use crate::support::{eventually, own_address, skipped};

/// Two requests, and the next one after ten minutes: for the loopback, for a /64, and for one address.
const POLICY: &[(&str, &str)] = &[
    (
        "slo.map",
        "0 rate=unlimited\n3001 burst=2 rate=6/h max_delay=1s\n3002 burst=2 rate=6/h max_delay=1s\n\
         3003 burst=2 rate=6/h max_delay=1s\n",
    ),
    ("source.map", "::/64 3001\n2001:db8:1:2::/64 3002\n2001:db8:5:5::7 3003\n"),
];

/// A proxy's ports on `[::1]`: for clients there, and for those that the PROXY protocol names.
#[derive(Clone, Copy)]
struct Ports {
    direct: SocketAddr,
    named: SocketAddr,
}

/// Two ports could be given twice until their proxy has them.
static CHOOSING: Mutex<()> = Mutex::new(());

impl Ports {
    fn choose() -> Ports {
        let [direct, named] = [(); 2].map(|()| TcpListener::bind("[::1]:0").unwrap());
        Ports { direct: direct.local_addr().unwrap(), named: named.local_addr().unwrap() }
    }

    /// The status for a client at `::1`.
    fn ask(self) -> u16 {
        client::get(self.direct, "/", &[("Host", "any.example")]).status
    }

    /// The status for a client with this address.
    fn ask_from(self, source: &str) -> u16 {
        let mut connection = TcpStream::connect(self.named).unwrap();
        connection.write_all(format!("PROXY TCP6 {source} ::1 1000 80\r\n").as_bytes()).unwrap();
        Client::over(connection).unwrap().request("GET", "/", &[("Host", "any.example")], "").status
    }
}

/// HAProxy with these ports, as a peer if the delivery needs one.
fn haproxy(edited: &str, ports: Ports, peers: SocketAddr) -> String {
    let Ports { direct, named } = ports;
    let binds = format!("    bind {direct}\n    bind {named} accept-proxy\n    bind ");
    let text = replace(edited, "    bind ", &binds);
    let text = text.replace("peer lb1 127.0.0.1:10000", &format!("peer lb1 {}", own_address()));
    text.replace("peer slowlane 127.0.0.1:9003", &format!("peer slowlane {peers}"))
}

fn nginx(text: &str, Ports { direct, named }: Ports) -> String {
    let listen = format!(
        "listen {direct};\n listen {named} proxy_protocol;\n set_real_ip_from ::1;\n \
         real_ip_header proxy_protocol;\n listen "
    );
    replace(text, "listen ", &listen)
}

fn json(slowlane: &Slowlane, path: &str) -> serde_json::Value {
    let answer = client::get(slowlane.admin, path, &[("Accept", "application/json")]);
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

/// Waits until slowlane has counted two requests under the key of an address, of whatever proxy.
fn counted_two(slowlane: &Slowlane, source: &str) {
    eventually("slowlane counts both", || {
        let why = json(slowlane, &format!("/api/why?source={source}"));
        (why["slos"][0]["entry"]["http_req_cnt"].as_u64()? >= 2).then_some(())
    });
}

/// Waits until HAProxy enforces the limit of a key by itself.
fn pushed(haproxy: &Haproxy, key: &str) {
    eventually("the limit is taught", || {
        let table = haproxy.runtime("show table slowlane_limits\n")?;
        let mut lines = table.lines().filter(|line| line.contains("gpt0=600000000"));
        lines.any(|line| line.contains(&format!("key={key} "))).then_some(())
    });
}

#[test]
fn clients_of_ipv6_are_held_by_their_network_through_both_proxies() {
    const EACH: &[(Version, Delivery)] = &[
        (V2_6, Delivery::Lua),
        (V3_0, Delivery::Hold),
        (V3_2, Delivery::Pause),
        (V3_4, Delivery::Pause),
        (V2_6, Delivery::PeersLua),
        (V3_2, Delivery::Peers),
        (V3_4, Delivery::Peers),
    ];
    if TcpListener::bind("[::1]:0").is_err() {
        return skipped("this machine has no IPv6");
    }
    each(EACH, |version, delivery| {
        let (app, peers) = (Backend::start(), own_address());
        let config = format!("[peers]\nlisten = [\"{peers}\"]\nallow = [\"lb1\"]\n");
        let slowlane = Slowlane::with_config(POLICY, &config);
        let chosen = CHOOSING.lock().unwrap_or_else(PoisonError::into_inner);
        let [one, other] = [Ports::choose(), Ports::choose()];
        let edit = |name: &str, text: String| {
            let text = showing_verdicts_patiently(name, text);
            if name == CONFIG { haproxy(&text, one, peers) } else { text }
        };
        let agent = slowlane.spop.to_string();
        let mut haproxy = Haproxy::with(version, delivery, &agent, app.address, edit).unwrap();
        let _nginx = Nginx::with(&slowlane.http.to_string(), app.address, |text| nginx(&text, other));
        drop(chosen);
        haproxy.wait_for_agent("UP");
        let is_peer = matches!(delivery, Delivery::Peers | Delivery::PeersLua);
        if is_peer {
            eventually("it has told all its entries", || {
                let status = json(&slowlane, "/api/peers");
                (status["proxies"][0]["connection"]["is_synced"] == true).then_some(())
            });
        }

        // Each host of the /64 takes of the same bucket, at both proxies. HAProxy shows its key.
        let (first, second, third) = ("2001:db8:1:2::a", "2001:db8:1:2:ffff::b", "2001:db8:1:2::c");
        assert_eq!([one.ask_from(first), one.ask_from(second)], [200, 200]);
        if is_peer {
            pushed(&haproxy, "2001:db8:1:2::");
        }
        counted_two(&slowlane, third);
        assert_eq!([one.ask_from(third), other.ask_from("2001:db8:1:2::d")], [429, 429]);
        assert_eq!([one.ask_from("2001:db8:1:3::a"), other.ask_from("2001:db8:1:3::a")], [200, 200]);

        // A line for one address leaves its neighbours alone.
        // With peers, HAProxy knows only the network.
        let asks = if is_peer { other } else { one };
        assert_eq!([asks.ask_from("2001:db8:5:5::7"), other.ask_from("2001:db8:5:5::7")], [200, 200]);
        assert_eq!([asks.ask_from("2001:db8:5:5::7"), other.ask_from("2001:db8:5:5::7")], [429, 429]);
        assert_eq!([other.ask_from("2001:db8:5:5::8"), one.ask_from("2001:db8:5:5::8")], [200, 200]);

        // A client at ::1, without any PROXY protocol.
        let asks = if is_peer { other } else { one };
        assert_eq!([asks.ask(), other.ask()], [200, 200]);
        assert_eq!([asks.ask(), other.ask()], [429, 429]);
    });
}
