//! SLOs in work, in virtual time: what is reserved, settled and used, and which reports change nothing.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use proptest::prelude::*;
use slowlane_core::base::{Amount, Decision, Ending, KeySecret, Request, Sample, Timestamp, Value, Verdict};
use slowlane_core::cluster::{Cluster, Settings};
use slowlane_core::snapshot::{Parts, SnapshotHead, restore, save};
use slowlane_core::table::Sizing;
use slowlane_core::throttle::{Ended, Throttle};

use crate::laws::lines::{policy, throttle_of};

const SECOND_NS: u64 = 1_000_000_000;

fn at(ns: u64) -> Timestamp {
    Timestamp::from_nanos(1_000_000 * SECOND_NS + ns)
}

fn ask(throttle: &Throttle, now_ns: u64) -> Decision {
    throttle.decide_one(&Request::new(), at(now_ns), Sample::MIDDLE)
}

fn announcing(throttle: &Throttle, cost: Value<'_>) -> Decision {
    let mut request = Request::new();
    request.push(b"announced", cost);
    throttle.decide_one(&request, at(0), Sample::MIDDLE)
}

/// What a request reserves, in the unit.
fn reserved(throttle: &Throttle, decision: &Decision) -> f64 {
    let judged = decision.judged()[0];
    let policy = throttle.policy();
    policy.slo(judged.slo).unwrap().work.as_ref().unwrap().grain() * f64::from(judged.cost)
}

fn cost(units: f64) -> Ending {
    Ending { cost: Some(Amount::from_micros((units * 1e6).round() as u64)), ..Ending::default() }
}

fn end(throttle: &Throttle, decision: &Decision, ending: &Ending, now_ns: u64) -> Ended {
    throttle.end(&throttle.policy(), &decision.ticket().unwrap(), ending, at(now_ns))
}

/// 1 s/s with a burst of 4 s, and 2 s for each request: two start at once, the third waits for 2 s. The first took
/// only half a second, so that 1.5 s come back; the second took 3 s, one more than it had reserved.
#[test]
fn a_reservation_is_corrected_to_the_cost() {
    let throttle = throttle_of("0 burst=4s rate=1s/s unit=seconds reserve=2s", &[]);
    let decisions = [(); 3].map(|()| ask(&throttle, 0));
    assert_eq!(decisions.map(|decision| decision.verdict.delay_ms()), [0, 0, 2_000]);
    let row = throttle.table().get(decisions[2].key, at(0)).unwrap().0;
    assert_eq!(row.gpt0, 1_000, "one like it is ahead");
    assert_eq!(end(&throttle, &decisions[0], &cost(0.5), 0), Ended::Counted);
    assert_eq!(ask(&throttle, 0).verdict.delay_ms(), 2_500);
    assert_eq!(end(&throttle, &decisions[1], &cost(3.0), 0), Ended::Counted);
    assert_eq!(ask(&throttle, 0).verdict.name(), "deny", "5.5 s are longer than max_delay");
}

#[test]
fn windows_and_buckets_without_delays_are_corrected_too() {
    for law in ["token-bucket", "leaky-bucket", "fixed-window", "sliding-window"] {
        let throttle = throttle_of(&format!("0 burst=100 rate=100/m unit=tokens reserve=50 law={law}"), &[]);
        let [one, other, denied] = [(); 3].map(|()| ask(&throttle, 0));
        assert!(one.is_let_through() && other.is_let_through() && !denied.is_let_through(), "{law}");
        assert_eq!(denied.ticket(), None, "{law}: it has burned nothing");
        assert_eq!(end(&throttle, &one, &cost(10.0), 1), Ended::Counted);
        // 40 have come back, which is less than the next one reserves.
        assert!(!ask(&throttle, 1).is_let_through(), "{law}");
        assert_eq!(end(&throttle, &other, &cost(39.0), 2), Ended::Counted);
        assert!(ask(&throttle, 2).is_let_through(), "{law}");
    }
}

/// On a node of a cluster, whether it still counts a key by itself or shares it.
#[test]
fn what_nodes_share_is_corrected_too() {
    for (law, sharing) in [
        ("token-bucket", "rate"),
        ("token-bucket", "split"),
        ("fixed-window", "count"),
        ("sliding-window", "count"),
    ] {
        for others in [0, 60] {
            let line = format!("0 burst=100 rate=100/m unit=tokens reserve=10 law={law} cluster={sharing}");
            let cluster = Arc::new(Cluster::new(Settings { nodes: 1, ..Settings::default() }));
            cluster.set_silent(false);
            let throttle = throttle_of(&line, &[]).in_cluster(cluster);
            let before: Vec<Decision> = (0..others / 10).map(|_| ask(&throttle, 0)).collect();
            let one = ask(&throttle, 0);
            assert_eq!(end(&throttle, &one, &cost(40.0 - others as f64 / 2.0), 0), Ended::Counted);
            let left = |throttle: &Throttle| (0..).take_while(|_| ask(throttle, 0).is_let_through()).count();
            assert_eq!(left(&throttle), if others == 0 { 6 } else { 3 }, "{law} {sharing} {others}");
            for decision in before {
                assert_eq!(end(&throttle, &decision, &cost(5.0), 0), Ended::Counted);
            }
            assert_eq!(left(&throttle), others / 20, "{law} {sharing} {others}");
        }
    }
}

/// A request that costs twenty times its reservation is charged all of it, far beyond `max_delay`.
#[test]
fn a_larger_cost_is_owed_in_full() {
    let throttle = throttle_of("0 burst=10s rate=1s/s unit=seconds reserve=5s law=token-bucket", &[]);
    assert_eq!(end(&throttle, &ask(&throttle, 0), &cost(100.0), 0), Ended::Counted);
    for (second, name) in [(94, "deny"), (95, "pass")] {
        assert_eq!(ask(&throttle, second * SECOND_NS).verdict.name(), name, "{second}");
    }
}

#[test]
fn an_end_counts_once_within_its_lease_and_with_a_measure_of_its_unit() {
    let throttle = throttle_of("0 burst=10MB rate=1MB/s unit=bytes reserve=4MB lease=5s", &[]);
    let bytes =
        |bytes| Ending { bytes: Some(Amount::from_micros(bytes * Amount::UNIT)), ..Ending::default() };
    let left = |throttle: &Throttle, now_ns| {
        let policy = throttle.policy();
        let foreseen = throttle.foresee(&policy.cases(&Request::new()), at(now_ns), Sample::MIDDLE);
        foreseen.views[0].formula.clone()
    };
    let [one, other] = [(); 2].map(|()| ask(&throttle, 0));
    let seconds = Ending { seconds: Some(Amount::ZERO), ..Ending::default() };
    assert_eq!(end(&throttle, &one, &seconds, 0), Ended::Unmeasured);
    assert_eq!(end(&throttle, &one, &bytes(1_000_000), 0), Ended::Counted);
    assert_eq!(left(&throttle, 0), "used 5000000 + cost 4000000 <= burst 10000000");
    for report in [bytes(0), bytes(1_000_000), bytes(u32::MAX.into()), cost(0.0)] {
        assert_eq!(end(&throttle, &one, &report, 0), Ended::Late, "a second time");
    }
    assert_eq!(throttle.aux_store().reservations(at(0)), 1);
    assert_eq!(end(&throttle, &other, &bytes(0), 5 * SECOND_NS), Ended::Late, "after the lease");
    assert_eq!(throttle.aux_store().reservations(at(5 * SECOND_NS)), 0);
    assert_eq!(left(&throttle, 5 * SECOND_NS), "used 0 + cost 4000000 <= burst 10000000");
}

/// Its client disconnects before its turn, and its end is reported after all: nothing comes back twice.
#[test]
fn a_request_that_is_taken_back_has_cost_nothing() {
    let throttle = throttle_of("0 burst=4s rate=1s/s unit=seconds reserve=4s", &[]);
    let first = ask(&throttle, 0);
    for _ in 0..3 {
        let held = ask(&throttle, 0);
        assert_eq!(held.verdict.delay_ms(), 4_000, "each finds the same queue");
        throttle.take_back(&throttle.policy(), &held, at(0));
        assert_eq!(end(&throttle, &held, &cost(0.0), 0), Ended::Late);
    }
    assert_eq!(throttle.aux_store().reservations(at(0)), 1);
    assert_eq!(end(&throttle, &first, &cost(4.0), 0), Ended::Counted);
    assert_eq!(ask(&throttle, 0).verdict.delay_ms(), 4_000);
}

/// One cheap request, and then a crowd of dear ones: its reservations are still those of the SLO.
#[test]
fn one_cheap_request_makes_no_crowd_cheap() {
    let slos = "0 rate=unlimited\n2001 burst=20000 rate=100000/m unit=tokens\n";
    let throttle = throttle_of(slos, &[("website.map", "honest 2001\nsly 2001\n")]);
    let of = |website: &str| {
        let mut request = Request::new();
        request.push(b"website", Value::Text(website.as_bytes()));
        throttle.decide_one(&request, at(0), Sample::MIDDLE)
    };
    for _ in 0..100 {
        let decision = of("honest");
        decision.ticket().map(|_| end(&throttle, &decision, &cost(1_000.0), 0));
    }
    assert_eq!(end(&throttle, &of("sly"), &cost(1.0), 0), Ended::Counted);
    let reserved = reserved(&throttle, &of("sly"));
    assert!(reserved > 500.0, "{reserved}");
}

/// What comes after the lease may be charged, and gives nothing back.
#[test]
fn a_late_end_only_costs() {
    let throttle =
        throttle_of("0 burst=10s rate=1s/s unit=seconds reserve=5s lease=5s law=token-bucket", &[]);
    let [cheap, dear] = [(); 2].map(|()| ask(&throttle, 0));
    assert_eq!(end(&throttle, &cheap, &cost(0.0), 10 * SECOND_NS), Ended::Late);
    assert_eq!(end(&throttle, &dear, &cost(20.0), 10 * SECOND_NS), Ended::Late);
    assert_eq!(ask(&throttle, 19 * SECOND_NS).verdict.name(), "deny");
    assert_eq!(ask(&throttle, 20 * SECOND_NS).verdict.name(), "pass");
}

/// The first request of a window, at a moment that is no whole millisecond.
#[test]
fn the_request_that_begins_a_window_is_corrected_too() {
    let throttle = throttle_of("0 burst=0 rate=100/m unit=tokens reserve=100 law=fixed-window", &[]);
    let first = ask(&throttle, 400_000);
    assert!(!ask(&throttle, 500_000).is_let_through());
    assert_eq!(end(&throttle, &first, &cost(0.0), 900_000), Ended::Counted);
    assert!(ask(&throttle, 1_000_000).is_let_through());
}

/// A row must be there when the end is reported, long after the law has forgotten the request.
#[test]
fn the_end_of_a_long_request_finds_its_row() {
    let line = "0 burst=1s rate=1s/s unit=seconds reserve=1s law=token-bucket lease=2h";
    let sizing = Sizing { entries_max: 100, expire: Duration::from_secs(30) };
    let throttle = Throttle::new(policy(line, &[]), sizing, 1 << 20);
    let long = ask(&throttle, 0);
    let hour_ns = 3_600 * SECOND_NS;
    assert_eq!(end(&throttle, &long, &cost(60.0), hour_ns), Ended::Counted);
    assert_eq!(ask(&throttle, hour_ns + 58 * SECOND_NS).verdict.name(), "deny");
}

/// What a request announces is no number of requests.
#[test]
fn an_announcement_is_no_cost_under_other_slos() {
    let slos = "0 rate=unlimited\n3001 burst=10 rate=1/m also=owner law=token-bucket\n\
                1001 burst=1000 rate=1000/m unit=tokens reserve=announced\n";
    let maps = [("source.map", "192.0.2.0/24 3001\n"), ("owner.map", "ann 1001\n")];
    let throttle = throttle_of(slos, &maps);
    for (announced, left) in [(b"0", 9), (b"9", 8), (b"5", 7)] {
        let mut request = Request::new();
        request.push(b"source", Value::address("192.0.2.1".parse().unwrap()));
        request.push(b"owner", Value::Text(b"ann"));
        request.push(b"announced", Value::Text(announced));
        let decision = throttle.decide_one(&request, at(0), Sample::MIDDLE);
        assert_eq!((decision.judged().len(), decision.judged()[0].remaining), (2, left));
    }
}

/// A ticket names its key: it corrects no other.
#[test]
fn an_end_of_one_key_changes_no_other() {
    let slos = "0 rate=unlimited\n1001 burst=10 rate=1/m unit=tokens reserve=5\n";
    let throttle = throttle_of(slos, &[("owner.map", "ann 1001\nbob 1001\n")]);
    let of = |owner: &str| {
        let mut request = Request::new();
        request.push(b"owner", Value::Text(owner.as_bytes()));
        throttle.decide_one(&request, at(0), Sample::MIDDLE)
    };
    let (ann, bob) = (of("ann"), of("bob"));
    assert_eq!(end(&throttle, &ann, &cost(0.0), 0), Ended::Counted);
    let row = |decision: &Decision| throttle.table().get(decision.key, at(0)).unwrap().0;
    assert_ne!(row(&ann).state, row(&bob).state);
    assert_eq!(of("bob").remaining, 0);
    assert_ne!(of("ann").remaining, 0);
}

#[test]
fn an_announcement_is_reserved_up_to_the_burst_and_nothing_is_free() {
    let throttle = throttle_of("0 burst=1000 rate=1000/s unit=tokens reserve=announced", &[]);
    let of = |value| reserved(&throttle, &announcing(&throttle, value));
    assert_eq!(of(Value::Text(b"12.5")), 12.5);
    assert_eq!(of(Value::Number(7)), 7.0);
    assert_eq!(of(Value::Number(i64::MAX)), 50.0, "no amount: a twentieth of the burst");
    assert_eq!(of(Value::Text(b"1000000")), 1_000.0);
    assert_eq!(of(Value::Text(b"0")), 0.01, "the smallest charge");
    for nothing in ["-1", "x", "", "nan", "1e9"] {
        assert_eq!(of(Value::Text(nothing.as_bytes())), 50.0, "{nothing:?}");
    }
}

/// Thumbnails take 20 ms and reports 4 s, under one SLO for each website.
#[test]
fn each_key_learns_the_costs_of_its_own_requests() {
    let slos = "0 rate=unlimited\n2001 burst=100s rate=10s/s unit=seconds reserve=p90\n";
    let throttle = throttle_of(slos, &[("website.map", "thumbs 2001\nreports 2001\nnew 2001\n")]);
    let mut now_ns = 0;
    let mut of = |website: &str, seconds: Option<f64>| {
        let mut request = Request::new();
        request.push(b"website", Value::Text(website.as_bytes()));
        now_ns += SECOND_NS;
        let decision = throttle.decide_one(&request, at(now_ns), Sample::MIDDLE);
        seconds.inspect(|&seconds| {
            assert_eq!(end(&throttle, &decision, &cost(seconds), now_ns), Ended::Counted)
        });
        reserved(&throttle, &decision)
    };
    assert_eq!(of("new", None), 5.0, "nothing is known");
    for _ in 0..2_000 {
        of("thumbs", Some(0.02));
        of("reports", Some(4.0));
    }
    let [thumbs, reports] = [of("thumbs", None), of("reports", None)];
    assert!((0.01..0.04).contains(&thumbs) && (2.0..8.0).contains(&reports), "{thumbs} {reports}");
    let new = of("new", None);
    assert!((0.02..8.0).contains(&new), "a new key begins with the estimate of all: {new}");
}

#[test]
fn estimates_survive_a_reload_and_a_restart() {
    let line = "0 burst=100s rate=10s/s unit=seconds";
    let throttle = throttle_of(line, &[]);
    for second in 0..20 {
        end(&throttle, &ask(&throttle, second * SECOND_NS), &cost(1.0), second * SECOND_NS);
    }
    let open = ask(&throttle, 20 * SECOND_NS);
    let learned = reserved(&throttle, &open);
    assert!((0.5..2.0).contains(&learned), "{learned}");
    let now = at(20 * SECOND_NS);
    let (mut bytes, head) =
        (Vec::new(), SnapshotHead::new(now, Duration::ZERO, KeySecret::KNOWN, Vec::new()));
    save(&throttle, head, None, Some(&[]), &mut bytes).unwrap();
    throttle.replace(policy(line, &[]));
    assert_eq!(reserved(&throttle, &ask(&throttle, 20 * SECOND_NS)), learned);

    let new = throttle_of(line, &[]);
    restore(Parts::new(&bytes[..]).unwrap(), true, &new, now).unwrap();
    assert_eq!(new.aux_store().reservations(now), 1);
    assert_eq!(reserved(&new, &ask(&new, 20 * SECOND_NS)), learned);
    assert_eq!(end(&new, &open, &cost(1.0), 20 * SECOND_NS), Ended::Counted);
    assert_eq!(end(&new, &open, &cost(1.0), 20 * SECOND_NS), Ended::Late);
}

/// Clients that send their next request as soon as the last one has ended, or their `Retry-After` is over.
#[derive(Clone, Copy, Debug)]
struct Load {
    clients: usize,
    /// The median of the costs, which are log-normal with a sigma of 1.
    median: f64,
    /// How long a request takes for each unit of its cost.
    s_per_unit: f64,
    /// The part of ends that nobody reports, and of clients that disconnect before their turn.
    lost: f64,
    gone: f64,
    /// The state is written to a file and read again this often.
    restarts_s: Option<u64>,
    seconds: u64,
}

/// What has happened.
#[derive(Default)]
struct Outcome {
    /// The moment and the settled cost of each request that has passed.
    passed: BTreeMap<(u64, usize), f64>,
    /// The most that was in work at once, each request by its reservation or by its cost, if that is more.
    at_once: f64,
}

impl Outcome {
    /// The most that any stretch of time has had beyond the rate.
    fn excess(&self, per_s: f64) -> f64 {
        let (mut before_ns, mut level, mut most) = (0, 0.0_f64, 0.0_f64);
        for (&(at_ns, _), cost) in &self.passed {
            let faded = per_s * (at_ns - before_ns) as f64 / SECOND_NS as f64;
            (before_ns, level) = (at_ns, (level - faded).max(0.0) + cost);
            most = most.max(level);
        }
        most
    }

    fn sum(&self, from_s: u64, to_s: u64) -> f64 {
        self.passed.range((from_s * SECOND_NS, 0)..(to_s * SECOND_NS, 0)).map(|(_, cost)| cost).sum()
    }
}

/// A normal deviate, by Box and Muller.
fn normal(rng: &mut Rng) -> f64 {
    (-2.0 * (1.0 - rng.f64()).ln()).sqrt() * (std::f64::consts::TAU * rng.f64()).cos()
}

fn play(line: &str, load: Load, seed: u64) -> Outcome {
    let (mut throttle, mut rng, mut outcome) =
        (throttle_of(line, &[]), Rng::with_seed(seed), Outcome::default());
    // By moment: a client asks, or the request of one ends.
    let mut events: BinaryHeap<Reverse<(u64, usize, Option<usize>)>> =
        (0..load.clients).map(|client| Reverse((0, client, None))).collect();
    let (mut requests, mut at_once, mut restarted_s): (Vec<(Decision, f64, f64)>, f64, u64) =
        (Vec::new(), 0.0, 0);
    while let Some(Reverse((now_ns, client, ending))) = events.pop() {
        if now_ns > load.seconds * SECOND_NS {
            break;
        }
        if let Some(every_s) = load.restarts_s.filter(|every_s| now_ns / SECOND_NS >= restarted_s + every_s) {
            restarted_s += every_s;
            throttle = restarted(&throttle, line, now_ns);
        }
        let Some(request) = ending else {
            let decision = ask(&throttle, now_ns);
            if let Verdict::Deny { retry_after_s } = decision.verdict {
                events.push(Reverse((now_ns + u64::from(retry_after_s) * SECOND_NS, client, None)));
                continue;
            }
            let (cost, reserved) = (load.median * normal(&mut rng).exp(), reserved(&throttle, &decision));
            let due_ns = now_ns + decision.verdict.wait().as_nanos() as u64;
            if rng.f64() < load.gone && due_ns > now_ns {
                throttle.take_back(&throttle.policy(), &decision, at(now_ns));
                events.push(Reverse((now_ns + SECOND_NS / 10, client, None)));
                continue;
            }
            at_once += cost.max(reserved);
            outcome.at_once = outcome.at_once.max(at_once);
            outcome.passed.insert((due_ns, requests.len()), cost);
            requests.push((decision, cost, reserved));
            let taken_ns = (cost * load.s_per_unit * SECOND_NS as f64) as u64;
            events.push(Reverse((due_ns + taken_ns, client, Some(requests.len() - 1))));
            continue;
        };
        let (decision, units, reserved) = requests[request];
        at_once -= units.max(reserved);
        if rng.f64() < load.lost {
            let due_ns =
                decision.verdict.wait().as_nanos() as u64 + decision.at.since(at(0)).as_nanos() as u64;
            outcome.passed.insert((due_ns, request), reserved);
        } else {
            assert_eq!(end(&throttle, &decision, &cost(units), now_ns), Ended::Counted);
        }
        events.push(Reverse((now_ns, client, None)));
    }
    outcome
}

fn restarted(throttle: &Throttle, line: &str, now_ns: u64) -> Throttle {
    let (mut bytes, head) =
        (Vec::new(), SnapshotHead::new(at(now_ns), Duration::ZERO, KeySecret::KNOWN, Vec::new()));
    save(throttle, head, None, Some(&[]), &mut bytes).unwrap();
    let new = throttle_of(line, &[]);
    restore(Parts::new(&bytes[..]).unwrap(), true, &new, at(now_ns)).unwrap();
    new
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// In any time T: at most burst + rate * T, and what is in work at once.
    #[test]
    fn no_stretch_of_time_has_more_than_its_rate_and_what_is_in_work(
        law in prop::sample::select(vec!["pace", "pace max_delay=1s", "token-bucket"]),
        reserve in prop::sample::select(vec!["p50", "p90", "p99", "0.2", "5"]),
        (burst, clients) in (5u32..100, 1usize..60),
        (median, s_per_unit) in (0.05..2.0, 0.0..2.0),
        (lost, gone) in (prop::sample::select(vec![0.0, 0.1]), prop::sample::select(vec![0.0, 0.2])),
        restarts_s in prop::sample::select(vec![None, Some(7)]),
        seed: u64,
    ) {
        let line = format!("0 burst={burst} rate=10/s unit=tokens reserve={reserve} law={law} lease=1h");
        let load = Load { clients, median, s_per_unit, lost, gone, restarts_s, seconds: 60 };
        let outcome = play(&line, load, seed);
        let most = f64::from(burst) + outcome.at_once;
        prop_assert!(outcome.excess(10.0) <= most * 1.001, "{} > {most}", outcome.excess(10.0));
    }
}

/// The demand is several times the rate. Nearly all of the rate is used, although p90 reserves twice the mean.
#[test]
fn what_is_reserved_too_much_is_used_by_others() {
    for (line, s_per_unit, per_s) in [
        ("0 burst=4s rate=2s/s unit=seconds reserve=p90 max_delay=20s", 1.0, 2.0),
        ("0 burst=2000 rate=1000/s unit=tokens reserve=p90 max_delay=20s", 0.001, 1_000.0),
        ("0 burst=2000 rate=1000/s unit=tokens reserve=p90 max_delay=20s", 0.005, 1_000.0),
    ] {
        for clients in [20, 50] {
            let median = per_s / 20.0;
            let (lost, gone, restarts_s, seconds) = (0.0, 0.0, None, 1_030);
            let load = Load { clients, median, s_per_unit, lost, gone, restarts_s, seconds };
            let outcome = play(line, load, 7);
            let used = outcome.sum(30, 1_030) / (1_000.0 * per_s);
            assert!((0.99..=1.01).contains(&used), "{line}, {clients} clients: {used}");
        }
    }
}

/// An estimate that jumps with each cost would make all clients pass, and then all wait, by turns. At 20 seconds a second,
/// fifty clients whose requests take 0.9 s wait for about 1.4 s each (Little's law).
#[test]
fn fifty_clients_wait_alike_and_use_the_rate() {
    let line = "0 burst=40s rate=20s/s unit=seconds reserve=p90 max_delay=20s";
    let (clients, median, s_per_unit, lost, gone, restarts_s) = (50, 0.55, 1.0, 0.0, 0.0, None);
    let load = Load { clients, median, s_per_unit, lost, gone, restarts_s, seconds: 630 };
    for seed in 0..4 {
        let outcome = play(line, load, seed);
        let used = outcome.sum(30, 630) / (600.0 * 20.0);
        assert!((0.99..=1.01).contains(&used), "seed {seed}: {used}");
    }
}
