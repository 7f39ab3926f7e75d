//! Peers over TLS: HAProxy shows its certificate, and strangers get nowhere.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use crate::support::backend::Backend;
use crate::support::client::Client;
use crate::support::haproxy::Version::{V2_6, V3_2, V3_4};
use crate::support::haproxy::{CONFIG, Delivery, Haproxy, each, replace, showing_verdicts};
use crate::support::slowlane::Slowlane;
use crate::support::tls::{Authority, NAME};
use crate::support::{eventually, own_address};

#[test]
fn haproxy_is_a_peer_over_tls_with_its_certificate() {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let (own, of_proxy) = (servers.pair("server"), clients.pair("haproxy"));
    let pem = clients.path("haproxy-both.pem");
    let both = [&of_proxy.cert, &of_proxy.key].map(|path| fs::read_to_string(path).unwrap());
    fs::write(&pem, both.concat()).unwrap();
    each(
        &[(V2_6, Delivery::PeersLua), (V3_2, Delivery::Peers), (V3_4, Delivery::Peers)],
        |version, delivery| {
            let (peers, at, app) = (own_address(), own_address(), Backend::start());
            let config = format!(
                "[peers]\nlisten = [\"{peers}\"]\n[peers.tls]\n{}client_ca = \"{}\"\n",
                own.lines(),
                clients.cert().display()
            );
            let files = [
                ("slo.map", "0 rate=unlimited\n3001 burst=2 rate=1/m\n"),
                ("source.map", "192.0.2.0/24 3001\n"),
            ];
            let slowlane = Slowlane::with_config(&files, &config);
            let edit = |file: &str, text: String| {
                if file != CONFIG {
                    return text;
                }
                let text = replace(&text, "peer lb1 127.0.0.1:10000", &format!("peer lb1 {at}"));
                let secured = format!(
                    "server slowlane {peers} ssl verify required verifyhost {NAME} ca-file {} crt {}",
                    servers.cert().display(),
                    pem.display()
                );
                showing_verdicts(file, replace(&text, "peer slowlane 127.0.0.1:9003", &secured))
            };
            let agent = slowlane.spop.to_string();
            let Some(haproxy) = Haproxy::with(version, delivery, &agent, app.address, edit) else { return };
            eventually("the peer is connected", || {
                (slowlane.metric("slowlane_peers_sessions", "") == 1.0).then_some(())
            });
            eventually("the limit holds", || {
                let mut client = Client::connect(haproxy.address);
                (client.request("GET", "/", &[("x-from", "192.0.2.1")], "").status == 429).then_some(())
            });

            // Without TLS, and so without a certificate, nobody is a peer.
            let mut stranger = TcpStream::connect(peers).unwrap();
            stranger.write_all(b"HAProxyS 2.1\nslowlane\nlb1 1 1\n").unwrap();
            let mut answer = Vec::new();
            let _ = stranger.read_to_end(&mut answer);
            assert!(!answer.starts_with(b"200"), "{answer:?}");
            assert_eq!(slowlane.metric("slowlane_peers_sessions", ""), 1.0);
            assert_eq!(slowlane.metric("slowlane_tls_handshakes_total", "listener=\"peers\""), 1.0);
        },
    );
}
