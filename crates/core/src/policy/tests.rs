//! Tests of a policy as a whole: its SLOs, its keys, its problems.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use proptest::prelude::*;

use crate::base::{Key, KeyHasher, KeySecret, Request, SloId, Value};
use crate::policy::*;

const SLO_MAP: &str = "0 burst=10000 rate=5000/s\n1001 burst=1 rate=1/s\n2001 burst=1 rate=1/s\n\
    3001 burst=1 rate=1/s\n4001 burst=1 rate=1/s\n5001 burst=1 rate=1/s\n";

fn parse(files: &[(&str, &[u8])], layout: &Layout) -> Result<Policy, PolicyErrors> {
    let read = |path: &Path| {
        let file = files.iter().find(|(name, _)| path == Path::new("maps").join(name));
        file.map(|(_, text)| text.to_vec()).ok_or_else(|| io::ErrorKind::NotFound.into())
    };
    Policy::parse(Path::new("maps"), layout, read)
}

fn policy(maps: &[(&str, &str)]) -> Policy {
    let maps = maps.iter().map(|&(name, text)| (name, text.as_bytes()));
    let files: Vec<_> = [("slo.map", SLO_MAP.as_bytes())].into_iter().chain(maps).collect();
    parse(&files, &Layout::default()).unwrap()
}

fn errors(files: &[(&str, &str)]) -> Vec<String> {
    let files: Vec<_> = files.iter().map(|&(name, text)| (name, text.as_bytes())).collect();
    match parse(&files, &Layout::default()) {
        Ok(_) => vec![],
        Err(errors) => errors.to_string().lines().map(str::to_owned).collect(),
    }
}

/// The state tag of the law that all SLOs have here.
fn pace() -> u32 {
    Slo::parse(SloId::DEFAULT, "burst=1 rate=1/s").unwrap().law.state_tag()
}

fn text(value: &str) -> Value<'_> {
    Value::Text(value.as_bytes())
}

fn address(value: &str) -> Value<'_> {
    Value::address(value.parse::<IpAddr>().unwrap())
}

fn request<'a>(fields: &[(&'a str, Value<'a>)]) -> Request<'a> {
    let mut request = Request::new();
    for &(name, value) in fields {
        request.push(name.as_bytes(), value);
    }
    request
}

fn slo_of(policy: &Policy, fields: &[(&str, Value<'_>)]) -> u32 {
    policy.cases(&request(fields)).list[0].slo.id.number()
}

fn key_of(policy: &Policy, fields: &[(&str, Value<'_>)]) -> Key {
    policy.cases(&request(fields)).list[0].key
}

#[test]
fn the_first_map_that_answers_decides() {
    let maps = [
        ("source+website.map", "192.0.2.1+shop.example 5001"),
        ("source+owner.map", "192.0.2.1+ann 4001"),
        ("source.map", "192.0.2.0/24 3001"),
        ("website.map", "shop.example 2001"),
        ("owner.map", "ann 1001"),
    ];
    let all = [("source", address("192.0.2.1")), ("website", text("shop.example")), ("owner", text("ann"))];
    for (without, expected) in [5001, 4001, 3001, 2001, 1001, 0].into_iter().enumerate() {
        assert_eq!(slo_of(&policy(&maps[without..]), &all), expected);
    }
}

#[test]
fn a_burst_that_would_never_come_back_is_refused() {
    let slo_map = |line: &str| errors(&[("slo.map", line)]);
    assert_eq!(slo_map("0 burst=3660 rate=1/d"), [""; 0]);
    let error = "maps/slo.map:1: burst 3661 at 1/d takes longer than 10 years to refill: lower the burst";
    assert_eq!(slo_map("0 burst=3661 rate=1/d"), [error]);
    assert_eq!(slo_map("0 burst=4294967295 rate=1000000/s"), [""; 0]);
}

#[test]
fn minus_one_leaves_the_answer_to_the_next_lookup() {
    let maps = [
        ("source.map", "10.0.0.0/8 3001\n10.1.0.0/16 -1\n"),
        ("website.map", "shop.example 2001\nfree.example\n"),
        ("owner.map", "ann 1001"),
    ];
    let policy = policy(&maps);
    let from = |source| [("source", address(source)), ("website", text("shop.example"))];
    assert_eq!(slo_of(&policy, &from("10.2.0.1")), 3001);
    assert_eq!(slo_of(&policy, &from("10.1.0.1")), 2001);
    // A key without a value means 0, and 0 is an answer.
    assert_eq!(slo_of(&policy, &[("website", text("free.example")), ("owner", text("ann"))]), 0);
}

#[test]
fn a_lookup_whose_field_is_missing_does_not_answer() {
    let policy = policy(&[("source+website.map", "0.0.0.0/0+ 5001"), ("owner.map", "ann 1001")]);
    assert_eq!(slo_of(&policy, &[("source", address("192.0.2.1")), ("owner", text("ann"))]), 1001);
    assert_eq!(slo_of(&policy, &[("source", address("192.0.2.1")), ("website", text(""))]), 5001);
    assert_eq!(slo_of(&policy, &[("website", text("")), ("owner", text("ann"))]), 1001);
    assert_eq!(slo_of(&policy, &[]), 0);
}

#[test]
fn a_source_that_is_no_address_is_in_no_network() {
    let policy = policy(&[("source.map", "0.0.0.0/0 3001\n::/0 3001\n")]);
    for source in ["unix:", "", "192.0.2.1:http", "[::1", "192.0.2", "192.0.2.1, 192.0.2.2"] {
        assert_eq!(slo_of(&policy, &[("source", text(source))]), 0, "{source}");
    }
    for source in ["192.0.2.1:80", "[2001:db8::1]:443", "[::1]", "fe80::1%eth0", " 192.0.2.1 "] {
        assert_eq!(slo_of(&policy, &[("source", text(source))]), 3001, "{source}");
    }
    assert_eq!(slo_of(&policy, &[("source", Value::Text(b"\xff"))]), 0);
    assert_eq!(slo_of(&policy, &[("source", Value::Number(1))]), 0);
}

#[test]
fn a_customer_has_one_key_whichever_proxy_asks() {
    let policy = policy(&[("source.map", "0.0.0.0/0 3001\n::/0 3001\n")]);
    let key = |source| key_of(&policy, &[("source", source)]);
    assert_eq!(key(address("192.0.2.1")), key(text("192.0.2.1")));
    assert_eq!(key(address("::ffff:192.0.2.1")), key(text("192.0.2.1")));
    assert_eq!(key(text("::FFFF:192.0.2.1")), key(address("192.0.2.1")));
    assert_eq!(key(address("64:ff9b::c000:201")), key(text("192.0.2.1")));
    assert_eq!(key(text("[64:ff9b::192.0.2.1]:443")), key(address("192.0.2.1")));
    assert_eq!(key(address("2001:db8::1")), key(text("2001:DB8:0:0:ffff::")));
    assert_ne!(key(address("2001:db8::1")), key(address("2001:db8:0:1::1")));
    assert_ne!(key(address("192.0.2.1")), key(address("192.0.2.2")));
    let bytes: IpAddr = "192.0.2.1".parse().unwrap();
    assert_eq!(
        key(address("192.0.2.1")),
        KeyHasher::new(KeySecret::KNOWN, 3, pace()).address(bytes).finish()
    );
}

#[test]
fn a_key_is_made_of_the_fields_of_the_type_in_their_order() {
    let policy =
        policy(&[("website.map", "shop.example 5001\nbare.example 2001\n"), ("owner.map", "7 1001\n")]);
    let source: IpAddr = "192.0.2.1".parse().unwrap();
    let shop = [("website", text("shop.example")), ("source", Value::Address(source))];
    let expected = KeyHasher::new(KeySecret::KNOWN, 5, pace()).address(source).part(b"shop.example").finish();
    assert_eq!(key_of(&policy, &shop), expected);
    let sourceless = KeyHasher::new(KeySecret::KNOWN, 5, pace()).part(b"").part(b"shop.example").finish();
    assert_eq!(key_of(&policy, &shop[..1]), sourceless);
    assert_eq!(
        key_of(&policy, &[("owner", Value::Number(7))]),
        KeyHasher::new(KeySecret::KNOWN, 1, pace()).part(b"7").finish()
    );
    assert_eq!(
        key_of(&policy, &[("owner", text("who"))]),
        KeyHasher::new(KeySecret::KNOWN, 0, pace()).finish()
    );
}

#[test]
fn the_prefixes_of_the_layout_say_how_much_of_an_address_is_a_customer() {
    let layout = Layout::default().with_prefixes(24, 0).unwrap();
    let files = [("slo.map", SLO_MAP.as_bytes()), ("source.map", b"0.0.0.0/0 3001\n::/0 3001\n")];
    let policy = parse(&files, &layout).unwrap();
    let key = |source| key_of(&policy, &[("source", address(source))]);
    assert_eq!(key("192.0.2.1"), key("192.0.2.255"));
    assert_ne!(key("192.0.2.1"), key("192.0.3.1"));
    assert_eq!(key("2001:db8::"), key("::1"));
}

#[test]
fn an_operator_throttles_by_fields_of_their_own() {
    let fields = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    let lookup = |names, file: &str, method| Lookup {
        fields: fields(names),
        file: file.into(),
        method,
        is_added: false,
    };
    let layout = Layout::default().with_type(6, fields(&["client", "method"])).unwrap();
    let layout = layout.with_lookups(vec![
        lookup(&["client"], "client.map", Method::Ip),
        lookup(&["method", "path"], "path.map", Method::Beg),
        lookup(&["client", "port"], "text.map", Method::Str),
    ]);
    let files: [(&str, &[u8]); 4] = [
        ("slo.map", b"0 burst=1 rate=1/s\n6001 burst=1 rate=1/m\n6002 burst=1 rate=2/m\n"),
        ("client.map", b"10.0.0.0/8 6001\n"),
        ("path.map", b"GET+/api 6002\n"),
        ("text.map", b"2001:db8::1+443 6001\n"),
    ];
    let policy = parse(&files, &layout.unwrap()).unwrap();
    assert_eq!(slo_of(&policy, &[("client", text("10.0.0.1"))]), 6001);
    assert_eq!(slo_of(&policy, &[("method", text("GET")), ("path", text("/api/items"))]), 6002);
    assert_eq!(slo_of(&policy, &[("client", text("2001:DB8:0::1")), ("port", Value::Number(443))]), 6001);
    let key = key_of(&policy, &[("client", text("10.0.0.1")), ("method", text("GET"))]);
    assert_eq!(key, key_of(&policy, &[("method", text("GET")), ("client", address("10.0.0.1"))]));
}

#[test]
fn ten_kilobytes_of_a_name_are_looked_up_too() {
    let name = "a".repeat(10_000);
    let maps = [("owner.map", format!("{name} 1001\n")), ("source+owner.map", format!("::1+{name}b 4001\n"))];
    let policy = policy(&maps.each_ref().map(|(name, text)| (*name, text.as_str())));
    assert_eq!(slo_of(&policy, &[("owner", text(&name)), ("source", address("::1"))]), 1001);
    let longer = name + "b";
    assert_eq!(slo_of(&policy, &[("owner", text(&longer)), ("source", address("::1"))]), 4001);
}

#[test]
fn an_answer_is_explained_by_its_line() {
    let policy = policy(&[("website.map", "# ours\nshop.example 2001\n\nbare.example -1\n")]);
    let explain = |website| policy.explain(&request(&[("website", text(website))])).of[0].origin;
    let origin = explain("shop.example").unwrap();
    assert_eq!((origin.lookup, origin.path, origin.line), ("website", Path::new("maps/website.map"), 2));
    assert_eq!(explain("bare.example"), None);
    assert_eq!(policy.slo(SloId::new(2001).unwrap()).unwrap().objective.burst, 1);
    assert_eq!(policy.slo(SloId::new(2002).unwrap()), None);
    assert_eq!(policy.slos().map(|slo| slo.id.kind()).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn a_window_with_an_unknown_or_zero_rate_is_no_further_problem() {
    assert_eq!(
        errors(&[("slo.map", "0 burst=1 rate=50 law=fixed-window window=100ms\n")]),
        [
            "maps/slo.map:1: rate \"50\": expected a whole number per period (s, m, h, d or month), like 50/s; \
          for 1.5/s, write 90/m"
        ],
    );
    assert_eq!(errors(&[("slo.map", "0 burst=1 rate=0/s law=fixed-window window=100ms\n")]), [""; 0]);
}

#[test]
fn options_that_name_nothing_are_refused() {
    let slo_map = "0 burst=1 rate=1/s law=fair share=\n1 burst=1 rate=1/s also=\n";
    assert_eq!(
        errors(&[("slo.map", slo_map)]),
        [
            "maps/slo.map:1: share= or page= has an empty name: expected the name of a field, like source",
            "maps/slo.map:2: also \"\": expected one of the lookups source+website, source+owner, source, website, owner",
        ],
    );
}

#[test]
fn every_problem_has_its_place_and_its_remedy() {
    let slo_map = "x burst=1 rate=1/s\n1000000\n6001 burst=1 rate=1/s\n2001 burst=1e3 rate=5x/s law=best\n\
        2001 burst=1 rate=1/s\n2002 burst burst=1 burst=2 jitter=1\n2003 rate=1/s burst=-1\n\
        2004 burst=1 rate=1/s max_delay=5\n";
    let maps = [
        ("slo.map", slo_map),
        ("website.map", "a 2001\nb 2009\nc x\nd 10 # no comment\ne 99999999999999999999\n"),
        ("source.map", "10.0.0.0/33 2001\nlocalhost -5\n"),
        ("source+owner.map", "10.0.0.0/8 2001\n"),
    ];
    let expected = [
        "maps/slo.map:1: \"x\": expected the id of an SLO (0 to 999999) and its options, like `0 burst=100 rate=50/s`",
        "maps/slo.map:2: \"1000000\": expected the id of an SLO (0 to 999999) and its options, like `0 burst=100 rate=50/s`",
        "maps/slo.map:3: SLO 6001: type 6 is not declared: use one of the types 0, 1, 2, 3, 4, 5, or declare this type in [policy.types]",
        "maps/slo.map:4: burst \"1e3\": expected a number from 0 to 4294967295",
        "maps/slo.map:4: rate \"5x/s\": expected a whole number per period (s, m, h, d or month), like 50/s; for 1.5/s, write 90/m",
        "maps/slo.map:4: law \"best\": expected one of adaptive, pace, fair, token-bucket, leaky-bucket, \
            fixed-window, sliding-window, sliding-buckets, sliding-log, concurrency, sketch, protect",
        "maps/slo.map:5: SLO 2001 is already on line 4: keep one of the two",
        "maps/slo.map:6: \"burst\": expected an option, like burst=100",
        "maps/slo.map:6: \"burst\" is given twice: keep one",
        "maps/slo.map:6: rate is missing: add it, for example rate=50/s or rate=unlimited",
        "maps/slo.map:6: unknown option \"jitter\": pace takes max_delay",
        "maps/slo.map:7: burst \"-1\": expected a number from 0 to 4294967295",
        "maps/slo.map:8: max_delay \"5\": expected a whole number and a unit (us, ms, s, m, h or d), like 5s",
        "maps/slo.map: SLO 0, for requests that match no map, is missing: add the line `0 rate=unlimited`",
        "maps/source+owner.map:1: \"10.0.0.0/8\": expected a network, a + and the other fields, like 192.0.2.0/24+shop.example",
        "maps/source.map:1: \"10.0.0.0/33\": expected an address or a network, like 192.0.2.0/24 or 2001:db8::/32",
        "maps/source.map:2: SLO -5 is not in slo.map: add it there, or name a different SLO",
        "maps/source.map:2: \"localhost\": expected an address or a network, like 192.0.2.0/24 or 2001:db8::/32",
        "maps/website.map:2: SLO 2009 is not in slo.map: add it there, or name a different SLO",
        "maps/website.map:3: \"x\": expected the id of an SLO, or -1 to leave the answer to the next lookup",
        "maps/website.map:4: \"10 # no comment\": expected the id of an SLO, or -1 to leave the answer to the next lookup; \
            a comment needs a line of its own",
        "maps/website.map:5: \"99999999999999999999\": expected the id of an SLO, or -1 to leave the answer to the next lookup",
    ];
    let errors = errors(&maps);
    for (error, expected) in errors.iter().zip(expected) {
        assert_eq!(error, expected);
    }
    assert_eq!(errors.len(), expected.len());
}

#[test]
fn a_law_that_has_been_removed_names_the_one_to_use() {
    let reported = errors(&[("slo.map", "0 burst=9 rate=1/s law=warm-up warmup=30s\n")]);
    assert_eq!(reported, ["maps/slo.map:1: law \"warm-up\": this law has been removed: use pace"]);
}

#[test]
fn a_sketch_that_takes_absurd_memory_is_a_problem_with_its_remedy() {
    let line = |id: u16, options: &str| format!("{id} burst=0 rate=1/s law=sketch {options}\n");
    let reported =
        |lines: &[String]| errors(&[("slo.map", &("0 rate=unlimited\n".to_owned() + &lines.concat()))]);
    // 2,097,152 columns of 8 bytes are 16 MiB.
    assert_eq!(reported(&[line(1001, "error=0.000005 confidence=0.9")]), [""; 0]);
    assert_eq!(
        reported(&[
            line(1001, "error=0.000005 confidence=0.99"),
            line(1002, "error=0.000001"),
            line(1003, "confidence=1"),
            line(1004, "beyond=pass"),
            line(1005, "beyond=also"),
            line(1006, "window=60d"),
        ]),
        [
            "maps/slo.map:2: a sketch with error 0.000005 and confidence 0.99 takes 32 MiB, but the maximum \
             is 16 MiB: raise error or lower confidence",
            "maps/slo.map:3: error \"0.000001\": expected a number from 0.000005 to 0.5",
            "maps/slo.map:4: confidence \"1\": expected a number from 0.5 to 0.999999",
            "maps/slo.map:5: beyond \"pass\": expected deny or also",
            "maps/slo.map:6: beyond=also needs also=: name the lookup of the SLO that applies when the rate is exceeded",
            "maps/slo.map:7: window 60d: at 1/s, it holds more than 4194303 requests: use a shorter window or law=sliding-window",
        ]
    );
    let four: Vec<String> = (1..=5).map(|number| line(1000 + number, "error=0.00001")).collect();
    assert_eq!(reported(&four[..4]), [""; 0]);
    assert_eq!(
        reported(&four),
        ["maps/slo.map:6: this sketch and the sketches of SLOs with lower ids take 80 MiB in all, but the \
          maximum is 64 MiB: raise error or lower confidence"]
    );
}

#[test]
fn the_numbers_of_a_map_are_read_as_haproxy_reads_them() {
    let policy =
        policy(&[("website.map", "a 0002001\nb +2001\nc\nd -01\ne -0\n"), ("owner.map", "x 1001\n")]);
    let slos = ["a", "b", "c", "d", "e"]
        .map(|name| slo_of(&policy, &[("website", text(name)), ("owner", text("x"))]));
    assert_eq!(slos, [2001, 2001, 0, 1001, 0]);
}

fn warnings(files: &[(&str, &str)], layout: &Layout) -> Vec<String> {
    let files: Vec<_> = files.iter().map(|&(name, text)| (name, text.as_bytes())).collect();
    parse(&files, layout).unwrap().warnings().to_string().lines().map(str::to_owned).collect()
}

#[test]
fn a_repeated_key_is_a_warning_that_names_the_winning_line() {
    let maps = [
        ("slo.map", SLO_MAP),
        ("source+website.map", "10.0.0.0/8+a 5001\n10.0.0.0/8+b 5001\n10.9.9.9/8+a 5001\n"),
        ("source.map", "# ours\n10.0.0.0/8 3001\n10.0.0.0/9 3001\n10.1.2.3/255.0.0.0 0\n::/0 0\n"),
        ("website.map", "a 2001\nb 2001\na 2001\na -1\n"),
    ];
    let reported = [
        "maps/source+website.map:3: \"10.9.9.9/8+a\" is already on line 1, which wins: keep one of the two",
        "maps/source.map:4: \"10.1.2.3/255.0.0.0\" is already on line 2, which wins: keep one of the two",
        "maps/website.map:3: \"a\" is already on line 1, which wins: keep one of the two",
        "maps/website.map:4: \"a\" is already on line 1, which wins: keep one of the two",
    ];
    assert_eq!(warnings(&maps, &Layout::default()), reported);
    // The match method makes no difference.
    for method in Method::ALL {
        let lookup = Lookup { fields: vec!["a".into()], file: "a.map".into(), method, is_added: false };
        let layout = Layout::default().with_lookups(vec![lookup]).unwrap();
        let lines = "10.0.0.1 0\n10.0.0.2 0\n10.0.0.1 0\n";
        let reported = warnings(&[("slo.map", SLO_MAP), ("a.map", lines)], &layout);
        let once = "maps/a.map:3: \"10.0.0.1\" is already on line 1, which wins: keep one of the two";
        assert_eq!(reported, [once], "{method:?}");
    }
}

#[test]
fn websites_that_never_match_are_warnings_in_website_lookups_only() {
    let maps = [
        ("slo.map", SLO_MAP),
        ("source+website.map", "::/0+shop.example/ 5001\n"),
        ("website.map", "shop.example 2001\nhttp://Blog.example 2001\n"),
        ("owner.map", "Ann 1001\nhttps://ann.example/ 1001\n"),
    ];
    let reported = warnings(&maps, &Layout::default());
    let alone = "a website must be a bare host, like";
    assert_eq!(
        reported,
        [
            format!(
                "maps/source+website.map:1: \"::/0+shop.example/\" has a slash: {alone} \"shop.example\""
            ),
            format!("maps/website.map:2: \"http://Blog.example\" has a scheme: {alone} \"blog.example\""),
        ]
    );
    let lookup =
        Lookup { fields: vec!["website".into()], file: "w.map".into(), method: Method::Reg, is_added: false };
    let layout = Layout::default().with_lookups(vec![lookup]).unwrap();
    assert_eq!(warnings(&[("slo.map", SLO_MAP), ("w.map", "^[A-Z]:/ 0\n")], &layout), [""; 0]);
}

#[test]
fn a_delay_that_is_longer_than_a_hold_is_told() {
    let slo_map = "0 burst=1 rate=1/s max_delay=61s\n1 burst=1 rate=1/s max_delay=20s\n\
        2 burst=1 rate=1/s law=fair max_delay=2m\n3 burst=1 rate=1/s law=pace max_delay=2m dry_run=yes\n\
        4 burst=1 rate=1/s law=adaptive\n5 burst=1 rate=1/s law=token-bucket\n";
    let mut policy = parse(&[("slo.map", slo_map.as_bytes())], &Layout::default()).unwrap();
    assert_eq!(policy.warnings().count(), 0);
    policy.warn_of_delays_over(Duration::from_secs(60));
    let reported = policy.warnings().to_string();
    let cut = "1m, so holds end early and the SLO is exceeded";
    let longer = format!("is longer than [hold] longest, {cut}: shorten max_delay, or raise [hold] longest");
    let expected = [
        format!("maps/slo.map:1: max_delay 61s {longer}"),
        format!("maps/slo.map:3: max_delay 2m {longer}"),
        format!(
            "maps/slo.map:5: without max_delay, adaptive may delay requests for longer than [hold] longest, {cut}: add max_delay="
        ),
    ];
    assert_eq!(reported.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn the_examples_are_in_no_doubt() {
    for dir in ["haproxy/maps", "doc/cluster/policy", "doc/replay/maps", "doc/replay/maps.new"] {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(dir);
        assert_eq!(Policy::read(&dir, &Layout::default()).unwrap().warnings().to_string(), "");
    }
}

#[test]
fn map_files_that_no_lookup_reads_are_told() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["slo.map", "sources.map", ".#source.map", "source.map~", "owner.map", "notes.txt"] {
        fs::write(dir.path().join(name), if name == "slo.map" { "0 rate=unlimited\n" } else { "" }).unwrap();
    }
    fs::create_dir(dir.path().join("old.map")).unwrap();
    let reported = Policy::read(dir.path(), &Layout::default()).unwrap().warnings().to_string();
    let expected = format!(
        "{}/sources.map: no lookup reads this file: the maps in use are slo.map, source+website.map, \
         source+owner.map, source.map, website.map, owner.map",
        dir.path().display()
    );
    assert_eq!(reported, expected);
}

#[test]
fn without_slo_map_only_that_is_the_problem() {
    let expected = "maps/slo.map: no such file: create it with one SLO per line, at least `0 rate=unlimited`";
    assert_eq!(errors(&[("website.map", "shop.example 2001")]), [expected]);
    assert_eq!(errors(&[("slo.map", "0 burst=1 rate=1/d")]), [""; 0]);
}

#[test]
fn an_unreadable_file_of_a_directory_is_a_problem() {
    let dir = tempfile::tempdir().unwrap();
    let layout = Layout::default();
    assert_eq!(Policy::read(dir.path(), &layout).unwrap_err().listed()[0].kind, PolicyErrorKind::NoSloMap);
    fs::write(dir.path().join("slo.map"), SLO_MAP).unwrap();
    assert_eq!(Policy::read(dir.path(), &layout).unwrap().slos().count(), 6);
    fs::create_dir(dir.path().join("owner.map")).unwrap();
    let errors = Policy::read(dir.path(), &layout).unwrap_err().to_string();
    assert!(errors.ends_with("owner.map: cannot be read: not a regular file"), "{errors}");
}

#[test]
fn a_delay_that_the_shipped_files_cut_is_a_warning() {
    let slo_map = "0 burst=1 rate=1/s max_delay=20s\n1001 burst=1 rate=1/s max_delay=2m\n";
    let mut policy = parse(&[("slo.map", slo_map.as_bytes())], &Layout::default()).unwrap();
    policy.warn_of_delays_over(Duration::from_secs(300));
    assert_eq!(
        policy.warnings().to_string(),
        "maps/slo.map:2: max_delay is 2m, but HAProxy, with the shipped files, waits only 20s, so requests \
         proceed early: regenerate the files with `slowlane config haproxy`"
    );
}

#[test]
fn an_unlimited_rate_takes_no_limit() {
    let slo = |options: &str| {
        let errors =
            |kinds: Vec<PolicyErrorKind>| kinds.iter().map(PolicyErrorKind::to_string).collect::<Vec<_>>();
        Slo::parse(SloId::DEFAULT, options).map_err(errors)
    };
    let also = slo("also=owner rate=unlimited dry_run=yes").unwrap();
    assert_eq!((also.also.as_deref(), also.dry_run, also.law.max_delay()), (Some("owner"), true, None));
    for useless in ["burst=9", "law=pace", "law=unlimited", "max_delay=5s", "share=owner", "window=1s"] {
        let expected =
            format!("{useless} has no effect with rate=unlimited: remove it, or give a rate like 50/s");
        assert_eq!(slo(&format!("{useless} rate=unlimited")), Err(vec![expected]));
    }
    for wrong in ["rate=unlimited/s", "rate=Unlimited", "rate=unlimited rate=5/s", "rate=unlimited dry_run=1"]
    {
        assert!(slo(wrong).is_err(), "{wrong}");
    }
    assert!(
        slo("rate=5/s burst=1 law=unlimited").unwrap_err()[0]
            .starts_with("law \"unlimited\": expected one of")
    );
}

#[test]
fn the_built_in_policy_is_one_bucket_for_all() {
    let policy = Policy::builtin();
    let Case { slo, key, .. } = policy.cases(&request(&[("source", address("192.0.2.1"))])).list[0];
    assert_eq!((slo.id, slo.law.name(), slo.quota()), (SloId::DEFAULT, "unlimited", None));
    assert_eq!(slo.objective.rate.to_string(), "unlimited");
    assert_eq!(key, policy.cases(&Request::new()).list[0].key);
}

proptest! {
    #[test]
    fn any_bytes_in_any_map_are_a_policy_or_problems(
        slo_map in prop_oneof![Just(SLO_MAP.as_bytes().to_vec()), prop::collection::vec(any::<u8>(), 0..80)],
        map in "([ .:/+a-c0-9(){}\\[\\]*-]{0,9}( (2001|-1|x))?\r?\n){0,5}",
        bytes in prop::collection::vec(any::<u8>(), 0..80),
        value in prop::collection::vec(any::<u8>(), 0..9),
    ) {
        for method in Method::ALL {
            let lookup = |name: &str| Lookup { fields: vec![name.into()], file: name.into(), method, is_added: false };
            let layout = Layout::default().with_lookups(vec![lookup("a"), lookup("b")]).unwrap();
            let files = [("slo.map", &slo_map[..]), ("a", map.as_bytes()), ("b", &bytes)];
            match parse(&files, &layout) {
                Ok(policy) => {
                    let mut request = Request::new();
                    request.push(b"a", Value::Text(&value));
                    policy.cases(&request);
                }
                Err(errors) => prop_assert!(!errors.listed().is_empty()),
            }
        }
    }
}

/// An operator who writes this means ten a minute, and would refuse everybody.
#[test]
fn an_slo_under_which_no_request_can_pass_is_a_mistake() {
    for line in ["burst=0 rate=10/m", "burst=0 rate=1/s max_delay=999ms", "burst=0 rate=10/m dry_run=yes"] {
        let reported = errors(&[("slo.map", &format!("0 {line}\n"))]);
        assert!(
            reported.len() == 1 && reported[0].contains("no request can pass: with burst=0"),
            "{line}: {reported:?}"
        );
        assert!(reported[0].contains("set burst=1 or more"), "{line}: {reported:?}");
    }
    for line in [
        "burst=1 rate=10/m",
        "burst=0 rate=10/m max_delay=6s",
        "burst=0 rate=0/s",
        "burst=0 rate=10/m law=token-bucket",
    ] {
        assert_eq!(errors(&[("slo.map", &format!("0 {line}\n"))]), [""; 0], "{line}");
    }
}

/// A port, a final dot or capitals in the host of a base do not change the key, as in a website.
#[test]
fn a_base_has_one_key_whatever_the_spelling_of_its_host() {
    for (method, key) in [(Method::Str, "Shop.Example:80/Login"), (Method::Beg, "SHOP.example./Log")] {
        let lookup = Lookup { fields: vec!["base".into()], file: "base.map".into(), method, is_added: false };
        let layout = Layout::default().with_lookups(vec![lookup]).unwrap();
        let layout = layout.with_type(6, vec!["base".into()]).unwrap();
        let map = format!("{key} 6001\n");
        let files: [(&str, &[u8]); 2] =
            [("slo.map", b"0 rate=unlimited\n6001 burst=1 rate=1/s\n"), ("base.map", map.as_bytes())];
        let policy = parse(&files, &layout).unwrap();
        let key_of = |base: &str| {
            let mut request = Request::new();
            request.push(b"base", Value::Text(base.as_bytes()));
            let case = policy.cases(&request).list[0];
            (case.slo.id.number(), case.key)
        };
        let first = key_of("shop.example/Login");
        assert_eq!(first.0, 6001, "{key}");
        for other in ["shop.example:010/Login", "shop.example./Login", "SHOP.example:/Login"] {
            assert_eq!(key_of(other), first, "{other} with {key}");
        }
        assert_ne!(key_of("shop.example/login"), first, "the path has its own capitals");
        assert_eq!((key_of("/Login").0, key_of("").0), (0, 0));
        let mut odd = Request::new();
        odd.push(b"base", Value::Text(b"shop.example,x/Login"));
        assert!(policy.is_refusal(policy.cases(&odd).list[0].key));
    }
}

#[test]
fn the_examples_for_operators_to_take_are_valid() {
    let text = include_str!("../../../../haproxy/maps/slo.map");
    let taken = text.lines().map(|line| match line.strip_prefix("# ") {
        Some(line) if line.starts_with(|first: char| first.is_ascii_digit()) => line,
        _ => line,
    });
    let taken = taken.collect::<Vec<_>>().join("\n");
    let policy = parse(&[("slo.map", taken.as_bytes())], &Layout::default()).unwrap();
    assert_eq!(policy.slos().count(), 16);
    assert_eq!(text.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_digit())).count(), 8);
}
