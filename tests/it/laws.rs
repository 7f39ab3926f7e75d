//! The laws in virtual time, against their formulas written a second time.

use std::time::Duration;

use proptest::prelude::*;
use slowlane::draw::Draw;
use slowlane::law::{Adaptive, Arrival, Law, Objective, Options, Pace};
use slowlane::table::{Entry, FreqCtr};
use slowlane::time::Timestamp;
use slowlane::verdict::Verdict;

/// `freq_ctr.c` in wide signed arithmetic, statement by statement as the protocol notes give it; its only
/// kinship with ours is the source.
#[derive(Clone, Copy, Default)]
struct Oracle {
    tick: i64,
    curr: i64,
    prev: i64,
}

const WRAP: i64 = 1 << 32;
const PERIOD: i64 = 1_000;

impl Oracle {
    fn update(&mut self, inc: i64, now: i64) {
        if (now - self.tick).rem_euclid(WRAP) < PERIOD {
            self.curr = (self.curr + inc) % WRAP;
            return;
        }
        self.prev = self.curr;
        self.curr = inc;
        self.tick = (self.tick + PERIOD) % WRAP;
        if (now - self.tick).rem_euclid(WRAP) >= PERIOD {
            self.prev = 0;
            self.tick = now;
        }
        self.tick -= self.tick % 2;
    }

    fn read(&self, now: i64) -> i64 {
        let (mut past, mut curr) = (self.prev, self.curr);
        let mut remain = (self.tick + PERIOD - now).rem_euclid(WRAP);
        if remain >= WRAP / 2 {
            remain -= WRAP;
        }
        if remain < 0 {
            remain += PERIOD;
            past = if remain >= 0 { curr } else { 0 };
            curr = 0;
        }
        if curr == 0 && past <= 1 {
            return past;
        }
        let total = i128::from(past) * i128::from(remain) + i128::from(curr) * i128::from(PERIOD);
        // It is returned as an unsigned int.
        (total / i128::from(PERIOD)) as i64 % WRAP
    }
}

#[test]
fn a_rate_is_haproxys_on_a_million_random_schedules() {
    let mut dice = fastrand::Rng::with_seed(1);
    for schedule in 0..1_000_000 {
        let (mut ours, mut theirs) = (FreqCtr::default(), Oracle::default());
        // Half of them begin just before the clock wraps.
        let mut now = if schedule % 2 == 0 { dice.u32(..) } else { u32::MAX - dice.u32(0..3_000) };
        let longest_pause = [3, 40, 700, 1_100, 5_000][schedule % 5];
        for _ in 0..dice.usize(1..24) {
            now = now.wrapping_add(dice.u32(0..longest_pause));
            if dice.bool() {
                let events = if dice.u8(..) == 0 { dice.u32(..) } else { dice.u32(0..5) };
                ours.add(events, now);
                theirs.update(i64::from(events), i64::from(now));
            }
            assert_eq!(
                i64::from(ours.read(now)),
                theirs.read(i64::from(now)),
                "{schedule}: {ours:?} at {now}"
            );
        }
    }
}

#[test]
fn a_lone_event_reads_one_for_two_periods() {
    let mut ctr = FreqCtr::default();
    ctr.add(1, 500_000);
    assert_eq!(ctr.read(500_999), 1);
    assert_eq!(ctr.read(501_999), 1);
    assert_eq!(ctr.read(502_001), 0);
}

fn objective(burst: u32, rate: &str) -> Objective {
    Objective { burst, rate: rate.parse().unwrap() }
}

fn at_ms(ms: u64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + ms)
}

/// The article's rules, one after the other as its HAProxy configuration has them, on variables named as
/// there. The rates come from the oracle; the draw is the middle, so the jitter is 1.
#[derive(Default)]
struct Article {
    http_req_cnt: i64,
    gpc0: Oracle,
    gpc1: Oracle,
    gpt0: i64,
}

struct Outcome {
    delay_ms: f64,
    denied: bool,
}

impl Article {
    fn request(&mut self, slo_burst: i64, slo_rate: i64, now: i64) -> Outcome {
        // track-sc0; set-var(txn.thr_count), thr_rate, thr_rate_ok, thr_clients
        self.http_req_cnt += 1;
        let thr_count = self.http_req_cnt;
        let thr_rate = self.gpc0.read(now) as f64;
        let thr_rate_ok = self.gpc1.read(now);
        let thr_clients = self.gpt0.max(1_000) as f64 / 1_000.0;
        // thr_count,sub(slo_burst),add(slo_rate) gt 0
        let thr_do_rate = thr_count - slo_burst + slo_rate > 0;
        // delay = N * 1/slo * min(1, rate/slo)
        let slo = slo_rate as f64;
        let mut delay_ms = 0.0;
        if thr_do_rate {
            delay_ms = 1_000.0 * thr_clients * (1.0 / slo) * f64::min(1.0, thr_rate / slo);
        }
        // N' = N * (1 + 1/N * (rate-slo)/slo); if N' < 1: N' = 1
        let clients = thr_clients * (1.0 + 1.0 / thr_clients * (thr_rate - slo) / slo);
        self.gpt0 = (clients.max(1.0) * 1_000.0).round() as i64;
        // thr_rate_ok,div(2),sub(slo_rate) gt 0
        let thr_over_rate = thr_rate_ok / 2 - slo_rate > 0;
        if thr_do_rate {
            self.gpc0.update(1, now);
        }
        if thr_do_rate && !thr_over_rate {
            self.gpc1.update(1, now);
        }
        Outcome { delay_ms, denied: thr_over_rate }
    }
}

/// Clients that each wait for their answer, `step(now)` telling how long, in virtual time.
fn closed_loop(clients: usize, until_ms: u64, mut step: impl FnMut(u64) -> u64) {
    let mut next: Vec<u64> = (0..clients as u64).collect();
    loop {
        let first = (0..clients).min_by_key(|&client| next[client]).unwrap();
        let now = next[first];
        if now >= until_ms {
            return;
        }
        // An answer takes a millisecond at least.
        next[first] = now + step(now).max(1);
    }
}

#[test]
fn adaptive_is_the_article_step_by_step() {
    for (clients, burst, rate) in [(1, 100, 50), (10, 100, 50), (50, 100, 50), (10, 10, 5), (3, 1_000, 500)] {
        let law = Adaptive::new(objective(burst, &format!("{rate}/s")), 0.1, 2.0, Duration::MAX);
        let (mut entry, mut article) = (Entry::default(), Article::default());
        let (mut delays, mut denials, mut steps) = (0, 0, 0);
        closed_loop(clients, 30_000, |ms| {
            let now = at_ms(ms);
            let verdict = law.judge(&mut entry, &Arrival::at(now)).verdict;
            let want = article.request(i64::from(burst), rate, i64::from(now.ticks_ms()));
            assert_eq!(matches!(verdict, Verdict::Deny { .. }), want.denied, "{clients} clients at {ms} ms");
            assert_eq!(i64::from(entry.gpt0), article.gpt0, "{clients} clients at {ms} ms");
            if !want.denied {
                let off = verdict.delay_ms() as f64 - want.delay_ms;
                assert!(off.abs() <= 0.5, "{clients} clients at {ms} ms: {verdict:?}, {}", want.delay_ms);
            }
            steps += 1;
            delays += usize::from(matches!(verdict, Verdict::Delay(_)));
            denials += usize::from(want.denied);
            if want.denied { 1_000 } else { verdict.delay_ms() }
        });
        assert!(steps > 100 && delays > 50, "{clients} clients: {steps} steps, {delays} delays");
        assert!(clients < 50 || denials > 0, "{clients} clients were never over twice the rate");
    }
}

/// The start of one client at 10/s, burst 20, worked out by hand: ten requests pass unthrottled, for ten more
/// the rate is still rising, then each waits a tenth of a second.
#[test]
fn adaptive_begins_as_worked_out_by_hand() {
    let law = Adaptive::new(objective(20, "10/s"), 0.0, 2.0, Duration::MAX);
    let mut entry = Entry::default();
    let mut ask = |ms| (law.judge(&mut entry, &Arrival::at(at_ms(ms))).verdict.delay_ms(), entry.gpt0);
    for _ in 0..11 {
        // Requests 1 to 10 are not throttled; the 11th is, at a rate of 0.
        assert_eq!(ask(0), (0, 1_000));
    }
    // N / slo * rate / slo = 1/10 s * 1/10, and 1 + (1 - 10) / 10 clients are at least one.
    assert_eq!(ask(0), (10, 1_000));
    assert_eq!(ask(0), (20, 1_000));
    for _ in 0..7 {
        ask(0);
    }
    // The 21st finds a rate of 10: the whole delay. The next one 11: a tenth of a client more.
    assert_eq!(ask(0), (100, 1_000));
    assert_eq!(ask(0), (100, 1_100));
    assert_eq!(ask(0), (110, 1_300));
}

#[test]
fn adaptive_denies_past_twice_the_rate_and_says_when_to_come_back() {
    let law = Adaptive::new(objective(0, "10/s"), 0.0, 2.0, Duration::MAX);
    let mut entry = Entry::default();
    let mut ask = |ms| law.judge(&mut entry, &Arrival::at(at_ms(ms))).verdict;
    for _ in 0..22 {
        assert!(!matches!(ask(0), Verdict::Deny { .. }));
    }
    // floor(22 / 2) > 10. A second later all of the window still counts; half a second more and it is under.
    assert_eq!(ask(0), Verdict::Deny { retry_after_s: 2 });
    assert_eq!(ask(900), Verdict::Deny { retry_after_s: 1 });
    assert!(matches!(ask(1_500), Verdict::Delay(_)));
}

#[test]
fn what_would_wait_too_long_is_denied_and_uses_no_slot() {
    let pace = Pace::new(objective(1, "10/s"), Duration::from_millis(250));
    let mut entry = Entry::default();
    let mut ask = |ms| pace.judge(&mut entry, &Arrival::at(at_ms(ms))).verdict;
    let ms = Duration::from_millis;
    assert_eq!(ask(0), Verdict::Pass);
    assert_eq!(ask(0), Verdict::Delay(ms(100)));
    assert_eq!(ask(0), Verdict::Delay(ms(200)));
    assert_eq!(ask(0), Verdict::Deny { retry_after_s: 1 });
    assert_eq!(ask(100), Verdict::Delay(ms(200)), "the denied one has left no trace");
}

#[test]
fn a_raised_objective_forgives_the_debt_of_the_one_before() {
    let slow = Pace::new(objective(1, "1/s"), Duration::from_secs(3_600));
    let mut entry = Entry::default();
    for _ in 0..600 {
        slow.judge(&mut entry, &Arrival::at(at_ms(0)));
    }
    let fast = Pace::new(objective(100, "50/s"), Duration::from_secs(5));
    let mut ask = |ms| fast.judge(&mut entry, &Arrival::at(at_ms(ms))).verdict;
    assert_eq!(ask(0), Verdict::Deny { retry_after_s: 1 }, "it owes no more than the longest delay");
    assert_eq!(ask(20), Verdict::Delay(Duration::from_secs(5)));
    assert_eq!(ask(10_000), Verdict::Pass);
}

#[test]
fn a_slot_that_is_taken_back_goes_to_the_next() {
    let law = Law::new("pace", objective(1, "10/s"), Options::default()).unwrap();
    let mut entry = Entry::default();
    let ask = |entry: &mut Entry| law.judge(entry, None, &Arrival::at(at_ms(0))).verdict;
    ask(&mut entry);
    let second = ask(&mut entry);
    law.take_back(&mut entry, None, 1, at_ms(0), at_ms(100));
    assert_eq!(ask(&mut entry), second);
}

#[test]
fn pace_holds_its_rate_for_any_number_of_clients() {
    for clients in [1, 2, 10, 50, 200] {
        let pace = Pace::new(objective(100, "50/s"), Duration::from_secs(5));
        let mut entry = Entry::default();
        let mut released = [0u32; 40];
        closed_loop(clients, 30_000, |ms| {
            let verdict = pace.judge(&mut entry, &Arrival::at(at_ms(ms))).verdict;
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
        let pace = Pace::new(objective(burst, &rate), Duration::from_secs(2));
        let slot_ns = objective(burst, &rate).rate.slot().as_nanos() as u64;
        let (mut entry, mut now) = (Entry::default(), at_ms(0));
        let mut released: Vec<(u64, bool)> = Vec::new();
        for pause in pauses_us {
            now = now + Duration::from_micros(pause * (pause % 3));
            match pace.judge(&mut entry, &Arrival::at(now)).verdict {
                Verdict::Pass => released.push((now.as_nanos(), false)),
                Verdict::Delay(wait) => released.push(((now + wait).as_nanos(), true)),
                Verdict::Deny { retry_after_s } => {
                    prop_assert!(retry_after_s >= 1);
                    let mut later = entry;
                    let back = now + Duration::from_secs(u64::from(retry_after_s));
                    let again = pace.judge(&mut later, &Arrival::at(back)).verdict;
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

    /// Any schedule, any law: the columns of a stick table stay meaningful.
    #[test]
    fn every_law_keeps_the_four_columns(
        name in prop::sample::select(Law::NAMES), pauses_ms in prop::collection::vec(0u64..300, 1..200), seed: u64,
    ) {
        let law = Law::new(name, objective(20, "10/s"), Options::default()).unwrap();
        let (mut entry, mut annex) = (Entry::default(), law.annex());
        let (mut ms, mut asked, mut dice) = (0, 0, fastrand::Rng::with_seed(seed));
        for pause in pauses_ms {
            ms += pause;
            asked += 1;
            let before = entry;
            let arrival = Arrival { draw: Draw::from_bits(dice.u64(..)), ..Arrival::at(at_ms(ms)) };
            let verdict = law.judge(&mut entry, annex.as_mut(), &arrival).verdict;
            let now = at_ms(ms).ticks_ms();
            prop_assert_eq!(entry.http_req_cnt, asked);
            prop_assert!(entry.gpt0 >= 1_000);
            prop_assert!(entry.gpc1_rate.read(now) <= entry.gpc0_rate.read(now) + 1);
            if let Verdict::Deny { .. } = verdict {
                prop_assert_eq!(entry.gpc1_rate, before.gpc1_rate, "what is denied is not let through");
            }
        }
    }
}
