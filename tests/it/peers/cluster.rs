//! Proxies behind different slowlanes share an SLO: X is the clock of the cluster.

use crate::redis::{is_joined, is_reported};
use crate::support::backend::Backend;
use crate::support::client::Client;
use crate::support::haproxy::Version::{V2_6, V3_2, V3_4};
use crate::support::haproxy::{CONFIG, Delivery, Haproxy, each, replace, showing_verdicts};
use crate::support::slowlane::Slowlane;
use crate::support::token_server::TokenServer;
use crate::support::{eventually, own_address};

#[test]
fn proxies_behind_two_nodes_share_a_burst() {
    each(
        &[(V2_6, Delivery::PeersLua), (V3_2, Delivery::Peers), (V3_4, Delivery::Peers)],
        |version, delivery| {
            let (server, app) = (TokenServer::start(""), Backend::start());
            let files = [
                ("slo.map", "0 rate=unlimited\n3001 burst=30 rate=1/m max_delay=1s\n"),
                ("source.map", "192.0.2.0/24 3001\n"),
            ];
            let site = |name: &str| {
                let (peers, own) = (own_address(), own_address());
                let config = format!(
                    "[cluster]\nstore = \"{}\"\nnode = \"{name}\"\n[peers]\nlisten = [\"{peers}\"]\n",
                    server.url()
                );
                let slowlane = Slowlane::with_config(&files, &config);
                let edit = |file: &str, text: String| match file {
                    CONFIG => {
                        let text = replace(&text, "peer lb1 127.0.0.1:10000", &format!("peer lb1 {own}"));
                        showing_verdicts(
                            file,
                            replace(&text, "peer slowlane 127.0.0.1:9003", &format!("peer slowlane {peers}")),
                        )
                    }
                    _ => text,
                };
                let agent = slowlane.spop.to_string();
                let haproxy = Haproxy::with(version, delivery, &agent, app.address, edit)?;
                eventually("the proxy is connected", || {
                    let answer = crate::support::client::get(
                        slowlane.admin,
                        "/api/peers",
                        &[("Accept", "application/json")],
                    );
                    answer.body.contains("\"is_synced\":true").then_some(())
                });
                Some((slowlane, haproxy))
            };
            let (Some((one, first)), Some((other, second))) = (site("one"), site("other")) else { return };
            for node in [&one, &other] {
                is_joined(node, 2);
            }
            let ask = |haproxy: &Haproxy| {
                let mut client = Client::connect(haproxy.address);
                client.request("GET", "/", &[("x-from", "192.0.2.1"), ("Host", "any.example")], "").status
            };
            let mut admitted = (0..20).filter(|_| ask(&first) == 200).count();
            assert_eq!(admitted, 20, "the burst is there for one node");
            is_reported(&one);
            for haproxy in [&second, &first] {
                eventually("the burst is used up", || {
                    let is_over = ask(haproxy) == 429;
                    admitted += usize::from(!is_over);
                    // X comes with the answer to a count. Give it the time.
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    is_over.then_some(())
                });
            }
            // Without the common clock, it would be twice the burst.
            assert!((28..=40).contains(&admitted), "{admitted}");
        },
    );
}
