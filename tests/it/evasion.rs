//! Clients that try to get around their SLO, or into the account of another: by spelling, forged keys, costs and lengths.

use std::io;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use slowlane_core::base::{Decision, Key, KeySecret, Request, Sample, Timestamp, Value, Verdict};
use slowlane_core::policy::{Layout, Lookup, Method, Policy};
use slowlane_core::table::{Sizing, Table};
use slowlane_core::throttle::Throttle;

use crate::support::client::Client;
use crate::support::slowlane::Slowlane;

const NOW: Timestamp = Timestamp::from_millis(1_000_000_000);

fn policy(layout: &Layout, files: &[(&str, &str)]) -> Policy {
    let read = |path: &Path| {
        let file = files.iter().find(|(name, _)| Path::new(name) == path);
        file.map(|(_, text)| text.as_bytes().to_vec()).ok_or_else(|| io::ErrorKind::NotFound.into())
    };
    Policy::parse(Path::new(""), layout, read).unwrap_or_else(|problems| panic!("{problems}"))
}

fn throttle(policy: Policy) -> Throttle {
    Throttle::new(policy, Sizing { entries_max: 1_000, expire: Duration::from_secs(30) }, 1 << 20)
}

fn ask(throttle: &Throttle, fields: &[(&str, &[u8])]) -> Decision {
    let mut request = Request::new();
    fields.iter().for_each(|(name, value)| request.push(name.as_bytes(), Value::Text(value)));
    throttle.decide_one(&request, NOW, Sample::MIDDLE)
}

const SLO_MAP: &str = "0 burst=10000 rate=5000/s\n2001 burst=1 rate=1/h law=token-bucket\n\
    5001 burst=1 rate=1/h law=token-bucket\n";

/// Whether a request for a spelling of the website is counted with those for `shop.example`, or refused.
fn is_held(throttle: &Throttle, spelling: &[u8]) -> bool {
    let decision = ask(throttle, &[("source", b"192.0.2.7"), ("website", spelling)]);
    !decision.is_let_through()
}

const SPELLINGS: [&str; 22] = [
    "shop.example",
    "SHOP.example",
    "shop.example.",
    "shop.example:80",
    "shop.example.:80",
    "shop.example:",
    "Shop.Example.:8443",
    "shop.example,x",
    "x,shop.example",
    "shop.example, shop.example",
    " shop.example",
    "shop.example ",
    "shop.example\t",
    "shop.example..",
    ".shop.example",
    "shop.example/",
    "shop.example#x",
    "shop.example\\",
    "ann@shop.example",
    "shop%2eexample",
    "shop.example:80x",
    "shop.example\u{0}",
];

#[test]
fn no_spelling_of_a_website_leaves_its_slo() {
    for map in ["shop.example 2001\n", "Shop.EXAMPLE.:443 2001\n"] {
        let throttle = throttle(policy(&Layout::default(), &[("slo.map", SLO_MAP), ("website.map", map)]));
        assert!(!is_held(&throttle, b"shop.example"), "the first may pass");
        for spelling in SPELLINGS {
            assert!(is_held(&throttle, spelling.as_bytes()), "{map:?}: {spelling:?}");
        }
        assert!(!is_held(&throttle, b"other.example"));
    }
}

/// Traefik, Caddy and their like pass on the Host header as the client wrote it.
#[test]
fn no_spelling_of_a_forwarded_host_leaves_its_slo() {
    let slowlane =
        Slowlane::with_policy(&[("slo.map", SLO_MAP), ("website.map", "shop.example 2001\n::1 2001\n")]);
    let ask = |host: &str| slowlane.check("?deny=429", &[("X-Forwarded-Host", host)]).status;
    assert_eq!([ask("shop.example"), ask("[::1]:443")], [204, 204], "the first may pass");
    let spellings = SPELLINGS.into_iter().filter(|spelling| !spelling.contains('\0'));
    for spelling in spellings.chain(["[::1]", "[0:0::1]:80", "sh\u{f6}p.example:x"]) {
        assert_eq!(ask(spelling), 429, "{spelling:?}");
    }
    assert_eq!(ask("other.example"), 204);
}

#[test]
fn a_website_beside_a_network_is_spelt_as_a_client_likes() {
    let map = "192.0.2.0/24+Shop.Example:80 5001\n";
    let throttle = throttle(policy(&Layout::default(), &[("slo.map", SLO_MAP), ("source+website.map", map)]));
    assert!(!is_held(&throttle, b"shop.example"), "the first may pass");
    assert!(SPELLINGS.iter().all(|spelling| is_held(&throttle, spelling.as_bytes())));
}

#[test]
fn an_address_as_a_website_has_one_key() {
    let map = "[2001:DB8::1]:80 2001\n";
    let throttle = throttle(policy(&Layout::default(), &[("slo.map", SLO_MAP), ("website.map", map)]));
    assert!(!is_held(&throttle, b"[2001:db8::1]"), "the first may pass");
    for spelling in
        ["[2001:db8::1]:443", "[2001:DB8:0::0:1]", "2001:db8::1", "[2001:db8::1", "[2001:db8::1]."]
    {
        assert!(is_held(&throttle, spelling.as_bytes()), "{spelling}");
    }
}

#[test]
fn every_match_method_knows_a_host_in_every_spelling() {
    for (method, key) in [
        (Method::Str, "Shop.example"),
        (Method::Beg, "Shop."),
        (Method::End, ".Example"),
        (Method::Dom, "SHOP"),
        (Method::Sub, "HOP.EX"),
        (Method::Reg, "^Shop[.]"),
    ] {
        let lookup = Lookup { fields: vec!["website".into()], file: "w.map".into(), method, is_added: false };
        let layout = Layout::default().with_lookups(vec![lookup]).unwrap();
        let throttle =
            throttle(policy(&layout, &[("slo.map", SLO_MAP), ("w.map", &format!("{key} 2001\n"))]));
        assert!(!is_held(&throttle, b"shop.example"), "{method:?}: the first may pass");
        for spelling in SPELLINGS {
            assert!(is_held(&throttle, spelling.as_bytes()), "{method:?}: {spelling:?}");
        }
    }
}

#[test]
fn where_no_map_and_no_key_has_a_website_any_text_passes() {
    let throttle = throttle(policy(
        &Layout::default(),
        &[("slo.map", "0 burst=9 rate=9/s\n3001 burst=9 rate=9/s\n"), ("source.map", "0.0.0.0/0 3001\n")],
    ));
    assert!(!is_held(&throttle, b"shop.example,x"));
}

/// The two have one XXH64 with seed 0. The website was found in seconds.
#[test]
fn no_website_is_found_that_has_the_key_of_another_customer() {
    let map = "0.0.0.0/0+shop.example 5001\n0.0.0.0/0+v0xvajca-x-283.com 5001\n";
    let throttle = throttle(policy(&Layout::default(), &[("slo.map", SLO_MAP), ("source+website.map", map)]));
    let victim = [("source", &b"192.0.2.1"[..]), ("website", b"shop.example")];
    let forged = [("source", &b"198.51.100.7"[..]), ("website", b"v0xvajca-x-283.com")];
    assert_ne!(ask(&throttle, &forged).key, ask(&throttle, &victim).key);
    assert_eq!(ask(&throttle, &victim).slo.number(), 5001);
}

#[test]
fn another_secret_gives_other_keys_and_the_same_secret_the_same() {
    let key = |secret| {
        let policy =
            policy(&Layout::default(), &[("slo.map", SLO_MAP), ("website.map", "shop.example 2001\n")]);
        ask(&throttle(policy.with_key_secret(secret)), &[("website", b"shop.example")]).key
    };
    let [one, other] = [1, 2].map(|byte| KeySecret::from_bytes([byte; 16]));
    assert_eq!(key(one), key(one));
    assert_ne!(key(one), key(other));
}

/// Keys whose middle bits are equal would all belong to one shard, and it would evict its own rows.
#[test]
fn crafted_keys_evict_nobody_while_the_table_has_room() {
    let crafted: [fn(u64) -> u64; 4] = [|n| n << 43, |n| (n << 46) | (5 << 40), |n| n, |n| n << 32];
    for key in crafted {
        let table = Table::new(Sizing { entries_max: 32_768, expire: Duration::from_secs(30) });
        for number in 1..=6_000 {
            table.with(Key::from_bits(key(number)), NOW, Duration::ZERO, |entry| entry.http_req_cnt += 1);
        }
        assert_eq!((table.usage().entries, table.usage().evictions), (6_000, 0));
    }
}

#[test]
fn a_cost_that_cannot_be_read_is_not_free() {
    let throttle = throttle(policy(&Layout::default(), &[("slo.map", "0 burst=1000000 rate=1000000/d\n")]));
    let counted = |cost| {
        let mut request = Request::new();
        request.push(b"cost", cost);
        throttle.decide_one(&request, NOW, Sample::MIDDLE).cost
    };
    let text = |text: &'static str| Value::Text(text.as_bytes());
    assert_eq!(counted(Value::Number(-1)), 1);
    assert_eq!(counted(text("-1")), 1);
    assert_eq!(counted(text("false")), 1);
    assert_eq!(counted(text("4294967295")), 1_000_000);
    assert_eq!(counted(text("4294967296")), 1_000_000);
    assert_eq!(counted(text("9223372036854775808")), 1_000_000);
    assert_eq!(counted(text("0")), 0);
}

fn searched(method: Method, lines: &str) -> Throttle {
    let lookup = Lookup { fields: vec!["path".into()], file: "path.map".into(), method, is_added: false };
    let layout = Layout::default().with_lookups(vec![lookup]).unwrap();
    throttle(policy(
        &layout,
        &[
            ("slo.map", "0 burst=10000 rate=5000/s\n3001 burst=1 rate=1/h law=token-bucket\n"),
            ("path.map", lines),
        ],
    ))
}

#[test]
fn a_longer_value_does_not_leave_its_slo() {
    for (method, line) in [(Method::Reg, "^/search 3001\n"), (Method::Dom, "search 3001\n")] {
        let throttle = searched(method, line);
        let path = |length: usize| [&b"/search?"[..], &vec![b'x'; length]].concat();
        assert!(ask(&throttle, &[("path", &path(0))]).is_let_through());
        for length in [1_000, 1_017, 5_000, 60_000, 2_000_000] {
            assert!(!ask(&throttle, &[("path", &path(length))]).is_let_through(), "{method:?}: {length}");
        }
        assert!(
            ask(&throttle, &[("path", &vec![b'x'; 16_380])]).is_let_through(),
            "a long value is no crime, as long as any that HAProxy can send"
        );
    }
}

proptest! {
    /// Whatever a client sends as its website, it is counted with the website that it names, or refused.
    #[test]
    fn any_spelling_has_one_key_or_is_refused(
        name in "[a-z]{1,4}[.]example", upper: u16, dot: bool, port in prop::option::of(0u16..), odd in "[ -~]{0,2}",
    ) {
        let policy = policy(&Layout::default(), &[("slo.map", SLO_MAP), ("website.map", &format!("{name} 2001\n"))]);
        let throttle = throttle(policy);
        let first = ask(&throttle, &[("website", name.as_bytes())]);
        prop_assert_eq!(first.verdict, Verdict::Pass);
        let mut spelling: String =
            name.chars().enumerate().map(|(at, c)| if upper >> (at % 16) & 1 == 1 { c.to_ascii_uppercase() } else { c }).collect();
        if dot {
            spelling.push('.');
        }
        if let Some(port) = port {
            spelling += &format!(":{port}");
        }
        let plain = ask(&throttle, &[("website", spelling.as_bytes())]);
        prop_assert_eq!((plain.key, plain.slo, plain.is_let_through()), (first.key, first.slo, false));
        let odd_one = spelling + &odd;
        let outcome = ask(&throttle, &[("website", odd_one.as_bytes())]);
        // More letters make another name, and more digits another port.
        let is_other_name = slowlane_core::base::Host::read(odd_one.as_bytes()).is_some();
        prop_assert!(is_other_name || !outcome.is_let_through(), "{}", odd_one);
    }
}

/// Envoy appends the path and the query of its client.
#[test]
fn what_a_client_appends_to_check_changes_nothing() {
    let paths = [
        "/check/",
        "/check/cart?hold=off",
        "/check/?max_delay=0s&ratelimit=on",
        "/check/../metrics?deny=429",
        "/check/../done",
        "/check/%2e%2e/done?deny=503&nonsense",
        "/check//x?hold=off?hold=off",
        "/check/2000/a",
        "/check/200/a",
    ];
    let websites =
        (0..paths.len()).map(|number| format!("slow{number}.example 2001\ndenied{number}.example 2002\n"));
    let slo_map =
        "0 rate=unlimited\n2001 burst=1 rate=20/s max_delay=1s\n2002 burst=1 rate=1/h max_delay=0s\n";
    let slowlane =
        Slowlane::with_policy(&[("slo.map", slo_map), ("website.map", &websites.collect::<String>())]);
    let mut client = Client::connect(slowlane.http);
    for (number, path) in paths.into_iter().enumerate() {
        let mut ask = |method, kind: &str| {
            let website = format!("{kind}{number}.example");
            // The id may be the client's, too: no answer is repeated.
            let headers = [("X-Slowlane-Website", website.as_str()), ("X-Request-Id", "1")];
            let answer = client.request(method, path, &headers, "");
            for header in ["x-slowlane-delay", "ratelimit"] {
                assert_eq!(answer.header(header), None, "{path}");
            }
            (answer.status, answer.header("x-slowlane-verdict").unwrap().to_owned(), answer.body)
        };
        let answer = |status, verdict: &str| (status, verdict.to_owned(), String::new());
        // Each request takes a slot, so one of some that follow each other is late.
        let pass = if path == "/check/200/a" { 200 } else { 204 };
        assert_eq!(ask("GET", "slow"), answer(pass, "pass"), "{path}");
        assert!((0..20).any(|_| ask("GET", "slow") == answer(pass, "delay")), "{path}");
        assert_eq!(ask("GET", "denied"), answer(pass, "pass"), "{path}");
        assert_eq!(ask("POST", "denied"), answer(403, "deny"), "{path}");
    }
    for path in ["/checkout", "/check.", "//check/a", "/Check/a", "/", "/a/check/b", "/done/a", "/metrics"] {
        assert_eq!(client.request("GET", path, &[], "").status, 404, "{path}");
    }
}
