//! Threads whose clocks differ by a few milliseconds, and entries that rest for weeks.

use std::time::Duration;

use proptest::prelude::*;
use slowlane_core::base::{Key, Request, Sample};
use slowlane_core::table::{FreqCtr, PERIOD_MS, Sizing, Table};

use super::lines::throttle_of;
use super::oracle::{at_ms, ends};

/// Half of the events come from a thread that is behind.
#[test]
fn no_rate_is_lost_between_two_threads() {
    for behind_ms in [1, 2, 5, 50, 900] {
        let table = Table::new(Sizing { entries_max: 10, expire: Duration::from_secs(30) });
        let add = |ms| {
            table.with_batch(&[(Key::from_bits(7), Duration::ZERO)], at_ms(ms), |_, entry, now| {
                entry.ask(1_000, now);
            });
        };
        for ms in 10_000..20_000 {
            add(ms);
            add(ms - behind_ms);
            if ms >= 10_000 + 2 * u64::from(PERIOD_MS) {
                let (entry, _) = table.get(Key::from_bits(7), at_ms(ms)).unwrap();
                for read_at in [at_ms(ms), at_ms(ms - behind_ms)] {
                    let reported = entry.gpc0_rate.read(read_at.ticks_ms());
                    assert!((1_890_000..=3_900_000).contains(&reported), "{behind_ms} ms behind: {reported}");
                }
                let reported = entry.gpc0_rate.read(at_ms(ms).ticks_ms());
                assert!((1_990_000..=2_010_000).contains(&reported), "{behind_ms} ms behind: {reported}");
            }
        }
    }
}

#[test]
fn an_entry_that_rests_for_weeks_has_no_rate() {
    let mut rate = FreqCtr::default();
    (0..100).for_each(|_| rate.add(1, 5_000));
    for days in [1, 24, 25, 30, 49] {
        let now_ms = 5_000u32.wrapping_add(days * 86_400_000);
        assert_eq!(rate.read(now_ms), 0, "after {days} days");
        let mut later = rate;
        later.add(7, now_ms);
        assert_eq!(later.read(now_ms), 7, "after {days} days");
    }
}

/// The throttle under one SLO, with the requests of one key, one per millisecond. Every second one comes from a thread
/// that is behind. Returns how many are let through at once.
fn let_through(line: &str, behind_ms: u64) -> u32 {
    let throttle = throttle_of(&format!("0 {line}"), &[]);
    let ask = |ms: u64| {
        let now = at_ms(100_000 + ms - if ms % 2 == 1 { behind_ms } else { 0 });
        throttle.decide_one(&Request::new(), now, Sample::MIDDLE).verdict
    };
    (0..20_000).map(ask).map(|verdict| u32::from(verdict.is_let_through())).sum()
}

#[test]
fn no_law_forgets_what_another_thread_has_counted() {
    for line in [
        "burst=9 rate=100/s",
        "burst=9 rate=100/s law=fair",
        "burst=9 rate=100/s law=token-bucket",
        "burst=9 rate=100/s law=leaky-bucket",
        "burst=0 rate=100/s law=fixed-window",
        "burst=0 rate=100/s law=sliding-window",
        "burst=0 rate=100/s law=sliding-window window=100ms",
        "burst=0 rate=100/s law=sketch",
        "burst=0 rate=100/s law=sketch window=100ms",
        "burst=0 rate=100/s law=sliding-buckets",
        "burst=0 rate=100/s law=sliding-buckets window=100ms",
        "burst=0 rate=100/s law=sliding-log",
    ] {
        let exact = let_through(line, 0);
        for behind_ms in [1, 3, 11, 40, 900] {
            let reported = let_through(line, behind_ms);
            let error = reported.abs_diff(exact);
            assert!(error <= exact / 20, "{line}, {behind_ms} ms behind: {reported} instead of {exact}");
        }
    }
}

/// A thread that is behind asks in the quarter of the lease before: the ticket has the moment of the row, not the
/// thread's.
#[test]
fn a_request_of_a_thread_that_is_behind_ends_in_the_quarter_that_counted_it() {
    let throttle = throttle_of("0 burst=0 rate=1/s law=concurrency max=1 lease=4s", &[]);
    let ask = |now_ms| throttle.decide_one(&Request::new(), at_ms(now_ms), Sample::MIDDLE);
    let first = ask(101_001).ticket().unwrap();
    assert!(ends(&throttle, &first, at_ms(101_001)));
    let behind = ask(100_999).ticket().unwrap();
    assert!(ends(&throttle, &behind, at_ms(101_001)));
    assert!(ask(101_001).is_let_through());
}

/// What a thread that is behind takes back is taken out of the window that counted it.
#[test]
fn a_client_of_a_thread_that_is_behind_leaves_the_window_that_counted_it() {
    for law in ["fixed-window", "sliding-window", "sliding-buckets", "sliding-log"] {
        let throttle = throttle_of(&format!("0 burst=0 rate=2/s law={law}"), &[]);
        let ask = |now_ms| throttle.decide_one(&Request::new(), at_ms(now_ms), Sample::MIDDLE);
        assert!(ask(101_001).is_let_through());
        let behind = ask(100_999);
        assert!(behind.is_let_through() && !ask(101_001).is_let_through(), "{law}");
        throttle.take_back(&throttle.policy(), &behind, at_ms(101_002));
        assert!(ask(101_003).is_let_through(), "{law}");
    }
}

proptest! {
    /// No end is lost, and no lease is made longer, by a thread that is behind.
    #[test]
    fn what_is_in_flight_ends_although_a_thread_is_behind(
        steps in prop::collection::vec((0u64..400, 0u64..9, any::<bool>()), 1..200),
    ) {
        let throttle = throttle_of("0 burst=0 rate=1/s law=concurrency max=3 lease=4s", &[]);
        let ask = |now| throttle.decide_one(&Request::new(), now, Sample::MIDDLE);
        let (mut now_ms, mut open) = (100_000, Vec::new());
        for (pause_ms, behind_ms, is_end) in steps {
            now_ms += pause_ms;
            let now = at_ms(now_ms - behind_ms);
            open.retain(|&(begun, _)| now_ms - begun < 2_900);
            if let (true, Some((_, ticket))) = (is_end, open.pop()) {
                prop_assert!(ends(&throttle, &ticket, now));
                continue;
            }
            open.extend(ask(now).ticket().map(|ticket| (now_ms, ticket)));
            prop_assert!(open.len() <= 3);
        }
        let later = at_ms(now_ms) + Duration::from_secs(5);
        prop_assert_eq!([(); 4].map(|()| ask(later).is_let_through()), [true, true, true, false]);
    }
}
