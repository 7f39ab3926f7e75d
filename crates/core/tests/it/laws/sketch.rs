//! `sketch`: keys without rows, before other SLOs and alone.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use proptest::prelude::*;
use slowlane_core::base::{Decision, Key, Request, Sample, Timestamp, UNCOUNTED, Value, Verdict};
use slowlane_core::law::Arrival;
use slowlane_core::table::{Seen, Sketch};
use slowlane_core::throttle::Throttle;

use super::lines::{policy, throttle_of};
use super::oracle::{Subject, at_ms, law};

/// Each source on each website is a key of its own, and the owner's SLO comes second where `also=owner` says so.
const MAPS: &[(&str, &str)] =
    &[("source+website.map", "0.0.0.0/0+shop 5001"), ("source.map", "0.0.0.0/0 3001")];

fn ask(throttle: &Throttle, source: u32, now: Timestamp) -> Decision {
    let mut request = Request::new();
    request.push(b"source", Value::address(Ipv4Addr::from_bits(source).into()));
    request.push(b"website", Value::Text(b"shop"));
    throttle.decide_one(&request, now, Sample::MIDDLE)
}

fn key(number: u64) -> Key {
    let bits = (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    Key::from_bits((bits ^ (bits >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9))
}

proptest! {
    /// With a row for each key beside it: what the sketch lets through, `sliding-window` does, too. A sketch of 32
    /// cells for 60 keys refuses much that it need not.
    #[test]
    fn nothing_gets_through_that_sliding_window_refuses(
        steps in prop::collection::vec((0..60u64, 1..4u32, 0..300u64), 1..400), limit in 1..12u32,
    ) {
        let line = |law: &str| format!("burst=0 rate={limit}/s law={law}");
        let tight = Subject::new(&(line("sketch") + " error=0.5 confidence=0.5"));
        let law = tight.law.sketched().unwrap();
        let sketch = Sketch::new(law.shape, law.period());
        let mut rows: HashMap<u64, Subject> = HashMap::new();
        let (mut now_ms, mut refused) = (60_000, 0);
        for (number, cost, pause_ms) in steps {
            now_ms += pause_ms;
            let now = at_ms(now_ms);
            let (verdict, _) = sketch.with(key(number), cost, now, |seen| {
                let verdict = law.judge_seen(seen, cost).verdict;
                (verdict.is_let_through(), verdict)
            });
            let row = rows.entry(number).or_insert_with(|| Subject::new(&line("sliding-window")));
            let arrival = Arrival { cost, ..Arrival::at(now) };
            match verdict.is_let_through() {
                true => prop_assert!(row.judge(arrival).verdict.is_let_through(), "{} at {}", number, now_ms),
                false => refused += 1,
            }
        }
        prop_assert!(refused < 400);
    }

    /// A key that is alone in its sketch gets the verdicts of `sliding-window`, to the second of Retry-After.
    #[test]
    fn alone_it_is_sliding_window(steps in prop::collection::vec((1..4u32, 0..700u64), 1..200), limit in 1..12u32) {
        let [sketch, row] = ["sketch", "sliding-window"]
            .map(|law| throttle_of(&format!("0 burst=0 rate={limit}/s law={law}"), &[]));
        let mut now_ms = 60_000;
        for (cost, pause_ms) in steps {
            now_ms += pause_ms;
            let mut request = Request::new();
            request.push(b"cost", Value::Number(cost.into()));
            let decide = |throttle: &Throttle| {
                let decision = throttle.decide_one(&request, at_ms(now_ms), Sample::MIDDLE);
                (decision.verdict, decision.remaining)
            };
            prop_assert_eq!(decide(&sketch), decide(&row));
        }
        prop_assert_eq!((sketch.usage().entries, row.usage().entries), (0, 1));
    }
}

/// Two a minute for each of 10,000 sources: the third is refused, and no source has a row.
#[test]
fn keys_without_end_take_no_rows() {
    let throttle = throttle_of(
        "0 rate=unlimited\n5001 burst=0 rate=2/m law=sketch error=0.0001\n3001 rate=unlimited",
        MAPS,
    );
    let now = at_ms(60_000);
    for source in 0..10_000 {
        assert_eq!(ask(&throttle, source, now).verdict, Verdict::Pass, "{source}");
    }
    assert_eq!(ask(&throttle, 7, now).verdict, Verdict::Pass);
    let third = ask(&throttle, 7, now);
    // Half of the next minute must pass until two of this minute count as one.
    assert_eq!((third.verdict, third.remaining), (Verdict::Deny { retry_after_s: 90 }, 0));
    assert_eq!(ask(&throttle, 7, at_ms(60_000 + 90_000)).verdict, Verdict::Pass);
    assert_eq!((throttle.usage().entries, throttle.aux_usage().bytes), (0, 0));
    assert_eq!(throttle.policy().sketch_bytes(), 2 * 131_072 * 8);
}

#[test]
fn a_rate_of_zero_takes_no_rows_either() {
    let throttle =
        throttle_of("0 rate=unlimited\n5001 burst=0 rate=0/s law=sketch\n3001 rate=unlimited", MAPS);
    for source in 0..100 {
        let never = Verdict::Deny { retry_after_s: Verdict::NEVER_S };
        assert_eq!(ask(&throttle, source, at_ms(60_000)).verdict, never);
    }
    assert_eq!(throttle.usage().entries, 0);
}

/// One website may be asked twice a minute, by any source. The sources that it refuses get no row of their own,
/// whatever their law; a source that has one is counted as asked.
#[test]
fn what_a_sketch_refuses_leaves_no_new_row_behind_it() {
    for law in ["pace", "fair", "sliding-log", "concurrency", "adaptive"] {
        let slo_map = format!(
            "0 rate=unlimited\n2001 burst=0 rate=2/m law=sketch also=source\n3001 burst=9 rate=9/s law={law}"
        );
        let maps = &[("source+website.map", "0.0.0.0/0+shop 2001"), ("source.map", "0.0.0.0/0 3001")];
        let throttle = throttle_of(&slo_map, maps);
        let ask = |source| ask(&throttle, source, at_ms(60_000));
        let passed = [ask(1), ask(2)];
        assert!(
            passed.iter().all(|decision| decision.verdict == Verdict::Pass && decision.judged().len() == 2)
        );
        let bytes = throttle.aux_usage().bytes;
        for source in 3..1_000 {
            let decision = ask(source);
            assert_eq!((decision.verdict.name(), decision.slo.number()), ("deny", 2001), "{law}");
            assert_eq!(decision.judged()[1].verdict, Verdict::Pass, "{law}");
        }
        ask(1);
        assert_eq!((throttle.usage().entries, throttle.aux_usage().bytes), (2, bytes), "{law}");
        let (entry, _) = throttle.table().get(passed[0].judged()[1].key, at_ms(60_000)).unwrap();
        assert_eq!((entry.http_req_cnt, entry.gpc1_rate.curr_ctr), (2, 1), "{law}");
        assert_eq!(throttle.aux_usage().fallbacks, 0, "{law}");
    }
}

/// A request that the SLO behind it refuses is not counted by the sketch.
#[test]
fn what_is_refused_behind_a_sketch_is_taken_back() {
    let slo_map = "0 rate=unlimited\n5001 burst=0 rate=3/m law=sketch also=source\n\
                   3001 burst=1 rate=1/m law=token-bucket";
    let throttle = throttle_of(slo_map, MAPS);
    let reported = |now| {
        let decision = ask(&throttle, 1, now);
        (decision.slo.number(), decision.verdict.name(), decision.judged()[0].remaining)
    };
    assert_eq!(reported(at_ms(60_000)), (5001, "pass", 2));
    assert_eq!([reported(at_ms(60_000)), reported(at_ms(60_000))], [(3001, "deny", 1); 2], "as before");
}

/// The two stages: a flood of sources is counted in the sketch, and only a source beyond 10/s gets a row, where `pace`
/// slows it down to 5/s.
#[test]
fn a_first_stage_gives_rows_to_busy_keys_only() {
    let slo_map = "0 rate=unlimited\n5001 burst=0 rate=10/s law=sketch error=0.0001 beyond=also also=source\n\
                   3001 burst=5 rate=5/s max_delay=10s";
    let throttle = throttle_of(slo_map, MAPS);
    let now = at_ms(60_000);
    for source in 0..50_000 {
        let decision = ask(&throttle, source, now);
        assert_eq!((decision.slo.number(), decision.judged().len()), (5001, 1));
    }
    assert_eq!(throttle.usage().entries, 0);
    let busy = |now| {
        let decision = ask(&throttle, 7, now);
        (decision.slo.number(), decision.verdict.delay_ms())
    };
    // Its tenth request of this second comes before nine more; the burst of pace is five.
    assert_eq!([(); 9].map(|()| busy(now)), [(5001, 0); 9]);
    assert_eq!([(); 5].map(|()| busy(now)), [(3001, 0); 5]);
    assert_eq!([(); 2].map(|()| busy(now)), [(3001, 200), (3001, 400)]);
    assert_eq!(throttle.usage().entries, 1);
    // Who keeps asking stays beyond the rate: every request counts, also those of the second stage.
    let later = |ms: u64| busy(at_ms(60_000 + ms));
    assert!((1..=40).map(|step| later(step * 50)).all(|(slo, _)| slo == 3001));
    assert_eq!(later(4_100).0, 5001, "after two quiet seconds it is one of many again");
}

/// What is left out of a decision is told with the reason.
#[test]
fn a_foreseen_decision_names_the_slos_that_a_first_stage_leaves_out() {
    let slo_map = "0 rate=unlimited\n5001 burst=0 rate=2/s law=sketch beyond=also also=source\n\
                   3001 burst=5 rate=5/s";
    let throttle = throttle_of(slo_map, MAPS);
    let now = at_ms(60_000);
    let policy = throttle.policy();
    let foreseen = || {
        let mut request = Request::new();
        request.push(b"source", Value::address(Ipv4Addr::from_bits(7).into()));
        request.push(b"website", Value::Text(b"shop"));
        let foreseen = throttle.foresee(&policy.cases(&request), now, Sample::MIDDLE);
        let formulas = foreseen.views.iter().map(|view| view.formula.clone());
        (foreseen.decision.slo.number(), formulas.collect::<Vec<_>>())
    };
    let (slo, formulas) = foreseen();
    assert_eq!(slo, 5001);
    assert_eq!(formulas[1], "not consulted: the request is within the rate of the first stage");
    (0..2).for_each(|_| _ = ask(&throttle, 7, now));
    let (slo, formulas) = foreseen();
    assert_eq!((slo, &*formulas[1]), (3001, "used 0 + cost 1 <= burst 5"));
    assert!(formulas[0].ends_with("; beyond this rate, the SLOs from also= apply"), "{formulas:?}");
}

/// The chain of a first stage may go on, and a dry run is no stage.
#[test]
fn a_dry_run_of_a_first_stage_leaves_the_others_their_part() {
    let slo_map = "0 rate=unlimited\n5001 burst=0 rate=2/s law=sketch beyond=also also=source dry_run=yes\n\
                   3001 burst=1 rate=1/m law=token-bucket";
    let throttle = throttle_of(slo_map, MAPS);
    let judged = |_| {
        let decision = ask(&throttle, 1, at_ms(60_000));
        let verdicts = decision.judged().into_iter().map(|judged| judged.verdict.name());
        (decision.slo.number(), verdicts.collect::<Vec<_>>())
    };
    let (slo, verdicts): (Vec<_>, Vec<_>) = (0..3).map(judged).unzip();
    assert_eq!(slo, [3001; 3]);
    assert_eq!(
        verdicts,
        [["pass", "pass"], ["pass", "deny"], ["pass", "deny"]],
        "a denied request is not counted"
    );
}

#[test]
fn an_edit_of_the_rate_keeps_the_counts_and_one_of_the_error_does_not() {
    let line = |options: &str| format!("0 burst=0 law=sketch {options}");
    let throttle = throttle_of(&line("rate=2/m"), &[]);
    let now = at_ms(60_000);
    let reported = || throttle.decide_one(&Request::new(), now, Sample::MIDDLE).verdict.name();
    assert_eq!([reported(), reported(), reported()], ["pass", "pass", "deny"]);
    throttle.replace(policy(&line("rate=3/m"), &[]));
    assert_eq!([reported(), reported()], ["pass", "deny"]);
    throttle.replace(policy(&line("rate=3/m error=0.01"), &[]));
    assert_eq!([reported(), reported(), reported(), reported()], ["pass", "pass", "pass", "deny"]);
}

/// A client that leaves gives its place back, to the sketch that counted it.
#[test]
fn a_request_that_is_taken_back_is_counted_no_more() {
    let throttle = throttle_of("0 burst=0 rate=1/m law=sketch", &[]);
    let now = at_ms(60_000);
    let decide = || throttle.decide_one(&Request::new(), now, Sample::MIDDLE);
    let first = decide();
    assert_eq!([first.verdict.name(), decide().verdict.name()], ["pass", "deny"]);
    throttle.take_back(&throttle.policy(), &first, now);
    assert_eq!([decide().verdict.name(), decide().verdict.name()], ["pass", "deny"]);
    throttle.replace(policy("0 burst=0 rate=1/m law=sketch error=0.5 confidence=0.5", &[]));
    let later = throttle.decide_one(&Request::new(), now + Duration::from_millis(1), Sample::MIDDLE);
    assert_eq!(later.verdict, Verdict::Pass);
    throttle.take_back(&throttle.policy(), &first, now);
    assert_eq!(decide().verdict.name(), "deny", "it was counted in another sketch");
}

/// A refusal blocks the key, which then has no row either.
#[test]
fn a_key_without_a_row_can_be_blocked() {
    let slo_map = "0 rate=unlimited\n5001 burst=0 rate=1/s law=sketch block=10m\n3001 rate=unlimited";
    let throttle = throttle_of(slo_map, MAPS);
    let reported = |ms: u64| ask(&throttle, 1, at_ms(60_000 + ms)).verdict;
    assert_eq!([reported(0), reported(0)], [Verdict::Pass, Verdict::Deny { retry_after_s: 2 }]);
    assert_eq!(reported(5_000), Verdict::Deny { retry_after_s: 595 });
    assert_eq!((reported(600_000), throttle.usage().entries), (Verdict::Pass, 0));
}

/// Ten are the whole window.
#[test]
fn a_request_that_costs_nothing_is_not_counted_by_a_sketch() {
    let law = law("sketch", 0, "10/s", &[]);
    let sketch = law.sketched().unwrap();
    let judge = |curr, cost| {
        let judgement = sketch.judge_seen(&Seen { window: 1, age_ns: 0, prev: 0, curr }, cost);
        (judgement.verdict.name(), judgement.remaining)
    };
    assert_eq!([judge(10, 0), judge(4, 0)], [("pass", UNCOUNTED); 2]);
    assert_eq!([judge(10, 1), judge(9, 1), judge(4, 1)], [("deny", 0), ("pass", 0), ("pass", 5)]);
}
