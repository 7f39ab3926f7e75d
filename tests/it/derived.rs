//! Fields that slowlane makes by a map, from end to end: through HAProxy and nginx, after edits, and in the commands.

use std::fs;
use std::process::Command;

use crate::support::backend::Backend;
use crate::support::client::Client;
use crate::support::eventually;
use crate::support::haproxy::Version::{V2_6, V3_2, V3_4};
use crate::support::haproxy::{CONFIG, Delivery, Haproxy, each, replace, showing_verdicts_patiently};
use crate::support::nginx::Nginx;
use crate::support::slowlane::{BINARY, Slowlane};
use crate::support::spop::Line;

/// Type 6 is an ASN, 7 the network of a source, 8 a crawler by its name.
const CONFIG_OF_MAPS: &str = r#"
[policy.derived.asn]
from = "source"
map = "asn.map"
match = "ip"

[policy.derived.bot]
from = "user_agent"
map = "bot.map"
match = "sub"

[policy.types]
6 = ["asn"]
7 = ["network"]
8 = ["bot"]

[[policy.lookups]]
fields = ["bot"]
map = "by-bot.map"
match = "str"

[[policy.lookups]]
fields = ["asn"]
map = "by-asn.map"
match = "str"

[[policy.lookups]]
fields = ["network"]
map = "by-network.map"
match = "str"
"#;

/// Two requests, and the next one after ten minutes.
const FILES: &[(&str, &str)] = &[
    (
        "slo.map",
        "0 rate=unlimited\n6001 burst=2 rate=6/h max_delay=1s\n7001 burst=2 rate=6/h max_delay=1s\n\
         8001 burst=2 rate=6/h max_delay=1s\n",
    ),
    (
        "asn.map",
        "198.51.100.0/24 64496\n203.0.113.0/25 64496\n2001:db8:7::/48 64496\n203.0.113.128/25 64511\n",
    ),
    ("bot.map", "GPTBot openai\nOAI-SearchBot openai\n"),
    ("by-bot.map", "openai 8001\n"),
    ("by-asn.map", "64496 6001\n64511 6001\n"),
    ("by-network.map", "192.0.2.0/24 7001\n2001:db8:8::/48 7001\n"),
];

/// The status for a client with this address, which sends a header `asn` of its own choice.
fn ask(mut client: Client, source: &str, lie: &str, agent: &str) -> u16 {
    let headers = [("Host", "any.example"), ("X-Client", source), ("Asn", lie), ("User-Agent", agent)];
    client.request("GET", "/", &headers, "").status
}

/// HAProxy takes the source of a client from a header, and sends `asn` as the client gives it.
fn haproxy(name: &str, text: String) -> String {
    let text = showing_verdicts_patiently(name, text);
    let args = "method=method asn=req.fhdr(asn) user_agent=req.fhdr(user-agent)\n";
    match name {
        CONFIG => {
            let filter = "    filter spoe engine slowlane ";
            replace(&text, filter, &format!("    http-request set-src req.hdr(x-client)\n{filter}"))
        }
        "spoe-slowlane.conf" => replace(&text, "method=method\n", args),
        _ => text,
    }
}

fn nginx(name: &str, text: String) -> String {
    let method = "proxy_set_header X-Slowlane-Method  $slowlane_method;";
    let more =
        "proxy_set_header X-Slowlane-Asn $http_asn; proxy_set_header X-Slowlane-User-Agent $http_user_agent;";
    match name {
        "slowlane.conf" => replace(&text, method, &format!("{method} {more}")),
        _ => replace(&text, "listen ", "set_real_ip_from 0.0.0.0/0; real_ip_header X-Client; listen "),
    }
}

#[test]
fn an_asn_and_a_network_have_a_bucket_through_both_proxies() {
    each(&[(V2_6, Delivery::Lua), (V3_2, Delivery::Pause), (V3_4, Delivery::Pause)], |version, delivery| {
        let (app, slowlane) = (Backend::start(), Slowlane::with_config(FILES, CONFIG_OF_MAPS));
        let agent = slowlane.spop.to_string();
        let mut haproxy = Haproxy::with(version, delivery, &agent, app.address, haproxy).unwrap();
        let nginx = Nginx::with_files(&slowlane.http.to_string(), app.address, nginx);
        haproxy.wait_for_agent("UP");
        let of_haproxy = |source, lie| ask(haproxy.client(), source, lie, "curl/8");
        let of_nginx = |source, lie| ask(nginx.client(), source, lie, "curl/8");

        // Three networks of one ASN, whatever the client says of it.
        assert_eq!([of_haproxy("198.51.100.7", "64511"), of_nginx("203.0.113.8", "64511")], [200, 200]);
        assert_eq!([of_haproxy("2001:db8:7::1", "1"), of_nginx("198.51.100.9", "1")], [429, 429]);
        assert_eq!([of_haproxy("203.0.113.200", "64496"), of_nginx("203.0.113.201", "64496")], [200, 200]);
        assert_eq!([of_haproxy("203.0.113.202", ""), of_nginx("203.0.113.203", "")], [429, 429]);

        // Networks without an ASN, each with its bucket. An address of no map has none.
        assert_eq!([of_haproxy("192.0.2.1", "64496"), of_nginx("192.0.2.2", "64496")], [200, 200]);
        assert_eq!([of_haproxy("192.0.2.3", "64511"), of_nginx("192.0.2.4", "7")], [429, 429]);
        assert_eq!([of_haproxy("2001:db8:8:1::1", ""), of_nginx("2001:db8:8:2::1", "")], [200, 200]);
        assert_eq!([of_haproxy("2001:db8:8:3::1", ""), of_nginx("2001:db8:8:4::1", "")], [429, 429]);
        for _ in 0..3 {
            assert_eq!([of_haproxy("192.0.3.1", "64496"), of_nginx("192.0.3.1", "64496")], [200, 200]);
        }

        // A crawler of any network, by a part of its User-Agent.
        let crawler = "Mozilla/5.0 (compatible; GPTBot/1.2; +https://openai.com/gptbot)";
        assert_eq!(ask(haproxy.client(), "192.0.3.2", "", crawler), 200);
        assert_eq!(ask(nginx.client(), "192.0.3.3", "", "OAI-SearchBot/1.0"), 200);
        assert_eq!(ask(haproxy.client(), "192.0.3.4", "", crawler), 429);
        assert_eq!(ask(nginx.client(), "192.0.3.5", "", "gptbot, in lower case"), 200);
    });
}

/// The SLO of a source.
fn slo(slowlane: &Slowlane, source: &str) -> String {
    let answer = slowlane.check("?hold=off", &[("X-Slowlane-Source", source)]);
    answer.header("x-slowlane-slo").unwrap().to_owned()
}

#[test]
fn an_edit_of_a_map_is_live_and_a_wrong_one_changes_nothing() {
    let slowlane = Slowlane::with_config(FILES, CONFIG_OF_MAPS);
    assert_eq!(slo(&slowlane, "192.0.3.1"), "0");
    slowlane.replace("asn.map", "192.0.3.0/24 64511\n");
    eventually("the map is read again", || (slo(&slowlane, "192.0.3.1") == "6001").then_some(()));
    assert_eq!(slo(&slowlane, "198.51.100.7"), "0", "it has no ASN any more");
    let refused = |count: f64| {
        let reloads = || slowlane.metric("slowlane_policy_reloads_total", "result=\"refused\"");
        eventually("the edit is refused", || (reloads() >= count).then_some(()));
        assert_eq!(slo(&slowlane, "192.0.3.1"), "6001");
    };
    slowlane.replace("asn.map", "192.0.3.0/24 64511\n192.0.4.0/24\n");
    refused(1.0);
    fs::remove_file(slowlane.policy().join("asn.map")).unwrap();
    refused(2.0);
    slowlane.replace("asn.map", "198.51.100.0/24 64496\n");
    eventually("the map is read again", || (slo(&slowlane, "198.51.100.7") == "6001").then_some(()));
}

/// What a command says, on either output, and whether it succeeds.
fn ran(command: &[&str], slowlane: &Slowlane) -> (String, bool) {
    let mut program = Command::new(BINARY);
    let output = program.args(command).current_dir(slowlane.folder()).output().unwrap();
    (String::from_utf8([output.stdout, output.stderr].concat()).unwrap(), output.status.success())
}

#[test]
fn the_commands_know_the_field_by_its_name() {
    let log = "[decision_log]\npath = 'decisions.json'\n";
    let slowlane = Slowlane::with_config(FILES, &(CONFIG_OF_MAPS.to_owned() + log));
    let admin = slowlane.admin.to_string();
    let says = |command: &[&str], expected: &str| {
        let (said, is_done) = ran(command, &slowlane);
        assert!(is_done && said.contains(expected), "{command:?}: {said}");
    };
    says(&["why", "--admin", &admin, "source=198.51.100.7"], "of asn 64496 (type 6)");
    let check = |source| slowlane.check("?hold=off", &[("X-Slowlane-Source", source)]).status;
    assert_eq!(["198.51.100.7", "203.0.113.1"].map(check), [204, 204]);
    let denied = Line::greeted(slowlane.spop).ask(1, "198.51.100.8", "any.example");
    assert_eq!(denied.variable("verdict"), Some("deny"));
    eventually("the throttled key is noted", || {
        ran(&["top", "--once", "--admin", &admin], &slowlane).0.contains("asn=64496").then_some(())
    });
    // The log has the field that slowlane made, whatever the client sends under its name.
    let forged = [("X-Slowlane-Source", "198.51.100.9"), ("X-Slowlane-Asn", "64511")];
    assert_eq!(slowlane.check("?hold=off", &forged).status, 403);
    eventually("both decisions are logged", || {
        let lines = fs::read_to_string(slowlane.folder().join("decisions.json")).ok()?;
        assert!(!lines.contains("64511"), "{lines}");
        (lines.matches(r#""asn":"64496""#).count() == 2).then_some(())
    });

    assert_eq!(check("203.0.113.200"), 204);
    says(&["block", "add", "asn=64511", "--for", "1h", "--admin", &admin], "blocked asn=64511");
    assert_eq!(check("203.0.113.201"), 403);
    says(&["why", "--admin", &admin, "source=203.0.113.202"], "asn=64511");

    let line = |host: usize| {
        let agent = if host.is_multiple_of(2) { "GPTBot/1.2" } else { "curl/8" };
        format!(
            "198.51.100.{host} - - [28/Nov/2026:10:00:00 +0000] \"GET / HTTP/1.1\" 200 9 \"-\" \"{agent}\"\n"
        )
    };
    let text: String = (1..=20).map(line).collect();
    fs::write(slowlane.folder().join("access.log"), text).unwrap();
    let replay = [
        "replay",
        "--config",
        "slowlane.toml",
        "--policy",
        "policy",
        "--field",
        "user_agent=$http_user_agent",
        "access.log",
    ];
    says(&replay, "asn=64496");
    says(&replay, "bot=openai");
    says(&["check", "--config", "slowlane.toml", "--policy", "policy"], "asn.map 4 lines, bot.map 2 lines");
    fs::write(slowlane.policy().join("bot.map"), "GPTBot openai\nbot\n").unwrap();
    let (said, is_done) = ran(&["check", "--config", "slowlane.toml", "--policy", "policy"], &slowlane);
    assert!(
        !is_done
            && said.contains(
                "bot.map:2: \"bot\": expected the key, then the derived field's value of 1 to 256 bytes"
            ),
        "{said}"
    );
}
