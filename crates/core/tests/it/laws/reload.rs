//! Entries after a change of policy: they stay valid under the same law, and do no harm under another one.

use std::time::Duration;

use proptest::prelude::*;
use slowlane_core::base::{Request, Sample};
use slowlane_core::law::Law;
use slowlane_core::table::Sizing;
use slowlane_core::throttle::Throttle;

use super::lines::{policy, throttle_of};
use super::oracle::{arrivals, ends, schedule};

/// SLOs that must not share an entry: each law, and the laws that number windows with windows of their own.
const EDITS: [&str; 18] = [
    "rate=10/s law=adaptive",
    "rate=10/s law=pace",
    "rate=10/s law=fair",
    "rate=10/s law=token-bucket",
    "rate=10/s law=leaky-bucket",
    "rate=1000/d law=fixed-window",
    "rate=10/s law=sliding-window",
    "rate=10/h law=sliding-window",
    "rate=10/s law=sliding-buckets",
    "rate=10/h law=sliding-buckets",
    "rate=9000/h law=sliding-buckets",
    "rate=10/s law=sliding-log",
    "rate=10/h law=sliding-log",
    "rate=10/s law=sketch",
    "rate=10/h law=sketch",
    "rate=10/s law=sketch error=0.01",
    "rate=10/s law=concurrency",
    "rate=10/s law=concurrency lease=1s",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_reload_of_the_same_policy_changes_no_verdict(
        law in prop::sample::select(Law::NAMES), steps in schedule(60, 1),
    ) {
        let line = format!("0 burst=5 rate=10/s law={law}");
        let throttles = [throttle_of(&line, &[]), throttle_of(&line, &[])];
        for arrival in arrivals(&steps) {
            throttles[1].replace(policy(&line, &[]));
            let [left_alone, reloaded] =
                throttles.each_ref().map(|one| one.decide_one(&Request::new(), arrival.now, arrival.sample));
            prop_assert_eq!(left_alone, reloaded, "{}", law);
        }
    }

    /// After an edit of the law, or of the window that its counts are for, a key is as good as new at once.
    #[test]
    fn no_law_reads_what_another_has_written(
        from in 0..EDITS.len(), to in 0..EDITS.len(), steps in schedule(60, 1),
    ) {
        let line = |number: usize| format!("0 burst=5 {}", EDITS[number]);
        prop_assume!(from != to);
        let (throttle, fresh) = (throttle_of(&line(from), &[]), throttle_of(&line(to), &[]));
        let mut now = None;
        for arrival in arrivals(&steps) {
            throttle.decide_one(&Request::new(), arrival.now, arrival.sample);
            now = Some(arrival.now);
        }
        let Some(now) = now else { return Ok(()) };
        throttle.replace(policy(&line(to), &[]));
        for _ in 0..9 {
            let decide = |throttle: &Throttle| throttle.decide_one(&Request::new(), now, Sample::MIDDLE);
            let (known, new) = (decide(&throttle), decide(&fresh));
            prop_assert_eq!(
                (known.verdict, known.remaining), (new.verdict, new.remaining), "{} to {}", EDITS[from], EDITS[to]
            );
        }
    }

    /// Any law after any other: nothing panics, and after the new law's memory, verdicts are those of a new entry.
    #[test]
    fn another_law_for_the_same_key_is_soon_as_good_as_new(
        laws in prop::collection::vec(prop::sample::select(Law::NAMES), 2..6), steps in schedule(120, 1),
    ) {
        let line = |law: &str| format!("0 burst=5 rate=10/s law={law}");
        let throttle = throttle_of(&line(laws[0]), &[]);
        let mut now = None;
        for (number, arrival) in arrivals(&steps).enumerate() {
            if number % 7 == 6 {
                throttle.replace(policy(&line(laws[number / 7 % laws.len()]), &[]));
            }
            let decision = throttle.decide_one(&Request::new(), arrival.now, arrival.sample);
            if number % 3 == 0 {
                throttle.take_back(&throttle.policy(), &decision, arrival.now);
            }
            if let Some(ticket) = decision.ticket().filter(|_| number % 5 == 0) {
                ends(&throttle, &ticket, arrival.now);
            }
            now = Some(arrival.now);
        }
        let Some(now) = now else { return Ok(()) };
        for law in Law::NAMES.iter().filter(|law| **law != "adaptive") {
            let sizing = Sizing { entries_max: 10, expire: Duration::from_secs(1) };
            throttle.replace(policy(&line(law), &[]));
            let fresh = Throttle::new(policy(&line(law), &[]), sizing, 1 << 20);
            throttle.decide_one(&Request::new(), now, Sample::MIDDLE);
            // The longest of all is a lease of a minute.
            let later = now + Duration::from_secs(61);
            let decide = |throttle: &Throttle| throttle.decide_one(&Request::new(), later, Sample::MIDDLE);
            let (known, new) = (decide(&throttle), decide(&fresh));
            prop_assert_eq!((known.verdict, known.remaining), (new.verdict, new.remaining), "{} after {:?}", law, laws);
        }
    }
}
