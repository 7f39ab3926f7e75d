//! Fields that a map makes: the value of the line that matches decides as a field that the proxy sends.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::*;
use slowlane_core::base::{Request, Sample, Timestamp, Value};
use slowlane_core::policy::{
    AUTOMATA_MAX, Batch, Derivation, Layout, LayoutError, Lookup, Method, Policy, PolicyErrors,
    SEARCH_STEPS_MAX,
};
use slowlane_core::table::Sizing;
use slowlane_core::throttle::Throttle;

const NOW: Timestamp = Timestamp::from_millis(1_000_000_000);

fn lookup(field: &str, method: Method) -> Lookup {
    Lookup { fields: vec![field.into()], file: format!("by-{field}.map").into(), method, is_added: false }
}

/// A layout with a field that a map of its name makes.
fn derived(layout: Layout, name: &str, from: &str, method: Method) -> Layout {
    layout.with_derived(name, Derivation::map(from, format!("{name}.map").into(), method)).unwrap()
}

/// `asn` of the source and `bot` of the user agent: types 6 and 7, each looked up by itself.
fn layout() -> Layout {
    let layout = derived(Layout::default(), "asn", "source", Method::Ip);
    let layout = derived(layout, "bot", "user_agent", Method::Sub);
    let layout = layout.with_type(6, vec!["asn".into()]).unwrap().with_type(7, vec!["bot".into()]).unwrap();
    layout.with_lookups(vec![lookup("bot", Method::Str), lookup("asn", Method::Str)]).unwrap()
}

const ASN_MAP: (&str, &str) =
    ("asn.map", "198.51.100.0/24 64496\n203.0.113.0/25 64496\n203.0.113.0/24 64511\n2001:db8:7::/48 64496\n");
const BOT_MAP: (&str, &str) = ("bot.map", "GPTBot openai\nOAI-SearchBot openai\nbot other bots\n");
const BY_ASN: (&str, &str) = ("by-asn.map", "64496 6001\n64511 6001\n");
const BY_BOT: (&str, &str) = ("by-bot.map", "openai 7001\n");
const SLOS: (&str, &str) = (
    "slo.map",
    "0 rate=unlimited\n6001 burst=2 rate=1/h law=token-bucket\n7001 burst=1 rate=1/h law=token-bucket\n",
);
const FILES: [(&str, &str); 5] = [SLOS, ASN_MAP, BOT_MAP, BY_ASN, BY_BOT];

fn read(layout: &Layout, files: &[(&str, &str)]) -> Result<Policy, PolicyErrors> {
    Policy::parse(Path::new(""), layout, |path: &Path| {
        let file = files.iter().find(|(name, _)| path == Path::new(name));
        file.map(|(_, text)| text.as_bytes().to_vec()).ok_or_else(|| io::ErrorKind::NotFound.into())
    })
}

fn throttle(layout: &Layout, files: &[(&str, &str)]) -> Throttle {
    let sizing = Sizing { entries_max: 10_000, expire: Duration::from_secs(30) };
    Throttle::new(read(layout, files).unwrap(), sizing, 1 << 20)
}

fn request<'a>(fields: &[(&'a str, Value<'a>)]) -> Request<'a> {
    let mut request = Request::new();
    fields.iter().for_each(|(name, value)| request.push(name.as_bytes(), *value));
    request
}

/// The SLO that decides about a request, and whether it passes.
fn ask(throttle: &Throttle, fields: &[(&str, Value<'_>)]) -> (u32, bool) {
    let decision = throttle.decide_one(&request(fields), NOW, Sample::MIDDLE);
    (decision.slo.number(), decision.is_let_through())
}

fn source(address: &str) -> (&str, Value<'_>) {
    ("source", Value::Text(address.as_bytes()))
}

fn text<'a>(name: &'a str, text: &'a str) -> (&'a str, Value<'a>) {
    (name, Value::Text(text.as_bytes()))
}

/// The values of a field, as a decision log would show them.
fn shown(policy: &Policy, fields: &[(&str, Value<'_>)], name: &str) -> Vec<String> {
    let mut batch = Batch::of(policy);
    batch.push(&request(fields));
    let named = batch.fields(0).filter(|(field, _)| *field == name.as_bytes());
    named.map(|(_, value)| format!("{value:?}")).collect()
}

#[test]
fn the_addresses_of_an_asn_share_a_bucket() {
    let throttle = throttle(&layout(), &FILES);
    assert_eq!(ask(&throttle, &[source("198.51.100.7")]), (6001, true));
    assert_eq!(ask(&throttle, &[source("203.0.113.8")]), (6001, true), "another network of 64496");
    assert_eq!(ask(&throttle, &[source("2001:db8:7::1")]), (6001, false), "IPv6 too");
    assert_eq!(ask(&throttle, &[source("203.0.113.200")]), (6001, true), "64511, by the longest prefix");
    assert_eq!(ask(&throttle, &[source("192.0.2.1")]), (0, true), "it has no ASN");
    assert_eq!(ask(&throttle, &[]), (0, true), "nor has a request without a source");
}

#[test]
fn a_bot_is_named_by_a_part_of_its_user_agent() {
    let throttle = throttle(&layout(), &FILES);
    let ask = |agent| ask(&throttle, &[text("user_agent", agent)]);
    assert_eq!(ask("Mozilla/5.0 (compatible; GPTBot/1.2)"), (7001, true));
    assert_eq!(ask("OAI-SearchBot/1.0"), (7001, false), "the same name, the same bucket");
    assert_eq!(ask("Googlebot/2.1"), (0, true), "a name without an SLO");
    let policy = throttle.policy();
    assert_eq!(shown(&policy, &[text("user_agent", "Googlebot/2.1")], "bot").len(), 1);
    assert_eq!(
        shown(&policy, &[text("user_agent", "curl/8")], "bot"),
        [""; 0],
        "missing, as an absent header"
    );
}

/// The client chooses the bytes of a header of this name.
#[test]
fn a_client_does_not_choose_its_asn() {
    let throttle = throttle(&layout(), &FILES);
    let (truth, lie) = (source("198.51.100.7"), text("asn", "64511"));
    assert_eq!(ask(&throttle, &[lie, truth]), (6001, true));
    assert_eq!(ask(&throttle, &[truth, lie]), (6001, true));
    assert_eq!(ask(&throttle, &[lie, truth, lie]), (6001, false), "the bucket of 64496 is empty");
    assert_eq!(
        ask(&throttle, &[text("a-sn", "1"), source("203.0.113.200")]),
        (6001, true),
        "that of 64511 is not"
    );
    assert_eq!(ask(&throttle, &[text("asn", "64496")]), (0, true), "without a source there is no ASN");
    assert_eq!(ask(&throttle, &[text("asn", "64496"), source("192.0.2.1")]), (0, true));
}

#[test]
fn a_field_that_nothing_needs_is_not_made_and_no_client_sends_it() {
    let layout = layout();
    let unused = [("slo.map", "0 rate=unlimited\n"), ASN_MAP, BOT_MAP];
    let policy = read(&layout, &unused).unwrap();
    let asked = [source("198.51.100.7"), text("asn", "64511")];
    assert_eq!(shown(&policy, &asked, "asn"), [""; 0]);
    assert_eq!(policy.used_fields().count(), 0);
    let used = read(&layout, &FILES).unwrap();
    assert_eq!(shown(&used, &asked, "asn").len(), 1);
    assert_eq!(used.used_fields().collect::<Vec<_>>().len(), 4, "two lookups and two types");
    assert!(!layout.sent_fields().contains("asn") && layout.sent_fields().contains("user_agent"));
}

#[test]
fn a_block_needs_no_policy_that_uses_the_field() {
    let unused = [("slo.map", "0 rate=unlimited\n"), ASN_MAP, BOT_MAP];
    let without = Layout::default();
    let without = derived(derived(without, "asn", "source", Method::Ip), "bot", "user_agent", Method::Sub);
    let of_peers = derived(Layout::default(), "asn", "peer", Method::Ip);
    for (layout, from) in [(&layout(), "source"), (&without, "source"), (&of_peers, "peer")] {
        let throttle = throttle(layout, &unused);
        let fields = throttle.policy().block_fields([("asn", "64496")]).unwrap();
        throttle.block(fields, NOW + Duration::from_secs(60), NOW).unwrap();
        let passes = |fields: &[(&str, Value<'_>)]| ask(&throttle, fields).1;
        assert!(!passes(&[text(from, "198.51.100.7")]) && !passes(&[text(from, "203.0.113.1")]), "{from}");
        assert!(!passes(&[text("asn", "1"), text(from, "198.51.100.7")]), "{from}: a lie");
        assert!(passes(&[text(from, "203.0.113.200")]) && passes(&[text("asn", "64496")]), "{from}");
    }
    let throttle = throttle(&without, &unused);
    let fields = throttle.policy().block_fields([("bot", "other bots")]).unwrap();
    throttle.block(fields, NOW + Duration::from_secs(60), NOW).unwrap();
    assert!(!ask(&throttle, &[text("user_agent", "Googlebot")]).1);
    assert!(ask(&throttle, &[text("user_agent", "GPTBot")]).1);
}

#[test]
fn fair_shares_between_asns() {
    let layout = derived(Layout::default(), "asn", "source", Method::Ip);
    let slo_map = "0 rate=unlimited\n2001 burst=0 rate=10/s law=fair share=asn\n";
    let policy =
        read(&layout, &[("slo.map", slo_map), ("website.map", "shop.example 2001\n"), ASN_MAP]).unwrap();
    let sharer =
        |address| policy.cases(&request(&[text("website", "shop.example"), source(address)])).list[0].sharer;
    assert_eq!(sharer("198.51.100.1"), sharer("203.0.113.1"));
    assert_ne!(sharer("198.51.100.1"), sharer("203.0.113.200"));
    let needed: Vec<_> = policy.needed_fields().map(|needed| policy.needed_by(&needed).join(" ")).collect();
    assert_eq!(needed, ["share=asn", "website.map type 2"]);
}

/// A request costs what the map says of its path, whatever cost the client sends.
#[test]
fn a_cost_may_be_made_of_a_path() {
    let layout = derived(Layout::default(), "cost", "path", Method::Beg);
    let slo_map = "0 rate=unlimited\n3001 burst=12 rate=1/h law=token-bucket\n";
    let files = [("slo.map", slo_map), ("source.map", "0.0.0.0/0 3001\n"), ("cost.map", "/search 10\n")];
    let throttle = throttle(&layout, &files);
    let ask = |path| ask(&throttle, &[source("192.0.2.1"), text("path", path), text("cost", "0")]).1;
    assert!(ask("/search?q=a"));
    assert!(!ask("/search?q=b"), "it costs ten, and two are left");
    assert_eq!(["/", "/a", "/b"].map(ask), [true, true, false], "a missing cost is 1");
    let policy = throttle.policy();
    let needed: Vec<_> = policy.needed_fields().map(|needed| policy.needed_by(&needed).join(" ")).collect();
    assert_eq!(needed, ["cost", "source.map type 3"]);
}

/// Otherwise a client would leave its bucket with a longer value.
#[test]
fn a_value_that_takes_too_long_to_search_is_refused() {
    let layout = derived(Layout::default(), "bot", "user_agent", Method::Reg);
    let layout = layout.with_type(7, vec!["bot".into()]).unwrap();
    let layout = layout.with_lookups(vec![lookup("bot", Method::Str)]).unwrap();
    let slos = ("slo.map", "0 rate=unlimited\n7001 burst=1 rate=1/h law=token-bucket\n");
    let bots: String = (0..20).map(|line| format!("{line}.{{7}}y bot{line}\n")).collect();
    let files = [slos, ("by-bot.map", "bot19 7001\nbot9 7001\n"), ("bot.map", &*bots)];
    let throttle = throttle(&layout, &files);
    assert_eq!(ask(&throttle, &[text("user_agent", "19_______y")]), (7001, true));
    let long = format!("19_______y{}", "x".repeat(SEARCH_STEPS_MAX));
    assert_eq!(ask(&throttle, &[text("user_agent", &long)]), (0, false));
    let longest = format!("19_______y{}", "x".repeat(SEARCH_STEPS_MAX / AUTOMATA_MAX - 10));
    assert_eq!(ask(&throttle, &[text("user_agent", &longest)]), (7001, false), "the bucket is empty");
}

#[test]
fn a_host_that_a_map_makes_has_one_spelling() {
    let layout = Layout::default().with_lookups(vec![lookup("website", Method::Str)]).unwrap();
    let layout = derived(layout, "website", "site", Method::Str);
    let files = [
        ("slo.map", "0 rate=unlimited\n2001 burst=9 rate=9/s\n"),
        ("website.map", "a Shop.example:80\n"),
        ("by-website.map", "shop.EXAMPLE 2001\n"),
    ];
    assert_eq!(ask(&throttle(&layout, &files), &[text("site", "a"), text("website", "b")]).0, 2001);
}

#[test]
fn an_error_in_a_map_is_named_with_its_line() {
    let errors = |asn: &str| {
        let files = [SLOS, ("asn.map", asn), BOT_MAP, BY_ASN, BY_BOT];
        read(&layout(), &files).unwrap_err().to_string()
    };
    let long = format!("192.0.2.0/24 {}\n", "x".repeat(257));
    for (text, expected) in [
        (
            "# ours\n192.0.2.0/24\n",
            "asn.map:2: \"192.0.2.0/24\": expected the key, then the derived field's value of 1 to 256 bytes",
        ),
        (
            &long,
            "asn.map:1: \"192.0.2.0/24\": expected the key, then the derived field's value of 1 to 256 bytes \
             long",
        ),
        ("192.0.2.0/33 1\n", "asn.map:1: \"192.0.2.0/33\": expected an address or a network"),
        ("192.0.2.0/24 1\0\n", "asn.map:1: the line contains a NUL byte"),
    ] {
        assert!(errors(text).starts_with(expected), "{}", errors(text));
    }
    let missing = read(&layout(), &[SLOS, BOT_MAP]).unwrap_err().to_string();
    assert!(missing.starts_with("asn.map: cannot be read: "), "{missing}");
    let too_long: String = (0..500).map(|line| format!("{line}{} a\n", "x".repeat(150))).collect();
    let refused = read(&layout(), &[SLOS, ASN_MAP, ("bot.map", &too_long)]).unwrap_err().to_string();
    assert!(refused.contains("bot.map:") && refused.contains("take more than 65536 bytes"), "{refused}");
}

#[test]
fn a_map_counts_among_the_files_of_a_policy() {
    let layout = layout();
    let names = |paths: Vec<PathBuf>| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
    let expected = ["slo.map", "by-bot.map", "by-asn.map", "asn.map", "bot.map"];
    assert_eq!(names(layout.files(Path::new(""))), expected);
    let policy = read(&layout, &FILES).unwrap();
    let lines = "3 SLOs; by-bot.map 1 line, by-asn.map 2 lines, asn.map 4 lines, bot.map 3 lines";
    assert_eq!(policy.summary(), lines);
    let other = read(&layout, &[SLOS, ("asn.map", "192.0.2.0/24 1\n"), BOT_MAP, BY_ASN, BY_BOT]).unwrap();
    assert_eq!(other.changes_since(&policy), "asn.map 4 -> 1 line (+1 -4)");
    assert_eq!(other.shrunk_since(&policy), ["asn.map has 1 line instead of 4 lines"]);
    let twice =
        read(&layout, &[SLOS, ASN_MAP, ("bot.map", "bot a\nbot b\nGooglebot c\n"), BY_ASN, BY_BOT]).unwrap();
    let warnings = twice.warnings().to_string();
    assert!(warnings.contains("bot.map:2: \"bot\" is already on line 1"), "{warnings}");
    assert!(warnings.contains("bot.map:3: \"bot\" is already on line 1, which wins"), "{warnings}");
}

#[test]
fn impossible_fields_are_refused() {
    let map = |from, file: &str| Derivation::map(from, file.into(), Method::Ip);
    let of_asn = layout().with_derived("owner", map("asn", "owner-of-asn.map"));
    assert_eq!(of_asn, Err(LayoutError::DerivedTwice("owner".into())));
    assert!(layout().with_derived("source", map("peer", "peer.map")).is_err());
    assert_eq!(layout().with_derived("", map("source", "x.map")), Err(LayoutError::Unnamed));
    assert_eq!(layout().with_derived("x", map("", "x.map")), Err(LayoutError::Unnamed));
    for file in ["slo.map", "asn.map", "by-asn.map"] {
        assert_eq!(layout().with_derived("x", map("source", file)), Err(LayoutError::File(file.into())));
    }
}

proptest! {
    /// The value is that of the line which a lookup of the same method finds.
    #[test]
    fn the_value_is_that_of_the_line_that_matches(
        method in prop::sample::select(Method::ALL.to_vec()),
        lines in prop::collection::vec(("[ab.]{1,3}|10\\.[01]\\.0\\.0/[0-9]{1,2}", "[a-z]{1,3}( [a-z#])?"), 0..8),
        values in prop::collection::vec("[ab.]{0,6}|10\\.[01]\\.0\\.[01]", 1..6),
        end in "\r?\n",
    ) {
        let layout = derived(Layout::default(), "d", "v", method).with_type(6, vec!["d".into()]).unwrap();
        let map: String = lines.iter().map(|(key, value)| format!(" {key}\t{value} {end}")).collect();
        let slos = "0 rate=unlimited\n6001 burst=1 rate=1/s\n";
        let files = [("slo.map", slos), ("d.map", &map)];
        let Ok(policy) = read(&layout, &files) else { return Ok(()) };
        // The same keys in the map of a lookup: an explanation has the line that it finds.
        let keys: String = lines.iter().map(|(key, _)| format!("{key} 0\n")).collect();
        let looked_up = Layout::default().with_lookups(vec![lookup("v", method)]).unwrap();
        let looked_up = read(&looked_up, &[("slo.map", "0 rate=unlimited"), ("by-v.map", &keys)]).unwrap();
        for value in &values {
            let explanation = looked_up.explain(&request(&[text("v", value)]));
            let line = explanation.of[0].origin.map(|origin| &lines[origin.line - 1].1);
            let found = line.map(|line| format!("{:?}", Value::Text(line.as_bytes())));
            let made = shown(&policy, &[text("v", value)], "d");
            prop_assert_eq!(made.first(), found.as_ref(), "{:?} in {:?}", value, map);
        }
    }
}
