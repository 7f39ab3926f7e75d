//! Blocks of a running daemon: through its commands, through HAProxy and nginx, and in all places that report them.

use serde_json::Value;

use crate::cli::{Ran, ran};
use crate::support::backend::Backend;
use crate::support::client::{self, Client};
use crate::support::haproxy::Version::{V2_6, V3_2, V3_4};
use crate::support::haproxy::{Delivery, Haproxy, VerdictHeaders, each, showing_verdicts_patiently};
use crate::support::nginx::Nginx;
use crate::support::slowlane::Slowlane;
use crate::support::{eventually, key_hasher};

/// A website whose second request is refused for a day, beside an SLO that throttles nothing.
const POLICY: &[(&str, &str)] = &[
    (
        "slo.map",
        "0 rate=unlimited\n2001 burst=1 rate=1/d law=token-bucket block=2s\n2002 burst=1 rate=1/d law=token-bucket block=1d\n",
    ),
    ("website.map", "brief.example 2001\nlong.example 2002\n"),
];

fn run(slowlane: &Slowlane, args: &[&str]) -> Ran {
    ran(&[args, &["--admin", &slowlane.admin.to_string()]].concat())
}

fn said(slowlane: &Slowlane, args: &[&str]) -> String {
    let Ran { code, out, problems } = run(slowlane, args);
    assert_eq!((code, problems.as_slice()), (0, &[][..]), "{args:?}");
    out
}

fn refused(slowlane: &Slowlane, args: &[&str]) -> String {
    let Ran { code, out, problems } = run(slowlane, args);
    assert_eq!((code, out.as_str()), (1, ""), "{args:?}");
    problems.join("\n")
}

fn status(slowlane: &Slowlane) -> Value {
    serde_json::from_str(&client::get(slowlane.admin, "/api/status", &[]).body).unwrap()
}

/// Blocks by fields of every kind hold for one client of a proxy, and end at once.
fn blocks_hold(slowlane: &Slowlane, client: impl Fn() -> Client) {
    let ask = |method, website| client().request(method, "/", &[("Host", website)], "").status;
    for fields in [
        &["source=127.0.0.1", "website=shop.example"][..],
        &["source=127.0.0.0/8", "website=Shop.example:80"],
        &["website=shop.example"],
    ] {
        assert_eq!([ask("GET", "shop.example"), ask("GET", "blog.example")], [200, 200]);
        said(slowlane, &[&["block", "add", "--for", "1h"], fields].concat());
        assert_eq!([ask("GET", "shop.example"), ask("GET", "blog.example")], [429, 200], "{fields:?}");
        said(slowlane, &[&["block", "rm"], fields].concat());
    }
    // The policy does not use the method; the proxy sends it.
    let outcome = said(slowlane, &["block", "add", "method=POST", "--for", "1h"]);
    assert_eq!(
        outcome,
        "blocked method=POST for 1h\nmake sure that the proxy sends method, which the policy does not use\n"
    );
    assert_eq!([ask("POST", "shop.example"), ask("GET", "shop.example")], [429, 200]);
    said(slowlane, &["block", "rm", "method=POST"]);
    assert_eq!(ask("POST", "shop.example"), 200);

    let refusal = |website| {
        let answer = client().request("GET", "/", &[("Host", website)], "");
        (answer.status, answer.header("retry-after").and_then(|retry| retry.parse::<u32>().ok()))
    };
    assert_eq!([refusal("long.example").0, refusal("long.example").0], [200, 429]);
    let (status, retry_after) = refusal("long.example");
    assert!(
        status == 429 && retry_after.is_some_and(|retry| (86_300..=86_400).contains(&retry)),
        "{retry_after:?}"
    );
    let outcome = said(slowlane, &["block", "rm", "website=long.example"]);
    assert!(outcome.starts_with("unblocked key="), "{outcome}");
    assert_eq!(refusal("long.example").0, 429, "the law still refuses it");

    assert_eq!([ask("GET", "brief.example"), ask("GET", "brief.example")], [200, 429]);
    said(slowlane, &["table", "clear", "website=brief.example"]);
    assert_eq!(ask("GET", "brief.example"), 429, "its burst is back, and the block holds");
    eventually("the block is over", || (ask("GET", "brief.example") == 200).then_some(()));
}

#[test]
fn a_blocked_client_is_refused_through_haproxy() {
    each(&[(V2_6, Delivery::Hold), (V3_2, Delivery::Pause), (V3_4, Delivery::Pause)], |version, delivery| {
        let (app, slowlane) = (Backend::start(), Slowlane::with_policy(POLICY));
        let agent = slowlane.spop.to_string();
        let mut haproxy =
            Haproxy::with(version, delivery, &agent, app.address, showing_verdicts_patiently).unwrap();
        haproxy.wait_for_agent("UP");
        blocks_hold(&slowlane, || haproxy.client());

        said(&slowlane, &["block", "add", "website=shop.example", "--for", "1h"]);
        let outcome =
            VerdictHeaders::by(&haproxy.client().request("GET", "/", &[("Host", "shop.example")], ""));
        assert!(outcome.is("deny"), "{outcome:?}");
    });
}

#[test]
fn a_blocked_client_is_refused_through_nginx() {
    let (app, slowlane) = (Backend::start(), Slowlane::with_policy(POLICY));
    let nginx = Nginx::shipped(&slowlane.http.to_string(), app.address);
    blocks_hold(&slowlane, || nginx.client());
}

#[test]
fn all_that_is_blocked_is_listed_counted_and_explained() {
    let slowlane = Slowlane::with_policy(POLICY);
    assert_eq!(said(&slowlane, &["block", "list"]), "nothing is blocked\n");
    assert_eq!(said(&slowlane, &["block", "list", "--json"]), "[]\n");
    let fields = ["source=2001:db8::66", "website=shop.example"];
    let add = [&["block", "add", "--for", "10d"], &fields[..]].concat();
    assert_eq!(said(&slowlane, &add), "blocked source=2001:db8::/64 website=shop.example for 10d\n");
    let json = |args: &[&str]| said(&slowlane, &[args, &["--json"]].concat());
    let changed = |time| {
        format!(r#"{{"blocks":["source=2001:db8::/64 website=shop.example"],"for":{time},"notes":[]}}"#)
    };
    assert_eq!(json(&add), changed("\"10d\""));
    assert_eq!(json(&[&["block", "rm"], &fields[..]].concat()), changed("null"));
    said(&slowlane, &add);
    let ask = |source, website| {
        slowlane.check("", &[("X-Slowlane-Source", source), ("X-Slowlane-Website", website)]).status
    };
    assert_eq!([ask("2001:db8::1", "shop.example"), ask("2001:db8:0:1::1", "shop.example")], [403, 204]);
    let long: Vec<u16> = (0..3).map(|_| ask("192.0.2.1", "long.example")).collect();
    assert_eq!(long, [204, 403, 403]);

    let key = key_hasher(2, "burst=1 rate=1/d law=token-bucket").part(b"long.example").finish();
    let listed = said(&slowlane, &["block", "list"]);
    let first = listed.lines().nth(1).unwrap_or_default().trim_start();
    assert!(first.starts_with("10d  ") || first.starts_with("9d23h  "), "{listed}");
    assert!(listed.contains("  an operator  source=2001:db8::/64 website=shop.example\n"), "{listed}");
    assert!(listed.ends_with(&format!("  SLO 2002     key={key}\n")), "{listed}");
    let json: Value = serde_json::from_str(&said(&slowlane, &["block", "list", "--json"])).unwrap();
    assert_eq!(
        (&json[0]["by"], &json[0]["block"]),
        (&"operator".into(), &"source=2001:db8::/64 website=shop.example".into())
    );
    assert_eq!(
        (&json[1]["by"], &json[1]["slo"], json[1]["left_s"].as_u64().unwrap() > 86_000),
        (&"slo".into(), &2002.into(), true)
    );

    assert_eq!(slowlane.metric("slowlane_cluster_blocks", ""), 2.0);
    assert_eq!(slowlane.metric("slowlane_blocked_total", ""), 2.0, "the law itself refused the first");
    assert_eq!(slowlane.metric("slowlane_blocks_without_room_total", ""), 0.0);

    let why = said(&slowlane, &["why", "source=2001:db8::9", "website=shop.example"]);
    assert!(why.contains("blocked   by source=2001:db8::/64 website=shop.example, for another "), "{why}");
    assert!(why.contains("not consulted: the request is blocked"), "{why}");
    let why: Value =
        serde_json::from_str(&said(&slowlane, &["why", "--json", "website=long.example"])).unwrap();
    assert_eq!((&why["blocked"]["by"], &why["verdict"]), (&"SLO 2002".into(), &"deny".into()));
    assert_eq!(slowlane.metric("slowlane_blocked_total", ""), 2.0, "nothing was counted");

    let shown = eventually("the snapshot of the next second", || {
        let shown = status(&slowlane);
        (shown["keys"].as_array()?.len() == 2).then_some(shown)
    });
    assert_eq!((&shown["blocks"]["operators"], &shown["blocks"]["keys"]), (&1.into(), &1.into()));
    let top = said(&slowlane, &["top", "--once"]);
    assert!(top.contains("; blocks 2\n"), "{top}");
    assert!(top.contains("website=long.example (blocked by SLO 2002, "), "{top}");
    assert!(top.contains("everybody (blocked by source=2001:db8::/64 website=shop.example, "), "{top}");

    assert_eq!(said(&slowlane, &["block", "rm", &format!("key={key}")]), format!("unblocked key={key}\n"));
    said(&slowlane, &["block", "rm", "source=2001:db8::66", "website=shop.example"]);
    assert_eq!(slowlane.metric("slowlane_cluster_blocks", ""), 0.0);
    assert_eq!(ask("2001:db8::1", "shop.example"), 204);
}

#[test]
fn a_block_survives_a_reload_and_a_dry_run_blocks_nobody() {
    let policy = [("slo.map", "0 burst=1 rate=1/d law=token-bucket dry_run=yes block=1d\n")];
    let slowlane = Slowlane::with_policy(&policy);
    let ask = |source| slowlane.check("", &[("X-Slowlane-Source", source)]).status;
    assert_eq!([ask("192.0.2.1"), ask("192.0.2.1"), ask("192.0.2.1")], [204; 3]);
    assert_eq!(slowlane.metric("slowlane_shadow_verdicts_total", "verdict=\"deny\""), 2.0);
    assert_eq!(
        (slowlane.metric("slowlane_cluster_blocks", ""), slowlane.metric("slowlane_blocked_total", "")),
        (0.0, 0.0)
    );
    assert!(said(&slowlane, &["block", "list"]).contains("  the dry run of SLO 0  key="));
    said(&slowlane, &["block", "add", "source=192.0.2.66", "path=/x", "--for", "1d"]);
    let ask = || slowlane.check("", &[("X-Slowlane-Source", "192.0.2.66"), ("X-Slowlane-Path", "/x")]).status;
    assert_eq!(ask(), 403, "an operator's block holds under a dry run");
    let reloads = || slowlane.metric("slowlane_policy_reloads_total", "result=\"done\"");
    let before = reloads();
    slowlane.replace("slo.map", "0 rate=unlimited\n");
    eventually("the policy is read again", || (reloads() > before).then_some(()));
    assert_eq!(ask(), 403);
}

#[test]
fn a_block_that_cannot_be_set_names_the_remedy() {
    let slowlane = Slowlane::with_config(POLICY, "");
    for (args, outcome) in [
        (
            &["block", "add", "source=shop.example", "--for", "1m"][..],
            "source \"shop.example\": expected an address or a network, like 192.0.2.66 or 192.0.2.0/24",
        ),
        (
            &["block", "add", "website=shop.example,x", "--for", "1m"],
            "website \"shop.example,x\": expected a host, like shop.example",
        ),
        (
            &["block", "add", "website=shop.example", "source=", "--for", "1m"],
            "each field needs a value, like source=192.0.2.66",
        ),
        (
            &["block", "add", "key=26C7827D889F6DA3", "--for", "1m"],
            "expected the fields to block, like source=192.0.2.66; to block the keys that an SLO refuses, \
             add block=10m to its line in slo.map",
        ),
        (
            &["block", "add", "source=192.0.2.1", "source=192.0.2.2", "--for", "1m"],
            "source is given twice: only one value can match, so keep one",
        ),
        (
            &["block", "rm", "source=192.0.2.66"],
            "source=192.0.2.66 is not blocked: `slowlane block list` lists the blocks",
        ),
        (
            &["block", "rm", "key=26"],
            "key: expected sixteen hex digits and no other field, like key=26C7827D889F6DA3",
        ),
    ] {
        assert_eq!(refused(&slowlane, args), outcome, "{args:?}");
    }
    assert_eq!(said(&slowlane, &["block", "list"]), "nothing is blocked\n");

    let post = |path: &str, headers: &[(&str, &str)], body: &str| {
        Client::connect(slowlane.admin).request("POST", path, headers, body)
    };
    let path = "/api/block?source=192.0.2.66";
    assert_eq!(client::get(slowlane.admin, path, &[]).status, 405, "a link blocks nobody");
    for headers in [("Origin", "http://evil.example"), ("Sec-Fetch-Site", "cross-site")] {
        assert_eq!(post(path, &[headers], "for=1m").status, 403, "no web page blocks anybody");
        assert_eq!(post("/api/unblock?source=192.0.2.66", &[headers], "").status, 403);
    }
    // The status page does, and nothing that only looks like it.
    let host = slowlane.admin.to_string();
    let (page, other) = (format!("http://{host}"), format!("http://{host}.evil.example"));
    let from = |origin: &str, site: &str| {
        let headers = [("Host", &*host), ("Origin", origin), ("Sec-Fetch-Site", site)];
        [post(path, &headers, "for=1m").status, post("/api/unblock?source=192.0.2.66", &headers, "").status]
    };
    assert_eq!(from(&page, "same-origin"), [200, 200]);
    for (origin, site) in [
        (&*page, "cross-site"),
        (&*page, "same-site"),
        (&*other, "same-origin"),
        ("null", "same-origin"),
        (&*host, "same-origin"),
        ("http://localhost", "same-origin"),
    ] {
        assert_eq!(from(origin, site), [403, 403], "{origin} {site}");
    }
    for body in ["", "1m", "for=", "for=\u{e9}", "for=0s"] {
        assert_eq!(post(path, &[], body).status, 400, "{body:?}");
    }
    assert_eq!(post(path, &[], "for=1m\n").body, "blocked source=192.0.2.66 for 1m\n");
    assert_eq!(post("/api/block", &[], "for=1m").body, "name at least one field, like source=192.0.2.66\n");
}

#[test]
fn only_holders_of_the_token_block() {
    let slowlane = Slowlane::with_config(
        &[("slo.map", "0 rate=unlimited\n")],
        "[admin]\ntoken = \"0123456789abcdef\"\n",
    );
    let outcome = refused(&slowlane, &["block", "add", "source=192.0.2.66", "--for", "1m"]);
    assert!(outcome.ends_with("requires a token: use --token-file or --config"), "{outcome}");
    let config = slowlane.folder().join("slowlane.toml");
    let ours = ["--config", config.to_str().unwrap()];
    said(&slowlane, &[&["block", "add", "source=192.0.2.66", "--for", "1m"], &ours[..]].concat());
    assert!(refused(&slowlane, &["block", "list"]).ends_with("use --token-file or --config"));
    assert!(
        said(&slowlane, &[&["block", "list"], &ours[..]].concat())
            .contains("  an operator  source=192.0.2.66\n")
    );
    let lines: Vec<String> =
        slowlane.process.log().into_iter().filter(|line| line.contains("an operator ")).collect();
    assert!(
        lines.len() == 1 && lines[0].contains("an operator blocked source=192.0.2.66 for 1m"),
        "{lines:?}"
    );
}
