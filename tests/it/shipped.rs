//! The shipped files, each loaded by the program that it is for.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output};

use slowlane_core::base::HOLD_SHIPPED;
use tempfile::TempDir;

use crate::support::backend::Backend;
use crate::support::client::Client;
use crate::support::haproxy::Version::{V2_6, V3_0, V3_2, V3_4};
use crate::support::haproxy::{
    CONFIG, Delivery, EACH_DELIVERY, Haproxy, VerdictHeaders, Version, each, replace,
    showing_verdicts_patiently,
};
use crate::support::nginx::Nginx;
use crate::support::slowlane::{BINARY, Slowlane};
use crate::support::{own_address, project, skipped, unpacked};

fn succeeds(output: &Output) {
    let text = [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat();
    assert!(output.status.success(), "{text}");
}

/// A copy of `haproxy/` with adapted paths.
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
    let all = [V2_6, V3_0, V3_2, V3_4];
    let files: &[(Delivery, &[Version])] = &[
        (Delivery::Hold, &all),
        (Delivery::Lua, &all),
        (Delivery::Pause, &[V3_2, V3_4]),
        (Delivery::PeersLua, &all),
        (Delivery::Peers, &[V3_2, V3_4]),
    ];
    for &(delivery, versions) in files {
        for &version in versions {
            let Some(binary) = version.binary() else {
                skipped(&format!("HAProxy {version:?} cannot be had on this machine ({})", delivery.file()));
                continue;
            };
            // -dW makes warnings errors.
            let mut command = Command::new(binary);
            succeeds(
                &command
                    .args(["-dW", "-c"])
                    .arg("-f")
                    .arg(folder.path().join(delivery.file()))
                    .output()
                    .unwrap(),
            );
        }
    }
    // The test must know all files in the folder.
    let there = fs::read_dir(project("haproxy")).unwrap().map(|file| file.unwrap().file_name());
    let configs = there.filter(|name| name.to_str().unwrap().ends_with(".cfg")).count();
    assert_eq!(configs, files.len());
}

#[test]
fn nginx_takes_its_files_without_a_warning() {
    let newer = ["1.26", "1.30"].map(|version| {
        let program = unpacked("nginx", version);
        if program.is_none() {
            skipped(&format!("nginx {version} cannot be had on this machine"));
        }
        program
    });
    for program in [Some("nginx".into())].into_iter().chain(newer).flatten() {
        let app = "127.0.0.1:8000".parse().unwrap();
        let nginx = Nginx::of(&program, "127.0.0.1:9001", app, |_, text| text);
        let log = nginx.process.log().join("\n");
        assert!(!log.contains("[warn]") && !log.contains("[emerg]"), "{}: {log}", program.display());
    }
}

/// The shipped HAProxy configuration, but fail closed, as its comments describe.
#[test]
fn who_wants_it_fails_closed() {
    each(&[(V2_6, Delivery::Hold), (V3_2, Delivery::Pause), (V3_4, Delivery::Pause)], |version, delivery| {
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

/// The lines for a CDN, which are comments: it tells its clients apart, and no other peer does.
#[test]
fn behind_a_cdn_haproxy_takes_the_address_of_the_client() {
    const NETWORKS: &str = "192.0.2.0/24 2001:db8:cd::/48";
    let policy = [
        ("slo.map", "0 rate=unlimited\n3001 burst=1 rate=1/h law=token-bucket\n"),
        ("source.map", "0.0.0.0/0 3001\n"),
    ];
    each(EACH_DELIVERY, |version, delivery| {
        let app = Backend::start();
        let statuses = |line: &str, networks: &str, addresses: &[&str]| {
            let slowlane = Slowlane::with_policy(&policy);
            let enabled = |name: &str, text: String| {
                let text = showing_verdicts_patiently(name, text);
                let text = if name == CONFIG { replace(&text, &format!("# {line}"), line) } else { text };
                text.replace(NETWORKS, networks)
            };
            let agent = slowlane.spop.to_string();
            let haproxy = Haproxy::with(version, delivery, &agent, app.address, enabled).unwrap();
            let ask = |address: &&str| {
                let mut stream = TcpStream::connect(haproxy.address).unwrap();
                if line.contains("expect-proxy") && networks != NETWORKS {
                    // In one piece: HAProxy refuses a part of it.
                    let header = format!("PROXY TCP4 {address} 192.0.2.200 1000 8080\r\n");
                    stream.write_all(header.as_bytes()).unwrap();
                }
                let forwarded = ("X-Forwarded-For", *address);
                Client::over(stream).unwrap().request("GET", "/", &[forwarded], "").status
            };
            addresses.iter().map(ask).collect::<Vec<_>>()
        };
        let list = "http-request set-src req.hdr_ip(x-forwarded-for,-1)";
        let addresses = ["10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.9, 10.0.0.2"];
        assert_eq!(statuses(list, "127.0.0.0/8", &addresses), [200, 429, 200, 429]);
        assert_eq!(statuses(list, NETWORKS, &addresses), [200, 429, 429, 429], "a stranger");
        let line = "tcp-request connection expect-proxy";
        assert_eq!(statuses(line, "127.0.0.0/8", &addresses[..3]), [200, 429, 200]);
        assert_eq!(statuses(line, NETWORKS, &addresses), [200, 429, 429, 429], "a stranger");
    });
}

#[test]
fn the_example_maps_are_a_policy() {
    let maps = project("haproxy/maps");
    let output = Command::new(BINARY).arg("check").arg("--policy").arg(&maps).output().unwrap();
    succeeds(&output);
    let expected = "8 SLOs; source+website.map 3 lines, source+owner.map 2 lines, source.map 3 lines, \
                    website.map 1 line, owner.map 2 lines";
    let expected = format!("ok: policy {}: {expected}\n", maps.display());
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "no warning");
}

/// An edit that lets HAProxy look up the same maps itself.
fn looking_up(maps: &Path) -> impl Fn(&str, String) -> String {
    let maps = maps.display().to_string();
    move |name, text| {
        let text = showing_verdicts_patiently(name, text);
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
        let report =
            names.map(|name| format!("    http-after-response set-header x-{name}-map %[var(txn.{name})]\n"));
        let website = "    http-request set-var(txn.website) req.hdr(host),field(1,:),lower\n";
        let lines = website.to_owned() + &set.collect::<String>() + &report.concat();
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
    each(
        &[(V2_6, Delivery::Hold), (V3_0, Delivery::Hold), (V3_2, Delivery::Pause), (V3_4, Delivery::Pause)],
        |version, delivery| {
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
                assert_eq!(VerdictHeaders::by(&response).slo, Some(slo), "{source} {website} {owner}");
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
        },
    );
}

/// Every `max_delay` of the first limit, in seconds, is waited for by the files as they are shipped.
#[test]
fn the_delays_of_getting_started_are_waited_for_as_shipped() {
    let seconds = |text: &str, before: &str| -> Vec<u64> {
        let numbers = text.split(before).skip(1).map(|rest| rest.split('s').next().unwrap().trim());
        numbers.filter_map(|number| number.parse().ok()).collect()
    };
    let [page, nginx] = ["doc/book/getting-started.md", "nginx/slowlane.conf"]
        .map(|file| fs::read_to_string(project(file)).unwrap());
    let longest = seconds(&page, "max_delay=").into_iter().max().expect("the page has an example");
    let location = nginx.split("location = /slowlane-check").nth(1).unwrap();
    let (refuses_over, gives_up) =
        (seconds(location, "/check?max_delay=")[0], seconds(location, "proxy_read_timeout ")[0]);
    assert!(longest < refuses_over && refuses_over < gives_up, "{longest} {refuses_over} {gives_up}");
    assert!(longest <= HOLD_SHIPPED.as_secs(), "{longest}");
}
