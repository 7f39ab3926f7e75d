//! `token-bucket` against governor, and `leaky-bucket`, its other name.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::FakeRelativeClock;
use governor::{Quota, RateLimiter};
use proptest::prelude::*;
use slowlane_core::base::Verdict;

use super::oracle::{Admissions, SECOND_NS, Subject, at_ms, at_ns, close_arrivals, law, objective, schedule};
use slowlane_core::law::Arrival;

proptest! {
    /// Governor's limiter of the same slot and burst says the same at every nanosecond, and how long to wait.
    #[test]
    fn token_bucket_is_governors(
        burst in 1..30u32, count in 1..2_000u64, is_per_minute: bool, steps in schedule(200, 35),
    ) {
        let rate = format!("{count}/{}", if is_per_minute { "m" } else { "s" });
        let mut subject = Subject::new(&format!("burst={burst} rate={rate} law=token-bucket"));
        let clock = FakeRelativeClock::default();
        let quota = Quota::with_period(Duration::from_nanos(subject.slot_ns())).unwrap();
        let quota = quota.allow_burst(NonZeroU32::new(burst).unwrap());
        let governor = RateLimiter::direct_with_clock(quota, clock.clone());
        let mut last = at_ns(0);
        for arrival in close_arrivals(&steps, subject.slot_ns()) {
            clock.advance(arrival.now.since(last));
            last = arrival.now;
            let verdict = subject.judge(arrival).verdict;
            let theirs = governor.check_n(NonZeroU32::new(arrival.cost).unwrap());
            let want = match theirs {
                Ok(Ok(())) => Verdict::Pass,
                Ok(Err(not_until)) => {
                    let wait = not_until.wait_time_from(governor::clock::Clock::now(&clock));
                    let retry_after_s = (wait.as_nanos().div_ceil(u128::from(SECOND_NS)) as u32).max(1);
                    Verdict::Deny { retry_after_s }
                }
                Err(_) => Verdict::Deny { retry_after_s: Verdict::NEVER_S },
            };
            prop_assert_eq!(verdict, want, "{:?}", arrival);
        }
    }

    #[test]
    fn leaky_bucket_is_token_bucket(
        burst in 0..30u32, count in 1..2_000u64, steps in schedule(200, 35),
    ) {
        let line = format!("burst={burst} rate={count}/s");
        let mut token = Subject::new(&format!("{line} law=token-bucket"));
        let mut leaky = Subject::new(&format!("{line} law=leaky-bucket"));
        let mut admissions = Admissions::default();
        for arrival in close_arrivals(&steps, leaky.slot_ns()) {
            let judged = leaky.judge(arrival);
            prop_assert_eq!(token.judge(arrival), judged);
            admissions.note(arrival, judged.verdict);
        }
        // 2N in the time in which a full bucket drains, of whose two ends only the first is in it.
        let burst = u64::from(burst).max(1);
        prop_assert!(admissions.most_in(burst * leaky.slot_ns()) <= 2 * burst);
    }
}

#[test]
fn leaky_bucket_lets_twice_its_burst_through_as_it_drains() {
    let mut subject = Subject::new("burst=10 rate=10/s law=leaky-bucket");
    let mut admissions = Admissions::default();
    for ns in std::iter::repeat_n(0, 20).chain((1..=100).map(|step| step * SECOND_NS / 100)) {
        let arrival = Arrival::at(at_ns(ns));
        let verdict = subject.judge(arrival).verdict;
        admissions.note(arrival, verdict);
    }
    // Ten at once, and the tenth of those that drained as a second is over.
    assert_eq!(admissions.most_in(SECOND_NS + 1), 20);
    assert_eq!(admissions.most_in(SECOND_NS), 19);
}

#[test]
fn a_token_that_is_taken_back_is_there_again_and_no_more_than_the_burst() {
    for law in ["token-bucket", "leaky-bucket"] {
        let mut subject = Subject::new(&format!("burst=2 rate=1/s law={law}"));
        assert_eq!(subject.ask_for(2, at_ms(0)), Verdict::Pass);
        assert_eq!(subject.ask(at_ms(0)).name(), "deny");
        subject.take_back(1, at_ms(0), at_ms(0));
        assert_eq!([subject.ask(at_ms(0)).name(), subject.ask(at_ms(0)).name()], ["pass", "deny"], "{law}");
        for _ in 0..10 {
            subject.take_back(2, at_ms(0), at_ms(0));
        }
        let passed = (0..10).filter(|_| subject.ask(at_ms(0)) == Verdict::Pass).count();
        assert_eq!(passed, 2, "{law}");
    }
}

#[test]
fn a_node_of_two_has_half_the_rate_and_the_whole_burst() {
    for name in ["pace", "token-bucket", "leaky-bucket"] {
        let half = law(name, 5, "10/s", &[]).split(2);
        let gcra = half.gcra().unwrap();
        assert_eq!((gcra.slot(), gcra.burst_requests()), (Duration::from_millis(200), 5), "{name}");
    }
}

#[test]
fn a_bucket_promises_whole_periods_and_a_window_its_number() {
    let quota =
        |name, burst, rate| law(name, burst, rate, &[]).quota(objective(burst, rate)).unwrap().to_string();
    assert_eq!(quota("pace", 100, "50/s"), "q=100;w=2");
    assert_eq!(quota("token-bucket", 10, "30/m"), "q=30;w=60");
    assert_eq!(quota("sliding-window", 7, "1000/m"), "q=1000;w=60");
}
