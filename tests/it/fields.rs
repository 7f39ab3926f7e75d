//! Unusual fields, over SPOP and over HTTP.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream};

use spop::Data;

use crate::support::PATIENCE;
use crate::support::slowlane::Slowlane;
use crate::support::spop::{Line, message, notify};

/// SLOs that pass once and then deny for a minute: a second `deny` means the same bucket.
const SLO_MAP: &str = "0 burst=1000000 rate=5000/s\n\
    1001 burst=1 rate=1/m max_delay=1s\n2001 burst=1 rate=1/m max_delay=1s\n\
    3001 burst=1 rate=1/m max_delay=1s\n4001 burst=1 rate=1/m max_delay=1s\n5001 burst=1 rate=1/m max_delay=1s\n";

/// The proxy that asks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Proxy {
    Haproxy,
    Nginx,
}

const PROXIES: [Proxy; 2] = [Proxy::Haproxy, Proxy::Nginx];

impl Proxy {
    fn other(self) -> Proxy {
        if self == Proxy::Haproxy { Proxy::Nginx } else { Proxy::Haproxy }
    }

    /// The SLO and the verdict of a request with these fields, in this order.
    fn ask(self, slowlane: &Slowlane, fields: &[(&str, Data<'_>)]) -> (u16, String) {
        match self {
            Proxy::Haproxy => {
                let arguments: Vec<(&[u8], Data<'_>)> =
                    fields.iter().map(|&(name, value)| (name.as_bytes(), value)).collect();
                let mut line = Line::greeted(slowlane.spop);
                line.say(&message(1, b"request", &arguments));
                let heard = line.hear();
                let variable = |name| heard.variable(name).unwrap();
                (variable("slo").parse().unwrap(), variable("verdict").to_owned())
            }
            Proxy::Nginx => {
                let mut head =
                    b"GET /check?hold=off HTTP/1.1\r\nHost: slowlane\r\nConnection: close\r\n".to_vec();
                for &(name, value) in fields {
                    write!(head, "X-Slowlane-{name}: ").unwrap();
                    head.extend(header(value));
                    head.extend(b"\r\n");
                }
                head.extend(b"\r\n");
                let mut stream = TcpStream::connect(slowlane.http).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                stream.write_all(&head).unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).unwrap();
                let header = |name: &str| {
                    let line = answer.lines().find_map(|line| line.strip_prefix(name));
                    line.unwrap_or_else(|| panic!("no {name} in {answer:?}")).to_owned()
                };
                (header("x-slowlane-slo: ").parse().unwrap(), header("x-slowlane-verdict: "))
            }
        }
    }
}

/// The header of nginx for a typed value of HAProxy.
fn header(value: Data<'_>) -> Vec<u8> {
    match value {
        Data::Null => vec![],
        Data::Bool(truth) => vec![b'0' + u8::from(truth)],
        Data::Ipv4(address) => address.to_string().into(),
        Data::Ipv6(address) => address.to_string().into(),
        Data::Str(bytes) | Data::Bin(bytes) => bytes.to_vec(),
        number => number.to_i64().unwrap().to_string().into(),
    }
}

fn slowlane(maps: &[(&str, &str)]) -> Slowlane {
    Slowlane::with_policy(&[&[("slo.map", SLO_MAP)], maps].concat())
}

fn text(text: &str) -> Data<'_> {
    Data::Str(text.as_bytes())
}

fn address(text: &str) -> Data<'static> {
    match text.parse().unwrap() {
        IpAddr::V4(v4) => Data::Ipv4(v4),
        IpAddr::V6(v6) => Data::Ipv6(v6),
    }
}

fn answer(slo: u16, verdict: &str) -> (u16, String) {
    (slo, verdict.to_owned())
}

const EVERY_SOURCE: (&str, &str) = ("source.map", "0.0.0.0/0 3001\n::/0 3001\n");

#[test]
fn a_field_without_a_value_is_looked_up_nowhere() {
    let slowlane =
        slowlane(&[EVERY_SOURCE, ("website.map", "shop.example 2001\n"), ("owner.map", "ann 1001\n")]);
    for proxy in PROXIES {
        let slo = |fields: &[(&str, Data<'_>)]| proxy.ask(&slowlane, fields).0;
        assert_eq!(slo(&[]), 0);
        for nothing in [Data::Null, text(""), Data::Bin(b"")] {
            assert_eq!(slo(&[("source", nothing), ("website", nothing), ("owner", nothing)]), 0);
            assert_eq!(slo(&[("source", nothing), ("website", text("shop.example"))]), 2001);
            assert_eq!(slo(&[("source", nothing), ("website", nothing), ("owner", text("ann"))]), 1001);
        }
        assert_eq!(slo(&[("unknown", text("shop.example"))]), 0);
    }
}

#[test]
fn whoever_has_no_value_shares_one_bucket() {
    for proxy in PROXIES {
        let slowlane = slowlane(&[("website.map", "shop.example 5001\n")]);
        let shop = ("website", text("shop.example"));
        let ask = |fields: &[(&str, Data<'_>)]| proxy.ask(&slowlane, fields).1;
        assert_eq!(ask(&[shop]), "pass");
        assert_eq!(ask(&[("source", Data::Null), shop]), "deny");
        assert_eq!(ask(&[("source", text("")), shop]), "deny");
        assert_eq!(ask(&[("source", address("192.0.2.1")), shop]), "pass");
    }
}

#[test]
fn a_source_that_is_no_address_is_in_no_network() {
    let slowlane = slowlane(&[EVERY_SOURCE]);
    for proxy in PROXIES {
        for source in [
            "unix:",
            "unix:/run/nginx.sock",
            "-",
            "192.0.2.1:http",
            "192.0.2.1:65536",
            "192.0.2.1, 10.0.0.1",
            "[::1",
            "192.0.2",
            "01.2.3.4",
            "localhost",
        ] {
            assert_eq!(proxy.ask(&slowlane, &[("source", text(source))]).0, 0, "{proxy:?} {source}");
        }
        for source in [
            Data::Bin(b"\xff\xfe"),
            Data::Bin(&[192, 168, 250, 251]),
            Data::Int64(3_221_225_985),
            Data::Bool(true),
        ] {
            assert_eq!(proxy.ask(&slowlane, &[("source", source)]).0, 0, "{proxy:?} {source:?}");
        }
        for source in ["192.0.2.1", "192.0.2.1:80", "[2001:db8::1]", "[2001:db8::1]:443", "fe80::1%eth0"] {
            assert_eq!(proxy.ask(&slowlane, &[("source", text(source))]).0, 3001, "{proxy:?} {source}");
        }
    }
}

#[test]
fn sources_that_are_no_addresses_have_buckets_by_their_text() {
    for proxy in PROXIES {
        let slowlane = slowlane(&[("website.map", "shop.example 5001\n")]);
        let ask =
            |source| proxy.ask(&slowlane, &[("source", text(source)), ("website", text("shop.example"))]).1;
        assert_eq!(
            [ask("unix:"), ask("unix:"), ask("unix:/a"), ask("unix:/a")],
            ["pass", "deny", "pass", "deny"]
        );
    }
}

#[test]
fn a_customer_with_ipv6_is_a_64() {
    for proxy in PROXIES {
        let slowlane = slowlane(&[EVERY_SOURCE]);
        let ask = |source| proxy.ask(&slowlane, &[("source", address(source))]);
        assert_eq!(ask("2001:db8::1"), answer(3001, "pass"));
        assert_eq!(ask("2001:db8::ffff:1"), answer(3001, "deny"));
        assert_eq!(ask("2001:db8:0:0:ffff:ffff:ffff:ffff"), answer(3001, "deny"));
        assert_eq!(ask("2001:db8:0:1::1"), answer(3001, "pass"));
        assert_eq!(ask("192.0.2.1"), answer(3001, "pass"));
        assert_eq!(ask("192.0.2.2"), answer(3001, "pass"));
    }
}

#[test]
fn one_customer_has_one_bucket_however_the_address_is_written_and_whoever_asks() {
    for proxy in PROXIES {
        for [first, second] in [
            [address("192.0.2.1"), address("::ffff:192.0.2.1")],
            [address("::ffff:192.0.2.1"), address("192.0.2.1")],
            [address("192.0.2.1"), text("::FFFF:192.0.2.1")],
            [address("192.0.2.1"), address("64:ff9b::c000:201")],
            [address("64:ff9b::c000:201"), text("[64:ff9b::192.0.2.1]:4711")],
            [text("2001:DB8:0::1"), address("2001:db8::2")],
        ] {
            let slowlane = slowlane(&[EVERY_SOURCE]);
            assert_eq!(proxy.ask(&slowlane, &[("source", first)]), answer(3001, "pass"));
            assert_eq!(proxy.ask(&slowlane, &[("source", second)]), answer(3001, "deny"), "{second:?}");
            assert_eq!(proxy.other().ask(&slowlane, &[("source", first)]), answer(3001, "deny"));
            assert_eq!(proxy.other().ask(&slowlane, &[("source", second)]), answer(3001, "deny"));
        }
    }
}

#[test]
fn a_name_that_is_no_utf8_or_very_long_is_a_name_like_any_other() {
    let long = "a".repeat(10_000);
    let longer = format!("{long}a");
    for proxy in PROXIES {
        let slowlane = slowlane(&[
            ("source+owner.map", "0.0.0.0/0+free.example 5001\n"),
            ("owner.map", &format!("caf\u{e9}.example 1001\n{long} 1001\n")),
        ]);
        let ask =
            |owner| proxy.ask(&slowlane, &[("source", address("192.0.2.1")), ("owner", Data::Bin(owner))]);
        assert_eq!(ask(b"caf\xc3\xa9.example"), answer(1001, "pass"));
        assert_eq!(ask(b"caf\xe9.example").0, 0, "Latin-1 is another name");
        assert_eq!(ask(b"\xff\xfe\x80").0, 0);
        assert_eq!(ask(long.as_bytes()), answer(1001, "pass"));
        assert_eq!(ask(long.as_bytes()), answer(1001, "deny"));
        assert_eq!(ask(longer.as_bytes()).0, 0);
    }
}

#[test]
fn names_that_nobody_knows_are_told_apart_by_every_byte() {
    for proxy in PROXIES {
        let slowlane = slowlane(&[("source.map", "0.0.0.0/0 4001\n")]);
        let ask =
            |owner| proxy.ask(&slowlane, &[("source", address("192.0.2.1")), ("owner", Data::Bin(owner))]).1;
        let long = [b'a'; 10_000];
        assert_eq!(
            [ask(b"\xff"), ask(b"\xfe"), ask(b"\xff"), ask(b"\xfe")],
            ["pass", "pass", "deny", "deny"]
        );
        assert_eq!([ask(&long), ask(&long[1..]), ask(&long)], ["pass", "pass", "deny"]);
    }
}

#[test]
fn a_name_that_looks_like_an_address_is_still_a_name() {
    let names = ["2001:DB8::1", "::ffff:192.0.2.1", "192.0.2.1"];
    let map: String = names.iter().map(|name| format!("{name} 1001\n")).collect();
    for proxy in PROXIES {
        let slowlane = slowlane(&[("owner.map", &map)]);
        for name in names {
            assert_eq!(proxy.ask(&slowlane, &[("owner", text(name))]), answer(1001, "pass"), "{name}");
            assert_eq!(
                proxy.other().ask(&slowlane, &[("owner", text(name))]),
                answer(1001, "deny"),
                "{name}"
            );
        }
        assert_eq!(proxy.ask(&slowlane, &[("owner", text("2001:db8::1"))]).0, 0);
    }
}

#[test]
fn of_fields_with_one_name_the_first_counts() {
    let slowlane = slowlane(&[("website.map", "shop.example 2001\n")]);
    for proxy in PROXIES {
        let ask = |first, second| {
            proxy.ask(&slowlane, &[("website", first), ("x", Data::Int64(1)), ("website", second)]).0
        };
        assert_eq!(ask(text("shop.example"), text("blog.example")), 2001);
        assert_eq!(ask(text("blog.example"), text("shop.example")), 0);
        assert_eq!(ask(Data::Null, text("shop.example")), 2001, "what has no value is no field");
    }
}

#[test]
fn of_more_fields_than_a_request_carries_the_first_count() {
    let slowlane = slowlane(&[EVERY_SOURCE]);
    let source = ("source", address("192.0.2.1"));
    let names: Vec<String> = (0..254).map(|number| format!("f{number}")).collect();
    for (proxy, count) in [(Proxy::Haproxy, 254), (Proxy::Nginx, 90)] {
        let fillers = || names[..count].iter().map(|name| (name.as_str(), Data::Int64(1)));
        let first: Vec<_> = [source].into_iter().chain(fillers()).collect();
        let last: Vec<_> = fillers().chain([source]).collect();
        assert_eq!(proxy.ask(&slowlane, &first).0, 3001);
        assert_eq!(proxy.ask(&slowlane, &last).0, 0);
        let thirty_second: Vec<_> = fillers().take(31).chain([source]).collect();
        assert_eq!(proxy.ask(&slowlane, &thirty_second).0, 3001);
    }
}

#[test]
fn three_hundred_arguments_in_two_messages_ask_once() {
    let slowlane = slowlane(&[EVERY_SOURCE]);
    let arguments = vec![(&b"source"[..], address("192.0.2.1")); 255];
    let mut line = Line::greeted(slowlane.spop);
    line.say(&notify(1, &[(b"request", &arguments), (b"request", &arguments[..45])]));
    assert_eq!(line.hear().variable("slo"), Some("3001"));
    assert_eq!(slowlane.metric("slowlane_verdicts_total", ""), 1.0);
}

#[test]
fn numbers_are_looked_up_in_decimal() {
    for proxy in PROXIES {
        let slowlane = slowlane(&[("owner.map", "7 1001\n-5 1001\n1 1001\n9223372036854775807 1001\n")]);
        let ask = |owner| proxy.ask(&slowlane, &[("owner", owner)]);
        assert_eq!([ask(Data::Int32(7)), ask(Data::Uint64(7))], [answer(1001, "pass"), answer(1001, "deny")]);
        assert_eq!(ask(text("7")), answer(1001, "deny"), "text and number are one owner");
        assert_eq!(ask(text("07")).0, 0);
        assert_eq!(
            [ask(Data::Int64(-5)), ask(Data::Int32(-5))],
            [answer(1001, "pass"), answer(1001, "deny")]
        );
        assert_eq!(
            [ask(Data::Bool(true)), ask(Data::Uint32(1))],
            [answer(1001, "pass"), answer(1001, "deny")]
        );
        assert_eq!(ask(Data::Bool(false)).0, 0);
        assert_eq!(ask(Data::Int64(i64::MAX)), answer(1001, "pass"));
        // HAProxy has no larger numbers, and sends none.
        assert_eq!(Proxy::Haproxy.ask(&slowlane, &[("owner", Data::Uint64(u64::MAX))]), answer(1001, "deny"));
    }
}

#[test]
fn an_address_where_a_name_is_expected_is_looked_up_as_it_is_written() {
    let slowlane = slowlane(&[("website.map", "192.0.2.1 2001\n2001:db8::1 2001\n")]);
    for website in ["192.0.2.1", "2001:db8::1"] {
        assert_eq!(Proxy::Haproxy.ask(&slowlane, &[("website", address(website))]), answer(2001, "pass"));
        assert_eq!(Proxy::Nginx.ask(&slowlane, &[("website", address(website))]), answer(2001, "deny"));
    }
}
