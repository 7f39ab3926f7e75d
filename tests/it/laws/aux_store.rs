//! Auxiliary states: their memory limit, and the fallback of laws without room.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use allocation_counter::measure;
use proptest::prelude::*;
use slowlane::observe::status::Why;
use slowlane_core::base::{Key, Request, Sample, Timestamp, Value, counted};
use slowlane_core::law::Arrival;
use slowlane_core::table::Sizing;
use slowlane_core::throttle::AuxStore;
use slowlane_core::throttle::Throttle;

use super::lines::policy;
use super::oracle::{Admissions, SECOND_NS, Subject, arrivals, at_ms, schedule};

const LAWS: [(&str, &str); 2] = [("fair", "pace"), ("sliding-log", "sliding-window")];

fn throttle(slo: &str, annex_bytes_max: usize) -> Throttle {
    let sizing = Sizing { entries_max: 100_000, expire: Duration::from_secs(1) };
    let slo_map = format!("0 burst=1 rate=1/s\n2001 {slo}\n");
    let websites: String = (0..200).map(|number| format!("w{number} 2001\n")).collect();
    Throttle::new(policy(&slo_map, &[("website.map", &websites)]), sizing, annex_bytes_max)
}

fn ask(throttle: &Throttle, website: usize, arrival: &Arrival) -> slowlane_core::base::Decision {
    let (website, source) = (format!("w{website}"), format!("192.0.2.{}", arrival.sharer));
    let mut request = Request::new();
    request.push(b"website", Value::Text(website.as_bytes()));
    request.push(b"source", Value::address(source.parse().unwrap()));
    request.push(b"cost", Value::Number(arrival.cost.into()));
    throttle.decide_one(&request, arrival.now, arrival.sample)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Without room for auxiliary state, every request is judged by the simpler law, and counted as such.
    #[test]
    fn without_room_the_simpler_law_judges(steps in schedule(100, 4)) {
        for (law, simpler) in LAWS {
            let [alone, simple] = [(law, 0), (simpler, 1 << 20)]
                .map(|(law, bytes)| throttle(&format!("burst=4 rate=9/s law={law}"), bytes));
            for arrival in arrivals(&steps) {
                let (ours, theirs) = (ask(&alone, 1, &arrival), ask(&simple, 1, &arrival));
                prop_assert_eq!((ours.verdict, ours.remaining), (theirs.verdict, theirs.remaining));
            }
            prop_assert_eq!(alone.aux_usage().fallbacks, steps.len() as u64);
            prop_assert_eq!(simple.aux_usage().fallbacks, 0);
        }
    }

    /// With any room, and with expired auxiliary state still in memory, the foreseen decision equals the real one, by the same
    /// law.
    #[test]
    fn it_is_foreseen_whether_there_is_room(
        steps in prop::collection::vec((0usize..6, 1u32..4, prop_oneof![0u64..300, 500u64..4_000]), 1..60),
        bytes_max in 200usize..4_000,
    ) {
        for (law, _) in LAWS {
            let throttle = throttle(&format!("burst=4 rate=9/s law={law}"), bytes_max);
            let mut now_ms = 60_000;
            for &(website, cost, pause_ms) in &steps {
                now_ms += pause_ms;
                let (name, source) = (format!("w{website}"), "192.0.2.0".parse().unwrap());
                let mut request = Request::new();
                request.push(b"website", Value::Text(name.as_bytes()));
                request.push(b"source", Value::address(source));
                request.push(b"cost", Value::Number(cost.into()));
                let (now, fallbacks) = (at_ms(now_ms), throttle.aux_usage().fallbacks);
                if pause_ms % 2 == 0 {
                    throttle.sweep(now);
                }
                let why = Why::of(&throttle, &request, now);
                let decision = throttle.decide_one(&request, now, Sample::MIDDLE);
                let falls_back = throttle.aux_usage().fallbacks > fallbacks;
                prop_assert_eq!(why.slos[0].formula.starts_with("no auxiliary memory is left"), falls_back, "{}: {}", law, why);
                prop_assert_eq!(why.outcome.delay_ms, decision.verdict.delay_ms());
                prop_assert_eq!((why.outcome.verdict.name(), why.outcome.remaining), (decision.verdict.name(), counted(decision.remaining)));
            }
        }
    }

    /// Keys come and go. The memory never exceeds its limit, and each key keeps the bound of the simpler law, even if its
    /// law falls back and returns often.
    #[test]
    fn who_falls_back_and_returns_keeps_the_bound(
        steps in schedule(400, 3), websites in prop::collection::vec(0..6usize, 400), room in 300..3_000usize,
    ) {
        for (law, _) in LAWS {
            let throttle = throttle(&format!("burst=4 rate=9/s law={law} {}", if law == "fair" { "sources_max=8" } else { "" }), room);
            let mut admissions = vec![Admissions::default(); 6];
            for (arrival, &website) in arrivals(&steps).zip(&websites) {
                let arrival = Arrival { sample: Sample::MIDDLE, ..arrival };
                throttle.sweep(arrival.now);
                let decision = ask(&throttle, website, &arrival);
                admissions[website].note(arrival, decision.verdict);
                prop_assert!(throttle.aux_usage().bytes <= room as u64);
            }
            for admissions in admissions {
                match law {
                    "fair" => {
                        let slot_ns = Subject::new("burst=4 rate=9/s").slot_ns();
                        prop_assert_eq!(admissions.past_bucket(4, slot_ns), None);
                    }
                    _ => prop_assert!(admissions.most_in(SECOND_NS) <= 17, "{}", admissions.most_in(SECOND_NS)),
                }
            }
        }
    }
}

/// The accounted bytes equal the bytes of the allocator, key by key.
#[test]
fn the_bytes_that_are_counted_are_those_that_are_held() {
    for line in [
        "burst=4 rate=100/s law=fair",
        "burst=4 rate=100/s law=fair sources_max=1",
        "burst=4 rate=100/s law=sliding-log",
    ] {
        let law = Subject::new(line).law;
        let aux_store = AuxStore::new(64 << 20);
        let taken = measure(|| {
            for request in 0..20_000u64 {
                let arrival = Arrival { sharer: request % 40, ..Arrival::at(at_ms(request / 400)) };
                let mut entry = slowlane_core::table::Entry::default();
                let key = Key::from_bits((request % 500).wrapping_mul(0x9E37_79B9_7F4A_7C15));
                aux_store.with(key, &law, 1, arrival.now, |aux| law.judge(&mut entry, aux, &arrival));
            }
        });
        let (held, counted) = (taken.bytes_current as f64, aux_store.bytes() as f64);
        assert!(counted > 50_000.0, "{line}: {counted}");
        // A hash table that has just grown is partly empty.
        assert!((0.8..1.1).contains(&(held / counted)), "{line}: {held} are held, {counted} are counted");
    }
}

#[test]
fn what_expires_makes_room_for_others() {
    for (law, _) in LAWS {
        let throttle = throttle(&format!("burst=4 rate=10/s law={law}"), 16 << 10);
        let second = |second: u64| Arrival::at(at_ms(1_000 * second));
        let mut fallbacks = [0; 3];
        // The auxiliary states are full; a minute later all have expired.
        for (round, after_s) in [(0, 0), (1, 1), (2, 60)] {
            let before = throttle.aux_usage().fallbacks;
            throttle.sweep(second(after_s).now);
            let websites = if round == 1 { 100..200 } else { 0..200 };
            for website in websites.step_by(if round == 2 { 40 } else { 1 }) {
                ask(&throttle, website, &second(after_s));
                ask(&throttle, website, &second(after_s));
            }
            fallbacks[round] = throttle.aux_usage().fallbacks - before;
            assert!(throttle.aux_usage().bytes <= 16 << 10);
        }
        assert!(fallbacks[0] > 0 && fallbacks[1] > 0, "{law}: {fallbacks:?}");
        assert_eq!(fallbacks[2], 0, "{law}: {fallbacks:?}");
    }
}

#[test]
fn a_log_that_is_full_needs_no_more_room() {
    // 16 admissions fill what a log takes up for 16; the 17th is denied, and takes nothing.
    let slo = "burst=0 rate=16/s law=sliding-log";
    let exact = throttle(slo, 1 << 20);
    (0..16).for_each(|_| assert!(ask(&exact, 1, &Arrival::at(at_ms(0))).is_let_through()));
    let bytes = exact.aux_usage().bytes as usize;
    let throttle = throttle(slo, bytes);
    let names: Vec<_> = (0..20).map(|_| ask(&throttle, 1, &Arrival::at(at_ms(0))).verdict.name()).collect();
    assert_eq!(names.iter().filter(|name| **name == "pass").count(), 16);
    assert_eq!(throttle.aux_usage().fallbacks, 0);
}

/// A flood of keys from several threads, and one thread that reads the usage.
#[test]
fn a_flood_of_keys_never_takes_more_than_it_may() {
    const ROOM: usize = 64 << 10;
    for line in ["burst=4 rate=50/s law=fair sources_max=16", "burst=4 rate=50/s law=sliding-log"] {
        let law = Subject::new(line).law;
        let aux_store = AuxStore::new(ROOM);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let flood = |thread: u64| {
                for request in 0..20_000u64 {
                    let arrival = Arrival {
                        sharer: request,
                        cost: 1 + request as u32 % 5,
                        ..Arrival::at(now(request))
                    };
                    let key =
                        Key::from_bits((thread + 4 * (request % 1_000)).wrapping_mul(0x9E37_79B9_7F4A_7C15));
                    let mut entry = slowlane_core::table::Entry::default();
                    aux_store.with(key, &law, arrival.cost, arrival.now, |aux| {
                        law.judge(&mut entry, aux, &arrival);
                    });
                    assert!(aux_store.bytes() <= ROOM as u64);
                }
            };
            let floods: Vec<_> = (0..3).map(|thread| scope.spawn(move || flood(thread))).collect();
            let looker = scope.spawn(|| {
                let mut most = 0;
                while !is_over.load(Relaxed) {
                    most = most.max(aux_store.bytes());
                }
                most
            });
            floods.into_iter().for_each(|flood| flood.join().unwrap());
            is_over.store(true, Relaxed);
            let most = looker.join().unwrap();
            assert!(most <= ROOM as u64, "{line}: {most}");
        });
        assert!(aux_store.bytes() > ROOM as u64 / 2, "{line}: it was full");
    }
}

fn now(request: u64) -> Timestamp {
    at_ms(request / 10)
}
