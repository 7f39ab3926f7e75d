//! Quotas that nodes share, in virtual time: leases that never exceed them, and counts that nearly hold them.

use std::time::Duration;

use fastrand::Rng;
use slowlane_core::base::{Period, Timestamp, date::Calendar};
use slowlane_core::cluster::{
    CountMessage, CountRecord, CountReply, CountView, LeaseMessage, LeaseRecord, LeaseReply, LeaseView,
    QuotaPlan,
};

const NODES: usize = 35;
const STEP_S: f64 = 0.001;
const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

fn plan(limit: f64, window_s: f64, is_sliding: bool) -> QuotaPlan {
    let (period_s, round_trip_s) = (0.1, 0.001);
    QuotaPlan {
        limit,
        window_s,
        period_s,
        round_trip_s,
        nodes: NODES as u32,
        is_sliding,
        calendar: None,
        is_work: false,
    }
}

fn at(now_s: f64) -> Timestamp {
    START + Duration::from_secs_f64(now_s)
}

/// The load of a node, in requests per second.
fn load(node: usize, per_s: f64, is_skewed: bool) -> f64 {
    match (is_skewed, node) {
        (false, _) => per_s / NODES as f64,
        (true, 0) => 0.8 * per_s,
        (true, _) => 0.2 * per_s / (NODES as f64 - 1.0),
    }
}

/// What the store answers, after half a round trip there and half a round trip back.
struct Wire<M, R> {
    there: Vec<(f64, usize, M)>,
    back: Vec<(f64, usize, M, R)>,
    half_trip_s: f64,
}

impl<M: Copy, R: Copy> Wire<M, R> {
    fn new(round_trip_s: f64) -> Wire<M, R> {
        Wire { there: Vec::new(), back: Vec::new(), half_trip_s: round_trip_s / 2.0 }
    }

    fn send(&mut self, now_s: f64, node: usize, message: M) {
        self.there.push((now_s + self.half_trip_s, node, message));
    }

    /// The store takes up what has arrived, and the nodes their answers.
    fn go_on(&mut self, now_s: f64, mut store: impl FnMut(&M) -> R, mut reply: impl FnMut(usize, &M, &R)) {
        let (arrived, rest) = self.there.drain(..).partition(|(due_s, ..)| *due_s <= now_s);
        self.there = rest;
        for (_, node, message) in arrived {
            let answer = store(&message);
            self.back.push((now_s + self.half_trip_s, node, message, answer));
        }
        let (arrived, rest): (Vec<_>, _) = self.back.drain(..).partition(|(due_s, ..)| *due_s <= now_s);
        self.back = rest;
        arrived.iter().for_each(|(_, node, message, answer)| reply(*node, message, answer));
    }
}

/// The requests let through in each window of the store, as leases.
fn leased(
    plan: &QuotaPlan,
    per_s: f64,
    is_skewed: bool,
    round_trip_s: f64,
    windows: f64,
    seed: u64,
) -> Vec<f64> {
    let plan = &QuotaPlan { round_trip_s, ..*plan };
    let mut rng = Rng::with_seed(seed);
    let mut views: Vec<LeaseView> = (0..NODES).map(|_| LeaseView::new(START)).collect();
    let (mut record, mut ends_s): (Option<LeaseRecord>, Option<f64>) = (None, None);
    let mut wire: Wire<LeaseMessage, LeaseReply> = Wire::new(round_trip_s);
    let (mut passed, mut used) = (Vec::new(), 0.0);
    let mut now_s = 0.0;
    while now_s < windows * plan.window_s {
        now_s += STEP_S;
        // A window ends by its time, and the next one begins with a message.
        let has_turned =
            plan.calendar.is_some_and(|calendar| !calendar.around(at(now_s)).0.contains(&at(now_s - STEP_S)));
        if has_turned || plan.calendar.is_none() && ends_s.is_some_and(|ends_s| now_s >= ends_s) {
            passed.push(used);
            (used, ends_s) = (0.0, None);
        }
        let store = |message: &LeaseMessage| {
            ends_s.get_or_insert(now_s + plan.window_s);
            record.get_or_insert_with(|| LeaseRecord::new(now_s)).merge(message, now_s)
        };
        wire.go_on(now_s, store, |node, message, reply| views[node].reply(message, reply, at(now_s)));
        for (node, view) in views.iter_mut().enumerate() {
            let chance = load(node, per_s, is_skewed) * STEP_S;
            let requests = chance.floor() + f64::from(u8::from(rng.f64() < chance.fract()));
            for _ in 0..requests as u32 {
                used += f64::from(u8::from(view.judge(plan, 1.0, at(now_s)).is_ok()));
            }
            if view.has_to_tell(plan, at(now_s)) {
                wire.send(now_s, node, view.message(plan, at(now_s)));
            }
        }
    }
    passed
}

#[test]
fn leases_never_exceed_a_quota_and_leave_little_of_it() {
    for (limit, window_s) in [(2_000.0, 1.0), (20_000.0, 10.0), (3_600.0, 60.0)] {
        for (is_skewed, round_trip_s) in [(false, 0.001), (true, 0.001), (false, 0.05), (true, 0.05)] {
            for seed in 1..=3 {
                let plan = plan(limit, window_s, false);
                let windows = leased(&plan, 3.0 * limit / window_s, is_skewed, round_trip_s, 3.1, seed);
                let story =
                    format!("{limit} in {window_s} s, {is_skewed} {round_trip_s} {seed}: {windows:?}");
                assert!(windows.len() >= 2, "{story}");
                assert!(windows.iter().all(|used| (0.98 * limit..=limit).contains(used)), "{story}");
            }
        }
    }
}

/// The first minute is twenty seconds old when the first message comes.
#[test]
fn leases_of_the_calendar_never_exceed_a_quota_in_any_of_its_periods() {
    for round_trip_s in [0.001, 0.05] {
        let plan = QuotaPlan { calendar: Some(Calendar::of(Period::Minute)), ..plan(3_600.0, 60.0, false) };
        let windows = leased(&plan, 300.0, true, round_trip_s, 3.4, 1);
        assert_eq!(windows.len(), 3, "{windows:?}");
        assert!(windows.iter().all(|used| (3_528.0..=3_600.0).contains(used)), "{windows:?}");
    }
}

/// A quota that is smaller than fifty requests for each node gives no credit, and is never exceeded either.
#[test]
fn a_small_quota_is_never_exceeded() {
    for limit in [1.0, 5.0, 100.0] {
        let windows = leased(&plan(limit, 2.0, false), 200.0, false, 0.001, 5.1, 1);
        assert!(
            windows.len() >= 3 && windows.iter().all(|used| *used <= limit && *used >= 0.9 * limit - 1.0),
            "{windows:?}"
        );
    }
}

/// The requests let through in each second.
fn counted(
    plan: &QuotaPlan,
    per_s: f64,
    is_skewed: bool,
    round_trip_s: f64,
    seconds: usize,
    seed: u64,
) -> Vec<f64> {
    let mut rng = Rng::with_seed(seed);
    let mut views: Vec<CountView> = (0..NODES).map(|_| CountView::new(START)).collect();
    let mut record = CountRecord::default();
    let mut wire: Wire<CountMessage, CountReply> = Wire::new(round_trip_s);
    let mut passed = vec![0.0; seconds];
    let mut now_s = 0.0;
    while now_s + STEP_S < seconds as f64 {
        now_s += STEP_S;
        let store = |message: &CountMessage| record.merge(message, 1_000.25 + now_s);
        wire.go_on(now_s, store, |node, _, reply| views[node].reply(reply, at(now_s)));
        for (node, view) in views.iter_mut().enumerate() {
            let chance = load(node, per_s, is_skewed) * STEP_S;
            let requests = chance.floor() + f64::from(u8::from(rng.f64() < chance.fract()));
            for _ in 0..requests as u32 {
                let is_through = view.judge(plan, 1.0, at(now_s)).is_ok();
                passed[now_s as usize] += f64::from(u8::from(is_through));
            }
            if view.has_to_tell(plan, at(now_s)) {
                wire.send(now_s, node, view.message(plan, at(now_s)));
            }
        }
    }
    passed
}

/// What a window lets through over its limit, the next one lets through less.
#[test]
fn counts_hold_a_window_in_the_mean() {
    for is_sliding in [false, true] {
        for (is_skewed, round_trip_s) in [(false, 0.001), (true, 0.001), (false, 0.05)] {
            let plan = plan(2_000.0, 1.0, is_sliding);
            let seconds = counted(&plan, 6_000.0, is_skewed, round_trip_s, 21, 1);
            let mean = seconds[1..].iter().sum::<f64>() / 20.0;
            let story = format!("{is_sliding} {is_skewed} {round_trip_s}: {mean} {seconds:?}");
            // A message takes longer to far stores, and so does the news that a window is full.
            let most = if round_trip_s < 0.01 { 2_100.0 } else { 2_300.0 };
            assert!((1_700.0..=most).contains(&mean), "{story}");
        }
    }
}

/// Below the limit nobody is refused.
#[test]
fn counts_let_a_load_below_the_limit_through() {
    let plan = plan(2_000.0, 1.0, false);
    let seconds = counted(&plan, 1_700.0, true, 0.001, 11, 1);
    let mean = seconds[1..].iter().sum::<f64>() / 10.0;
    assert!((1_600.0..=1_800.0).contains(&mean), "{seconds:?}");
}
