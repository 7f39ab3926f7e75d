//! The shipped files, each loaded by the program that it is for.

use std::fs;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::support::backend::Backend;
use crate::support::client;
use crate::support::haproxy::Version::{V2_6, V3_0, V3_2};
use crate::support::haproxy::{CONFIG, Delivery, Haproxy, Told, Version, each, replace, telling_patiently};
use crate::support::nginx::Nginx;
use crate::support::process::Process;
use crate::support::slowlane::{BINARY, Slowlane};
use crate::support::spop::{Heard, Line};
use crate::support::{own_address, project, skipped};

fn succeeds(output: &Output) {
    let text = [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat();
    assert!(output.status.success(), "{text}");
}

/// A copy of `haproxy/` whose files find each other.
fn haproxy_folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in fs::read_dir(project("haproxy")).unwrap().map(Result::unwrap) {
        if file.file_type().unwrap().is_file() {
            let text = fs::read_to_string(file.path()).unwrap();
            let text = text.replace("/etc/haproxy/", &format!("{}/", folder.path().display()));
            fs::write(folder.path().join(file.file_name()), text).unwrap();
        }
    }
    folder
}

#[test]
fn every_haproxy_that_a_file_is_for_takes_it_without_a_warning() {
    let folder = haproxy_folder();
    let all = [V2_6, V3_0, V3_2];
    let files: &[(Delivery, &[Version])] =
        &[(Delivery::Hold, &all), (Delivery::Lua, &all), (Delivery::Pause, &[V3_2])];
    for &(delivery, versions) in files {
        for &version in versions {
            let Some(binary) = version.binary() else {
                skipped(&format!("HAProxy {version:?} cannot be had on this machine ({})", delivery.file()));
                continue;
            };
            let mut command = Command::new(binary);
            // -dW: a warning is an error. Lua warns since 3.1 unless told what 2.6 does not know, as the file says.
            if (version, delivery) != (V3_2, Delivery::Lua) {
                command.arg("-dW");
            }
            succeeds(&command.arg("-c").arg("-f").arg(folder.path().join(delivery.file())).output().unwrap());
        }
    }
    // And the files that are there are those that are known here.
    let there = fs::read_dir(project("haproxy")).unwrap().map(|file| file.unwrap().file_name());
    let configs = there.filter(|name| name.to_str().unwrap().ends_with(".cfg")).count();
    assert_eq!(configs, files.len());
}

#[test]
fn nginx_takes_its_files_without_a_warning() {
    let nginx = Nginx::shipped("127.0.0.1:9001", "127.0.0.1:8000".parse().unwrap());
    let log = nginx.process.log().join("\n");
    assert!(!log.contains("[warn]") && !log.contains("[emerg]"), "{log}");
}

/// HAProxy as it is shipped, but fail closed, as its comments say how.
#[test]
fn who_wants_it_fails_closed() {
    each(&[(V2_6, Delivery::Hold), (V3_2, Delivery::Pause)], |version, delivery| {
        let app = Backend::start();
        let closed = |name: &str, text: String| match name {
            CONFIG => {
                replace(&text, "# http-request deny deny_status 503", "http-request deny deny_status 503")
            }
            _ => text,
        };
        let nobody = own_address().to_string();
        let haproxy = Haproxy::with(version, delivery, &nobody, app.address, closed).unwrap();
        assert_eq!(haproxy.client().request("GET", "/", &[], "").status, 503);
        assert_eq!(app.count(), 0);
    });
    let app = Backend::start();
    let closed = |name: &str, text: String| match name {
        "slowlane.conf" => replace(&text, "return 204;", "return 403;"),
        _ => text,
    };
    let nginx = Nginx::with_files(&own_address().to_string(), app.address, closed);
    assert_eq!(nginx.client().request("GET", "/", &[], "").status, 403);
    assert_eq!(app.count(), 0);
}

#[test]
fn the_example_maps_are_a_policy() {
    let maps = project("haproxy/maps");
    let output = Command::new(BINARY).arg("check").arg("--policy").arg(maps).output().unwrap();
    succeeds(&output);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ok: 16 SLOs, 5 maps\n");
}

/// An edit that lets HAProxy look up the same maps itself.
fn looking_up(maps: &Path) -> impl Fn(&str, String) -> String {
    let maps = maps.display().to_string();
    move |name, text| {
        let text = telling_patiently(name, text);
        if name != CONFIG {
            return text;
        }
        let address = format!("src,map_ip_int({maps}/source.map,-1)");
        let website = format!("req.hdr(host),field(1,:),lower,map_str_int({maps}/website.map,-1)");
        let owner = format!("var(txn.owner),map_str_int({maps}/owner.map,-1)");
        // HAProxy has no converter for a network and a name in one key: these are exact there.
        let pair = |with, map| format!("src,concat(+,{with}),map_str_int({maps}/{map}.map,-1)");
        let names = ["shop", "team", "source", "website", "owner"];
        let lookups = [
            pair("txn.website", "source+website"),
            pair("txn.owner", "source+owner"),
            address,
            website,
            owner,
        ];
        let lookups = names.iter().zip(lookups);
        let set = lookups.map(|(name, lookup)| format!("    http-request set-var(txn.{name}) {lookup}\n"));
        let tell =
            names.map(|name| format!("    http-after-response set-header x-{name}-map %[var(txn.{name})]\n"));
        let website = "    http-request set-var(txn.website) req.hdr(host),field(1,:),lower\n";
        let lines = website.to_owned() + &set.collect::<String>() + &tell.concat();
        replace(&text, "    default_backend", &format!("{lines}    default_backend"))
    }
}

#[test]
fn haproxy_reads_the_example_maps_as_slowlane_does() {
    let maps = project("haproxy/maps");
    let files: Vec<_> = fs::read_dir(&maps)
        .unwrap()
        .map(|file| {
            let file = file.unwrap();
            (file.file_name().into_string().unwrap(), fs::read_to_string(file.path()).unwrap())
        })
        .collect();
    let files: Vec<_> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    each(&[(V2_6, Delivery::Hold), (V3_0, Delivery::Hold), (V3_2, Delivery::Pause)], |version, delivery| {
        let (app, slowlane) = (Backend::start(), Slowlane::with_policy(&files));
        let agent = slowlane.spop.to_string();
        let haproxy = Haproxy::with(version, delivery, &agent, app.address, looking_up(&maps)).unwrap();
        let cases = [
            (["192.0.2.1", "a.example", ""], 3001),
            (["192.0.2.66", "a.example", ""], 3002),
            (["192.0.3.1", "a.example", ""], 0),
            (["2001:db8:66:1::1", "a.example", ""], 3002),
            (["2001:db8:67::1", "a.example", ""], 0),
            (["203.0.113.9", "Blog.Example:80", "acme"], 2001),
            (["203.0.113.9", "xblog.example", "acme"], 1001),
            (["203.0.113.9", "other.example", "globex"], 1002),
            (["203.0.113.7", "shop.example", "acme"], 5001),
            (["198.51.100.23", "other.example", "acme"], 4001),
        ];
        for ([source, website, owner], slo) in cases {
            let headers = [("X-From", source), ("Host", website), ("X-Api-Key", owner)];
            let response = haproxy.client().request("GET", "/", &headers, "");
            assert_eq!(Told::by(&response).slo, Some(slo), "{source} {website} {owner}");
            let names = ["x-shop-map", "x-team-map", "x-source-map", "x-website-map", "x-owner-map"];
            let found = names.map(|name| response.header(name).unwrap_or("").to_owned());
            let first = found.iter().find(|slo| !matches!(slo.as_str(), "" | "-1"));
            let first = first.map_or(0, |slo| slo.parse().unwrap());
            assert_eq!(first, slo, "{source} {website} {owner}: {found:?}");
        }
        // slo.map is a map as well: from an id to a text.
        let slo_map = maps.join("slo.map").display().to_string();
        let config = format!(
            "defaults\n    mode http\n    timeout client 1s\n    timeout connect 1s\n    timeout server 1s\n\
             frontend f\n    bind {}\n    http-request return status 200 hdr x %[path,map_str({slo_map})]\n",
            own_address()
        );
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("slo.cfg"), config).unwrap();
        let mut command = Command::new(version.binary().unwrap());
        succeeds(&command.arg("-c").arg("-f").arg(folder.path().join("slo.cfg")).output().unwrap());
    });
}

/// The lines of a unit file that begin with `key=`.
fn unit_values(unit: &str, key: &str) -> Vec<String> {
    let text = fs::read_to_string(project("systemd").join(unit)).unwrap();
    let values = text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    values.map(str::to_owned).collect()
}

#[test]
fn systemd_takes_the_units_and_finds_them_shut_in() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        return skipped("systemd-analyze is not installed: the units are not verified");
    }
    let folder = tempfile::tempdir().unwrap();
    let service = fs::read_to_string(project("systemd/slowlane.service")).unwrap();
    // The program must be where the unit says.
    let service = replace(&service, "/usr/bin/slowlane", BINARY);
    let [service_path, socket_path] =
        ["slowlane.service", "slowlane.socket"].map(|name| folder.path().join(name));
    fs::write(&service_path, service).unwrap();
    fs::copy(project("systemd/slowlane.socket"), &socket_path).unwrap();
    let analyze = |arguments: &[&str]| {
        let mut command = Command::new("systemd-analyze");
        command.args(arguments).arg(&service_path);
        command
    };
    let verified = analyze(&["verify"]).arg(&socket_path).output().unwrap();
    succeeds(&verified);
    assert_eq!(String::from_utf8_lossy(&verified.stderr), "", "not even a warning");
    // The threshold is ten times the exposure: 2.0 of 10.
    succeeds(&analyze(&["security", "--offline=true", "--threshold=20"]).output().unwrap());
}

/// The command that the service unit runs, with a program and a config of ours, through a shell that runs `before` it.
fn service_command(folder: &Path, before: &str) -> Command {
    let command = &unit_values("slowlane.service", "ExecStart")[0];
    let command = replace(command, "/usr/bin/slowlane", BINARY);
    let policy = project("haproxy/maps").display().to_string();
    let command = replace(&command, "/etc/slowlane/policy", &policy);
    let command = replace(&command, "/etc/slowlane/", &format!("{}/", folder.display()));
    let [spop, http, admin] = [own_address(), own_address(), own_address()];
    let config =
        format!("spop.listen = [\"{spop}\"]\nhttp.listen = [\"{http}\"]\nadmin.listen = [\"{admin}\"]\n");
    fs::write(folder.join("slowlane.toml"), config).unwrap();
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("{before} exec {command}"));
    shell
}

#[test]
fn the_service_says_when_it_is_ready_alive_and_ending() {
    assert_eq!(unit_values("slowlane.service", "Type"), ["notify"]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let systemd = UnixDatagram::bind(&path).unwrap();
    systemd.set_read_timeout(Some(crate::support::PATIENCE)).unwrap();
    let hear = || {
        let mut bytes = [0; 256];
        let length = systemd.recv(&mut bytes).expect("the service says something");
        String::from_utf8_lossy(&bytes[..length]).trim().to_owned()
    };
    // As systemd does for WatchdogSec=, but shorter.
    let mut command = service_command(folder.path(), "export WATCHDOG_PID=$$;");
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "200000");
    let mut service = Process::start(&mut command);
    let admin = service.logged("admin on ").trim().parse().unwrap();
    // Whether the first sign of life comes before is a matter of chance.
    let heard = [hear(), hear(), hear()];
    assert!(heard.contains(&"READY=1".to_owned()), "{heard:?}");
    assert_eq!(client::get(admin, "/readyz", &[]).status, 200);
    assert_eq!([hear(), hear()], ["WATCHDOG=1", "WATCHDOG=1"]);
    service.signal("TERM");
    while hear() != "STOPPING=1" {}
    assert!(service.wait().success());
}

#[test]
fn the_sockets_of_systemd_wait_for_the_agent() {
    let names = unit_values("slowlane.socket", "FileDescriptorName");
    assert_eq!(
        (names.as_slice(), unit_values("slowlane.socket", "ListenStream").len()),
        (&["spop".into()][..], 2)
    );
    let folder = tempfile::tempdir().unwrap();
    let (address, path) = (own_address(), folder.path().join("spop.sock"));
    let tcp = TcpListener::bind(address).unwrap();
    let unix = UnixListener::bind(&path).unwrap();
    // Whoever asks before the agent is there waits, and is answered.
    let early = std::thread::spawn(move || Line::greeted(address).ask(1, "192.0.2.1", "shop.example"));

    // Descriptors 3 and 4, as systemd passes them: they come in as standard input and output.
    let before = "exec 3<&0 4<&1 </dev/null >&2; LISTEN_FDS=2 LISTEN_FDNAMES=spop:spop LISTEN_PID=$$";
    let start = || {
        let mut command = service_command(folder.path(), before);
        let handed = [OwnedFd::from(tcp.try_clone().unwrap()), OwnedFd::from(unix.try_clone().unwrap())];
        let [input, output] = handed.map(Stdio::from);
        Process::start_with(&mut command, input, output)
    };
    let mut service = start();
    assert_eq!(early.join().unwrap().variable("verdict"), Some("pass"));
    service.logged(&format!("SPOP on unix:{}", path.display()));
    let log = service.log();
    assert_eq!(log.iter().filter(|line| line.contains("SPOP on ")).count(), 2, "only these: {log:?}");

    // HAProxy asks over either, and a restart of the agent refuses nobody.
    let app = Backend::start();
    let agent = format!("unix@{}", path.display());
    let mut haproxy = Haproxy::with(V2_6, Delivery::Hold, &agent, app.address, telling_patiently).unwrap();
    haproxy.wait_for_agent("UP");
    let verdict = || Told::by(&haproxy.client().request("GET", "/", &[], "")).verdict;
    assert_eq!(verdict().as_deref(), Some("pass"));
    service.signal("TERM");
    assert!(service.wait().success());
    assert!(path.exists(), "the socket file is systemd's");
    let mut waiting = Line::silent(address);
    waiting.say(&crate::support::spop::hello());
    waiting.hear_nothing(Duration::from_millis(50));
    let _service = start();
    assert_eq!(waiting.hear(), Heard::Hello);
    crate::support::eventually("HAProxy has verdicts again", || {
        verdict().filter(|verdict| verdict == "pass")
    });
}
