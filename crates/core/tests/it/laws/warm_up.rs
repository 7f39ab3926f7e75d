//! `warm-up`: its slope, measured under full load, against the integral of its formula.

use slowlane_core::base::Verdict;

use super::oracle::{SECOND_NS, Subject, at_ms, at_ns};

/// When each of `count` requests of a closed loop leaves, in seconds from the first on.
fn leaves_s(subject: &mut Subject, start_ns: u64, count: usize) -> Vec<f64> {
    let mut now_ns = start_ns;
    let mut leaves = Vec::new();
    for _ in 0..count {
        let verdict = subject.ask(at_ns(now_ns));
        assert!(verdict.is_let_through());
        now_ns += verdict.wait().as_nanos() as u64;
        leaves.push((now_ns - start_ns) as f64 / SECOND_NS as f64);
    }
    leaves
}

/// Guava's curve: the time that the first `taken` permits take, by a sum of a thousand slices for each.
fn time_s(rate: f64, cold: f64, warmup: f64, taken: f64) -> f64 {
    let (stable, coldest) = (1.0 / rate, cold / rate);
    let threshold = 0.5 * warmup / stable;
    let max = threshold + 2.0 * warmup / (stable + coldest);
    let slices = (taken * 1_000.0) as usize;
    let interval = |stored: f64| match stored > threshold {
        true => stable + (stored - threshold) * (coldest - stable) / (max - threshold),
        false => stable,
    };
    (0..slices).map(|slice| interval(max - (slice as f64 + 0.5) / 1_000.0) / 1_000.0).sum()
}

#[test]
fn it_climbs_from_cold_to_warm_as_guavas_does() {
    for (rate, cold, warmup) in [(50.0, 3.0, 10.0), (20.0, 3.0, 4.0), (100.0, 10.0, 5.0), (10.0, 1.5, 30.0)] {
        let line = format!("burst=1 rate={rate}/s law=warm-up warmup={warmup}s cold={cold} max_delay=1h");
        let mut subject = Subject::new(&line);
        let leaves = leaves_s(&mut subject, 0, (2.0 * warmup * rate) as usize);
        for (taken, &left) in leaves.iter().enumerate().skip(1) {
            let want = time_s(rate, cold, warmup, taken as f64);
            assert!((left / want - 1.0).abs() < 0.05, "{line}: {taken} left at {left}, not {want}");
        }
        // The slope: second by second the rate is that of the formula's curve, within 5 %.
        let count = |leaves: &[f64], from: f64, to: f64| {
            leaves.iter().filter(|&&at| at >= from && at < to).count() as f64
        };
        let curve: Vec<f64> =
            (0..leaves.len()).map(|taken| time_s(rate, cold, warmup, taken as f64)).collect();
        for part in 0..5 {
            let (from, to) = (f64::from(part) * warmup / 5.0, f64::from(part + 1) * warmup / 5.0);
            let (seen, want) = (count(&leaves, from, to), count(&curve, from, to));
            assert!((seen - want).abs() <= 1.0 + 0.05 * want, "{line}: {seen} from {from} s on, not {want}");
        }
        // From the first request to the one after which each takes 1 / rate it is the time of warming up.
        let interval = |pair: &[f64]| pair[1] - pair[0];
        let warm = leaves.windows(2).position(|pair| interval(pair) < 1.01 / rate).unwrap();
        assert!((leaves[warm] / warmup - 1.0).abs() < 0.05, "{line}: warm after {} s", leaves[warm]);
        let first = interval(&leaves[..2]) * rate / cold;
        assert!((0.95..=1.0).contains(&first), "{line}: the first takes {first} of the coldest");
    }
}

#[test]
fn it_cools_while_nobody_asks_in_the_time_that_it_takes_to_warm() {
    let warm = || {
        let mut subject = Subject::new("burst=1 rate=50/s law=warm-up warmup=10s max_delay=1h");
        let leaves = leaves_s(&mut subject, 0, 1_000);
        let end_ns = (leaves.last().unwrap() * SECOND_NS as f64) as u64 + SECOND_NS / 50;
        (subject, end_ns)
    };
    // The wait of the second request after a pause, in thousandths of a warm slot. A quarter of `warmup` stores a
    // quarter of the bucket, of which only the upper half is slow.
    for (idle_s, want) in [(0, 1_000), (2, 1_000), (5, 1_000), (10, 3_000), (100, 3_000)] {
        let (mut subject, end_ns) = warm();
        let leaves = leaves_s(&mut subject, end_ns + idle_s * SECOND_NS, 2);
        let slots = ((leaves[1] - leaves[0]) * 50.0 * 1_000.0).round();
        assert!((slots / f64::from(want) - 1.0).abs() < 0.05, "idle for {idle_s} s: {slots}, not {want}");
    }
    // Half of the stored permits are past the threshold: three quarters of the time, half-way up the slope.
    let (mut subject, end_ns) = warm();
    let leaves = leaves_s(&mut subject, end_ns + 7_500_000_000, 2);
    let slots = (leaves[1] - leaves[0]) * 50.0;
    assert!((slots / 2.0 - 1.0).abs() < 0.05, "half-way it is {slots} slots");
}

#[test]
fn a_debt_past_the_longest_delay_is_forgiven_though_nobody_is_let_through() {
    let mut subject = Subject::new("burst=1 rate=1/s law=warm-up");
    // Written to an hour from now.
    subject.entry.state.set_wide(at_ms(3_600_000).as_nanos());
    assert_eq!(subject.ask(at_ms(0)).name(), "deny");
    // 5 s of delay, and the 3 s that a request takes at most.
    assert!(subject.ask(at_ms(3_000)).is_let_through());
}

#[test]
fn a_request_of_a_cost_is_paid_for_by_the_one_after_it() {
    let mut subject = Subject::new("burst=10 rate=10/s law=warm-up warmup=0s");
    assert_eq!(subject.ask_for(10, at_ms(0)), Verdict::Pass);
    assert_eq!(subject.ask(at_ms(0)).delay_ms(), 1_000);
}

#[test]
fn a_warm_up_that_stores_too_much_is_refused() {
    let error = Subject::parse("burst=1 rate=1000000/s law=warm-up warmup=1h").unwrap_err();
    assert_eq!(error, "warmup 1h: at 1000000/s it stores more than 16 million permits: make it shorter");
}
