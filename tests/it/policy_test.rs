//! `slowlane test`: files of cases against policies, in the process and as a command.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::Value as Json;
use slowlane_core::base::{Request, Sample, Timestamp, Value, Verdict};
use slowlane_core::policy::{Layout, Policy};
use slowlane_core::table::Sizing;
use slowlane_core::throttle::Throttle;
use slowlane_lab::policy_test::{BEGINS, CaseOutcome, Failure, Outcome, Suite, TestSettings, run};
use tempfile::TempDir;

use crate::cli::{Ran, ran, ran_in};
use crate::support::pages::Page;
use crate::support::project;

/// An SLO for each law, by website. The burst of 3 and the rate of 10/s show each of them at work.
const SLO_MAP: &str = "0 rate=unlimited
2001 burst=3 rate=10/s max_delay=1s
2002 burst=3 rate=10/s law=adaptive max_delay=1s
2003 burst=3 rate=10/s law=fair max_delay=1s
2004 burst=3 rate=10/s law=sliding-log
2005 burst=3 rate=10/s law=sliding-window also=owner
2006 burst=3 rate=10/s law=concurrency
2007 burst=3 rate=10/s law=pace max_delay=1s
2008 burst=3 rate=10/s law=token-bucket block=5s
2009 burst=3 rate=10/s law=leaky-bucket
2010 burst=3 rate=10/s law=fixed-window
2011 burst=3 rate=10/s law=sliding-buckets
2012 burst=3 rate=10/s law=token-bucket dry_run=yes
2013 burst=3 rate=10/s law=sketch
2014 burst=3 rate=1000/month law=fixed-window
1001 burst=9 rate=2/s
1002 burst=100 rate=10/s unit=tokens reserve=announced
";

const WEBSITES: u8 = 15;

fn policy(slo_map: &str) -> Policy {
    let websites: String =
        (1..WEBSITES).map(|number| format!("w{number} {}\n", 2000 + u16::from(number))).collect();
    let read = |path: &Path| match path.to_str() {
        Some("slo.map") => Ok(slo_map.into()),
        Some("website.map") => Ok(websites.clone().into()),
        Some("owner.map") => Ok("acme 1001\nllm 1002\n".into()),
        _ => Err(io::ErrorKind::NotFound.into()),
    };
    Policy::parse(Path::new(""), &Layout::default(), read).unwrap()
}

const SETTINGS: TestSettings = TestSettings { expire: Duration::from_secs(30), annex_bytes_max: 1 << 20 };

fn outcome(text: &str) -> Outcome {
    let suite = Suite::parse(text.as_bytes()).unwrap_or_else(|mistakes| panic!("{text}: {mistakes:?}"));
    run(&suite, policy(SLO_MAP), &SETTINGS).0
}

/// `step: expected | got` of each failure.
fn failures(text: &str) -> Vec<String> {
    let outcome = outcome(text);
    let failures = outcome.cases.iter().flat_map(|case| &case.failures);
    failures.map(|Failure { step, expected, got, .. }| format!("{step}: {expected} | {got}")).collect()
}

fn holds(text: &str) {
    assert_eq!(failures(text), [""; 0], "{text}");
}

#[test]
fn a_burst_passes_and_the_next_request_waits_for_its_slot() {
    holds(
        "website=w1 -> 2001; 3 at once -> 3 pass; 4th -> delay 100ms; 5th -> delay 200ms; after 1s; 2 at once -> pass",
    );
    assert_eq!(
        failures(
            "website=w1 -> 2001; 4 at once -> 4 pass; 5th -> delay 100ms; 6th -> deny; 9 at once -> pass"
        ),
        [
            "4 at once: 4 pass | 3 pass, 1 delay 100ms",
            "5th: delay 100ms | delay 200ms",
            "6th: deny | delay 300ms",
            "9 at once: 9 pass | 7 delay 400ms..1s, 2 deny 1s",
        ]
    );
}

#[test]
fn requests_of_a_span_come_at_equal_distances() {
    // One each 100 ms is the rate itself: the burst is never touched.
    holds("website=w9 -> 2009; 1000 in 100s -> pass");
    holds("website=w1 -> 2001; 3 at once -> pass; 10 in 1s -> 10 delay 100ms; 1 at once -> delay 100ms");
    // The burst of 3, and one more each 100 ms: at 100, 200, ... 900 ms.
    holds("website=w9 -> 2009; 40 in 1s -> 12 pass, 28 deny 1s");
}

/// Each case begins with empty counts, whatever the one before it has done.
#[test]
fn no_case_knows_of_another() {
    for website in 1..WEBSITES {
        let slos =
            if website == 5 { "2005, 1001".to_owned() } else { (2000 + u16::from(website)).to_string() };
        let case = format!("website=w{website} owner=acme -> {slos}; 40 at once -> pass\n");
        let once = outcome(&case).cases[0].failures.clone();
        let is_enough = [12, 14].contains(&website);
        assert_eq!(
            once.is_empty(),
            is_enough,
            "w{website}: enough for forty are a dry run and a month's quota"
        );
        for CaseOutcome { failures, .. } in outcome(&case.repeat(3)).cases {
            let got = |all: &[Failure]| all.iter().map(|failure| failure.got.clone()).collect::<Vec<_>>();
            assert_eq!(got(&failures), got(&once), "w{website}");
        }
    }
}

#[test]
fn a_request_is_in_flight_until_it_is_done() {
    holds(
        "website=w6 -> 2006; 3 at once -> pass; 4th -> deny; 1 done; 2 at once -> 1 pass, 1 deny 1s; done; 3 at once -> pass",
    );
    // A delayed request has not left yet, so it cannot be done.
    assert_eq!(
        failures(
            "website=w1 -> 2001; 4 at once -> 3 pass, 1 delay; 4 done; after 100ms; 1 done; 1 done; done"
        ),
        ["4 done: 4 in flight | 3 in flight", "1 done: 1 in flight | 0 in flight"]
    );
    // A refused request is not in flight.
    assert_eq!(failures("website=w9 -> 2009; 4 at once -> 3 pass, 1 deny; 3 done; 1 done").len(), 1);
}

/// A request has cost what it announced, since no step says what it cost. Without an announcement, that is a
/// twentieth of the burst.
#[test]
fn the_cost_of_a_step_is_what_a_request_announces_in_the_unit() {
    holds(
        "owner=llm -> 1002; 1 at once announced=80 -> pass; 1 at once announced=12.5 -> pass; 3rd announced=10 -> delay 250ms; done; \
         4th announced=0.5 -> delay 300ms; after 10300ms; 20 at once -> pass; 1 at once -> delay 500ms",
    );
}

#[test]
fn fields_of_a_step_replace_those_of_the_case() {
    holds(
        "website=w1 -> 2001; 3 at once source=192.0.2.1 -> pass; 1 at once source=192.0.2.2 -> delay 100ms",
    );
    holds("website=w1 -> 2001; 1 at once cost=3 -> pass; 1 at once cost=0 -> pass; 3rd -> delay 100ms");
    // An empty value takes a field away.
    holds("website=w5 owner=acme -> 2005, 1001; 1 at once -> pass; 1 at once owner= -> pass");
}

#[test]
fn the_slos_of_a_request_are_told_with_the_lines_that_name_them() {
    holds(
        "website=w5 owner=acme -> 2005, 1001\nwebsite=W5.:80 -> 2005\nwebsite=w99 -> 0\nwebsite=w99 -> unlimited",
    );
    holds("website=\"a b\" -> refused; 2 at once -> 2 deny");
    let refused = "refused: the website is not a valid host name, or a value is too long to be looked up";
    assert_eq!(
        failures(
            "website=w5 owner=acme -> 2005\nwebsite=w99 -> refused\nwebsite=w1 -> unlimited\nwebsite=\"a b\" -> 0"
        ),
        [
            "website=w5 owner=acme: 2005 | 2005 (website.map:5), 1001 (owner.map:1)".to_owned(),
            "website=w99: refused | 0 unlimited (no map names it)".to_owned(),
            "website=w1: unlimited | 2001 (website.map:1)".to_owned(),
            format!("website=\"a b\": 0 | {refused}"),
        ]
    );
}

#[test]
fn a_protected_website_has_a_limit() {
    let policy = policy(&SLO_MAP.replace("2001 burst=3 rate=10/s max_delay=1s", "2001 law=protect"));
    let suite = Suite::parse(b"website=w1 -> unlimited").unwrap();
    let failures = &run(&suite, policy, &SETTINGS).0.cases[0].failures;
    assert_eq!(failures.iter().map(|failure| &*failure.got).collect::<Vec<_>>(), ["2001 (website.map:1)"]);
}

#[test]
fn blocks_and_windows_last_as_long_as_they_say() {
    holds(
        "website=w8 -> 2008; 4 at once -> 3 pass, 1 deny; after 4s; 1 at once -> deny; after 1s; 1 at once -> pass",
    );
    // A case begins with a month.
    holds(
        "website=w14 -> 2014; 1001 at once -> 1000 pass, deny; after 30d; 1 at once -> deny; after 1d; 1 at once -> pass",
    );
}

#[test]
fn a_field_that_the_policy_does_not_use_is_named_with_its_first_line() {
    let outcome = outcome("website=w1 cost=2 wesbite=w2 -> 2001\n1 at once method=GET wesbite=w3 -> pass");
    let warnings: Vec<String> = outcome.warnings.iter().map(ToString::to_string).collect();
    let shown = |place: &str| format!("{place}: the policy does not use this field: is it misspelt?");
    assert_eq!(warnings, ["1: wesbite", "2: method"].map(shown));
}

/// What happens next in a made-up case.
#[derive(Clone, Debug)]
enum Happens {
    Ask { count: u32, span_ms: u64, cost: u8 },
    Wait(u64),
}

fn happenings() -> impl Strategy<Value = Vec<Happens>> {
    let ask = (1u32..9, prop_oneof![Just(0), 1u64..900], 0u8..3)
        .prop_map(|(count, span_ms, cost)| Happens::Ask { count, span_ms, cost });
    prop::collection::vec(prop_oneof![2 => ask, 1 => (1u64..20_000).prop_map(Happens::Wait)], 1..8)
}

fn word(verdict: Verdict) -> String {
    match verdict {
        Verdict::Pass => "pass".into(),
        Verdict::Delay(_) => format!("delay {}ms", verdict.delay_ms()),
        Verdict::Deny { retry_after_s } => format!("deny {retry_after_s}s"),
    }
}

/// The steps, with the verdicts that a throttle gives by itself.
fn case(website: u8, happenings: &[Happens]) -> String {
    let sizing = Sizing { entries_max: 100, expire: SETTINGS.expire };
    let throttle = Throttle::new(policy(SLO_MAP), sizing, SETTINGS.annex_bytes_max);
    let name = format!("w{website}");
    let ids = throttle
        .policy()
        .cases(&request(&name, "1"))
        .list
        .iter()
        .map(|case| case.slo.id.to_string())
        .collect::<Vec<_>>();
    let mut text = format!("website={name} owner=acme -> {}\n", ids.join(", "));
    let mut now_ns = BEGINS.as_nanos();
    for happens in happenings {
        match *happens {
            Happens::Wait(ms) => {
                writeln!(text, "after {ms}ms").unwrap();
                now_ns += ms * 1_000_000;
            }
            Happens::Ask { count, span_ms, cost } => {
                let cost = cost.to_string();
                let mut verdicts: Vec<String> = Vec::new();
                for number in 0..u64::from(count) {
                    let now = Timestamp::from_nanos(now_ns + span_ms * 1_000_000 * number / u64::from(count));
                    let decision = throttle.decide_one(&request(&name, &cost), now, Sample::MIDDLE);
                    verdicts.push(word(decision.verdict));
                }
                now_ns += span_ms * 1_000_000;
                verdicts.sort();
                let runs = verdicts.chunk_by(|one, other| one == other);
                let listed =
                    runs.map(|run| format!("{} {}", run.len(), run[0])).collect::<Vec<_>>().join(", ");
                writeln!(text, "{count} in {span_ms}ms cost={cost} -> {listed}").unwrap();
            }
        }
    }
    text
}

fn request<'a>(website: &'a str, cost: &'a str) -> Request<'a> {
    let mut request = Request::new();
    for (name, value) in [("website", website), ("owner", "acme"), ("cost", cost)] {
        request.push(name.as_bytes(), Value::Text(value.as_bytes()));
    }
    request
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The verdicts are those of the throttle that serves, under every law.
    #[test]
    fn a_case_gets_the_verdicts_of_the_throttle(
        cases in prop::collection::vec((1..WEBSITES, happenings()), 1..4),
    ) {
        let text: String = cases.iter().map(|(website, happenings)| case(*website, happenings)).collect();
        prop_assert_eq!(failures(&text), [""; 0], "{}", text);
        // A changed verdict is noticed.
        if let Some(at) = text.find("-> 1 pass\n") {
            let changed = text[..at].to_owned() + "-> 1 deny\n" + &text[at + "-> 1 pass\n".len()..];
            prop_assert_eq!(failures(&changed).len(), 1);
        }
    }
}

/// A folder with a policy of one limit and a file of cases.
fn folder(cases: impl AsRef<[u8]>) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let maps =
        [("slo.map", "0 rate=unlimited\n3002 burst=10 rate=30/m\n"), ("source.map", "192.0.2.66 3002\n")];
    fs::create_dir(folder.path().join("maps")).unwrap();
    maps.iter().for_each(|(name, text)| fs::write(folder.path().join("maps").join(name), text).unwrap());
    fs::write(folder.path().join("policy.test"), cases).unwrap();
    folder
}

const TEST: [&str; 4] = ["test", "--policy", "maps", "policy.test"];

const GOOD: &str =
    "source=192.0.2.66 -> 3002; 10 at once -> 10 pass; 11th -> delay 2s\nsource=192.0.2.1 -> unlimited\n";

#[test]
fn the_command_prints_failed_cases_with_both_verdicts() {
    let good = ran_in(folder(GOOD).path(), &TEST);
    assert_eq!((good.code, good.out.as_str(), good.problems), (0, "2 cases: 2 ok, 0 failed\n", vec![]));

    let bad = folder(GOOD.replace("10 at once -> 10 pass", "\n  10 at once -> 9 pass, 1 deny"));
    let Ran { code, out, problems } = ran_in(bad.path(), &TEST);
    let expected = "\
FAILED policy.test:1: source=192.0.2.66 -> 3002
    line 2: 10 at once
      - 9 pass, 1 deny
      + 10 pass
2 cases: 1 ok, 1 failed
";
    assert_eq!((code, out.as_str(), problems), (1, expected, vec![]));

    let verbose = ran_in(bad.path(), &[&TEST[..], &["--verbose"]].concat());
    let ok = "ok     policy.test:3: source=192.0.2.1 -> unlimited\n2 cases";
    assert_eq!((verbose.code, verbose.out), (1, expected.replace("2 cases", ok)));
}

#[test]
fn a_mistake_names_file_line_and_column_and_other_files_are_run() {
    let cases = folder("source=192.0.2.66 -> 3002\n  10 at twice -> pass\n");
    fs::write(cases.path().join("good.test"), GOOD.replace("source=192.0.2.1", "sorce=192.0.2.1")).unwrap();
    let Ran { code, out, problems } = ran_in(cases.path(), &[&TEST[..], &["good.test"]].concat());
    assert_eq!((code, out.as_str()), (1, "2 cases: 2 ok, 0 failed; 1 file not run\n"));
    assert_eq!(
        problems,
        [
            "warning: good.test:2: sorce: the policy does not use this field: is it misspelt?",
            "policy.test:2:9: \"twice\": expected once",
        ]
    );
    let wrong = ran_in(cases.path(), &["test", "--policy", "maps.new", "good.test"]);
    assert_eq!((wrong.code, wrong.problems.len()), (1, 1), "{:?}", wrong.problems);
}

#[test]
fn a_file_that_cannot_be_read_is_named_and_other_files_are_run() {
    let cases = folder(GOOD);
    let files = ["test", "--policy", "maps", "nowhere.test", "maps", "policy.test"];
    let Ran { code, out, problems } = ran_in(cases.path(), &files);
    assert_eq!((code, out.as_str()), (1, "2 cases: 2 ok, 0 failed; 2 files not run\n"));
    assert_eq!(
        problems,
        [
            "nowhere.test: cannot be read: No such file or directory (os error 2)",
            "maps: cannot be read: Is a directory (os error 21)",
        ]
    );
    let json = ran_in(cases.path(), &[&files[..], &["--json"]].concat());
    let json: Json = serde_json::from_str(&json.out).unwrap();
    assert_eq!(
        (&json["ok"], &json["cases_total"], &json["errors_total"]),
        (&false.into(), &2.into(), &2.into())
    );
    let error = &json["errors"][0];
    assert_eq!((&error["file"], &error["line"]), (&"nowhere.test".into(), &Json::Null));
}

#[test]
fn json_has_every_case_and_every_mistake() {
    let cases = folder(GOOD.replace("11th -> delay 2s", "11th -> delay 1s"));
    fs::write(cases.path().join("bad.test"), "a=1 -> x\nb=1 -> y").unwrap();
    let Ran { code, out, problems } = ran_in(cases.path(), &[&TEST[..], &["bad.test", "--json"]].concat());
    assert_eq!((code, problems), (1, vec![]));
    let json: Json = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&json["ok"], &json["cases_total"], &json["failed_total"]),
        (&false.into(), &2.into(), &1.into())
    );
    let (failed, ok) = (&json["cases"][0], &json["cases"][1]);
    assert_eq!(
        (&failed["file"], &failed["line"], &failed["ok"]),
        (&"policy.test".into(), &1.into(), &false.into())
    );
    assert_eq!(
        failed["failures"],
        serde_json::json!([{"line": 1, "step": "11th", "expected": "delay 1s", "got": "delay 2s"}])
    );
    assert_eq!((&ok["title"], &ok["ok"]), (&"source=192.0.2.1 -> unlimited".into(), &true.into()));
    assert_eq!(json["errors_total"], 2);
    let error = &json["errors"][1];
    assert_eq!(
        (&error["file"], &error["line"], &error["column"]),
        (&"bad.test".into(), &2.into(), &8.into())
    );
}

/// Nothing that a file holds takes the memory, the time or the terminal of its reader.
#[test]
fn a_hostile_file_is_a_mistake_with_its_place() {
    let case = "source=192.0.2.66 -> 3002; ";
    for (text, shown) in [
        (&b""[..], "policy.test: expected a case, like `source=192.0.2.1 -> 3001`"),
        (b"a=\0 -> 0", "policy.test:1:3: a control character, \\u{0}: remove it"),
        (b"a=1\x1b[31m -> 0", "policy.test:1:4: a control character, \\u{1b}: remove it"),
        (b"\n\xff\xfe", "policy.test:2:1: not UTF-8: save the file as UTF-8"),
        (&b"a".repeat(20_000), "policy.test:1:1: the line is longer than 16384 bytes: shorten it"),
        (&b"a=1 -> 0\n".repeat(500_000), "policy.test: the file exceeds 4194304 bytes: split it"),
        (
            (case.to_owned() + "99999999999999999999 at once -> pass").as_bytes(),
            "policy.test:1:28: \"99999999999999999999\": expected a number of requests from 1 to 1000000, \
             like 10",
        ),
        (
            case.repeat(3).replace("; ", "; 600000 at once -> pass\n").as_bytes(),
            "policy.test:2:28: the file has more than 1000000 requests: use fewer, or split the file",
        ),
    ] {
        let Ran { code, out, problems } = ran_in(folder(text).path(), &TEST);
        assert_eq!((code, out.as_str()), (1, "0 cases: 0 ok, 0 failed; 1 file not run\n"));
        assert_eq!(problems, [shown]);
    }
    let many = ran_in(folder(b"a=1 -> ?\n".repeat(1_000)).path(), &TEST);
    assert_eq!((many.problems.len(), many.problems[100].as_str()), (101, "policy.test: and 900 more"));
    // A line that is hostile to a terminal, and sound.
    let shown = ran_in(folder("source=192.0.2.66 agent=\u{202e}x -> 0").path(), &TEST).out;
    assert!(shown.contains("agent=\\u{202e}x") && !shown.contains('\u{202e}'), "{shown}");
}

#[test]
fn a_million_requests_are_run() {
    let cases = folder("source=192.0.2.1 -> unlimited; 1000000 in 1h -> 1000000 pass");
    let Ran { code, out, problems } = ran_in(cases.path(), &TEST);
    assert_eq!((code, out.as_str(), problems), (0, "1 case: 1 ok, 0 failed\n", vec![]));
}

/// The policy comes from a config file too, and so do its lookups.
#[test]
fn a_policy_is_found_as_check_finds_it() {
    let cases = folder("api_key=abc -> 6001\n");
    let config = "[policy]\ndir = \"maps\"\n[policy.types]\n6 = [\"api_key\"]\n[[policy.lookups]]\n\
                  fields = [\"api_key\"]\nmap = \"api_key.map\"\nmatch = \"str\"\n";
    let write = |name: &str, text: &str| fs::write(cases.path().join(name), text).unwrap();
    write("slowlane.toml", config);
    write("maps/slo.map", "0 rate=unlimited\n6001 burst=1 rate=1/s\n");
    write("maps/api_key.map", "abc 6001\n");
    let shown = ran_in(cases.path(), &["test", "--config", "slowlane.toml", "policy.test"]);
    assert_eq!((shown.code, shown.out.as_str()), (0, "1 case: 1 ok, 0 failed\n"));
}

#[test]
fn the_shipped_policy_passes_the_shipped_cases() {
    let [policy, cases] = ["haproxy/maps", "haproxy/maps/policy.test"].map(project);
    let Ran { code, out, problems } =
        ran(&["test", "--policy", policy.to_str().unwrap(), cases.to_str().unwrap()]);
    assert_eq!((code, problems), (0, vec![]), "{out}");
    // Each SLO that a map names has a case.
    let cases = fs::read_to_string(cases).unwrap();
    for map in ["source+website", "source+owner", "source", "website", "owner"] {
        let map = fs::read_to_string(policy.join(format!("{map}.map"))).unwrap();
        for line in map.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let id = line.rsplit(' ').next().unwrap();
            assert!(
                cases.lines().any(|line| line.contains("->") && line.ends_with(id)),
                "no case for SLO {id}"
            );
        }
    }
}

/// The case behind this line, up to the next blank one.
fn case_after(text: &str, line: &str) -> String {
    let (_, after) = text.split_once(line).unwrap_or_else(|| panic!("no line {line:?}: {text}"));
    let case: Vec<&str> = after.lines().skip(1).take_while(|line| !line.trim().is_empty()).collect();
    case.join("\n") + "\n"
}

/// `folder` has the policy that the examples were written for.
#[test]
fn the_examples_of_the_help_and_of_the_sources_hold() {
    let help = case_after(&ran(&["test", "--help"]).out, "follow, in virtual time:");
    let source = fs::read_to_string(project("crates/lab/src/policy_test/mod.rs")).unwrap();
    let source = source.lines().map_while(|line| line.strip_prefix("//!")).collect::<Vec<_>>().join("\n");
    for case in [help, case_after(&source, "```text")] {
        let Ran { code, out, problems } = ran_in(folder(&case).path(), &TEST);
        assert!(case.lines().count() >= 5, "{case}");
        // No map of this policy has websites.
        let warning = "the policy does not use this field";
        assert!(problems.iter().all(|problem| problem.contains(warning)), "{problems:?}");
        assert_eq!((code, out.as_str()), (0, "1 case: 1 ok, 0 failed\n"), "{case}");
    }
}

/// The manual shows cases, and the report on them.
#[test]
fn the_report_of_the_manual_is_the_true_one() {
    let page = Page::read("doc/book/testing.md").section("Policy tests");
    let (cases, reports) = (page.blocks("policy.test"), page.blocks("text"));
    let policy = project("haproxy/maps");
    let shown = |number: usize| {
        let folder = folder(&cases[number].text);
        ran_in(folder.path(), &["test", "--policy", policy.to_str().unwrap(), "policy.test"])
    };
    let (good, bad) = (shown(0), shown(1));
    assert_eq!((good.code, good.problems), (0, vec![]), "{}", good.out);
    assert_eq!((bad.code, bad.out), (1, reports[0].text.clone()));
    let shipped = policy.join("policy.test");
    let shown = ran(&["test", "--policy", policy.to_str().unwrap(), shipped.to_str().unwrap()]);
    assert!(page.blocks("sh")[0].text.ends_with(&shown.out), "{}", shown.out);
}
