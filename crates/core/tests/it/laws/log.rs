//! `sliding-log` against the list of all admissions.

use proptest::prelude::*;
use slowlane_core::base::Verdict;
use slowlane_core::law::Arrival;

use super::oracle::{
    Admissions, SECOND_NS, START_NS, Subject, arrivals, at_ms, at_ns, close_arrivals, schedule,
};

proptest! {
    /// A request passes if and only if there are at most N, including itself, in the window that ends now.
    #[test]
    fn sliding_log_is_exact(count in 1..40u64, window_ms in 100..3_000u64, steps in schedule(250, 12)) {
        let line = format!("burst=0 rate={count}/s law=sliding-log window={window_ms}ms");
        let limit = count * window_ms / 1_000;
        prop_assume!(limit > 0);
        let (mut subject, window_ns) = (Subject::new(&line), window_ms * 1_000_000);
        let mut admissions = Admissions::default();
        for arrival in close_arrivals(&steps, window_ns / 2) {
            let now_ns = arrival.now.as_nanos();
            let counted = admissions.count(now_ns - window_ns + 1, now_ns + 1);
            let judgement = subject.judge(arrival);
            let may_pass = counted + u64::from(arrival.cost) <= limit;
            prop_assert_eq!(judgement.verdict == Verdict::Pass, may_pass, "{} with {} counted", line, counted);
            let left = limit - counted - if may_pass { u64::from(arrival.cost) } else { 0 };
            prop_assert_eq!(u64::from(judgement.remaining), left);
            prop_assert!(!judgement.fell_back);
            admissions.note(arrival, judgement.verdict);
        }
        prop_assert!(admissions.most_in(window_ns) <= limit);
    }

    /// If the row has counts from before the log, the sliding window also decides until they are a window old. Together
    /// they let no more through than the sliding window alone.
    #[test]
    fn a_log_that_begins_later_keeps_the_bound_of_the_sliding_window(
        before in schedule(60, 3), after in schedule(100, 3),
    ) {
        let mut subject = Subject::new("burst=0 rate=10/s law=sliding-log");
        let mut admissions = Admissions::default();
        let aux = subject.aux.take();
        let mut end_ns = 0;
        for arrival in arrivals(&before) {
            let judgement = subject.judge(arrival);
            prop_assert!(judgement.fell_back);
            admissions.note(arrival, judgement.verdict);
            end_ns = arrival.now.as_nanos() - START_NS;
        }
        subject.aux = aux;
        let mut begun_ns = None;
        for one in arrivals(&after) {
            let arrival = Arrival { now: at_ns(one.now.as_nanos() - START_NS + end_ns), ..one };
            let begun_ns = *begun_ns.get_or_insert(arrival.now.as_nanos());
            let judgement = subject.judge(arrival);
            prop_assert!(!judgement.fell_back);
            if arrival.now.as_nanos() >= begun_ns + SECOND_NS {
                let now_ns = arrival.now.as_nanos();
                let counted = admissions.count(now_ns - SECOND_NS + 1, now_ns + 1);
                let may_pass = counted + u64::from(arrival.cost) <= 10;
                prop_assert_eq!(judgement.verdict == Verdict::Pass, may_pass);
            }
            // `remaining` requests pass, and a retry after Retry-After gets through, in that window too.
            let mut copy = subject.clone();
            for _ in 0..judgement.remaining {
                prop_assert_eq!(copy.judge(Arrival { cost: 1, ..arrival }).verdict, Verdict::Pass);
            }
            if let Verdict::Deny { retry_after_s } = judgement.verdict && retry_after_s != Verdict::NEVER_S {
                let now = arrival.now + std::time::Duration::from_secs(retry_after_s.into());
                prop_assert_eq!(subject.would(Arrival { now, ..arrival }).verdict, Verdict::Pass);
            }
            admissions.note(arrival, judgement.verdict);
        }
        prop_assert!(admissions.most_in(SECOND_NS) <= 19);
    }
}

/// The row outlives the log, as rows do that are kept for longer than two windows.
#[test]
fn a_log_that_begins_anew_after_a_pause_is_exact_at_once() {
    let mut subject = Subject::new("burst=0 rate=10/s law=sliding-log");
    subject.ask(at_ms(500));
    subject.aux = subject.law.aux();
    let mut ask_ten = |ms| (0..10).filter(|_| subject.ask(at_ms(ms)) == Verdict::Pass).count();
    // Ten at the end of a window, and ten a second later: a sliding window would still count nine of the first.
    assert_eq!([ask_ten(3_900), ask_ten(4_899), ask_ten(4_900)], [10, 0, 10]);
}

#[test]
fn a_window_of_too_many_requests_is_refused() {
    assert!(Subject::parse("burst=0 rate=65536/s law=sliding-log").is_ok());
    assert_eq!(
        Subject::parse("burst=0 rate=65537/s law=sliding-log").unwrap_err(),
        "window 1s: at 65537/s, it holds more than 65536 requests: use a shorter window or law=sliding-window"
    );
}

#[test]
fn what_is_taken_back_is_the_request_that_left_and_not_the_last_to_come() {
    let mut subject = Subject::new("burst=0 rate=2/s law=sliding-log");
    assert_eq!([subject.ask(at_ms(0)), subject.ask(at_ms(500))], [Verdict::Pass; 2]);
    subject.take_back(1, at_ms(600), at_ms(0));
    assert_eq!(subject.ask(at_ms(600)), Verdict::Pass);
    // Those of 500 and 600 are within a second of 1499.
    assert_eq!(subject.ask(at_ms(1_000)).name(), "deny");
    assert_eq!(subject.ask(at_ms(1_499)).name(), "deny");
    assert_eq!(subject.ask(at_ms(1_500)), Verdict::Pass);
}

/// Ten in ten seconds, all of them before there was room for a log. They fade from the next window on, one a second.
#[test]
fn beside_an_incomplete_log_the_sliding_window_says_when_to_come_back() {
    let mut subject = Subject::new("burst=0 rate=1/s law=sliding-log window=10s");
    let aux = subject.aux.take();
    assert_eq!(subject.ask_for(10, at_ms(0)), Verdict::Pass);
    subject.aux = aux;
    assert_eq!(subject.ask(at_ms(5_000)), Verdict::Deny { retry_after_s: 6 });
    assert_eq!(subject.clone().ask(at_ms(10_999)).name(), "deny");
    assert_eq!(subject.ask(at_ms(11_000)), Verdict::Pass);
}
