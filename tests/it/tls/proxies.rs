//! Real proxies ask over TLS, with the files that `slowlane config` prints.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::Secured;
use crate::cli::ran;
use crate::support::backend::Backend;
use crate::support::printed::{EACH, Printed};
use crate::support::tls::{Authority, Pair};
use crate::support::{eventually, skipped};

/// The folder that the printed files name as `/etc/slowlane/tls`.
fn folder(trusted: &Authority, own: &Pair) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let [ca, cert, key] =
        [&trusted.cert(), &own.cert, &own.key].map(|path| fs::read_to_string(path).unwrap());
    let haproxy = format!("{cert}{key}");
    for (name, text) in
        [("ca.pem", &ca), ("nginx.pem", &cert), ("nginx.key", &key), ("haproxy.pem", &haproxy)]
    {
        fs::write(folder.path().join(name), text).unwrap();
    }
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

fn status(proxy: &Printed, website: &str) -> u16 {
    proxy.client().request("GET", "/", &[("Host", website)], "").status
}

/// The website passes once an hour: the second request is refused as soon as the proxy asks.
fn is_throttled(proxy: &Printed, what: &str) {
    eventually(what, || (status(proxy, "once.example") == 429).then_some(()));
    assert_eq!(status(proxy, "free.example"), 200, "{what}");
}

/// Each HAProxy with its first way to deliver a delay.
fn haproxys() -> Vec<((&'static str, &'static str, &'static str), PathBuf)> {
    let mut found = Vec::new();
    for (version, number, delivery, main) in EACH {
        let is_wanted = matches!((number, delivery), ("2.6" | "3.0", "hold") | ("3.2.26", "pause"));
        match version.binary() {
            Some(binary) if is_wanted => found.push(((number, delivery, main), binary)),
            None if is_wanted => skipped(&format!("HAProxy {number} cannot be had on this machine (TLS)")),
            _ => {}
        }
    }
    found
}

fn haproxy(secured: &Secured, what: (&str, &str, &str), binary: &Path, app: &Backend, tls: &Path) -> Printed {
    let agent = secured.slowlane.spop.to_string();
    Printed::haproxy_at(&agent, what, binary, app, &["--tls"], Some(tls)).unwrap()
}

#[test]
fn haproxy_asks_over_tls_and_shows_its_certificate() {
    let (clients, app) = (Authority::new("clients"), Backend::start());
    let own = clients.pair("haproxy");
    for (what, binary) in haproxys() {
        let secured = Secured::for_clients_of(&clients, "");
        let files = folder(&secured.authority, &own);
        let proxy = haproxy(&secured, what, &binary, &app, files.path());
        is_throttled(&proxy, what.0);
        assert_eq!(status(&proxy, "slow.example"), 200);
        assert_eq!(status(&proxy, "slow.example"), 200);
        assert!(secured.slowlane.metric("slowlane_verdicts_total", "verdict=\"delay\"") >= 1.0, "{what:?}");
    }
}

#[test]
fn nginx_asks_over_tls_and_shows_its_certificate() {
    let (clients, app) = (Authority::new("clients"), Backend::start());
    let secured = Secured::for_clients_of(&clients, "");
    let files = folder(&secured.authority, &clients.pair("nginx"));
    let agent = secured.slowlane.http.to_string();
    let proxy = Printed::nginx_with(&agent, &secured.slowlane, &app, &["--tls"], Some(files.path()));
    is_throttled(&proxy, "nginx");
    let before = secured.slowlane.metric("slowlane_tls_handshakes_total", "listener=\"http\"");
    for _ in 0..20 {
        assert_eq!(status(&proxy, "free.example"), 200);
    }
    // The workers keep their connections.
    let handshakes = secured.slowlane.metric("slowlane_tls_handshakes_total", "listener=\"http\"") - before;
    assert!(handshakes < 20.0, "{handshakes}");
}

/// A proxy that does not trust slowlane asks nothing, and lets its requests pass.
#[test]
fn a_proxy_that_trusts_another_authority_does_not_ask() {
    let (strangers, app) = (Authority::new("strangers"), Backend::start());
    let secured = Secured::start("", "");
    let files = folder(&strangers, &strangers.pair("proxy"));
    let asked = || secured.slowlane.metric("slowlane_verdicts_total", "");
    for (what, binary) in haproxys() {
        let before = secured.failures("refused");
        let proxy = haproxy(&secured, what, &binary, &app, files.path());
        eventually("HAProxy refuses the certificate", || {
            (secured.failures("refused") > before).then_some(())
        });
        assert_eq!([(); 3].map(|()| status(&proxy, "once.example")), [200; 3], "{what:?}");
    }
    let agent = secured.slowlane.http.to_string();
    let nginx = Printed::nginx_with(&agent, &secured.slowlane, &app, &["--tls"], Some(files.path()));
    assert_eq!([(); 3].map(|()| status(&nginx, "once.example")), [200; 3]);
    // nginx looks at the certificate after the handshake.
    assert!(secured.slowlane.metric("slowlane_tls_handshakes_total", "listener=\"http\"") >= 1.0);
    assert_eq!(asked(), 0.0);
}

#[test]
fn a_proxy_that_expects_another_name_does_not_ask() {
    let app = Backend::start();
    let secured = Secured::start("", "");
    let files = folder(&secured.authority, &secured.pair);
    let agent = secured.slowlane.http.to_string();
    let more = ["--tls=other.example"];
    let nginx = Printed::nginx_with(&agent, &secured.slowlane, &app, &more, Some(files.path()));
    assert_eq!([(); 3].map(|()| status(&nginx, "once.example")), [200; 3]);
    let (what, binary) = haproxys().swap_remove(0);
    let agent = secured.slowlane.spop.to_string();
    let haproxy = Printed::haproxy_at(&agent, what, &binary, &app, &more, Some(files.path())).unwrap();
    assert_eq!([(); 3].map(|()| status(&haproxy, "once.example")), [200; 3]);
    assert_eq!(secured.slowlane.metric("slowlane_verdicts_total", ""), 0.0);
}

#[test]
fn files_with_tls_follow_the_config() {
    let (authority, folder) = (Authority::new("servers"), tempfile::tempdir().unwrap());
    let (pair, path) = (authority.pair("server"), folder.path().join("slowlane.toml"));
    let printed = |lines: &str, args: &[&str]| {
        fs::write(&path, lines).unwrap();
        let ran = ran(&[&["config"], args, &["--config", path.to_str().unwrap()]].concat());
        assert_eq!(ran.code, 0, "{:?}", ran.problems);
        ran.out
    };
    let verified = "server agent1 127.0.0.1:9000 ssl verify required verifyhost slowlane.example ca-file \
                    /etc/slowlane/tls/ca.pem";
    let shown = "crt /etc/slowlane/tls/haproxy.pem check inter";
    let lines = pair.lines();
    let with_clients = format!("{lines}client_ca = \"{}\"\n", authority.cert().display());
    let haproxy = ["haproxy", "--version", "3.2"];
    assert!(printed(&format!("[spop.tls]\n{lines}"), &haproxy).contains(&format!("{verified} check inter")));
    assert!(
        printed(&format!("[spop.tls]\n{with_clients}"), &haproxy).contains(&format!("{verified} {shown}"))
    );
    let pasted = printed(&format!("[spop.tls]\n{lines}"), &[&haproxy[..], &["--attach"]].concat());
    assert!(pasted.contains(verified), "{pasted}");
    let unix = printed(&format!("[spop]\nlisten = [\"unix:/run/spop\"]\n[spop.tls]\n{lines}"), &haproxy);
    assert!(unix.contains("server agent1 unix@/run/spop check inter"), "{unix}");

    let nginx = ["nginx", "--file", "slowlane.conf"];
    let text = printed(&format!("[http.tls]\n{with_clients}"), &nginx);
    assert_eq!(text.matches("proxy_pass https://slowlane/").count(), 2);
    for line in ["proxy_ssl_verify              on;", "proxy_ssl_name                slowlane.example;"] {
        assert_eq!(text.matches(&format!("\n    {line}")).count(), 2, "{line}");
    }
    assert_eq!(text.matches("\n    proxy_ssl_certificate").count(), 4);
    let text = printed(&format!("[http.tls]\n{lines}"), &nginx);
    assert_eq!(text.matches("\n    # proxy_ssl_certificate").count(), 4);
    let refused = ran(&["config", "haproxy", "--version", "3.2", "--spop", "unix:/run/spop", "--tls"]);
    assert_eq!(refused.problems, ["--tls: unix:/run/spop cannot use TLS: name a TCP address with --spop"]);
    let refused = ran(&["config", "nginx", "--tls=a b"]);
    assert!(refused.code == 1 && refused.problems[0].starts_with("\"a b\": expected one word of letters"));
}
