//! Properties of every law.

use std::time::Duration;

use proptest::prelude::*;
use slowlane_core::base::{Timestamp, Verdict};
use slowlane_core::law::{Arrival, Law};

use super::lines::{line, line_but};
use super::oracle::{
    Admissions, SECOND_NS, START_NS, Step, Subject, arrival, arrivals, at_ms, at_ns, close_arrivals, garbage,
    retry_after_s, schedule,
};

/// The number of requests that an objective allows in a window.
fn limit(subject: &Subject, window_ns: u64) -> u64 {
    subject.slo.objective.rate.requests_in(Duration::from_nanos(window_ns)) as u64
}

/// The value of an option in a line.
fn option<'l>(line: &'l str, name: &str) -> Option<&'l str> {
    line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// The window that a line names, or the period of its rate.
fn window_of(line: &str, subject: &Subject) -> u64 {
    let window = option(line, "window").map(|window| slowlane_core::base::units::duration(window).unwrap());
    window.unwrap_or(subject.slo.objective.rate.period()).as_nanos() as u64
}

/// The sub-windows that a line of `sliding-buckets` names, or the most that fit into 64 bits, but ten.
fn buckets_of(line: &str, limit: u64) -> u64 {
    let bits = u64::from(limit.ilog2()) + 1;
    let fit = (1..=10).rev().find(|n| (n + 1) * bits <= 64).unwrap();
    option(line, "buckets").map_or(fit, |buckets| buckets.parse().unwrap())
}

/// The violation of the law's stated bound by these admissions, if any.
fn broken_bound(line: &str, subject: &Subject, admissions: &Admissions) -> Option<String> {
    let burst = u64::from(subject.slo.objective.burst).max(1);
    let window_ns = window_of(line, subject);
    let limit = limit(subject, window_ns);
    let of_window = |most: u64| {
        let seen = admissions.most_in(window_ns);
        (seen > most).then(|| format!("{seen} in {window_ns} ns, at most {most}"))
    };
    match subject.law.name() {
        "pace" | "fair" | "token-bucket" | "leaky-bucket" => {
            let past = admissions.past_bucket(burst, subject.slot_ns());
            past.map(|(time, count)| format!("{count} in {time:?}, a slot is {} ns", subject.slot_ns()))
        }
        "fixed-window" => of_window(2 * limit),
        "sliding-window" | "sketch" => of_window(2 * limit - 1),
        "sliding-buckets" => of_window(limit + limit.div_ceil(buckets_of(line, limit))),
        "sliding-log" => of_window(limit),
        "concurrency" => {
            let most = option(line, "max").map_or(burst, |max| max.parse().unwrap());
            let lease = option(line, "lease").map_or(Duration::from_secs(60), |lease| {
                slowlane_core::base::units::duration(lease).unwrap()
            });
            // Nothing ends, and everything counts for three quarters of the lease at least.
            let seen = admissions.most_in(lease.as_nanos() as u64 * 3 / 4);
            (seen > most).then(|| format!("{seen} at a time, at most {most}"))
        }
        "adaptive" => {
            let over = if option(line, "over").is_some() { 1.0 } else { 2.0 };
            let rate = subject.slo.objective.rate.per_second();
            let cost_max = admissions.list.iter().map(|one| one.cost).max().unwrap_or(0);
            // Any second touches two of the counter's, and each ends with the request that is too many.
            let most = 2 * ((over * (rate + 1.0)).ceil() as u64 + u64::from(cost_max)) + burst;
            let mut asked = admissions.clone();
            asked.list.iter_mut().for_each(|one| one.left_ns = one.asked_ns);
            let seen = asked.most_in(SECOND_NS);
            (seen > most).then(|| format!("{seen} in a second, at most {most}"))
        }
        other => panic!("no bound is known of {other}"),
    }
}

/// The spacing of a client that keeps to its rate, in whole nanoseconds, rounded up.
fn spacing_ns(line: &str, subject: &Subject) -> u64 {
    let window_ns = window_of(line, subject);
    let per_window = window_ns.div_ceil(limit(subject, window_ns).max(1));
    let period_ns = subject.slo.objective.rate.period().as_nanos() as u64;
    let count = subject.slo.objective.rate.to_string().split('/').next().unwrap().parse::<u64>().unwrap();
    let per_rate = period_ns.div_ceil(count);
    match subject.law.name() {
        // What is allowed in a window is a whole number.
        "fixed-window" | "sliding-buckets" | "sliding-log" => per_window.max(per_rate),
        // It takes what it counted in the window before for spread over all of it, and one of N is in the way then.
        "sliding-window" | "sketch" => {
            window_ns.div_ceil((limit(subject, window_ns) - 1).max(1))
                * if limit(subject, window_ns) == 1 { 2 } else { 1 }
        }
        _ => per_rate,
    }
}

fn cases(count: u32) -> ProptestConfig {
    ProptestConfig {
        cases: count,
        max_shrink_iters: 20_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases(800))]

    /// A client that keeps to the rate is never denied or delayed. Under `adaptive` it may be delayed.
    #[test]
    fn a_client_that_keeps_to_its_rate_is_let_through(
        line in line(), phase_ns in prop_oneof![0..3u64, 0..4_000_000_000u64], extras in prop::collection::vec(0..3u64, 20..200),
    ) {
        let line = line.replace("burst=0", "burst=1").replace(" over=1", "").replace(" max_delay=50ms", "");
        let mut subject = Subject::new(&line);
        let spacing_ns = spacing_ns(&line, &subject);
        let mut now = at_ns(phase_ns);
        for extra in extras {
            let verdict = subject.ask(now);
            if subject.law.name() == "adaptive" {
                prop_assert!(verdict.is_let_through(), "{} at {:?}", line, now);
            } else {
                prop_assert_eq!(verdict, Verdict::Pass, "{} at {:?}", line, now);
            }
            subject.end(1, now, now);
            now = now + Duration::from_nanos(spacing_ns + extra / 2 * 3_333_333);
        }
    }

    /// The bound that the law states, on the list of all admissions, whatever they cost.
    #[test]
    fn no_law_lets_more_through_than_it_says(line in line(), steps in schedule(150, 6)) {
        let mut subject = Subject::new(&line);
        let mut admissions = Admissions::default();
        for arrival in close_arrivals(&steps, spacing_ns(&line, &subject)) {
            let verdict = subject.judge(arrival).verdict;
            admissions.note(arrival, verdict);
        }
        let broken = broken_bound(&line, &subject, &admissions);
        prop_assert!(broken.is_none(), "{}: {}", line, broken.unwrap());
    }

    /// Without other requests, a later request gets the same verdict or a better one.
    #[test]
    fn who_comes_later_is_no_worse_off(
        line in line(), steps in schedule(60, 6), later_ns in prop::collection::vec(0..5_000_000_000u64, 60),
    ) {
        // With less a slot that nobody took is lost, and with it what a request could have had.
        let line = if line.contains("law=fair") { line.replace("burst=", "burst=2") } else { line };
        let mut subject = Subject::new(&line);
        for (arrival, later_ns) in arrivals(&steps).zip(later_ns) {
            let later = Arrival { now: arrival.now + Duration::from_nanos(later_ns), ..arrival };
            let then = subject.would(later).verdict;
            let now = subject.judge(arrival).verdict;
            let is_whole = subject.law.name() != "fair" || arrival.cost == 1;
            if now.is_let_through() && is_whole {
                prop_assert!(then.is_let_through(), "{}: {:?}, but {:?} {} ns later", line, now, then, later_ns);
                prop_assert!(then.wait() <= now.wait(), "{}: {:?}, but {:?} {} ns later", line, now, then, later_ns);
            }
        }
    }

    /// `retry_after` is the first whole second after which the request gets through without other requests, or
    /// `NEVER_S`. `concurrency` cannot know it, and `adaptive` gives a sufficient one.
    #[test]
    fn who_comes_back_as_told_gets_through_and_not_before(line in line(), steps in schedule(80, 6)) {
        let mut subject = Subject::new(&line);
        for arrival in close_arrivals(&steps, spacing_ns(&line, &subject)) {
            let verdict = subject.judge(arrival).verdict;
            let Verdict::Deny { retry_after_s } = verdict else { continue };
            let never = Verdict::Deny { retry_after_s: Verdict::NEVER_S };
            prop_assert_eq!(verdict == never, subject.fresh().judge(arrival).verdict == never);
            if retry_after_s == Verdict::NEVER_S || subject.law.name() == "concurrency" {
                continue;
            }
            let after = |seconds: u32| {
                let now = arrival.now + Duration::from_secs(seconds.into());
                subject.would(Arrival { now, ..arrival }).verdict
            };
            let then = after(retry_after_s);
            prop_assert!(then.is_let_through(), "{}: {:?} after {} s", line, then, retry_after_s);
            // Under `fair` what costs more may get through earlier, part of it as tokens that come meanwhile.
            let is_least = subject.law.name() != "fair" || arrival.cost == 1;
            if subject.law.name() != "adaptive" && is_least && retry_after_s > 1 {
                prop_assert!(!after(retry_after_s - 1).is_let_through(), "{}: {} s is too long", line, retry_after_s);
            }
        }
    }

    /// Exactly `remaining` more requests pass at once. Under `adaptive`, only the burst is certain.
    #[test]
    fn what_remains_passes_at_once_and_no_more(line in line(), steps in schedule(60, 6)) {
        let mut subject = Subject::new(&line);
        for arrival in close_arrivals(&steps, spacing_ns(&line, &subject)) {
            let remaining = subject.judge(arrival).remaining;
            let mut copy = subject.clone();
            for more in 0..remaining.min(400) {
                let verdict = copy.judge(Arrival { cost: 1, ..arrival }).verdict;
                prop_assert_eq!(verdict, Verdict::Pass, "{}: {} of {}", line, more, remaining);
            }
            if subject.law.name() != "adaptive" && remaining <= 400 {
                let verdict = copy.judge(Arrival { cost: 1, ..arrival }).verdict;
                prop_assert_ne!(verdict, Verdict::Pass, "{}: {} remained", line, remaining);
            }
        }
    }

    /// A request of a cost is as many requests at the same moment, and gets through only with all of them.
    #[test]
    fn a_request_of_a_cost_is_as_many_requests(line in line_but(&["adaptive", "fair"]), steps in schedule(100, 6)) {
        let mut subject = Subject::new(&line);
        for arrival in arrivals(&steps) {
            let mut singly = subject.clone();
            let verdict = subject.judge(arrival);
            let each: Vec<_> =
                (0..arrival.cost).map(|_| singly.judge(Arrival { cost: 1, ..arrival })).collect();
            prop_assert_eq!(
                verdict.verdict.is_let_through(), each.iter().all(|one| one.verdict.is_let_through()),
                "{}: {:?}, {:?}", line, verdict, each
            );
            if verdict.verdict.is_let_through() {
                prop_assert_eq!(&verdict, each.last().unwrap());
                prop_assert_eq!(&subject, &singly, "{}", line);
            }
        }
    }

    /// A request of cost 0 passes and changes nothing.
    #[test]
    fn a_request_that_costs_nothing_passes(line in line(), steps in schedule(30, 6)) {
        let mut subject = Subject::new(&line);
        for arrival in arrivals(&steps) {
            let before = subject.clone();
            prop_assert_eq!(subject.judge(Arrival { cost: 0, ..arrival }).verdict, Verdict::Pass);
            prop_assert_eq!(&subject, &before);
            subject.judge(arrival);
        }
    }

    /// A denied request consumes nothing: without it, all other verdicts are the same.
    #[test]
    fn what_is_denied_consumes_nothing(line in line_but(&["adaptive"]), steps in schedule(100, 6)) {
        let mut subject = Subject::new(&line);
        let mut without = subject.clone();
        for arrival in arrivals(&steps) {
            let judged = subject.judge(arrival);
            if judged.verdict.is_let_through() {
                prop_assert_eq!(without.judge(arrival), judged, "{}", line);
            }
        }
    }

    /// An entry that was not used for the law's memory behaves like a new one.
    #[test]
    fn what_the_table_may_forget_changes_no_verdict(
        line in line_but(&["adaptive"]), steps in schedule(60, 6), later_ns in 0..2_000_000_000u64,
    ) {
        let line = line.replace(" sources_max=1", "").replace(" sources_max=3", "");
        let mut subject = Subject::new(&line);
        let mut last = at_ms(0);
        for arrival in arrivals(&steps) {
            subject.judge(arrival);
            last = arrival.now;
        }
        let now = last + subject.law.memory() + Duration::from_nanos(later_ns);
        let mut fresh = subject.fresh();
        // Of other sharers: the turn of one that booked much may come later still, and it keeps its place until then.
        for step in steps.into_iter().map(|step| Step { sharer: step.sharer + 10, ..step }) {
            let (known, new) = (subject.judge(arrival(&step, now)), fresh.judge(arrival(&step, now)));
            prop_assert_eq!((known.verdict, known.remaining), (new.verdict, new.remaining), "{}", line);
        }
    }

    /// For any bits in the row, nothing panics, no denial lasts longer than the law's memory, and the bound holds.
    #[test]
    fn an_entry_of_garbage_does_no_harm(line in line(), entry in garbage(), steps in schedule(60, 6)) {
        let mut subject = Subject { entry, ..Subject::new(&line) };
        let mut admissions = Admissions::default();
        for arrival in arrivals(&steps) {
            let verdict = subject.judge(arrival).verdict;
            admissions.note(arrival, verdict);
            if subject.law.name() != "adaptive" {
                let later = Arrival { now: arrival.now + subject.law.memory(), sharer: 99, ..arrival };
                let (then, fresh) = (subject.would(later), subject.fresh().judge(later));
                prop_assert_eq!(then.verdict, fresh.verdict, "{} {:?}", line, subject.entry.state);
            }
        }
        if subject.law.name() != "adaptive" {
            let broken = broken_bound(&line, &subject, &admissions);
            prop_assert!(broken.is_none(), "{}: {}", line, broken.unwrap());
        }
        // What another law left may be taken back or ended by this one.
        let mut subject = Subject { entry, ..Subject::new(&line) };
        for (arrival, due_ns) in arrivals(&steps).zip([0, 1, 50_000_000, 3_000_000_000].into_iter().cycle()) {
            subject.end(arrival.cost, arrival.now, arrival.now);
            subject.take_back(arrival.cost, arrival.now, arrival.now + Duration::from_nanos(due_ns));
            subject.judge(arrival);
        }
    }

    /// The clock jumps by up to an hour, either way: on each side of the jump the bound holds, so it is broken once
    /// at most; and afterwards nobody is refused for longer than the law remembers.
    #[test]
    fn a_step_of_the_clock_does_no_lasting_harm(
        line in line(), before in schedule(60, 6), after in schedule(60, 6),
        step_ns in prop_oneof![0..3 * SECOND_NS, 0..3_600 * SECOND_NS], is_back: bool,
    ) {
        let mut subject = Subject::new(&line);
        // The slots that `fair` has dealt out stay where they are, if the clock comes back to them soon enough.
        let memory = subject.law.memory() * if subject.law.name() == "fair" { 2 } else { 1 };
        let mut end_ns = START_NS;
        let mut admissions = [Admissions::default(), Admissions::default()];
        for arrival in arrivals(&before) {
            let verdict = subject.judge(arrival).verdict;
            admissions[0].note(arrival, verdict);
            end_ns = arrival.now.as_nanos();
        }
        let jumped_ns = if is_back { end_ns - step_ns } else { end_ns + step_ns };
        for one in arrivals(&after) {
            let now = Timestamp::from_nanos(one.now.as_nanos() - START_NS + jumped_ns);
            let arrival = Arrival { now, ..one };
            let judged = subject.judge(arrival);
            admissions[1].note(arrival, judged.verdict);
            if subject.law.name() != "adaptive" {
                let later = Arrival { now: arrival.now + memory, sharer: 99, ..arrival };
                let (then, fresh) = (subject.would(later), subject.fresh().judge(later));
                prop_assert_eq!(then.verdict, fresh.verdict, "{}", line);
            }
        }
        for admissions in admissions {
            let broken = broken_bound(&line, &subject, &admissions);
            prop_assert!(broken.is_none(), "{}: {}", line, broken.unwrap());
        }
    }

    /// For any schedule and law, the columns keep their meaning in a stick table.
    #[test]
    fn every_law_keeps_the_four_columns(line in line(), steps in schedule(100, 1)) {
        let (mut subject, mut denied) = (Subject::new(&line), 0);
        for (asked, arrival) in (1..).zip(arrivals(&steps)) {
            let before = subject.entry;
            let verdict = subject.judge(arrival).verdict;
            let (entry, now) = (subject.entry, arrival.now.ticks_ms());
            prop_assert_eq!(entry.http_req_cnt, asked);
            prop_assert!(entry.gpt0 >= 1_000);
            match verdict {
                Verdict::Deny { .. } => {
                    denied += 1;
                    prop_assert_eq!(entry.gpc1_rate, before.gpc1_rate, "what is denied is not let through");
                }
                // Both count the same then, and in the same windows.
                _ if denied == 0 => prop_assert_eq!(entry.gpc1_rate, entry.gpc0_rate),
                _ => prop_assert!(subject.law.name() == "adaptive" || entry.gpc1_rate.read(now) > 0),
            }
        }
    }
}

#[test]
fn a_rate_of_zero_denies_everything_under_every_law() {
    for name in Law::NAMES {
        let mut subject = Subject::new(&format!("burst=5 rate=0/s law={name}"));
        assert_eq!(subject.law.name(), *name);
        for (cost, hour) in [(1, 0), (3, 0), (1, 1), (u32::MAX, 2)] {
            let now = at_ms(hour * 3_600_000);
            assert_eq!(retry_after_s(subject.ask_for(cost, now)), Verdict::NEVER_S, "{name}");
        }
        assert_eq!(retry_after_s(subject.ask_for(0, at_ms(0))), Verdict::NEVER_S, "{name}, at no cost");
    }
}

/// A burst of 0 counts as 1 where a law only passes or denies; under `pace` each request waits for its own slot.
#[test]
fn with_a_burst_of_zero_one_passes_at_a_time() {
    for (name, wait_ms, second) in [
        ("pace", 100, "delay"),
        ("fair", 0, "delay"),
        ("token-bucket", 0, "deny"),
        ("leaky-bucket", 0, "deny"),
        ("concurrency", 0, "deny"),
    ] {
        let mut subject = Subject::new(&format!("burst=0 rate=10/s law={name}"));
        assert_eq!(subject.ask(at_ms(0)).delay_ms(), wait_ms, "{name}");
        assert_eq!(subject.ask(at_ms(0)).name(), second, "{name}");
    }
}

#[test]
fn what_costs_more_than_there_can_be_never_gets_through() {
    // At 10/s, a burst of 4 and a second of delay: four at once, and what comes in a second.
    for (line, most) in [
        ("law=pace max_delay=1s", 14),
        ("law=fair max_delay=1s", 14),
        ("law=token-bucket", 4),
        ("law=leaky-bucket", 4),
        ("law=fixed-window", 10),
        ("law=sliding-window", 10),
        ("law=sliding-buckets", 10),
        ("law=sliding-log", 10),
        ("law=sketch", 10),
        ("law=concurrency", 4),
    ] {
        let fresh = Subject::new(&format!("burst=4 rate=10/s {line}"));
        assert!(fresh.clone().ask_for(most, at_ms(0)).is_let_through(), "{line}");
        for cost in [most + 1, 1_000_000, u32::MAX] {
            assert_eq!(retry_after_s(fresh.clone().ask_for(cost, at_ms(0))), Verdict::NEVER_S, "{line}");
        }
    }
}
