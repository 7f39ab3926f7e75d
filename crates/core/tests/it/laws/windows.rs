//! The windows: `fixed-window`, `sliding-window` and `sliding-buckets`, with schedules that reach their bounds.

use std::time::Duration;

use proptest::prelude::*;
use slowlane_core::base::Verdict;
use slowlane_core::law::{Arrival, Used};

use super::oracle::{
    Admissions, SECOND_NS, START_NS, Subject, arrivals, at_ms, at_ns, retry_after_s, schedule,
};

/// Asks at each of these moments, and keeps the admissions.
fn asked(subject: &mut Subject, moments_ns: impl IntoIterator<Item = u64>) -> Admissions {
    let mut admissions = Admissions::default();
    for ns in moments_ns {
        let arrival = Arrival::at(at_ns(ns));
        let verdict = subject.judge(arrival).verdict;
        admissions.note(arrival, verdict);
    }
    admissions
}

fn times(count: usize, ns: u64) -> impl Iterator<Item = u64> {
    std::iter::repeat_n(ns, count)
}

#[test]
fn fixed_window_lets_twice_its_number_through_about_a_boundary() {
    let mut subject = Subject::new("burst=0 rate=10/s law=fixed-window");
    // The first opens the window; the other nine come as it ends, and ten as the next has begun.
    let moments = times(1, 0).chain(times(20, SECOND_NS - 1)).chain(times(20, SECOND_NS));
    let admissions = asked(&mut subject, moments);
    assert_eq!(admissions.most_in(2), 19);
    assert_eq!(admissions.most_in(SECOND_NS + 1), 20);
    // All 20 in less than a window: it was opened by a request that its client took back.
    let mut subject = Subject::new("burst=0 rate=10/s law=fixed-window");
    subject.ask(at_ns(0));
    subject.take_back(1, at_ns(1), at_ns(0));
    let admissions = asked(&mut subject, times(20, SECOND_NS - 1).chain(times(20, SECOND_NS)));
    assert_eq!(admissions.most_in(2), 20);
}

/// A quota of a month is whole again on the first of the next one, however long the months are.
#[test]
fn a_month_of_the_calendar_ends_with_it() {
    use slowlane_core::base::Timestamp;
    use slowlane_core::law::{Arrival, Law, Objective, Options};
    use slowlane_core::table::Entry;

    let objective = Objective { burst: 0, rate: "2/month".parse().unwrap() };
    let law = |options: &[(&str, &str)]| {
        Law::new("fixed-window", objective, Options::new(options.iter().copied())).unwrap()
    };
    let at = |year, month, day, hour: u64| {
        let date = time::Date::from_calendar_date(year, time::Month::try_from(month).unwrap(), day).unwrap();
        Timestamp::from_millis((date.midnight().as_utc().unix_timestamp() as u64 + hour * 3_600) * 1_000)
    };
    let (calendar, rolling) = (law(&[]), law(&[("reset", "first")]));
    let mut entries = [Entry::default(); 2];
    let mut ask = |now| {
        let [of_calendar, of_rolling] = &mut entries;
        let name = |law: &Law, entry: &mut Entry| law.judge(entry, None, &Arrival::at(now)).verdict.name();
        (name(&calendar, of_calendar), name(&rolling, of_rolling))
    };
    assert_eq!([ask(at(2024, 2, 28, 9)), ask(at(2024, 2, 29, 9))], [("pass", "pass"); 2]);
    assert_eq!(ask(at(2024, 2, 29, 23)), ("deny", "deny"));
    assert_eq!(ask(at(2024, 3, 1, 0)), ("pass", "deny"));
    assert_eq!(ask(at(2024, 3, 29, 8)), ("pass", "deny"));
    // Thirty days after the first request.
    assert_eq!(ask(at(2024, 3, 29, 9)), ("deny", "pass"));
    let used = calendar.used(&entries[0], None, at(2024, 3, 31, 12)).unwrap();
    assert_eq!((used.requests, used.limit, used.resets_at), (2, 2, Some(at(2024, 4, 1, 0))));
    let used = calendar.used(&entries[0], None, at(2024, 4, 1, 0)).unwrap();
    assert_eq!((used.requests, used.resets_at), (0, Some(at(2024, 5, 1, 0))));
    let used = rolling.used(&entries[1], None, at(2024, 3, 31, 12)).unwrap();
    assert_eq!((used.requests, used.resets_at), (1, Some(at(2024, 4, 28, 9))));
}

#[test]
fn a_reset_that_makes_no_sense_is_refused() {
    use slowlane_core::law::{Law, Objective, Options};

    let objective = Objective { burst: 0, rate: "2/d".parse().unwrap() };
    let error = |law, options: &[(&str, &str)]| {
        Law::new(law, objective, Options::new(options.iter().copied())).unwrap_err().to_string()
    };
    assert_eq!(error("fixed-window", &[("reset", "monday")]), "reset \"monday\": expected first or calendar");
    assert_eq!(
        error("fixed-window", &[("reset", "calendar"), ("window", "1h")]),
        "reset \"calendar\": expected no window=, because the rate's period is the window"
    );
    assert!(error("sliding-log", &[("reset", "calendar")]).starts_with("unknown option \"reset\""));
}

#[test]
fn a_denied_request_begins_no_fixed_window() {
    let mut subject = Subject::new("burst=0 rate=1/s law=fixed-window");
    assert_eq!(retry_after_s(subject.ask_for(2, at_ms(0))), Verdict::NEVER_S);
    assert_eq!(subject.ask(at_ms(900)), Verdict::Pass);
    assert_eq!(subject.ask(at_ms(1_000)).name(), "deny", "the window began with the one that passed");
}

/// 4 in the window before, 2 half-way into this one: the estimate with the request itself is 5.
#[test]
fn sliding_window_is_adobes_worked_example() {
    for (rate, last) in [("5/s", "pass"), ("4/s", "deny")] {
        let mut subject = Subject::new(&format!("burst=0 rate={rate} law=sliding-window"));
        assert_eq!(asked(&mut subject, times(4, 900_000_000)).list.len(), 4);
        // Two early in the window, as far as there is room: at 4/s half a window before is too much already.
        subject.ask(at_ms(1_500));
        subject.ask(at_ms(1_500));
        assert_eq!(subject.ask(at_ms(1_500)).name(), last, "{rate}");
    }
}

/// Cortex's limitForSecs, in floats as its proposal has it.
fn limit_for_secs(limit: f64, prev: f64, curr: f64, age: f64, window: f64) -> f64 {
    let excess = prev * (window - age) / window + curr + 1.0 - limit;
    if curr + 1.0 <= limit {
        excess / (prev / window)
    } else {
        // The rest of the window, and then until what is counted now has faded far enough.
        (window - age) + (curr + 1.0 - limit) / (curr / window)
    }
}

#[test]
fn sliding_window_says_when_by_cortexs_formula_in_both_branches() {
    for window_s in [1, 7, 60] {
        for (limit, prev, curr) in
            [(10, 10, 3), (10, 10, 9), (10, 10, 10), (10, 4, 10), (1, 1, 0), (100, 99, 51)]
        {
            let rate = limit * 60 / window_s;
            let line = format!("burst=0 rate={rate}/m law=sliding-window window={window_s}s");
            let Ok(fresh) = Subject::parse(&line) else { continue };
            if rate * window_s != limit * 60 {
                continue;
            }
            let window_ns = window_s * SECOND_NS;
            let start_ns = START_NS.next_multiple_of(window_ns) - START_NS;
            let mut seen = [0, 0];
            for age_ns in (1..100).map(|percent| percent * window_ns / 100) {
                let mut subject = fresh.clone();
                let number = (START_NS + start_ns) / window_ns;
                subject.entry.state.set_narrow(number as u32);
                subject.entry.state.set_wide(prev << 32 | curr);
                let Verdict::Deny { retry_after_s } = subject.ask(at_ns(start_ns + age_ns)) else { continue };
                let seconds = |ns: u64| ns as f64 / SECOND_NS as f64;
                let want = limit_for_secs(
                    limit as f64,
                    prev as f64,
                    curr as f64,
                    seconds(age_ns),
                    seconds(window_ns),
                );
                let off = f64::from(retry_after_s) - want.max(1e-6);
                assert!(
                    (-1e-6..1.0 + 1e-6).contains(&off) || retry_after_s == 1 && want < 1.0,
                    "{line} {prev} {curr} {age_ns}: {retry_after_s} s for {want}"
                );
                seen[usize::from(curr + 1 > limit)] += 1;
            }
            assert!(seen.iter().sum::<u32>() > 0, "{line} {prev} {curr}");
        }
    }
}

/// N at the end of a window; then whenever there is room again. Just before a window's time is over N - 1 of
/// these have come.
#[test]
fn sliding_window_lets_twice_its_number_less_one_through() {
    for limit in [1, 2, 10] {
        let mut subject = Subject::new(&format!("burst=0 rate={limit}/s law=sliding-window"));
        let openings = (0..2_000_000).map(|step| SECOND_NS + step * 1_000);
        let moments = times(limit, SECOND_NS - 1).chain(openings.step_by(1_000));
        let admissions = asked(&mut subject, moments);
        assert_eq!(admissions.most_in(SECOND_NS), 2 * limit as u64 - 1, "N is {limit}");
    }
}

/// The law assumes an evenly filled previous window, so a client that asks N times per window is sometimes denied.
#[test]
fn sliding_window_lets_a_client_at_its_rate_through_but_for_one_in_a_window() {
    let mut subject = Subject::new("burst=0 rate=10/s law=sliding-window");
    let admissions = asked(&mut subject, (0..100).map(|number| number * SECOND_NS / 10));
    assert_eq!(admissions.list.len(), 91);
    let mut subject = Subject::new("burst=0 rate=10/s law=sliding-window");
    let admissions = asked(&mut subject, (0..90).map(|number| (number * SECOND_NS).div_ceil(9)));
    assert_eq!(admissions.list.len(), 90, "one less in a window is never refused");
}

/// Sentinel's LeapArray: the sum of n sub-windows.
struct LeapArray {
    limit: u64,
    bucket_ns: u64,
    counts: Vec<(u64, u64)>,
    buckets: u64,
}

impl LeapArray {
    fn ask(&mut self, now_ns: u64) -> bool {
        let number = now_ns / self.bucket_ns;
        self.counts.retain(|&(other, _)| other + self.buckets > number);
        let sum: u64 = self.counts.iter().map(|&(_, count)| count).sum();
        if sum < self.limit {
            self.counts.push((number, 1));
        }
        sum < self.limit
    }
}

/// N as a sub-window ends, and as many as may as soon as that falls out, which is a sub-window too early.
#[test]
fn sliding_buckets_keeps_the_bound_that_a_plain_leap_array_breaks() {
    for (limit, buckets) in [(10u64, 2u64), (10, 5), (100, 4), (7, 3)] {
        let line = format!("burst=0 rate={limit}/s law=sliding-buckets buckets={buckets}");
        let mut subject = Subject::new(&line);
        let bucket_ns = SECOND_NS.div_ceil(buckets);
        let mut leap = LeapArray { limit, bucket_ns, counts: Vec::new(), buckets };
        let start_ns = START_NS.next_multiple_of(bucket_ns) - START_NS;
        let ends = |number: u64| start_ns + number * bucket_ns - 1;
        let moments = times(limit as usize, ends(1)).chain(times(limit as usize, ends(buckets) + 1));
        let mut plain = Admissions::default();
        for ns in moments {
            let verdict =
                if leap.ask(START_NS + ns) { Verdict::Pass } else { Verdict::Deny { retry_after_s: 1 } };
            plain.note(Arrival::at(at_ns(ns)), verdict);
        }
        assert_eq!(plain.most_in(SECOND_NS), 2 * limit, "{line}");

        // Ours begin at multiples of a window, cut into equal parts.
        let begins = |number: u64| 10 * SECOND_NS + (number * SECOND_NS).div_ceil(buckets);
        let admissions = asked(&mut subject, times(200, begins(1) - 1).chain(times(200, begins(buckets))));
        let most = limit + limit.div_ceil(buckets);
        assert_eq!(admissions.most_in(SECOND_NS), most, "{line}: the bound is reached");
    }
}

#[test]
fn sliding_buckets_refuses_what_does_not_fit_into_64_bits() {
    // 100 takes seven bits: eight sub-windows and the one just left are 63 bits, nine and one are 70.
    assert!(Subject::parse("burst=0 rate=100/s law=sliding-buckets buckets=8").is_ok());
    let error = Subject::parse("burst=0 rate=100/s law=sliding-buckets buckets=9").unwrap_err();
    assert_eq!(error, "buckets \"9\": expected a number from 1 to 8");
    assert!(Subject::parse("burst=0 rate=1000000/s law=sliding-buckets window=1000s buckets=1").is_ok());
    assert!(Subject::parse("burst=0 rate=1000000/s law=sliding-buckets window=1000s buckets=2").is_err());
    assert!(Subject::parse("burst=0 rate=1000000/s law=sliding-buckets window=2000s").is_err());
}

#[test]
fn a_sub_window_of_a_third_of_a_second_is_exact() {
    let mut subject = Subject::new("burst=0 rate=10/s law=sliding-buckets buckets=3");
    // From the first nanosecond of a sub-window on, exactly at the rate.
    let admissions = asked(&mut subject, (0..100).map(|number| 2 * SECOND_NS + number * SECOND_NS / 10));
    assert_eq!(admissions.list.len(), 100);
}

proptest! {
    /// A request that is taken back is removed from the window that counted it, and from no other.
    #[test]
    fn what_is_taken_back_makes_room_for_one_more_and_breaks_no_bound(
        law in prop::sample::select(vec!["fixed-window", "sliding-window", "sliding-buckets", "sliding-log"]),
        steps in schedule(80, 3), backs in prop::collection::vec((0..10usize, 0..2_000_000_000u64), 80),
    ) {
        let mut subject = Subject::new(&format!("burst=0 rate=6/s law={law}"));
        let mut admissions = Admissions::default();
        let mut pending: Vec<(u64, u64, u32)> = Vec::new();
        for (arrival, (rng, hold_ns)) in arrivals(&steps).zip(backs) {
            let now_ns = arrival.now.as_nanos();
            pending.sort_unstable();
            for &(gone_ns, asked_ns, cost) in pending.iter().filter(|one| one.0 <= now_ns) {
                let at = |ns| at_ns(ns - START_NS);
                subject.take_back(cost, at(gone_ns), at(asked_ns));
            }
            pending.retain(|one| one.0 > now_ns);
            let verdict = subject.judge(arrival).verdict;
            if verdict.is_let_through() {
                // Half of them wait elsewhere, and their clients leave.
                if rng < 5 {
                    pending.push((now_ns + hold_ns, now_ns, arrival.cost));
                } else {
                    admissions.note(arrival, verdict);
                }
            }
        }
        let most = match law { "fixed-window" => 12, "sliding-window" => 11, "sliding-buckets" => 7, _ => 6 };
        prop_assert!(admissions.most_in(SECOND_NS) <= most);
    }
}

#[test]
fn a_window_is_ten_milliseconds_at_least_and_holds_a_request() {
    for law in ["fixed-window", "sliding-window", "sliding-buckets", "sliding-log"] {
        let window = |window: &str, rate: &str| {
            Subject::parse(&format!("burst=0 rate={rate} law={law} window={window}"))
        };
        assert!(window("10ms", "100/s").is_ok());
        assert!(window("9ms", "1000/s").is_err());
        assert!(window("10ms", "99/s").is_err());
        assert!(window("10s", "90/m").unwrap().law.memory() >= Duration::from_secs(10));
    }
}

#[test]
fn a_window_that_begins_with_its_first_request_has_none_before_it() {
    let mut subject = Subject::new("burst=0 rate=10/s law=fixed-window");
    let used = |subject: &Subject| subject.law.used(&subject.entry, None, at_ms(400)).unwrap();
    assert_eq!(used(&subject), Used { requests: 0, limit: 10, resets_at: None });
    subject.ask(at_ms(0));
    assert_eq!(used(&subject), Used { requests: 1, limit: 10, resets_at: Some(at_ms(1_000)) });
}

/// Of four in the first second, two count in the middle of the next.
#[test]
fn what_is_used_of_a_sliding_window_fades_with_the_window_before() {
    let mut subject = Subject::new("burst=0 rate=5/s law=sliding-window");
    let used = |subject: &Subject| {
        let used = subject.law.used(&subject.entry, None, at_ms(1_500)).unwrap();
        (used.requests, used.resets_at)
    };
    assert_eq!(used(&subject), (0, None));
    subject.ask_for(4, at_ms(900));
    assert_eq!(used(&subject), (2, Some(at_ms(2_000))));
    subject.ask_for(2, at_ms(1_250));
    assert_eq!(used(&subject), (4, Some(at_ms(3_000))));
    // One of this window leaves, then one of the window before: half of it counted.
    subject.take_back(1, at_ms(1_300), at_ms(1_250));
    assert_eq!(used(&subject), (3, Some(at_ms(3_000))));
    subject.take_back(2, at_ms(1_300), at_ms(900));
    assert_eq!(used(&subject), (2, Some(at_ms(3_000))));
}
