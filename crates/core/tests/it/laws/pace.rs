//! `pace`: an exact slot for each request.

use std::time::Duration;

use proptest::prelude::*;
use slowlane_core::base::Verdict;
use slowlane_core::law::{Admission, Arrival};
use slowlane_core::table::Entry;

use super::oracle::{at_ms, closed_loop, law, objective};

#[test]
fn what_would_wait_too_long_is_denied_and_uses_no_slot() {
    let pace = law("pace", 1, "10/s", &[("max_delay", "250ms")]);
    let mut entry = Entry::default();
    let mut ask = |ms| pace.judge(&mut entry, None, &Arrival::at(at_ms(ms))).verdict;
    let ms = Duration::from_millis;
    assert_eq!(ask(0), Verdict::Pass);
    assert_eq!(ask(0), Verdict::Delay(ms(100)));
    assert_eq!(ask(0), Verdict::Delay(ms(200)));
    assert_eq!(ask(0), Verdict::Deny { retry_after_s: 1 });
    assert_eq!(ask(100), Verdict::Delay(ms(200)), "the denied one has left no trace");
}

#[test]
fn a_raised_objective_forgives_the_debt_of_the_one_before() {
    let slow = law("pace", 1, "1/s", &[("max_delay", "1h")]);
    let mut entry = Entry::default();
    for _ in 0..600 {
        slow.judge(&mut entry, None, &Arrival::at(at_ms(0)));
    }
    let fast = law("pace", 100, "50/s", &[("max_delay", "5s")]);
    let mut ask = |ms| fast.judge(&mut entry, None, &Arrival::at(at_ms(ms))).verdict;
    assert_eq!(ask(0), Verdict::Deny { retry_after_s: 1 }, "it owes no more than the longest delay");
    assert_eq!(ask(20), Verdict::Delay(Duration::from_secs(5)));
    assert_eq!(ask(10_000), Verdict::Pass);
}

#[test]
fn a_slot_that_is_taken_back_goes_to_the_next() {
    let law = law("pace", 1, "10/s", &[]);
    let mut entry = Entry::default();
    let ask = |entry: &mut Entry| law.judge(entry, None, &Arrival::at(at_ms(0))).verdict;
    ask(&mut entry);
    let second = ask(&mut entry);
    law.take_back(&mut entry, None, &Admission { cost: 1, due: at_ms(100), now: at_ms(0) });
    assert_eq!(ask(&mut entry), second);
}

#[test]
fn pace_holds_its_rate_for_any_number_of_clients() {
    for clients in [1, 2, 10, 50, 200] {
        let pace = law("pace", 100, "50/s", &[("max_delay", "5s")]);
        let mut entry = Entry::default();
        let mut released = [0u32; 40];
        closed_loop(clients, 30_000, |ms| {
            let verdict = pace.judge(&mut entry, None, &Arrival::at(at_ms(ms))).verdict;
            assert!(!matches!(verdict, Verdict::Deny { .. }), "{clients} clients at {ms} ms");
            released[((ms + verdict.delay_ms()) / 1_000) as usize] += 1;
            verdict.delay_ms()
        });
        let steady: u32 = released[5..25].iter().sum();
        assert!((999..=1_001).contains(&steady), "{clients} clients: {steady} in 20 s");
        let gpt0 = f64::from(entry.gpt0) / 1_000.0;
        assert!((gpt0 / clients as f64 - 1.0).abs() <= 0.2, "{clients} clients: gpt0 reads {gpt0}");
    }
}

proptest! {
    /// In any time T at most burst + rate * T are let through; in debt they leave a slot apart.
    #[test]
    fn pace_never_lets_more_through(
        burst in 0u32..20, count in 1u64..2_000, pauses_us in prop::collection::vec(0u64..200_000, 1..300),
    ) {
        let rate = format!("{count}/s");
        let pace = law("pace", burst, &rate, &[("max_delay", "2s")]);
        let slot_ns = objective(burst, &rate).rate.slot().as_nanos() as u64;
        let (mut entry, mut now) = (Entry::default(), at_ms(0));
        let mut released: Vec<(u64, bool)> = Vec::new();
        for pause in pauses_us {
            now = now + Duration::from_micros(pause * (pause % 3));
            match pace.judge(&mut entry, None, &Arrival::at(now)).verdict {
                Verdict::Pass => released.push((now.as_nanos(), false)),
                Verdict::Delay(wait) => released.push(((now + wait).as_nanos(), true)),
                Verdict::Deny { retry_after_s } => {
                    prop_assert!(retry_after_s >= 1);
                    let mut later = entry;
                    let back = now + Duration::from_secs(u64::from(retry_after_s));
                    let again = pace.judge(&mut later, None, &Arrival::at(back)).verdict;
                    prop_assert_ne!(again.name(), "deny", "it said to come back after {} s", retry_after_s);
                }
            }
        }
        for pair in released.windows(2) {
            prop_assert!(pair[1].0 >= pair[0].0, "released in the order of arrival");
            if pair[0].1 && pair[1].1 {
                prop_assert!(pair[1].0 - pair[0].0 >= slot_ns, "in debt they leave a slot apart");
            }
        }
        for (first, &(start, _)) in released.iter().enumerate() {
            for (count, &(end, _)) in (1u64..).zip(&released[first..]) {
                // A request takes up its slot as it leaves: the window is one slot longer than its ends.
                let most = u64::from(burst).max(1) + (end - start) / slot_ns;
                prop_assert!(count <= most, "{} in {} slots, burst {}", count, (end - start) / slot_ns, burst);
            }
        }
    }
}
