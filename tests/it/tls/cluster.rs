//! Nodes reach their store over TLS, and show their certificate if it wants one.

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::process::Command;

use crate::cli::ran;
use crate::support::redis::Redis;
use crate::support::slowlane::{BINARY, Slowlane};
use crate::support::tls::{Authority, Pair};
use crate::support::{eventually, free_port, own_address};

const POLICY: &[(&str, &str)] = &[
    ("slo.map", "0 rate=unlimited\n2001 burst=10 rate=10/h law=token-bucket\n"),
    ("website.map", "shop.example 2001\n"),
];

const TOKEN: &str = "0123456789abcdef";

/// A node of the store at this address.
fn node(store: &str, ca: &Authority, own: Option<&Pair>) -> Slowlane {
    let own = own.map(Pair::lines).unwrap_or_default();
    let config = format!("[cluster]\nstore = \"{store}\"\nca = \"{}\"\n{own}", ca.cert().display());
    Slowlane::with_config(POLICY, &config)
}

fn up(node: &Slowlane) -> f64 {
    node.metric("slowlane_cluster_up", "")
}

fn is_joined(node: &Slowlane) {
    eventually("the node reaches its store", || (up(node) == 1.0).then_some(()));
}

/// The node meets errors and stays alone.
fn is_kept_out(node: &Slowlane) {
    eventually("the node is refused", || {
        (node.metric("slowlane_cluster_errors_total", "kind") > 1.0).then_some(())
    });
    assert_eq!(up(node), 0.0);
}

#[test]
fn nodes_share_an_slo_by_a_token_server_over_tls() {
    let (servers, nodes) = (Authority::new("servers"), Authority::new("nodes"));
    let port = free_port();
    let lines = format!("{}client_ca = \"{}\"\n", servers.pair("server").lines(), nodes.cert().display());
    let config =
        format!("[cluster]\nlisten = [\"127.0.0.1:{port}\"]\ntoken_file = \"token\"\n[cluster.tls]\n{lines}");
    let files = [("../token", TOKEN), ("slo.map", "0 rate=unlimited\n")];
    let server = Slowlane::with_config(&files, &config);
    let store = format!("slowlanes://:{TOKEN}@localhost:{port}");
    let own = nodes.pair("node");
    // The key secret is that of the first. A node that takes another one begins with an empty table.
    let one = node(&store, &servers, Some(&own));
    is_joined(&one);
    let two = node(&store, &servers, Some(&own));
    is_joined(&two);
    let ask = |node: &Slowlane| node.check("", &[("X-Slowlane-Website", "shop.example")]).status;
    let mut passed = 0;
    // Before the first answer of the store, a node may admit less than the burst.
    eventually("the burst has passed", || {
        passed += (0..30).filter(|_| ask(&one) == 204).count();
        (passed >= 10).then_some(())
    });
    // The local budget of a node, a quarter of the burst of two nodes, may come on top while the key is new.
    assert!((10..=12).contains(&passed), "{passed} of 10");
    eventually("the other node knows", || (ask(&two) == 403).then_some(()));
    assert!(server.metric("slowlane_tls_handshakes_total", "listener=\"cluster\"") >= 2.0);

    is_kept_out(&node(&store, &servers, None));
    is_kept_out(&node(&store, &servers, Some(&servers.pair("foreign"))));
    is_kept_out(&node(&store, &nodes, Some(&own)));
    is_kept_out(&node(&store.replace("slowlanes://", "slowlane://"), &servers, Some(&own)));
    let shown = one.process.log().join("\n");
    assert!(shown.contains(&format!("the store is slowlanes://***@localhost:{port}")), "{shown}");
}

#[test]
fn redis_may_want_the_certificate_of_a_node() {
    let (servers, nodes) = (Authority::new("servers"), Authority::new("nodes"));
    let (server, address) = (servers.pair("server"), own_address());
    let port = (address.port() + 1).to_string();
    let [cert, key, ca] = [&server.cert, &server.key, &nodes.cert()].map(|path| path.display().to_string());
    let tls = ["--tls-port", &port, "--tls-auth-clients", "yes"];
    let files = ["--tls-cert-file", &cert, "--tls-key-file", &key, "--tls-ca-cert-file", &ca];
    // The certificate is for localhost.
    let bind = ["--bind", "127.0.0.1", &address.ip().to_string()];
    let _redis = Redis::at(address, &[&tls[..], &files, &bind].concat());
    let store = format!("rediss://localhost:{port}");
    let own = nodes.pair("node");
    let good = node(&store, &servers, Some(&own));
    is_joined(&good);
    is_kept_out(&node(&store, &servers, None));
}

/// The first bytes that a node sends to a store at this address. None: it does not start.
fn first_bytes(store: &str, listener: &TcpListener) -> Option<Vec<u8>> {
    let config = tempfile::NamedTempFile::new().unwrap();
    fs::write(config.path(), format!("[cluster]\nstore = \"{store}\"\n")).unwrap();
    if ran(&["check", "--config", config.path().to_str().unwrap()]).code != 0 {
        return None;
    }
    let _node = Slowlane::with_config(POLICY, &format!("[cluster]\nstore = \"{store}\"\n"));
    let (mut stream, _) = listener.accept().unwrap();
    let mut bytes = [0; 512];
    let length = stream.read(&mut bytes).unwrap();
    Some(bytes[..length].to_vec())
}

/// A TLS record of a handshake begins with 22.
#[test]
fn no_password_goes_out_in_clear_where_the_address_asks_for_tls() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = format!(":secret@127.0.0.1:{}", listener.local_addr().unwrap().port());
    for store in [
        format!("rediss://{at}"),
        format!("valkeys://{at}/1"),
        format!("rediss-cluster://{at}"),
        format!("rediss-sentinel://{at}/mymaster"),
    ] {
        assert_eq!(first_bytes(&store, &listener).map(|bytes| bytes[0]), Some(22), "{store}");
    }
    for store in [
        format!("redis://{at}/0#tls"),
        format!("redis://{at}/0?tls=true"),
        format!("redis-cluster://{at}?ssl=true"),
        format!("redis-sentinel://{at}/mymaster?secure=1"),
    ] {
        assert_eq!(first_bytes(&store, &listener), None, "{store}");
    }
    let clear = first_bytes(&format!("valkey://{at}"), &listener).unwrap();
    assert!(clear.starts_with(b"*"), "{clear:?}");
}

#[test]
fn a_node_whose_files_cannot_be_used_does_not_start() {
    let authority = Authority::new("nodes");
    let (own, folder) = (authority.pair("node"), tempfile::tempdir().unwrap());
    let path = folder.path().join("slowlane.toml");
    let other = Authority::new("others").pair("other").key;
    let store = "[cluster]\nstore = \"rediss://127.0.0.1:1\"\n";
    for (lines, expected) in [
        ("ca = \"missing.pem\"\n".to_owned(), ":3: [cluster] {folder}missing.pem: No such file or directory (os error 2); slowlane must be able to read the file".to_owned()),
        (Pair { key: own.cert.clone(), ..own.clone() }.lines(), format!(":3: [cluster] {}: the file has no private key; expected PEM like -----BEGIN PRIVATE KEY-----", own.cert.display())),
        (Pair { key: other.clone(), ..own.clone() }.lines(), format!(":4: [cluster] {}: No such file or directory (os error 2); slowlane must be able to read the file", other.display())),
    ] {
        fs::write(&path, format!("{store}{lines}")).unwrap();
        let checked = ran(&["check", "--config", path.to_str().unwrap()]);
        let expected = expected.replace("{folder}", &format!("{}/", folder.path().display()));
        // A certificate in the place of the key is also a key that every user may read.
        assert_eq!(checked.problems.last(), Some(&format!("{}{expected}", path.display())));
        let mut run = Command::new("timeout");
        run.args(["60", BINARY, "run", "--spop", "127.0.0.1:0", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        let output = run.arg("--config").arg(&path).output().unwrap();
        let outcome = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{outcome}");
        let (_, fault) = expected.split_once("[cluster] ").unwrap();
        assert!(outcome.contains(&format!("cannot join the cluster: {fault}")), "{outcome}");
    }
}
