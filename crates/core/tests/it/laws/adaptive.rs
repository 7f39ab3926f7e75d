//! `adaptive` against the rules of the article.

use slowlane_core::base::Verdict;
use slowlane_core::law::Arrival;
use slowlane_core::table::Entry;

use super::oracle::{Subject, at_ms, closed_loop, law};
use super::rates::Oracle;

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

#[test]
fn adaptive_is_the_article_step_by_step() {
    for (clients, burst, rate) in [(1, 100, 50), (10, 100, 50), (50, 100, 50), (10, 10, 5), (3, 1_000, 500)] {
        let law = law("adaptive", burst, &format!("{rate}/s"), &[("jitter", "0.1")]);
        let (mut entry, mut article) = (Entry::default(), Article::default());
        let (mut delays, mut denials, mut steps) = (0, 0, 0);
        closed_loop(clients, 30_000, |ms| {
            let now = at_ms(ms);
            let verdict = law.judge(&mut entry, None, &Arrival::at(now)).verdict;
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
    let law = law("adaptive", 20, "10/s", &[("jitter", "0")]);
    let mut entry = Entry::default();
    let mut ask = |ms| (law.judge(&mut entry, None, &Arrival::at(at_ms(ms))).verdict.delay_ms(), entry.gpt0);
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
    let law = law("adaptive", 0, "10/s", &[("jitter", "0")]);
    let mut entry = Entry::default();
    let mut ask = |ms| law.judge(&mut entry, None, &Arrival::at(at_ms(ms))).verdict;
    for _ in 0..22 {
        assert!(!matches!(ask(0), Verdict::Deny { .. }));
    }
    // floor(22 / 2) > 10. A second later all of the window still counts; half a second more and it is under.
    assert_eq!(ask(0), Verdict::Deny { retry_after_s: 2 });
    assert_eq!(ask(900), Verdict::Deny { retry_after_s: 1 });
    assert!(matches!(ask(1_500), Verdict::Delay(_)));
}

#[test]
fn what_would_wait_too_long_is_told_when_it_will_not() {
    let mut subject = Subject::new("burst=0 rate=5/s law=adaptive jitter=0 max_delay=150ms");
    // At the whole rate a client waits 200 ms.
    for _ in 0..6 {
        subject.ask(at_ms(0));
    }
    let denied = subject.ask(at_ms(0));
    assert_eq!(denied, Verdict::Deny { retry_after_s: 2 });
    assert_eq!(subject.clone().ask(at_ms(1_000)).name(), "deny");
    assert!(subject.ask(at_ms(2_000)).is_let_through());
}

/// A lone request reads as one until two seconds are over, which is too much for less than one a second.
#[test]
fn below_one_a_second_a_lone_request_has_faded_after_three_seconds() {
    let mut subject = Subject::new("burst=10 rate=1/m law=adaptive over=1 jitter=0");
    subject.ask_for(9, at_ms(0));
    assert!(subject.ask(at_ms(0)).is_let_through());
    assert_eq!(subject.ask(at_ms(0)), Verdict::Deny { retry_after_s: 3 });
    assert_eq!(subject.clone().ask(at_ms(2_000)).name(), "deny");
    assert!(subject.ask(at_ms(3_000)).is_let_through());
}

/// Ten of the burst of 20 are not throttled. The first throttled request finds no rate, and the burst used up.
#[test]
fn the_rest_of_the_burst_remains() {
    let mut subject = Subject::new("burst=20 rate=10/s law=adaptive jitter=0");
    let remaining: Vec<u32> = (0..12).map(|_| subject.judge(Arrival::at(at_ms(0))).remaining).collect();
    assert_eq!(remaining, [9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0]);
}
