//! Several SLOs for one request: the strictest verdict decides, and a denied request is counted by none.

use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use slowlane_core::base::{Counted, Decision, Request, Sample, SloId, Ticket, Timestamp, Value, Verdict};
use slowlane_core::law::{Arrival, Law};
use slowlane_core::table::Entry;
use slowlane_core::throttle::Throttle;

use super::lines::{policy, throttle_of};
use super::oracle::{Subject, arrivals, at_ms, ends, schedule};

/// The request's own SLO is that of its source. It names that of the website, which names that of the owner.
const MAPS: &[(&str, &str)] =
    &[("source.map", "0.0.0.0/0 3001"), ("website.map", "shop 2001"), ("owner.map", "acme 1001")];

fn chain(source: &str, website: &str, owner: &str) -> String {
    format!("0 burst=1 rate=1/s\n3001 {source} also=website\n2001 {website} also=owner\n1001 {owner}\n")
}

fn request<'r>(cost: u32) -> Request<'r> {
    let mut request = Request::new();
    request.push(b"source", Value::address("192.0.2.7".parse().unwrap()));
    request.push(b"website", Value::Text(b"shop"));
    request.push(b"owner", Value::Text(b"acme"));
    request.push(b"cost", Value::Number(cost.into()));
    request
}

fn ask(throttle: &Throttle, now: Timestamp) -> Decision {
    throttle.decide_one(&request(1), now, Sample::MIDDLE)
}

fn strictness(verdict: Verdict) -> (u32, Duration) {
    match verdict {
        Verdict::Pass => (0, Duration::ZERO),
        Verdict::Delay(wait) => (1, wait),
        Verdict::Deny { retry_after_s } => (2, Duration::from_secs(retry_after_s.into())),
    }
}

/// One SLO of a chain: a law and a rate, maybe a dry run.
fn link() -> impl Strategy<Value = String> {
    let dry_run = prop::sample::select(vec!["", "", "", " dry_run=yes"]);
    (prop::sample::select(Law::NAMES), 0..12u32, 1..40u32, dry_run)
        .prop_map(|(law, burst, rate, dry_run)| format!("burst={burst} rate={rate}/s law={law}{dry_run}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Compared with three separate laws, whose state is restored if another one denies.
    #[test]
    fn a_chain_of_three_is_judged_as_one(
        lines in (link(), link(), link()), steps in schedule(80, 4),
    ) {
        let throttle = throttle_of(&chain(&lines.0, &lines.1, &lines.2), MAPS);
        let mut subjects = [&lines.0, &lines.1, &lines.2].map(|line| Subject::new(line));
        let sharer = throttle_sharer();
        for one in arrivals(&steps) {
            let decision = throttle.decide_one(&request(one.cost), one.now, one.sample);
            // All requests are of one source, and it is what `fair` shares by.
            let of = |subject: &Subject| Arrival { sharer: if subject.law.name() == "fair" { sharer } else { 0 }, ..one };
            let judged: Vec<_> = subjects.iter().map(|subject| subject.would(of(subject))).collect();
            let counts = |place: usize| !subjects[place].slo.dry_run;
            let real = (0..3).filter(|&place| counts(place));
            let verdicts = real.clone().map(|place| judged[place].verdict);
            let strictest = verdicts.max_by_key(|&verdict| strictness(verdict)).unwrap_or(Verdict::Pass);
            prop_assert_eq!(decision.verdict, strictest, "{:?}", lines);
            for (ours, theirs) in judged.iter().zip(decision.judged()) {
                prop_assert_eq!((ours.verdict, ours.remaining), (theirs.verdict, theirs.remaining), "{:?}", lines);
            }
            if let Some(remaining) = real.map(|place| judged[place].remaining).min() {
                prop_assert_eq!(decision.remaining, remaining);
            }
            let is_sketch = |place: usize| subjects[place].law.name() == "sketch";
            let sketches = [0, 1, 2].map(is_sketch);
            let is_refused_by_sketch =
                (0..3).any(|place| sketches[place] && counts(place) && !judged[place].verdict.is_let_through());
            for (place, subject) in subjects.iter_mut().enumerate() {
                let (arrival, before) = (of(subject), subject.clone());
                if strictest.is_let_through() || !judged[place].verdict.is_let_through() {
                    subject.judge(arrival);
                } else {
                    // This law would have let the request through, so only the question is counted.
                    subject.entry.ask(arrival.cost, arrival.now);
                }
                let row = throttle.table().get(decision.judged()[place].key, one.now);
                let Some((entry, _)) = row else {
                    prop_assert!(sketches[place] || is_refused_by_sketch, "{:?}, {}", lines, place);
                    if !sketches[place] {
                        // Nothing of the request is left.
                        *subject = before;
                    }
                    continue;
                };
                prop_assert!(!sketches[place]);
                prop_assert_eq!(entry, subject.entry, "{:?}, {}", lines, place);
            }
        }
    }
}

/// The hash of the source, as the policy has it.
fn throttle_sharer() -> u64 {
    let policy = policy("0 burst=1 rate=1/s law=fair", &[]);
    policy.cases(&request(1)).list[0].sharer
}

#[test]
fn what_another_slo_denies_pushes_no_sharer_back() {
    let throttle = throttle_of(
        &chain("burst=1 rate=10/s law=fair", "burst=2 rate=1/m law=token-bucket", "burst=9 rate=9/s"),
        MAPS,
    );
    assert_eq!(
        [ask(&throttle, at_ms(0)).verdict.name(), ask(&throttle, at_ms(0)).verdict.name()],
        ["pass", "delay"]
    );
    for _ in 0..1_000 {
        let denied = ask(&throttle, at_ms(0));
        assert_eq!(denied.verdict.name(), "deny");
        assert_eq!(denied.judged()[0].verdict, Verdict::Delay(Duration::from_millis(200)));
    }
}

#[test]
fn the_strictest_of_three_decides_and_names_its_slo() {
    let throttle = throttle_of(
        &chain(
            "burst=9 rate=9/s law=token-bucket",
            "burst=1 rate=10/s law=pace",
            "burst=2 rate=1/m law=fixed-window",
        ),
        MAPS,
    );
    // 1/m has room for one in its window, whatever its burst.
    let first = ask(&throttle, at_ms(0));
    assert_eq!((first.verdict, first.slo.number(), first.remaining), (Verdict::Pass, 3001, 0));
    let second = ask(&throttle, at_ms(0));
    assert_eq!((second.verdict, second.slo.number()), (Verdict::Deny { retry_after_s: 60 }, 1001));
    assert_eq!(second.judged().iter().map(|one| one.slo.number()).collect::<Vec<_>>(), [3001, 2001, 1001]);
    // The website's slot is as free as before.
    let third = ask(&throttle, at_ms(0));
    assert_eq!(third.judged()[1].verdict, Verdict::Delay(Duration::from_millis(100)));
    let row = |place: usize| throttle.table().get(third.judged()[place].key, at_ms(0)).unwrap().0;
    assert_eq!([0, 1, 2].map(|place| row(place).http_req_cnt), [3; 3], "each was asked");
    assert_eq!([0, 1, 2].map(|place| row(place).gpc1_rate.curr_ctr), [1; 3], "and let through once");
}

#[test]
fn a_type_that_comes_twice_ends_the_chain() {
    let maps = [("website.map", "shop 2001"), ("source.map", "0.0.0.0/0 2002"), ("owner.map", "acme 1001")];
    let slo_map = "0 burst=1 rate=1/s\n2002 burst=5 rate=5/s also=website\n2001 burst=6 rate=6/s also=owner\n1001 burst=1 rate=1/s\n";
    let throttle = throttle_of(slo_map, &maps);
    let decision = ask(&throttle, at_ms(0));
    assert_eq!(decision.judged().iter().map(|one| one.slo.number()).collect::<Vec<_>>(), [2002]);
    // An SLO that names itself is one, too; and what comes around is not judged again.
    let around =
        "0 burst=1 rate=1/s\n2001 burst=1 rate=1/s also=website\n1001 burst=9 rate=9/s also=website\n";
    let throttle = throttle_of(around, &[("website.map", "shop 2001")]);
    assert_eq!(ask(&throttle, at_ms(0)).judged().len(), 1);
}

#[test]
fn a_dry_run_says_what_it_would_have_said_and_lets_pass() {
    let throttle = throttle_of("0 burst=1 rate=1/s law=token-bucket dry_run=yes", &[]);
    let verdicts = [(); 3].map(|()| {
        let decision = throttle.decide_one(&Request::new(), at_ms(0), Sample::MIDDLE);
        (decision.verdict.name(), decision.judged()[0].verdict.name())
    });
    assert_eq!(verdicts, [("pass", "pass"), ("pass", "deny"), ("pass", "deny")]);

    let throttle = throttle_of(
        &chain(
            "burst=9 rate=9/s law=token-bucket",
            "burst=1 rate=1/s law=token-bucket dry_run=yes",
            "burst=2 rate=2/s law=token-bucket",
        ),
        MAPS,
    );
    let names = |decision: Decision| {
        (decision.verdict.name(), decision.judged().iter().map(|one| one.verdict.name()).collect::<Vec<_>>())
    };
    assert_eq!(names(ask(&throttle, at_ms(0))), ("pass", vec!["pass", "pass", "pass"]));
    assert_eq!(names(ask(&throttle, at_ms(0))), ("pass", vec!["pass", "deny", "pass"]));
    assert_eq!(names(ask(&throttle, at_ms(0))), ("deny", vec!["pass", "deny", "deny"]));
}

#[test]
fn a_limit_to_what_is_under_way_goes_with_a_rate() {
    let throttle = throttle_of(
        &chain(
            "burst=1 rate=1/s law=concurrency max=2",
            "burst=3 rate=1/s law=token-bucket",
            "burst=9 rate=9/s law=pace",
        ),
        MAPS,
    );
    let decisions = [(); 3].map(|()| ask(&throttle, at_ms(0)));
    assert_eq!(decisions.map(|decision| decision.verdict.name()), ["pass", "pass", "deny"]);
    assert_eq!(decisions[2].slo.number(), 3001);
    assert_eq!(decisions[2].ticket(), None);
    // The token of the third is still there, as soon as one of the two has ended; and then no more.
    let tickets = [0, 1].map(|number: usize| decisions[number].ticket().unwrap());
    let (slo, key) = (SloId::new(3001).unwrap(), decisions[0].key);
    assert_eq!(tickets[0].counted.as_slice(), [Counted { slo, key, serial: 1, cost: 1 }]);
    ends(&throttle, &tickets[0], at_ms(10));
    assert_eq!(ask(&throttle, at_ms(10)).verdict, Verdict::Pass);
    ends(&throttle, &tickets[0], at_ms(10));
    assert_eq!(ask(&throttle, at_ms(10)).slo.number(), 3001, "the first has ended once");
    ends(&throttle, &tickets[1], at_ms(10));
    let denied = ask(&throttle, at_ms(10));
    assert_eq!((denied.verdict.name(), denied.slo.number()), ("deny", 2001));
    // A request denied by the bucket is not in flight.
    let under_way = throttle.table().get(decisions[0].key, at_ms(10)).unwrap().0.gpt0;
    assert_eq!(under_way, 1_000);
}

#[test]
fn an_end_is_charged_once_and_only_for_what_was_counted() {
    let policy = "burst=5 rate=1/s law=concurrency max=5 lease=40s";
    let throttle = throttle_of(&chain(policy, "burst=9 rate=9/s", "burst=9 rate=9/s"), MAPS);
    let costing = |cost| throttle.decide_one(&request(cost), at_ms(0), Sample::MIDDLE);
    assert_eq!(costing(0).ticket(), None, "nothing of it is in flight");
    let ticket = costing(2).ticket().unwrap();
    let key = costing(0).key;
    // The row never shows less than one.
    let in_flight = |at| throttle.table().get(key, at).unwrap().0.gpt0 / 1_000;
    let ended = |ticket: &Ticket, at| (ends(&throttle, ticket, at), in_flight(at));
    assert_eq!(in_flight(at_ms(5)), 2);
    assert_eq!(ended(&ticket, at_ms(5)), (true, 1));
    assert_eq!(ended(&ticket, at_ms(5)), (false, 1), "a second time");
    let (one, other) = (costing(3).ticket().unwrap(), costing(2).ticket().unwrap());
    assert_eq!(ended(&ticket, at_ms(5)), (false, 5), "for others");
    assert_eq!(ended(&one, at_ms(5)), (true, 2));
    assert!(!ends(&throttle, &other, at_ms(40_000)), "after the lease");
    let (taken_back, policy) =
        (throttle.decide_one(&request(2), at_ms(40_000), Sample::MIDDLE), throttle.policy());
    assert_eq!(in_flight(at_ms(40_000)), 2);
    for time in ["once", "twice"] {
        throttle.take_back(&policy, &taken_back, at_ms(40_000));
        assert_eq!(in_flight(at_ms(40_000)), 1, "{time}");
    }
    assert_eq!(ended(&taken_back.ticket().unwrap(), at_ms(40_000)), (false, 1), "it was taken back");
}

#[test]
fn a_request_that_costs_nothing_passes_all_and_leaves_no_trace_in_their_rows() {
    let throttle = throttle_of(
        &chain("burst=1 rate=1/s", "burst=1 rate=1/s law=sliding-log", "burst=1 rate=1/s law=fair"),
        MAPS,
    );
    let decision = throttle.decide_one(&request(0), at_ms(0), Sample::MIDDLE);
    assert_eq!(decision.verdict, Verdict::Pass);
    for judged in decision.judged() {
        let row = throttle.table().get(judged.key, at_ms(0));
        assert_eq!(row.map_or(Entry::default(), |(entry, _)| entry), Entry::default());
    }
}

/// Many threads, each with its own source, share one website and one owner. Tokens are given out only once, and there
/// is no deadlock.
#[test]
fn threads_on_the_same_rows_get_what_is_there_and_no_more() {
    const EACH: usize = 20_000;
    for law in [
        "token-bucket",
        "fixed-window window=1h",
        "sliding-log window=1h",
        "fair max_delay=0s",
        "concurrency",
    ] {
        let slo_map = format!(
            "0 burst=1 rate=1/s\n3001 burst=3000 rate=1/d law=token-bucket also=website\n\
             2001 burst=10000 rate=240000/d law={law} also=owner\n1001 burst=1000000 rate=1000/s law=token-bucket\n\
             1002 burst=1 rate=1/s also=source\n",
        );
        let throttle = throttle_of(&slo_map, MAPS);
        let passed: Vec<usize> = thread::scope(|scope| {
            let ask = |thread: u8| {
                let source = Value::address(format!("192.0.2.{thread}").parse().unwrap());
                let mut request = Request::new();
                request.push(b"source", source);
                request.push(b"website", Value::Text(b"shop"));
                request.push(b"owner", Value::Text(b"acme"));
                let decide = || throttle.decide_one(&request, at_ms(0), Sample::MIDDLE);
                (0..EACH).filter(|_| decide().verdict == Verdict::Pass).count()
            };
            let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || ask(thread))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        // Four buckets of 3000 for one of 10000: none is passed, and the whole of that is given out.
        assert!(passed.iter().all(|&passed| passed <= 3_000), "{law}: {passed:?}");
        assert_eq!(passed.iter().sum::<usize>(), 10_000, "{law}: {passed:?}");
        let decision = ask(&throttle, at_ms(0));
        let owner = throttle.table().get(decision.judged()[2].key, at_ms(0)).unwrap().0;
        assert_eq!(owner.http_req_cnt, 4 * EACH as u32 + 1, "{law}: each was asked about");
        assert_eq!(owner.gpc1_rate.curr_ctr, 10_000, "{law}: and the denied were not let through");
    }
}
