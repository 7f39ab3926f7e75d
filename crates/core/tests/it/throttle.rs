//! The throttle with its table, in virtual time: entries, their expiry, and reloads.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use slowlane_core::base::{Decision, Request, Sample, Timestamp, Value, Verdict};
use slowlane_core::cluster::{Cluster, OnSilence, Settings};
use slowlane_core::policy::{Layout, Policy};
use slowlane_core::table::{Sizing, Usage};
use slowlane_core::throttle::Throttle;

const START: Timestamp = Timestamp::from_millis(1_000_000_000);

fn policy(slo_map: &str, website_map: &str) -> Policy {
    let read = |path: &Path| match path.to_str() {
        Some("slo.map") => Ok(slo_map.into()),
        Some("website.map") => Ok(website_map.into()),
        _ => Err(io::ErrorKind::NotFound.into()),
    };
    Policy::parse(Path::new(""), &Layout::default(), read).unwrap()
}

/// Every website has its own key, under a law that needs no entry for longer than `expire`.
fn throttle(entries_max: u32, law: &str) -> Throttle {
    let websites: String = (0..100).map(|number| format!("w{number} 2001\n")).collect();
    let slo_map = format!("0 burst=9 rate=9/s\n2001 burst=1 rate=1/s {law}\n");
    Throttle::new(
        policy(&slo_map, &websites),
        Sizing { entries_max, expire: Duration::from_secs(30) },
        1 << 20,
    )
}

fn ask(throttle: &Throttle, website: &str, after_ms: u64) -> Decision {
    let mut request = Request::new();
    request.push(b"website", Value::Text(website.as_bytes()));
    throttle.decide_one(&request, START + Duration::from_millis(after_ms), Sample::MIDDLE)
}

fn is_known(throttle: &Throttle, decision: &Decision, after_ms: u64) -> bool {
    throttle.table().get(decision.key, START + Duration::from_millis(after_ms)).is_some()
}

#[test]
fn the_eleventh_key_of_ten_takes_the_place_of_the_one_that_expires_next() {
    let throttle = throttle(10, "law=adaptive");
    let decisions: Vec<_> = (0..10).map(|number| ask(&throttle, &format!("w{number}"), number)).collect();
    assert_eq!(throttle.usage(), Usage { entries: 10, evictions: 0 });
    ask(&throttle, "w0", 10);
    ask(&throttle, "w10", 11);
    assert_eq!(throttle.usage(), Usage { entries: 10, evictions: 1 });
    let known: Vec<_> = decisions.iter().map(|decision| is_known(&throttle, decision, 11)).collect();
    assert_eq!(known, [true, false, true, true, true, true, true, true, true, true]);
}

#[test]
fn asking_again_is_what_keeps_an_entry_and_looking_at_it_is_not() {
    let throttle = throttle(10, "law=adaptive");
    let asked = ask(&throttle, "w1", 0);
    ask(&throttle, "w1", 20_000);
    assert!(is_known(&throttle, &asked, 49_999));
    assert!(!is_known(&throttle, &asked, 50_000));
    assert_eq!(throttle.usage().entries, 1, "its room is used again by the next to write");
    ask(&throttle, "w2", 50_000);
    assert_eq!(throttle.usage(), Usage { entries: 1, evictions: 0 });
}

#[test]
fn what_has_expired_is_no_eviction() {
    let throttle = throttle(10, "law=adaptive");
    for number in 0..10 {
        ask(&throttle, &format!("w{number}"), 0);
    }
    for number in 10..20 {
        ask(&throttle, &format!("w{number}"), 30_000);
    }
    assert_eq!(throttle.usage(), Usage { entries: 10, evictions: 0 });
}

#[test]
fn a_debt_is_remembered_for_as_long_as_it_lasts() {
    let throttle = throttle(10, "law=pace max_delay=2m");
    let verdicts: Vec<_> = (0..100).map(|_| ask(&throttle, "w1", 0).verdict).collect();
    assert_eq!(verdicts[0], Verdict::Pass);
    assert_eq!(verdicts[99], Verdict::Delay(Duration::from_secs(99)));
    // 99 s of debt outlive an `expire` of 30 s.
    assert_eq!(ask(&throttle, "w1", 60_000).verdict, Verdict::Delay(Duration::from_secs(40)));
    assert_eq!(ask(&throttle, "w1", 102_000).verdict, Verdict::Pass);
}

#[test]
fn a_slot_that_is_taken_back_is_free_and_one_of_an_slo_that_is_gone_is_no_matter() {
    let throttle = throttle(10, "");
    let seconds = |number| Verdict::Delay(Duration::from_secs(number));
    ask(&throttle, "w1", 0);
    let second = ask(&throttle, "w1", 0);
    assert_eq!(second.verdict, seconds(1));
    throttle.take_back(&throttle.policy(), &second, START);
    assert_eq!(ask(&throttle, "w1", 0).verdict, seconds(1));

    throttle.replace(policy("0 burst=9 rate=9/s\n", ""));
    throttle.take_back(&throttle.policy(), &second, START);
    assert_eq!(ask(&throttle, "w1", 0).verdict, Verdict::Pass);
    assert_eq!(ask(&throttle, "w1", 0).slo.number(), 0);
}

#[test]
fn a_decision_is_made_under_one_policy_while_policies_are_replaced() {
    // The key contains the type of its SLO: 2 (website) for 2001, 0 for 0.
    let by_website = || policy("0 burst=9 rate=9/s\n2001 burst=9 rate=9/s\n", "w1 2001\n");
    let by_nothing = || policy("0 burst=9 rate=9/s\n", "");
    let throttle =
        Throttle::new(by_website(), Sizing { entries_max: 100, expire: Duration::from_secs(30) }, 1 << 20);
    let website = ask(&throttle, "w1", 0).key;
    throttle.replace(by_nothing());
    let nothing = ask(&throttle, "w1", 0).key;
    assert_ne!(website, nothing);
    thread::scope(|scope| {
        let edits = scope.spawn(|| {
            for _ in 0..500 {
                throttle.replace(by_website());
                throttle.replace(by_nothing());
            }
        });
        let mut seen = [0, 0];
        while !edits.is_finished() {
            let decision = ask(&throttle, "w1", 0);
            match decision.slo.number() {
                2001 => assert_eq!(decision.key, website),
                0 => assert_eq!(decision.key, nothing),
                other => panic!("SLO {other}"),
            }
            seen[usize::from(decision.slo.number() == 0)] += 1;
        }
        edits.join().unwrap();
        assert!(seen.iter().sum::<u32>() > 0);
    });
}

/// Also of a key that is new, and would be no concern of the other nodes.
#[test]
fn while_the_store_is_silent_nothing_passes_if_the_operator_says_closed() {
    for law in ["law=pace", "law=token-bucket", "law=sliding-window", "law=sliding-window cluster=count"] {
        let law = &format!("{law} block=10m");
        for on_silence in [OnSilence::Share, OnSilence::Open, OnSilence::Closed] {
            let settings = Settings { on_silence, nodes: 1, ..Settings::default() };
            let cluster = Arc::new(Cluster::new(settings));
            let throttle = throttle(100, law).in_cluster(cluster.clone());
            let passes = |website: &str| ask(&throttle, website, 0).is_let_through();
            cluster.set_silent(true);
            assert_eq!(passes("w1"), on_silence != OnSilence::Closed, "{law} {on_silence:?}");
            cluster.set_silent(false);
            assert!(passes("w2"), "{law} {on_silence:?}");
            let after = ask(&throttle, "w1", 5_000);
            assert!(after.is_let_through(), "{law} {on_silence:?}: it is blocked for what the store did");
        }
    }
    let settings = Settings { on_silence: OnSilence::Closed, ..Settings::default() };
    let throttle = throttle(100, "law=pace cluster=local").in_cluster(Arc::new(Cluster::new(settings)));
    assert!(ask(&throttle, "w1", 0).is_let_through(), "it needs no store");
}

/// 1/s between two nodes whose store is silent. Alone, a node with a part of it lets one pass in two seconds.
#[test]
fn while_the_store_is_silent_open_gives_the_full_rate_of_what_is_shared_and_not_of_what_is_split() {
    for (mode, on_silence, second_s) in [
        ("split", OnSilence::Share, 2),
        ("split", OnSilence::Open, 2),
        ("rate", OnSilence::Share, 2),
        ("rate", OnSilence::Open, 1),
        ("local", OnSilence::Open, 1),
    ] {
        // Without room for the key, the node judges alone.
        let settings = Settings { on_silence, nodes: 2, keys_max: 0, ..Settings::default() };
        let throttle = throttle(10, &format!("cluster={mode}")).in_cluster(Arc::new(Cluster::new(settings)));
        let verdicts = [0, 0].map(|after_ms| ask(&throttle, "w1", after_ms).verdict);
        let second = Verdict::Delay(Duration::from_secs(second_s));
        assert_eq!(verdicts, [Verdict::Pass, second], "{mode} {on_silence:?}");
    }
}

#[test]
fn a_request_of_cost_zero_is_no_matter_of_the_cluster() {
    let settings = Settings { nodes: 2, ..Settings::default() };
    let throttle = throttle(10, "").in_cluster(Arc::new(Cluster::new(settings)));
    let policy = throttle.policy();
    let formula = |cost| {
        let mut request = Request::new();
        request.push(b"website", Value::Text(b"w1"));
        request.push(b"cost", Value::Number(cost));
        throttle.foresee(&policy.cases(&request), START, Sample::MIDDLE).views[0].formula.clone()
    };
    assert_eq!(formula(0), "cost 0: the request passes and is not counted");
    assert_eq!(formula(1), "the key is rarely used, so the local budget covers its 0 unreported requests");
}

#[test]
fn a_foreseen_request_has_its_own_part_of_a_fair_rate() {
    let slo_map = "0 rate=unlimited\n2001 burst=1 rate=1/s law=fair share=path max_delay=20s\n";
    let sizing = Sizing { entries_max: 10, expire: Duration::from_secs(30) };
    let throttle = Throttle::new(policy(slo_map, "w1 2001\n"), sizing, 1 << 20);
    let policy = throttle.policy();
    let request = |path: &'static [u8]| {
        let mut request = Request::new();
        request.push(b"website", Value::Text(b"w1"));
        request.push(b"path", Value::Text(path));
        request
    };
    for path in [&b"/other"[..], b"/other", b"/busy", b"/busy", b"/busy"] {
        throttle.decide_one(&request(path), START, Sample::MIDDLE);
    }
    let both = [&b"/busy"[..], b"/new"].map(|path| {
        let foreseen = throttle.foresee(&policy.cases(&request(path)), START, Sample::MIDDLE);
        // What the view shows is what the request would meet.
        assert_eq!(foreseen.views[0].judgement.verdict, foreseen.decision.verdict);
        let decided = throttle.decide_one(&request(path), START, Sample::MIDDLE).verdict;
        assert_eq!(foreseen.decision.verdict, decided);
        decided.delay_ms()
    });
    assert!(both[0] > both[1], "the busy one waits behind its own requests: {both:?}");
}
