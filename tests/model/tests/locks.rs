//! Two threads in one throttle, in every order that loom finds: nothing is lost, no clock goes back, nobody waits for ever.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use loom::model::Builder;
use loom::thread;
use slowlane_model::base::{Decision, Decisions, Key, Request, Sample, Timestamp, Value};
use slowlane_model::law::{Arrival, Law, Objective, Options};
use slowlane_model::policy::{Batch, Layout, Policy};
use slowlane_model::table::{Entry, Sizing, Table};
use slowlane_model::throttle::Throttle;

/// In words of eight bytes. A batch does not fit the 32 KiB that loom gives to a thread.
const STACK_WORDS: usize = 1 << 16;

/// Switches from a thread that could go on, at most. A third makes minutes of a second, and has found nothing here.
const PREEMPTIONS: usize = 2;

/// The moment of the thread that is right, and that of the thread that has read its clock too early.
const NOW: Timestamp = Timestamp::from_millis(1_700_000_001_000);
const STALE: Timestamp = Timestamp::from_millis(1_700_000_000_999);

/// Room for two shards.
const SIZING: Sizing = Sizing { entries_max: 8_192, expire: Duration::from_secs(30) };

fn explore(scenario: impl Fn() + Copy + Send + Sync + 'static) {
    let mut model = Builder::new();
    model.preemption_bound = Some(PREEMPTIONS);
    model.check(move || run(scenario).join().unwrap());
}

fn run(work: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
    thread::Builder::new().stack_size(STACK_WORDS).spawn(work).unwrap()
}

/// Runs both at the same time.
fn both(one: impl FnOnce() + Send + 'static, other: impl FnOnce() + Send + 'static) {
    let one = run(one);
    let other = run(other);
    one.join().unwrap();
    other.join().unwrap();
}

fn throttle(slo_map: &'static str, annex_bytes_max: usize) -> Arc<Throttle> {
    let read = |path: &Path| match path.to_str() {
        Some("slo.map") => Ok(slo_map.into()),
        Some("website.map") => Ok(b"a 2001\nb 2001\nc 2001\nd 2001\n".to_vec()),
        Some("owner.map") => Ok(b"a 1001\nb 1001\nc 1001\nd 1001\n".to_vec()),
        _ => Err(io::ErrorKind::NotFound.into()),
    };
    let policy = Policy::parse(Path::new(""), &Layout::default(), read).unwrap();
    Arc::new(Throttle::new(policy, SIZING, annex_bytes_max))
}

fn request<'a>(website: &'a str, owner: &'a str) -> Request<'a> {
    let mut request = Request::new();
    request.push(b"website", Value::Text(website.as_bytes()));
    request.push(b"owner", Value::Text(owner.as_bytes()));
    request
}

fn decide(throttle: &Throttle, request: &Request<'_>, now: Timestamp) -> Decision {
    throttle.decide_one(request, now, Sample::MIDDLE)
}

/// Of each SLO that a request falls under.
fn keys(throttle: &Throttle, request: &Request<'_>) -> Vec<Key> {
    throttle.policy().cases(request).list.iter().map(|case| case.key).collect()
}

fn entry(throttle: &Throttle, key: Key) -> Entry {
    throttle.table().get(key, NOW).unwrap().0
}

/// As in the model's spread.
fn shard(key: Key) -> u64 {
    key.bits() >> 61 & 1
}

#[test]
fn no_request_of_a_batch_is_lost() {
    const SLO_MAP: &str = "0 burst=1 rate=9/s law=fixed-window\n1001 rate=unlimited\n\
                           2001 burst=1 rate=9/s law=token-bucket\n";
    explore(|| {
        let throttle = throttle(SLO_MAP, 0);
        decide(&throttle, &Request::new(), Timestamp::from_millis(1_699_999_999_500));
        let batch = |throttle: Arc<Throttle>, now| {
            move || {
                let policy = throttle.policy();
                let mut batch = Batch::of(&policy);
                for request in [Request::new(), request("a", ""), Request::new()] {
                    batch.push(&request);
                }
                let mut decisions = Decisions::new();
                throttle.decide(&batch, now, &mut || Sample::MIDDLE, &mut decisions);
                let entry = entry(&throttle, keys(&throttle, &Request::new())[0]);
                // One of them has left the second that counts.
                assert!(entry.gpc0_rate.read(now.ticks_ms()) >= entry.http_req_cnt - 1, "{entry:?}");
            }
        };
        both(batch(throttle.clone(), NOW), batch(throttle.clone(), STALE));
        let counted = |request: &Request<'_>| {
            let entry = entry(&throttle, keys(&throttle, request)[0]);
            (entry.http_req_cnt, entry.gpc0_rate.read(NOW.ticks_ms()), entry.gpc1_rate.read(NOW.ticks_ms()))
        };
        assert_eq!(counted(&Request::new()), (5, 4, 4));
        assert_eq!(counted(&request("a", "")), (2, 2, 1));
    });
}

/// Judges one request of a key under a law, as a way through the table allows.
type Ask = fn(&Table, &Law, Timestamp) -> bool;

/// Of two requests in one moment at most one passes: the bucket has one token, and the next comes a millisecond later.
fn expect_one_token(ask: Ask) {
    explore(move || {
        let table = Arc::new(Table::new(SIZING));
        let objective = Objective { burst: 1, rate: "1000/s".parse().unwrap() };
        let law = Law::new("token-bucket", objective, Options::default()).unwrap();
        let (right, stale) = ((table.clone(), law), (table, law));
        let twice = move || {
            let passed = [NOW; 2].map(|now| ask(&right.0, &right.1, now));
            assert_ne!(passed, [true, true], "two in one moment");
        };
        both(twice, move || {
            ask(&stale.0, &stale.1, STALE);
        });
    });
}

const KEY: Key = Key::from_bits(7);

#[test]
fn a_thread_with_a_stale_clock_gives_no_token_twice() {
    expect_one_token(|table, law, now| {
        let mut passed = false;
        table.with_batch(&[(KEY, law.memory())], now, |_, entry, now| {
            passed = law.judge(entry, None, &Arrival::at(now)).verdict.is_let_through();
        });
        passed
    });
}

#[test]
fn nor_does_it_where_an_entry_is_one_of_several() {
    expect_one_token(|table, law, now| {
        table.with_each(&[(KEY, law.memory())], now, false, |entries, now| {
            law.judge(&mut entries[0], None, &Arrival::at(now)).verdict.is_let_through()
        })
    });
}

/// The model can tell: with the moment of the caller instead of the shard's it finds the second token.
#[test]
#[should_panic = "two in one moment"]
fn without_the_moment_of_the_shard_the_model_fails() {
    expect_one_token(|table, law, now| {
        table.with(KEY, now, law.memory(), |entry| {
            law.judge(entry, None, &Arrival::at(now)).verdict.is_let_through()
        })
    });
}

#[test]
fn a_reader_with_a_stale_clock_is_told_no_rate_below_what_happened() {
    explore(|| {
        let throttle = throttle("0 burst=9 rate=9/s\n1001 rate=unlimited\n2001 rate=unlimited\n", 0);
        let (writer, reader) = (throttle.clone(), throttle);
        both(
            move || {
                decide(&writer, &Request::new(), NOW);
                decide(&writer, &Request::new(), NOW);
            },
            move || {
                let key = keys(&reader, &Request::new())[0];
                let Some((entry, _)) = reader.table().get(key, STALE) else { return };
                assert!(entry.gpc0_rate.read(STALE.ticks_ms()) >= entry.http_req_cnt, "{entry:?}");
            },
        );
    });
}

#[test]
fn requests_under_several_slos_wait_for_each_other_and_none_passes_twice() {
    explore(|| {
        let slo_map = "0 rate=unlimited\n1001 burst=1 rate=1/d law=token-bucket\n\
                       2001 burst=1 rate=1/d law=token-bucket also=owner\n";
        let throttle = throttle(slo_map, 0);
        // One meets the shards in one order, the other in the other.
        let order = |[website, owner]: [&str; 2]| {
            let keys = keys(&throttle, &request(website, owner));
            [shard(keys[0]), shard(keys[1])]
        };
        let names = ["a", "b", "c", "d"];
        let pairs: Vec<[&'static str; 2]> =
            names.iter().flat_map(|one| names.map(|other| [*one, other])).collect();
        let one = *pairs.iter().find(|&&pair| order(pair) == [0, 1]).expect("a name for each shard");
        let other = *pairs.iter().find(|&&pair| order(pair) == [1, 0]).expect("a name for each shard");
        let ask = |throttle: Arc<Throttle>, pairs: [[&'static str; 2]; 2], now| {
            move || {
                for [website, owner] in pairs {
                    decide(&throttle, &request(website, owner), now);
                }
            }
        };
        both(ask(throttle.clone(), [one, other], NOW), ask(throttle.clone(), [other, one], STALE));
        for [website, owner] in [one, other] {
            for key in keys(&throttle, &request(website, owner)) {
                let entry = entry(&throttle, key);
                assert_eq!((entry.http_req_cnt, entry.gpc1_rate.curr_ctr), (2, 1), "{entry:?}");
            }
        }
    });
}

/// A use of the side store, of a thread.
type Use = fn(&Throttle, Decision);

/// The side store while a decision writes to it, and after: never more than its bound, and nothing left of what was
/// forgotten.
fn expect_side_store(other: Use) {
    const BYTES_MAX: usize = 4_096;
    explore(move || {
        let slo_map = "0 burst=1 rate=2/s law=sliding-log\n2001 burst=1 rate=9/m law=fair also=owner\n\
                       1001 burst=1 rate=9/m law=sliding-log\n";
        let throttle = throttle(slo_map, BYTES_MAX);
        let begun = decide(&throttle, &request("a", "a"), STALE);
        assert!(begun.is_let_through() && throttle.aux_usage().bytes > 0);
        let (one, two) = (throttle.clone(), throttle.clone());
        both(
            move || {
                decide(&one, &request("a", "b"), NOW);
                assert!(one.aux_usage().bytes <= BYTES_MAX as u64);
            },
            move || other(&two, begun),
        );
        for request in [request("a", "a"), request("a", "b"), Request::new()] {
            keys(&throttle, &request).into_iter().for_each(|key| throttle.forget(key, |_| true));
        }
        assert_eq!(throttle.aux_usage().bytes, 0);
        assert_eq!(throttle.usage().entries, 0);
    });
}

#[test]
fn the_side_store_is_written_by_two_decisions() {
    expect_side_store(|throttle, _| {
        decide(throttle, &request("a", "a"), NOW);
    });
}

#[test]
fn the_side_store_is_written_by_a_decision_while_another_is_taken_back() {
    expect_side_store(|throttle, begun| throttle.take_back(&throttle.policy(), &begun, NOW));
}

#[test]
fn the_side_store_is_written_by_a_decision_while_an_operator_asks_why() {
    expect_side_store(|throttle, _| {
        let policy = throttle.policy();
        throttle.foresee(&policy.cases(&request("a", "a")), NOW + Duration::from_secs(40), Sample::MIDDLE);
    });
}

#[test]
fn the_side_store_is_written_by_a_decision_while_it_is_swept() {
    expect_side_store(|throttle, _| throttle.sweep(NOW + Duration::from_secs(31)));
}

#[test]
fn the_side_store_is_written_by_a_decision_while_its_key_is_forgotten() {
    expect_side_store(|throttle, _| {
        keys(throttle, &request("a", "a")).into_iter().for_each(|key| throttle.forget(key, |_| true));
    });
}

/// Two threads ask for the last place of a key, around the turn of a window: one gets it, and no count is lost.
#[test]
fn two_threads_never_get_one_place_of_a_sketch() {
    explore(|| {
        let slo_map = "0 burst=0 rate=1/s law=sketch error=0.5 confidence=0.9\n1001 rate=unlimited\n\
                       2001 rate=unlimited\n";
        let throttle = throttle(slo_map, 0);
        let ask = |throttle: Arc<Throttle>, now| {
            move || u32::from(decide(&throttle, &Request::new(), now).is_let_through())
        };
        // The first window of the sketch ends between the two clocks.
        let begun = ask(throttle.clone(), STALE)();
        let (one, other) = (ask(throttle.clone(), NOW), ask(throttle.clone(), STALE));
        both(
            move || assert_eq!(one(), 0, "half a second of the window before must pass first"),
            move || assert_eq!(other(), 0),
        );
        assert_eq!(begun, 1);
        let later = ask(throttle.clone(), NOW + Duration::from_millis(1_000));
        assert_eq!([later(), later()], [1, 0]);
    });
}

#[test]
fn one_of_two_threads_gets_the_last_place_of_a_sketch() {
    explore(|| {
        let slo_map = "0 burst=0 rate=2/s law=sketch error=0.5 confidence=0.9\n1001 rate=unlimited\n\
                       2001 rate=unlimited\n";
        let throttle = throttle(slo_map, 0);
        let passed = Arc::new(loom::sync::atomic::AtomicU32::new(0));
        let ask = |passed: Arc<loom::sync::atomic::AtomicU32>, throttle: Arc<Throttle>| {
            move || {
                for _ in 0..2 {
                    let is_let_through = decide(&throttle, &Request::new(), NOW).is_let_through();
                    passed.fetch_add(u32::from(is_let_through), loom::sync::atomic::Ordering::Relaxed);
                }
            }
        };
        both(ask(passed.clone(), throttle.clone()), ask(passed.clone(), throttle));
        let passed = passed.load(loom::sync::atomic::Ordering::Relaxed);
        assert!((1..=2).contains(&passed), "{passed}");
    });
}
