//! nginx with HTTP/2 and HTTP/3 over TLS: each name of a server is served, counted and passed on.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::backend::Backend;
use crate::support::haproxy::replace;
use crate::support::nginx::Nginx;
use crate::support::slowlane::Slowlane;
use crate::support::tls::Authority;
use crate::support::{skipped, unpacked};

/// The second name gets two requests, and then one a minute.
const POLICY: &[(&str, &str)] = &[
    ("slo.map", "0 rate=unlimited\n2001 burst=2 rate=1/m law=token-bucket\n"),
    ("website.map", "second.example 2001\n"),
];

/// Exit codes of curl: no connection, none over QUIC.
const NOT_CONNECTED: i32 = 7;
const NO_QUIC: i32 = 96;

/// The status of a request. `more` are words of curl.
fn status(curl: &Path, version: &str, name: &str, to: SocketAddr, more: &[&str]) -> String {
    let (port, at) = (to.port(), to.ip());
    let mut command = Command::new(curl);
    command.args([
        "--silent",
        "--insecure",
        "--max-time",
        "20",
        "--output",
        "/dev/null",
        "--write-out",
        "%{http_code}",
    ]);
    command
        .args([version, "--resolve", &format!("{name}:{port}:{at}"), &format!("https://{name}:{port}/")])
        .args(more);
    // On a busy machine, the datagrams of a QUIC handshake may all be lost.
    let mut outputs = (0..3).map(|_| command.output().unwrap());
    let reached = |output: &Output| !matches!(output.status.code(), Some(NOT_CONNECTED | NO_QUIC));
    String::from_utf8(outputs.find(reached).expect("nginx is reached").stdout).unwrap()
}

#[test]
fn every_name_of_a_server_is_counted_over_every_version_of_http() {
    let Some(curl) = unpacked("curl", "8.14") else {
        return skipped("curl with HTTP/3 cannot be had on this machine");
    };
    for version in ["1.26", "1.30"] {
        let Some(program) = unpacked("nginx", version) else {
            skipped(&format!("nginx {version} cannot be had on this machine"));
            continue;
        };
        for protocol in ["--http1.1", "--http2", "--http3-only"] {
            let (app, slowlane) = (Backend::start(), Slowlane::with_policy(POLICY));
            let authority = Authority::new("sites");
            let own = authority.pair("server");
            let edit = |name: &str, text: String| match name {
                "nginx.conf" => {
                    let listen = text.lines().find_map(|line| line.trim().strip_prefix("listen ")).unwrap();
                    let address = listen.trim_end_matches(';');
                    let tls = format!(
                        "listen {address} ssl; listen {address} quic reuseport; http2 on; \
                         server_name first.example second.example; ssl_certificate {}; ssl_certificate_key {};",
                        own.cert.display(),
                        own.key.display()
                    );
                    replace(&text, &format!("listen {listen}"), &tls)
                }
                _ => text,
            };
            let nginx = Nginx::of(&program, &slowlane.http.to_string(), app.address, edit);
            let ask = |name, more: &[&str]| status(&curl, protocol, name, nginx.address, more);
            let context = format!("nginx {version} {protocol}");
            assert_eq!([(); 3].map(|()| ask("first.example", &[])), ["200"; 3], "{context}");
            assert_eq!([(); 3].map(|()| ask("second.example", &[])), ["200", "200", "429"], "{context}");
            // Neither upper case nor another Host leads to the first name's limit.
            assert_eq!(ask("SECOND.example", &[]), "429", "{context}");
            let forged = ask("second.example", &["--header", "X-Forwarded-Host: first.example"]);
            assert_eq!(forged, "429", "{context}");
            let hosts = app.seen().into_iter().filter_map(|seen| {
                seen.headers.iter().find_map(|header| header.strip_prefix("host: ").map(str::to_owned))
            });
            let names: Vec<String> =
                hosts.map(|host| host.split(':').next().unwrap_or_default().to_owned()).collect();
            assert_eq!(names, [&["first.example"; 3][..], &["second.example"; 2]].concat(), "{context}");
        }
    }
}
