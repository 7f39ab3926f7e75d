//! Explanations of the laws: their numbers are right, and asking changes nothing.

use std::time::Duration;

use proptest::prelude::*;
use slowlane::observe::status::Why;
use slowlane_core::base::{Request, Sample, Value, Verdict, counted};
use slowlane_core::law::{Arrival, Law, Scale};
use slowlane_core::table::{Cursor, Found, Page};
use slowlane_core::throttle::Throttle;

use super::lines::line;
use super::lines::throttle_of;
use super::oracle::{Subject, arrivals, at_ms, garbage, schedule};

fn explained(subject: &Subject, arrival: &Arrival) -> String {
    subject.law.explain(&Scale::of(subject.slo.objective.rate), &subject.entry, subject.aux.as_ref(), arrival)
}

/// Asks several times at 9 s after the start, and explains the next request a little later.
fn story(line: &str, asked: u32, later_ms: u64) -> String {
    let mut subject = Subject::new(line);
    for _ in 0..asked {
        subject.ask(at_ms(9_000));
    }
    explained(&subject, &Arrival::at(at_ms(9_000 + later_ms)))
}

#[test]
fn each_law_tells_its_formula_with_the_numbers_in_it() {
    for (line, asked, later_ms, formula) in [
        ("burst=100 rate=50/s", 0, 0, "used 0 + cost 1 <= burst 100"),
        (
            "burst=100 rate=50/s",
            130,
            0,
            "used 130 + cost 1 - burst 100 = 31 over; delay = 31 / 50/s = 620 ms <= max_delay 5s",
        ),
        (
            "burst=0 rate=2/s max_delay=1s",
            9,
            250,
            "used 1.5 + cost 1 - burst 0 = 2.5 over; delay = 2.5 / 2/s = 1.25 s > max_delay 1s",
        ),
        ("burst=5 rate=10/s law=token-bucket", 3, 50, "tokens 2.5 of burst 5 >= cost 1"),
        (
            "burst=5 rate=10/s law=token-bucket",
            5,
            50,
            "tokens 0.5 of burst 5 < cost 1; wait = 0.5 / 10/s = 50 ms",
        ),
        ("burst=5 rate=10/s law=leaky-bucket", 3, 50, "tokens 2.5 of burst 5 >= cost 1"),
        (
            "burst=5 rate=10/s law=leaky-bucket",
            5,
            50,
            "tokens 0.5 of burst 5 < cost 1; wait = 0.5 / 10/s = 50 ms",
        ),
        (
            "burst=0 rate=2/s law=fixed-window",
            1,
            300,
            "count 1 + cost 1 = 2 <= N 2 (2/s in 1s); the window ends in 700 ms",
        ),
        (
            "burst=0 rate=120/m window=1s law=fixed-window",
            5,
            300,
            "count 2 + cost 1 = 3 > N 2 (120/m in 1s); the window ends in 700 ms",
        ),
        (
            "burst=0 rate=5/s law=sliding-window",
            4,
            1_500,
            "prev 4 * (1s - 500 ms) / 1s + curr 0 + cost 1 = 3 <= N 5 (5/s in 1s)",
        ),
        (
            "burst=0 rate=5/s law=sliding-window",
            5,
            1_100,
            "prev 5 * (1s - 100 ms) / 1s + curr 0 + cost 1 = 5.5 > N 5 (5/s in 1s); wait 100 ms",
        ),
        (
            "burst=0 rate=10/s law=sliding-buckets buckets=2",
            10,
            499,
            "sum 10 of 2 sub-windows + cost 1 = 11 > N 10 (10/s in 1s); wait 501 ms",
        ),
        (
            "burst=0 rate=10/s law=sliding-buckets buckets=2",
            10,
            1_000,
            "sum 0 of 2 sub-windows + cost 1 = 1 <= N 10 (10/s in 1s); plus 10 of the previous sub-window = \
             11 <= N + N / 2 = 15",
        ),
        (
            "burst=0 rate=2/s law=sliding-log",
            2,
            100,
            "2 let through in the last 1s + cost 1 = 3 > N 2 (2/s in 1s); wait 900 ms",
        ),
        (
            "burst=2 rate=1/s law=concurrency",
            1,
            0,
            "in flight 1 + cost 1 = 2 <= max 2; each request counts for at most 60 s",
        ),
        (
            "burst=100 rate=50/s law=adaptive",
            40,
            0,
            "http_req_cnt 41 - burst 100 + slo 50 = -9 <= 0, not throttled; floor(accepted 0 / over 2) = 0 <= slo 50",
        ),
        (
            "burst=0 rate=50/s law=adaptive",
            25,
            0,
            "http_req_cnt 26 - burst 0 + slo 50 = 76 > 0; delay = N 1 / 50 * min(1, rate 25 / 50) * jitter 1 \
             (+-10 %) = 10 ms; floor(accepted 25 / over 2) = 12 <= slo 50",
        ),
        ("burst=5 rate=10/s law=fair", 0, 0, "no queue; tokens 5 >= cost 1"),
        (
            "burst=5 rate=10/s law=fair",
            7,
            0,
            "tokens 0 - 2 kept for others = 0 < cost 1; slots taken: 2, other sources waiting: 0, this \
             source's turn: from slot 3 on; the request's slot of 1 / 10/s begins in 400 ms <= max_delay 5s",
        ),
        ("burst=5 rate=0/s law=sliding-log", 3, 0, "rate 0: every request is denied"),
    ] {
        assert_eq!(story(line, asked, later_ms), formula, "{line}, asked {asked} times, {later_ms} ms ago");
    }
    let free = Arrival { cost: 0, ..Arrival::at(at_ms(1)) };
    assert_eq!(
        explained(&Subject::new("burst=1 rate=1/s"), &free),
        "cost 0: the request passes and is not counted"
    );
}

/// The delay in a formula, in microseconds, if any.
fn delay_us(formula: &str) -> Option<f64> {
    let outcome =
        ["delay = ", "begins in ", "next_free in "].iter().find_map(|mark| formula.split(mark).nth(1))?;
    let outcome = outcome.split([';', '<', '>']).next()?;
    let outcome = outcome.rsplit("= ").next()?.trim();
    let (number, unit) = outcome.split_once(' ')?;
    Some(number.parse::<f64>().unwrap() * if unit == "ms" { 1e3 } else { 1e6 })
}

/// Whether a formula ends in a denial.
fn is_refusal(formula: &str, law: Law) -> bool {
    match law {
        Law::Closed(_) => true,
        Law::TokenBucket(_) | Law::LeakyBucket(_) => formula.contains(" < "),
        // That it is throttled is no refusal.
        Law::Adaptive(_) => formula.replacen(" > 0;", "", 1).contains(" > "),
        _ => formula.contains(" > "),
    }
}

proptest! {
    /// For any row, the formula leads to the verdict of the law.
    #[test]
    fn a_formula_comes_to_the_verdict(
        line in line(), steps in schedule(60, 6), row in prop::option::of(garbage()), has_aux: bool,
    ) {
        let mut subject = Subject::new(&line);
        if let Some(row) = row {
            subject.entry = row;
        }
        if !has_aux {
            subject.aux = None;
        }
        for arrival in arrivals(&steps) {
            let formula = explained(&subject, &arrival);
            let verdict = subject.judge(arrival).verdict;
            prop_assert_eq!(is_refusal(&formula, subject.law), !verdict.is_let_through(), "{}: {}", line, formula);
            if let Verdict::Delay(delay) = verdict {
                let outcome = delay_us(&formula);
                prop_assert!(outcome.is_some_and(|outcome| (outcome - delay.as_nanos() as f64 / 1e3).abs() < 1.0), "{}: {}", line, formula);
            }
        }
    }
}

const MAPS: &[(&str, &str)] = &[
    ("source.map", "192.0.2.0/24 3001\n198.51.100.0/24 3002\n198.51.100.9 -1"),
    ("website.map", "shop 2001\nblog 2002"),
    ("owner.map", "acme 1001\nglobex 1002"),
];

const SLO_MAP: &str = "0 burst=3 rate=5/s\n\
    3001 burst=2 rate=3/s law=fair share=owner also=website\n3002 burst=2 rate=3/s law=adaptive jitter=0 dry_run=yes also=owner\n\
    2001 burst=4 rate=2/s law=sliding-log also=owner\n2002 burst=1 rate=9/s law=token-bucket\n\
    1001 burst=2 rate=1/s law=concurrency\n1002 burst=1 rate=1/s also=website";

fn request<'r>((source, website, owner, cost): (u8, u8, u8, u8)) -> Request<'r> {
    let mut request = Request::new();
    let sources = ["192.0.2.1", "192.0.2.2", "198.51.100.7", "198.51.100.9"];
    request.push(b"source", Value::address(sources[usize::from(source % 4)].parse().unwrap()));
    request.push(b"website", Value::Text([&b"shop"[..], b"blog", b"\x1b[2J"][usize::from(website % 3)]));
    request.push(b"owner", Value::Text([&b"acme"[..], b"globex", b""][usize::from(owner % 3)]));
    request.push(b"cost", Value::Number((cost % 3).into()));
    request
}

/// The visible state of a throttle.
fn remembered(throttle: &Throttle, now_ms: u64) -> (Vec<Found>, u64) {
    let (mut page, mut next, mut all) = (Page::new(), Some(Cursor::default()), Vec::new());
    while let Some(cursor) = next {
        next = throttle.table().page(cursor, at_ms(now_ms), &mut page);
        all.extend(page.iter().copied());
    }
    (all, throttle.aux_usage().bytes)
}

proptest! {
    /// One throttle explains each request before it decides, and another one does not. Their verdicts are equal, and the
    /// foreseen decisions are the real ones.
    #[test]
    fn to_ask_why_changes_nothing(
        requests in prop::collection::vec((any::<[u8; 4]>(), prop_oneof![0u64..700, 2_000u64..9_000]), 1..40),
        room in prop_oneof![Just(0), 300usize..6_000, Just(1 << 20)],
    ) {
        let sizing = slowlane_core::table::Sizing { entries_max: 1_000, expire: Duration::from_secs(30) };
        let new = || Throttle::new(super::lines::policy(SLO_MAP, MAPS), sizing, room);
        let (asked, twin) = (new(), new());
        let mut now_ms = 0;
        for ([source, website, owner, cost], pause_ms) in requests {
            now_ms += pause_ms;
            let (request, now) = (request((source, website, owner, cost)), at_ms(now_ms));
            let before = remembered(&asked, now_ms);
            let why = Why::of(&asked, &request, now);
            prop_assert_eq!(&remembered(&asked, now_ms), &before);
            prop_assert!(!(why.to_string() + &why.json()).contains('\x1b'));

            let decision = asked.decide_one(&request, now, Sample::MIDDLE);
            prop_assert_eq!(decision, twin.decide_one(&request, now, Sample::MIDDLE));
            prop_assert_eq!(why.outcome.verdict.name(), decision.verdict.name());
            prop_assert_eq!(why.outcome.delay_ms, decision.verdict.delay_ms());
            prop_assert_eq!(why.outcome.remaining, counted(decision.remaining));
            prop_assert_eq!(why.slo, decision.slo.number());
            let said: Vec<_> = why.slos.iter().map(|slo| (slo.slo, slo.outcome.verdict.name(), slo.key.clone())).collect();
            let judged: Vec<_> = decision.judged().iter().map(|one| (one.slo.number(), one.verdict.name(), Some(one.key.to_string()))).collect();
            prop_assert_eq!(said, judged);
        }
        prop_assert_eq!(remembered(&asked, now_ms), remembered(&twin, now_ms));
    }
}

#[test]
fn every_slo_of_a_request_is_told_with_the_line_that_named_it() {
    let throttle = throttle_of(SLO_MAP, MAPS);
    let why = Why::of(&throttle, &request((0, 0, 0, 1)), at_ms(0));
    let outcome: Vec<_> =
        why.slos.iter().map(|slo| (slo.slo, slo.named_at.as_deref(), slo.also_of)).collect();
    assert_eq!(
        outcome,
        [
            (3001, Some("source.map:1"), None),
            (2001, Some("website.map:1"), Some(3001)),
            (1001, Some("owner.map:1"), Some(2001)),
        ]
    );
    assert_eq!(why.slos[0].shared_by.as_ref().unwrap().value.as_deref(), Some("acme"));
    assert!(why.to_string().contains("  named   website.map:1 (also=website of SLO 3001)\n"), "{why}");

    // An address that a line takes out, and whose website answers then.
    let why = Why::of(&throttle, &request((3, 1, 2, 1)), at_ms(0));
    assert_eq!((why.slo, why.slos[0].asked.as_slice()), (2002, &["source (line 3: -1)".to_owned()][..]));
    assert_eq!(why.unused, [""; 0]);
    let why = Why::of(&throttle, &Request::new(), at_ms(0));
    assert!(why.to_string().starts_with("request   without a field\nSLO 0     burst=3 rate=5/s\n"), "{why}");
    assert!(
        why.to_string()
            .contains("  named   by no map, so the default applies; no answer from source, website, owner\n"),
        "{why}"
    );

    let mut hostile = Request::new();
    hostile.push(b"owner", Value::Text(b"acme"));
    hostile.push(b"website", Value::Text(b"<script>\x1b]0;owned\x07\xff"));
    let why = Why::of(&throttle, &hostile, at_ms(0)).to_string();
    assert!(why.starts_with("request   owner=acme website=<script>\\u{1b}]0;owned\\u{7}\\xff\n"), "{why}");
}

#[test]
fn a_field_that_is_misspelt_is_told_from_one_that_counts() {
    let throttle = throttle_of("0 burst=3 rate=5/s\n2001 burst=1 rate=1/s", &[("website.map", "shop 2001")]);
    let mut request = Request::new();
    for (name, value) in
        [("webiste", "shop"), ("website", "blog"), ("source", "192.0.2.1"), ("cost", "2"), ("a\x1bb", "c")]
    {
        request.push(name.as_bytes(), Value::Text(value.as_bytes()));
    }
    let why = Why::of(&throttle, &request, at_ms(0));
    assert_eq!(why.unused, ["webiste", "source", r"a\u{1b}b"]);
    let outcome =
        "\nnot used  webiste, source, a\\u{1b}b: not named by any map, key or share of this policy\nSLO 0 ";
    assert!(why.to_string().contains(outcome), "{why}");
    assert!(why.json().contains("\"webiste\",\n"), "{}", why.json());
}

#[test]
fn what_is_not_counted_has_no_number_of_more() {
    let throttle = throttle_of("0 burst=3 rate=5/s", &[]);
    let mut request = Request::new();
    request.push(b"cost", Value::Number(0));
    let why = Why::of(&throttle, &request, at_ms(0)).to_string();
    assert!(why.ends_with("\n  says    pass\nverdict   pass, if asked now; nothing was counted\n"), "{why}");
}
