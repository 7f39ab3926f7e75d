//! `slowlane doctor`: each finding, where there is a cause and where there is none.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use serde_json::Value;
use spop::{AgentHello, Data};

use crate::support::backend::Backend;
use crate::support::client::Client;
use crate::support::haproxy::Version::{self, V2_6, V3_2, V3_4};
use crate::support::haproxy::{CONFIG, Delivery, Haproxy, replace, showing_verdicts_patiently};
use crate::support::nginx::Nginx;
use crate::support::process::install;
use crate::support::redis::Redis;
use crate::support::slowlane::{BINARY, Slowlane};
use crate::support::spop::{Line, message};
use crate::support::{eventually, own_address, project, skipped};

const POLICY: &[(&str, &str)] = &[
    ("slo.map", "0 rate=unlimited\n3001 burst=100000 rate=10000/s\n"),
    ("source.map", "0.0.0.0/0 3001\n::/0 3001\n"),
];

/// The findings of a run.
struct Report {
    code: i32,
    json: Value,
}

impl Report {
    /// The remedy of the finding with this state whose text contains this part.
    fn fix(&self, state: &str, part: &str) -> Option<&str> {
        let findings = self.json["findings"].as_array().unwrap();
        let found = findings
            .iter()
            .find(|finding| finding["state"] == state && finding["text"].as_str().unwrap().contains(part))?;
        Some(found["fix"].as_str().unwrap_or_default())
    }

    #[track_caller]
    fn has(&self, state: &str, part: &str) {
        let fix = self.fix(state, part);
        assert!(fix.is_some(), "no {state} {part:?}:\n{:#}", self.json);
        assert_eq!(fix == Some(""), state == "ok", "each but ok has its remedy: {part}");
        assert!(state == "ok" || state == "note" || self.code == 1, "{part}");
    }

    #[track_caller]
    fn lacks(&self, part: &str) {
        let states = ["ok", "note", "unknown", "wrong"];
        let found = states.iter().find(|state| self.fix(state, part).is_some());
        assert_eq!(found, None, "{part:?}:\n{:#}", self.json);
    }
}

/// Writes a config with the daemon's addresses, and this text in it.
fn config(slowlane: &Slowlane, more: &str) -> PathBuf {
    let Slowlane { spop, http, admin, .. } = slowlane;
    let path = slowlane.folder().join("doctor.toml");
    let listen = |section: &str, address: &dyn std::fmt::Display| {
        let own =
            more.lines().filter_map(|line| line.strip_prefix(&format!("{section}."))).collect::<Vec<_>>();
        format!("[{section}]\nlisten = [\"{address}\"]\n{}\n", own.join("\n"))
    };
    let rest: String =
        more.lines().filter(|line| !line.starts_with("spop.")).map(|line| format!("{line}\n")).collect();
    let policy = format!("[policy]\ndir = \"{}\"\n", slowlane.policy().display());
    let text = listen("spop", spop) + &listen("http", http) + &listen("admin", admin) + &policy + &rest;
    fs::write(&path, text).unwrap();
    path
}

fn doctor(config: &Path, more: &[&str]) -> Report {
    run(Command::new(BINARY).arg("doctor").arg("--json").arg("--config").arg(config).args(more))
}

fn run(command: &mut Command) -> Report {
    let output = command.output().unwrap();
    let json: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let code = output.status.code().unwrap();
    assert_eq!(json["ok"] == true, code == 0, "{json:#}");
    Report { code, json }
}

/// A file beside the config.
fn file(slowlane: &Slowlane, name: &str, text: &str) -> String {
    let path = slowlane.folder().join(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn an_attached_haproxy_asks_and_one_that_is_not_attached_is_named() {
    let (app, slowlane) = (Backend::start(), Slowlane::with_policy(POLICY));
    let config = config(&slowlane, "");
    let agent = slowlane.spop.to_string();
    let mut haproxy =
        Haproxy::with(V2_6, Delivery::Hold, &agent, app.address, showing_verdicts_patiently).unwrap();
    haproxy.wait_for_agent("UP");
    let attached = haproxy.path(CONFIG);
    let text = fs::read_to_string(&attached).unwrap();
    let attached = attached.to_str().unwrap();
    let report = doctor(&config, &["--haproxy", attached]);
    report.has("ok", "/haproxy.cfg: slowlane is queried by www");
    assert!(report.fix("ok", "since startup").is_none(), "{:#}", report.json);

    (0..3).for_each(|_| {
        assert_eq!(haproxy.client().request("GET", "/", &[("Host", "shop.example")], "").status, 200)
    });
    let report = doctor(&config, &["--haproxy", attached]);
    report.has("ok", "requests: 3 since startup");
    report.lacks("no proxy is connected");
    report.lacks("slowlane is expected at");

    // The same without the lines, with half of them, with another frontend, and with another address.
    let without = |words: &[&str]| -> String {
        let lines = text.lines().filter(|line| !words.iter().any(|word| line.trim_start().starts_with(word)));
        lines.map(|line| format!("{line}\n")).collect()
    };
    let looked = |text: &str| doctor(&config, &["--haproxy", &file(&slowlane, "other.cfg", text)]);
    let report = looked(&without(&["filter spoe", "http-request send-spoe", "http-response send-spoe"]));
    report.has("wrong", "other.cfg: no `filter spoe engine slowlane`: www");
    assert!(report.fix("wrong", "slowlane`: www").unwrap().contains("slowlane attach haproxy"));
    looked(&without(&["http-request send-spoe"])).has("wrong", "slowlane's filter, but no `http-request");
    let report = looked(
        &text.replace("frontend www", "frontend api\n    bind :1\n    default_backend app\nfrontend www"),
    );
    report.has("note", "no `filter spoe engine slowlane`: api");
    assert!(report.fix("note", "slowlane`: api").unwrap().starts_with("if clients connect to this proxy "));
    report.has("ok", "slowlane is queried by www");
    let report = looked(&text.replace(&format!("agent1 {agent}"), "agent1 127.0.0.1:1"));
    report.has("wrong", "slowlane is expected at 127.0.0.1:1, but listens on ");
    looked("frontend tcp\n  mode tcp\n  bind :1\n").has("note", "there is no HTTP frontend or server");
    doctor(&config, &["--haproxy", "/nowhere/haproxy.cfg"])
        .has("wrong", "/nowhere/haproxy.cfg: No such file");
}

/// With 3.4 by default, and with earlier versions if `defaults` says so.
#[test]
fn an_haproxy_that_ends_the_query_of_a_client_that_leaves_is_named() {
    let slowlane = Slowlane::with_policy(POLICY);
    let config = config(&slowlane, "");
    let shipped = fs::read_to_string(project("haproxy/haproxy-2.6-hold.cfg")).unwrap();
    let plain = shipped.replace("    no option abortonclose\n", "");
    let set = |text: &str| replace(text, "\ndefaults\n", "\ndefaults\n    option abortonclose\n");
    let is_named = |version: Version, text: &str| {
        let Some(binary) = version.binary() else {
            skipped(&format!("HAProxy {version:?} cannot be had on this machine (doctor)"));
            return None;
        };
        let mut command = Command::new(BINARY);
        let path = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap());
        command.args(["doctor", "--json", "--haproxy", &file(&slowlane, "haproxy.cfg", text), "--config"]);
        let report = run(command.arg(&config).env("PATH", path.trim_start_matches(':')));
        report.has("ok", "slowlane is queried by www");
        Some(
            report.fix("wrong", "a request whose client disconnects early may pass uncounted: www").is_some(),
        )
    };
    for version in [V2_6, V3_2] {
        let named = [&shipped, &plain, &set(&plain), &set(&shipped)].map(|text| is_named(version, text));
        assert!(
            named[0].is_none() || named == [false, false, true, true].map(Some),
            "{version:?}: {named:?}"
        );
    }
    let backend = replace(&shipped, "\nbackend app\n", "\nbackend app\n    option abortonclose\n");
    let named = [&shipped, &plain, &set(&shipped), &backend].map(|text| is_named(V3_4, text));
    assert!(named[0].is_none() || named == [false, true, false, false].map(Some), "{named:?}");
}

#[test]
fn an_attached_nginx_asks_and_a_server_without_the_lines_is_named() {
    let (app, slowlane) = (Backend::start(), Slowlane::with_policy(POLICY));
    let (config, agent) = (config(&slowlane, ""), slowlane.http.to_string());
    let nginx = Nginx::shipped(&agent, app.address);
    assert_eq!(nginx.client().request("GET", "/", &[("Host", "shop.example")], "").status, 200);
    let main = nginx.path("nginx.conf");
    let text = fs::read_to_string(&main).unwrap();
    let report = doctor(&config, &["--nginx", main.to_str().unwrap()]);
    report.has("ok", "/nginx.conf: ");
    report.has("ok", "requests: 1 since startup");
    report.lacks("slowlane is expected at");
    report.lacks("worker_connections");

    let looked = |text: &str| {
        let path = nginx.path("other.conf");
        fs::write(&path, text).unwrap();
        doctor(&config, &["--nginx", path.to_str().unwrap()])
    };
    looked(&text.replace("include slowlane.conf;", "")).has("wrong", "no `include slowlane.conf`: /");
    let few = with_line(&text, "worker_connections", "worker_connections 768;");
    looked(&few).has("note", "worker_connections is 768, and each waiting client takes 2");
    let more = "map $a $b { default \"}{;#\"; }\nserver { listen [::]:81; server_name \"api.example\"; location / { auth_request off; } }\n";
    let report = looked(
        &text.replace("include slowlane-upstream.conf;", &format!("include slowlane-upstream.conf;\n{more}")),
    );
    report.has("note", "no `include slowlane.conf`: api.example");
    report.lacks("wrong");
    looked("events {}\nhttp { server { auth_request /slowlane-check; } }")
        .has("note", "worker_connections is 512, ");
    looked("include other.conf;")
        .has("wrong", "more than 10000 files are included, or a file includes itself");
    // A pattern of nginx leaves out the files that editors hide.
    fs::write(nginx.path(".sub2.conf"), "server {").unwrap();
    let own = "events {}\nhttp { include *sub*.conf; include none*.conf; }\n";
    fs::write(nginx.path("sub1.conf"), "server { server_name sub.example; auth_request /slowlane-check; }")
        .unwrap();
    looked(own).has("ok", "slowlane is queried by sub.example");
}

/// The text with the line of a word replaced.
fn with_line(text: &str, word: &str, line: &str) -> String {
    assert!(text.contains(word));
    text.lines()
        .map(|own| if own.trim_start().starts_with(word) { line } else { own })
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn nobody_who_asks_is_told_from_health_checks_and_from_requests() {
    let slowlane = Slowlane::with_policy(POLICY);
    let config = config(&slowlane, "");
    doctor(&config, &[]).has("wrong", "no proxy is connected, and no request has arrived");
    let attached = "frontend www\nmode http\nbind :1\ndefault_backend app\nfilter spoe engine slowlane config x\n\
                    http-request send-spoe-group slowlane decide\n";
    let attached = ["--haproxy", &file(&slowlane, "haproxy.cfg", attached)];
    let fix = |part: &str| doctor(&config, &attached).fix("wrong", part).map(str::to_owned);
    assert!(fix("no proxy is connected").unwrap().contains("reload the proxy"));
    let mut line = Line::greeted(slowlane.spop);
    let report = eventually("the snapshot of the next second", || {
        let report = doctor(&config, &[]);
        report.fix("wrong", "no proxy is connected").is_none().then_some(report)
    });
    report.has("wrong", "a proxy connects, but sends no requests: only health checks arrive");
    assert!(fix("only health checks").unwrap().contains("send a request"));
    drop(line.ask(1, "192.0.2.1", "shop.example"));
    let report = doctor(&config, &[]);
    report.has("ok", "requests: 1 since startup");
    report.lacks("health checks");
}

#[test]
fn fields_that_arrive_are_told_from_those_that_never_do() {
    let owners = [POLICY[0], ("source+owner.map", "0.0.0.0/0+acme 3001\n")];
    let slowlane = Slowlane::with_policy(&[owners[0], POLICY[1], ("owner.map", "acme 0\n")]);
    let (config, mut line) = (config(&slowlane, ""), Line::greeted(slowlane.spop));
    drop(line.ask(0, "192.0.2.1", "shop.example"));
    doctor(&config, &[]).has("note", "requests: 1, too few to show which fields arrive");
    (1..600).for_each(|stream| drop(line.ask(stream, "192.0.2.1", "shop.example")));
    let report = eventually("the owner is missed", || {
        let report = doctor(&config, &[]);
        report.fix("wrong", "carried owner, which owner.map").is_some().then_some(report)
    });
    report.has("ok", "fields that arrive: source");
    report.lacks("too few");
    line.say(&message(700, b"request", &[(b"owner", Data::Str(b"acme"))]));
    line.hear();
    let report = eventually("it is there", || {
        let report = doctor(&config, &[]);
        report.fix("ok", "fields that arrive: owner, source").is_some().then_some(report)
    });
    report.lacks("carried owner");
}

#[test]
fn limits_in_force_are_told_from_dry_runs_and_from_none() {
    let slowlane = Slowlane::with_policy(POLICY);
    let config = config(&slowlane, "");
    let report = doctor(&config, &[]);
    report.has("ok", "limits in force: SLO 3001");
    report.lacks("nothing is throttled");
    report.lacks("dry runs");
    report.lacks("is one bucket");
    let shows = |state: &str, part: &str| {
        eventually(part, || doctor(&config, &[]).fix(state, part).map(drop));
        doctor(&config, &[]).has(state, part);
    };
    slowlane.replace("slo.map", "0 rate=unlimited\n3001 burst=1 rate=1/s dry_run=yes\n");
    shows("note", "dry runs, which throttle nothing: SLO 3001");
    slowlane.replace("slo.map", "0 rate=unlimited\n3001 rate=unlimited\n");
    shows("wrong", "no SLO has a limit: nothing is throttled");
    slowlane.replace("slo.map", "0 rate=unlimited\n3001 law=protect\n");
    shows("ok", "limits in force: SLO 3001");
    slowlane.replace("slo.map", "0 rate=unlimited\n3001 burst=1 rate=5x/s\n");
    shows("wrong", "the last edit of the policy is not in force: ");
    doctor(&config, &[]).has("wrong", "slo.map:2: rate \"5x/s\"");
    slowlane
        .replace("slo.map", "0 rate=unlimited\n3001 burst=1 rate=5/s\n3002 burst=1 rate=1/s dry_run=yes\n");
    shows("note", "dry runs, which throttle nothing: SLO 3002");
    let report = doctor(&config, &[]);
    report.has("ok", "limits in force: SLO 3001");
    report.lacks("the last edit of the policy is not in force");
    report.has("note", "no map names SLO 3002");
    slowlane.replace("source.map", "");
    slowlane.replace("slo.map", "0 burst=1 rate=1/s\n");
    shows("note", "SLO 0 is one bucket for all clients together");
}

/// Somebody writes a limit in seconds, and no proxy reports the end of a request.
#[test]
fn work_that_nobody_reports_is_told() {
    let slowlane =
        Slowlane::with_policy(&[("slo.map", "0 burst=100s rate=2s/s unit=seconds reserve=10ms\n")]);
    let config = config(&slowlane, "");
    doctor(&config, &[]).lacks("counts seconds");
    let ticket = slowlane.check("", &[]).header("x-slowlane-ticket").unwrap().to_owned();
    eventually("it is told", || {
        doctor(&config, &[]).fix("wrong", "SLO 0 counts seconds, but no proxy").map(drop)
    });
    let headers = [("X-Slowlane-Ticket", ticket.as_str()), ("X-Slowlane-Seconds", "0.02")];
    assert_eq!(Client::connect(slowlane.http).request("GET", "/done", &headers, "").status, 204);
    slowlane.check("", &[]);
    eventually("it is over", || doctor(&config, &[]).fix("wrong", "counts seconds").is_none().then_some(()));
}

#[test]
fn a_clock_that_has_jumped_is_told() {
    let slowlane = Slowlane::with_policy(POLICY);
    let report = doctor(&config(&slowlane, ""), &[]);
    report.lacks("not in force");
    report.lacks("has jumped");

    // The clock of this machine was set forward by an hour.
    let slowlane = Slowlane::with_clock(POLICY, "", "-1h");
    let report = doctor(&config(&slowlane, ""), &[]);
    report.has("note", "the clock has jumped by ");
    report.lacks("not in force");
}

#[test]
fn a_clock_that_nobody_sets_is_told() {
    let slowlane = Slowlane::with_policy(POLICY);
    let config = config(&slowlane, "");
    let looked = |script: &str| with_clock_of(&slowlane, &config, script);
    looked("echo yes").has("ok", "synchronised");
    looked("echo no").has("note", "not synchronised");
    looked("exit 1").has("note", "timedatectl does not say");
}

#[test]
fn a_cluster_has_its_store_and_a_clock_that_somebody_sets() {
    let shared = |cluster: &str| {
        let slowlane = Slowlane::with_config(POLICY, &format!("[cluster]\n{cluster}\n"));
        let config = config(&slowlane, "");
        (slowlane, config)
    };
    let (slowlane, alone) = shared("listen = [\"127.0.0.1:0\"]");
    let report = eventually("its own store answers", || {
        let report = with_clock_of(&slowlane, &alone, "echo no");
        report.fix("ok", "the store answers; nodes: ").is_some().then_some(report)
    });
    report.has("wrong", "not synchronised");

    let (_slowlane, lost) = shared(&format!("store = \"redis://{}\"", own_address()));
    let report = eventually("the store is missed", || {
        let report = doctor(&lost, &[]);
        report.fix("wrong", "the store has been silent for ").is_some().then_some(report)
    });
    report.lacks("the store answers");
}

/// The report where `timedatectl` is this script: the real one needs a booted systemd.
fn with_clock_of(slowlane: &Slowlane, config: &Path, script: &str) -> Report {
    let program = file(slowlane, "timedatectl", &format!("#!/bin/sh\n{script}\n"));
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", slowlane.folder().display(), std::env::var("PATH").unwrap());
    run(Command::new(BINARY).args(["doctor", "--json", "--config"]).arg(config).env("PATH", path))
}

#[test]
fn a_family_without_a_limit_is_wrong_where_clients_use_it() {
    let slowlane = Slowlane::with_policy(&[POLICY[0], ("source.map", "0.0.0.0/0 3001\n")]);
    let config = config(&slowlane, "");
    let lines = "filter spoe engine slowlane config x\nhttp-request send-spoe-group slowlane decide\n";
    let looked = |bind: &str| {
        let text = format!("frontend www\nmode http\nbind {bind}\ndefault_backend app\n{lines}");
        doctor(&config, &["--haproxy", &file(&slowlane, "haproxy.cfg", &text)])
    };
    let part = "this line covers only IPv4";
    for bind in ["127.0.0.1:80", "*:80", ":80"] {
        looked(bind).has("note", part);
    }
    for bind in [":::80 v4v6", "[::]:80", "ipv6@:80"] {
        looked(bind).has("wrong", part);
    }
    slowlane.replace("source.map", "0.0.0.0/0 3001\n::/0 3001\n");
    looked(":::80").lacks(part);
}

#[test]
fn a_frontend_inherits_from_defaults_by_name() {
    let slowlane = Slowlane::with_policy(POLICY);
    let text = "defaults web\nmode \"http\"\ndefault_backend app\ndefaults raw\nmode tcp\nfrontend www from web\nbind :80\n\
                filter spoe engine slowlane config x\nhttp-request send-spoe-group slowlane decide\nfrontend page from web\n\
                mode tcp\nring logs\nserver a 127.0.0.1:1\n";
    let report = doctor(&config(&slowlane, ""), &["--haproxy", &file(&slowlane, "haproxy.cfg", text)]);
    report.has("ok", "slowlane is queried by www");
    report.lacks("page");
}

/// Anybody who may connect can fill the queue of a daemon that hangs.
#[test]
fn a_listener_that_does_not_accept_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent");
    let _listener = UnixListener::bind(&path).unwrap();
    let queue: u32 = fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap().trim().parse().unwrap();
    let _waiting: Vec<UnixStream> = (0..=queue).map(|_| UnixStream::connect(&path).unwrap()).collect();
    let config = folder.path().join("slowlane.toml");
    fs::write(&config, format!("[spop]\nlisten = [\"unix:{}\"]\n", path.display())).unwrap();
    doctor(&config, &[]).has("wrong", "/agent: Resource temporarily unavailable");
}

/// A listener that gives this answer to each connection, once it has read.
fn foreign(answer: impl Fn(&[u8]) -> Vec<u8> + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut bytes) = (stream.unwrap(), [0; 1_000]);
            if let Ok(read) = stream.read(&mut bytes) {
                let _ = stream.write_all(&answer(&bytes[..read]));
            }
        }
    });
    at
}

#[test]
fn another_program_at_a_port_of_slowlane_is_named_by_what_it_speaks() {
    let (app, redis) = (Backend::start(), Redis::start());
    let nginx = Nginx::with("127.0.0.1:9", app.address, |text| text);
    let hello = |capabilities: &[u8]| {
        let mut bytes = Vec::new();
        AgentHello { frame_bytes_max: 16_380, capabilities }.encode(&mut bytes);
        bytes
    };
    let (silent, other) = (foreign(|_| Vec::new()), hello(b"pipelining,async"));
    let agent = foreign(move |_| other.clone());
    // FCGI_GET_VALUES_RESULT without values, to FCGI_GET_VALUES alone: anything else is not FastCGI.
    let fastcgi = |asked: &[u8]| {
        if asked.starts_with(&[1, 9]) { vec![1, 10, 0, 0, 0, 0, 0, 0] } else { Vec::new() }
    };
    let hostile = foreign(|_| b"\x1b[2J all is well\n".to_vec());
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("slowlane.toml");
    for (at, told) in [
        (redis.address.to_string(), "does not speak SPOP"),
        (nginx.address.to_string(), "an HTTP server that is not slowlane (nginx"),
        (silent.to_string(), "does not speak SPOP and sends no answer"),
        (agent.to_string(), "an SPOE agent that is not slowlane"),
        (foreign(fastcgi).to_string(), "a program that speaks FastCGI, like php-fpm"),
        (hostile.to_string(), "and answers \"\\u{1b}[2J all is well\""),
    ] {
        fs::write(&config, format!("[spop]\nlisten = [\"{at}\"]\n")).unwrap();
        let report = doctor(&config, &[]);
        report.has("wrong", told);
        let fix = report.fix("wrong", told).unwrap();
        assert!(fix.contains("listen = [\"127.0.0.1:90"), "{fix}");
    }
    fs::write(&config, format!("[http]\nlisten = [\"{}\"]\n", redis.address)).unwrap();
    doctor(&config, &[]).has("wrong", "does not speak HTTP");
}

/// Its own question is not taken for a proxy, at neither listener.
#[test]
fn slowlane_is_known_at_its_ports_even_where_they_are_swapped() {
    let slowlane = Slowlane::with_policy(POLICY);
    let toml = config(&slowlane, "");
    let report = doctor(&toml, &[]);
    report.has("ok", &format!("SPOP at {} accepts connections", slowlane.spop));
    report.has("ok", &format!("HTTP check at {} accepts connections", slowlane.http));
    report.has("wrong", "no proxy is connected, and no request has arrived");
    doctor(&toml, &[]).has("wrong", "no proxy is connected, and no request has arrived");
    assert_eq!(slowlane.metric("slowlane_spop_frames_total", "type=\"hello\""), 0.0);

    let Slowlane { spop, http, .. } = slowlane;
    let swapped = fs::read_to_string(&toml).unwrap().replace(&spop.to_string(), "SPOP");
    let swapped = swapped.replace(&http.to_string(), &spop.to_string()).replace("SPOP", &http.to_string());
    fs::write(&toml, swapped).unwrap();
    let report = doctor(&toml, &[]);
    report.has("wrong", "slowlane's own HTTP");
    report.has("wrong", "slowlane's own SPOP");
}

#[test]
fn open_files_and_the_state_file_fit_or_do_not() {
    let state = tempfile::tempdir().unwrap();
    let folder = state.path().join("state");
    fs::create_dir(&folder).unwrap();
    let text = format!("[state]\nfile = \"{}\"\nevery = \"1s\"\n", folder.join("state").display());
    let slowlane = Slowlane::with_config(POLICY, &text);
    let few = config(&slowlane, &format!("spop.connections_max = 10\n{text}"));
    let report = doctor(&few, &[]);
    report.has("ok", "/state/state: ");
    report.lacks("no state file");
    fs::remove_dir_all(&folder).unwrap();
    let report = eventually("the file is missed", || {
        let report = doctor(&few, &[]);
        report.fix("wrong", "failures: ").is_some().then_some(report)
    });
    report.has("wrong", "/state/state: ");

    let report = doctor(&config(&slowlane, "spop.connections_max = 1000000"), &[]);
    report.has("wrong", "its connections_max values require 1022000");
    report.has("note", "no state file: a restart forgets all counts");
    let hard = slowlane.metric("process_max_fds", "");
    if hard < 30_000.0 {
        return skipped("the limit of open files is too low to be enough");
    }
    doctor(&few, &[]).has("ok", "its connections_max values require 22010");
}

#[test]
fn who_may_not_look_is_told_so_and_who_finds_nobody_too() {
    let slowlane = Slowlane::with_config(POLICY, "[admin]\ntoken = \"0123456789abcdef\"\n");
    let config = config(&slowlane, "");
    doctor(&config, &[]).has("unknown", "requires a token");
    let token = file(&slowlane, "token", "0123456789abcdef\n");
    let report = doctor(&config, &["--token-file", &token]);
    report.has("ok", "the admin listener answers: slowlane ");
    report.has("ok", "HTTP check at 127.");

    let (nobody, none) = (own_address(), own_address());
    let lost = file(
        &slowlane,
        "lost.toml",
        &format!("[spop]\nlisten = [\"{nobody}\"]\n[admin]\nlisten = [\"{none}\"]\n"),
    );
    let report = doctor(Path::new(&lost), &[]);
    report.has("wrong", &format!("SPOP at {nobody}: Connection refused"));
    report.has("wrong", "no status: cannot query slowlane at ");
    doctor(Path::new(&file(&slowlane, "bad.toml", "[table]\nsize = 0\n")), &[])
        .has("wrong", "bad.toml:2: invalid value");

    // A user that may read nothing.
    fs::set_permissions(&config, fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(slowlane.folder(), fs::Permissions::from_mode(0o755)).unwrap();
    let (haproxy, program) = (file(&slowlane, "haproxy.cfg", ""), slowlane.folder().join("program"));
    fs::set_permissions(&haproxy, fs::Permissions::from_mode(0o600)).unwrap();
    install(BINARY, &program);
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    if !command.arg("true").output().unwrap().status.success() {
        return skipped("only root becomes another user");
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
    let report = run(command.args(["doctor", "--json", "--haproxy", &haproxy, "--config"]).arg(&config));
    report.has("unknown", "doctor.toml: Permission denied");
    report.has("unknown", "haproxy.cfg: Permission denied");
    report.has("unknown", "no status: ");
    assert!(!report.json.to_string().contains("\"wrong\""), "it knows of nothing wrong: {:#}", report.json);
}

#[test]
fn the_text_has_each_finding_with_its_remedy_and_no_foreign_control_characters() {
    let slowlane = Slowlane::with_policy(POLICY);
    let (config, evil) =
        (config(&slowlane, ""), file(&slowlane, "evil.cfg", "frontend \x1b[31m\n mode http\n server a :1\n"));
    let output =
        Command::new(BINARY).args(["doctor", "--haproxy", &evil, "--config"]).arg(&config).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(1), &b""[..]));
    assert!(
        text.contains("\nWrong    haproxy  ")
            && text.contains("\n                  fix: run `slowlane attach"),
        "{text}"
    );
    assert!(text.contains(r"engine slowlane`: \u{1b}[31m") && !text.contains('\x1b'), "{text}");
    assert!(text.ends_with(" wrong, 0 unknown\n"), "{text}");
}
