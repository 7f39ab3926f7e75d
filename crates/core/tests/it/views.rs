//! What a node knows of a shared key stays within its bounds, whatever happens to it and whatever the store answers.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use slowlane_core::base::{Sample, Timestamp, Turn};
use slowlane_core::cluster::{
    CountReply, CountView, Grant, Hint, LeaseReply, LeaseView, OnSilence, Plan, QuotaPlan, Record, Reply,
    View, Wants,
};

/// Something that happens to a view, after a time in milliseconds.
#[derive(Clone, Debug)]
enum Event {
    Asked(u32),
    /// A request whose answer is held, if it has to wait.
    Held(u64),
    Passed,
    Left,
    Hinted([f64; 4]),
    TakenBack,
    Reported,
    Lost,
    /// The store answers the last message, with numbers between 0 and 1 that each view reads in its own way.
    Answered([f64; 4]),
}

fn events() -> impl Strategy<Value = Vec<(u64, Event)>> {
    let number = || prop_oneof![Just(0.0), 0.0..1.0f64, Just(1.0)];
    let event = prop_oneof![
        6 => (1u32..5).prop_map(Event::Asked),
        6 => any::<u64>().prop_map(Event::Held),
        2 => Just(Event::Passed),
        1 => Just(Event::Left),
        1 => [number(), number(), number(), number()].prop_map(Event::Hinted),
        1 => Just(Event::TakenBack),
        3 => Just(Event::Reported),
        1 => Just(Event::Lost),
        3 => [number(), number(), number(), number()].prop_map(Event::Answered),
    ];
    prop::collection::vec((prop_oneof![0u64..20, 0u64..3_000, Just(100_000)], event), 1..120)
}

fn plan() -> impl Strategy<Value = Plan> {
    let delays = prop_oneof![Just(0u64), Just(5_000), Just(60_000)];
    let silence = prop_oneof![Just(OnSilence::Share), Just(OnSilence::Open), Just(OnSilence::Closed)];
    (0.001..1e5f64, 0.0..1e4f64, delays, silence, 1u32..100).prop_map(
        |(rate_per_s, burst, max_delay, on_silence, nodes)| Plan {
            rate_per_s,
            burst: if max_delay == 0 { burst.max(1.0) } else { burst },
            max_delay: Duration::from_millis(max_delay),
            period: Duration::from_millis(100),
            silent_after: Duration::from_millis(500),
            on_silence,
            nodes,
            phase: 0.0,
            round_trip: TRIP,
            is_work: false,
        },
    )
}

fn quota() -> impl Strategy<Value = QuotaPlan> {
    (1u32..10_000, 1u32..86_400, 1u32..100, any::<bool>()).prop_map(|(limit, window, nodes, is_sliding)| {
        QuotaPlan {
            limit: f64::from(limit),
            window_s: f64::from(window),
            period_s: 0.1,
            round_trip_s: 0.001,
            nodes,
            is_sliding,
            calendar: None,
            is_work: false,
        }
    })
}

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const TRIP: Duration = Duration::from_millis(1);

proptest! {
    #[test]
    fn no_request_waits_longer_than_the_longest_delay(plan in plan(), events in events()) {
        let (mut view, mut now, mut sent, mut last) = (View::new(&plan, START), START, None, None);
        let mut held: Vec<(u64, Arc<Turn>)> = Vec::new();
        for (after, event) in events {
            now = now + Duration::from_millis(after);
            match event {
                Event::Asked(cost) => match view.judge(&plan, cost.into(), now) {
                    Ok(delay) => {
                        prop_assert!(delay <= plan.max_delay + Duration::from_millis(1), "{delay:?}");
                        last = Some(cost);
                    }
                    Err(wait) => prop_assert!(wait < Duration::from_secs(400 * 86_400), "{wait:?}"),
                },
                Event::Held(bits) => match view.judge_held(&plan, Sample::from_bits(bits), now) {
                    Ok((delay, None)) => prop_assert!(delay <= plan.max_delay + Duration::from_millis(1), "{delay:?}"),
                    Ok((_, Some(number))) => held.push((number, view.turn(number).unwrap())),
                    Err(wait) => prop_assert!(wait < Duration::from_secs(400 * 86_400), "{wait:?}"),
                },
                Event::Passed => if let Some((number, _)) = held.pop() {
                    view.pass(&plan, number, now);
                },
                Event::Left => if let Some((number, _)) = held.pop() {
                    view.leave(&plan, number, now);
                },
                Event::Hinted([ahead, demand, slow, age]) => {
                    let hint = Hint {
                        ahead_s: (ahead - 0.5) * 2e12,
                        demand: demand * 1e12,
                        slow_demand: slow * 1e12,
                        age_s: age * 1e12,
                        at: now,
                        ..Hint::default()
                    };
                    view.hint(&plan, &hint, now);
                }
                Event::TakenBack => if let Some(cost) = last.take() {
                    view.take_back(&plan, cost.into());
                },
                Event::Reported => sent = Some(view.message(&plan, now)),
                Event::Lost => if let Some(message) = sent.take() {
                    view.lost(&message);
                },
                Event::Answered([ahead, demand, slow, age]) => if let Some(message) = sent.take() {
                    let wanted = |wants: &Wants| Grant {
                        holes: vec![(slow - 0.5) * 2e12; wants.want.min(1) as usize],
                        first_s: (age - 0.5) * 2e12,
                        count: (f64::from(wants.want.saturating_sub(1)) * demand) as u32,
                        refused: (f64::from(wants.want.saturating_sub(1)) * (1.0 - demand)) as u32,
                    };
                    let grant = message.wants.as_ref().map(wanted);
                    let reply = Reply {
                        grant,
                        ahead_s: (ahead - 0.5) * 2e11,
                        demand: demand * 1e13,
                        slow_demand: slow * 1e13,
                        age_s: age * 1e11,
                    };
                    view.reply(&plan, &message, &reply, now);
                },
            }
            view.drop_overdue(&plan, now);
            let _ = view.has_to_tell(&plan, now);
            // A request without a slot may wait for a round trip, and one in a queue for those before it.
            let latest = now + 2 * plan.max_delay + Duration::from_secs(400 * 86_400).min(Duration::from_secs_f64(2.0 / plan.rate_per_s)) + Duration::from_secs(5);
            held.retain(|(number, _)| view.turn(*number).is_some());
            for (_, turn) in &held {
                prop_assert!(turn.due().is_none_or(|due| due <= latest), "{turn:?} at {now:?}");
            }
            let stats = view.clone().stats(&plan, now);
            let all = [stats.ahead_s, stats.own_per_s, stats.others_per_s, stats.share.unwrap_or(1.0), view.debt()];
            prop_assert!(all.iter().all(|number| number.is_finite()), "{stats:?}");
            prop_assert!(view.debt() >= 0.0 && stats.share.is_none_or(|share| (0.0..=1.0).contains(&share)));
        }
    }

    #[test]
    fn a_window_lets_no_more_through_than_its_limit_between_two_answers(plan in quota(), events in events()) {
        let (mut view, mut now, mut sent) = (CountView::new(START), START, None);
        let (mut passed, mut began) = (0.0, START);
        for (after, event) in events {
            now = now + Duration::from_millis(after);
            match event {
                Event::Asked(cost) => match view.judge(&plan, cost.into(), now) {
                    Ok(()) => passed += f64::from(cost),
                    // A sliding window may fade for another one.
                    Err(wait) => prop_assert!(wait <= Duration::from_secs_f64(2.0 * plan.window_s)),
                },
                Event::Held(_) | Event::Passed | Event::Left | Event::Hinted(_) => {}
                Event::TakenBack | Event::Lost => if let Some(message) = sent.take() {
                    view.lost(&message);
                },
                Event::Reported => sent = Some(view.message(&plan, now)),
                Event::Answered([current, before, over, age]) => if sent.take().is_some() {
                    let reply = CountReply {
                        current: current * 1e13,
                        before: before * 1e13,
                        over: over * plan.limit,
                        age_s: age * plan.window_s,
                    };
                    view.reply(&reply, now);
                    // The store may say that nothing was counted, and that a new window has begun.
                    (passed, began) = (0.0, now);
                },
            }
            let windows = (now.since(began).as_secs_f64() / plan.window_s).ceil() + 1.0;
            prop_assert!(passed <= windows * plan.limit, "{passed} in {windows} windows");
            prop_assert!(f64::from(view.remaining(&plan, now)) <= plan.limit);
            let _ = view.has_to_tell(&plan, now);
        }
    }

    /// What the store has granted, and the credit of a node in each window: nothing else gets through.
    #[test]
    fn no_more_than_what_was_granted_gets_through(plan in quota(), events in events()) {
        let (mut view, mut now, mut sent) = (LeaseView::new(START), START, None);
        let (mut passed, mut granted) = (0.0, 0.0);
        let mut answers = 0.0;
        for (after, event) in events {
            now = now + Duration::from_millis(after);
            match event {
                Event::Asked(cost) => match view.judge(&plan, cost.into(), now) {
                    Ok(()) => passed += f64::from(cost),
                    Err(wait) => prop_assert!(wait <= Duration::from_secs_f64(plan.window_s + 1.0)),
                },
                Event::Held(_) | Event::Passed | Event::Left | Event::Hinted(_) => {}
                Event::TakenBack | Event::Lost => if let Some(message) = sent.take() {
                    view.lost(&message);
                },
                Event::Reported => sent = Some(view.message(&plan, now)),
                Event::Answered([part, given, rest, _]) => if let Some(message) = sent.take() {
                    let reply = LeaseReply {
                        granted: (part * message.want.max(0.0)).floor(),
                        given: given * plan.limit,
                        rest_s: rest * plan.window_s,
                    };
                    view.reply(&message, &reply, now);
                    (granted, answers) = (granted + reply.granted, answers + 1.0);
                },
            }
            // A credit is for one window, and each answer may begin a new one.
            prop_assert!(passed <= granted + answers + 1.0, "{passed} of {granted} in {answers} windows");
            prop_assert!(view.hand().is_finite() && view.hand() >= 0.0);
        }
    }
}

/// Nodes with the same demand, and a record of the store. Times are milliseconds since the start.
struct Nodes {
    plan: Plan,
    views: Vec<View>,
    record: Record,
    now_ms: u64,
}

impl Nodes {
    fn new(count: u32) -> Nodes {
        let (max_delay, period) = (Duration::from_secs(5), Duration::from_millis(100));
        let silent_after = Duration::from_millis(500);
        let on_silence = OnSilence::Share;
        let plan = Plan {
            rate_per_s: 400.0,
            burst: 40.0,
            max_delay,
            period,
            silent_after,
            on_silence,
            nodes: count,
            phase: 0.0,
            round_trip: TRIP,
            is_work: false,
        };
        let views = (0..count).map(|_| View::new(&plan, START)).collect();
        Nodes { plan, views, record: Record::new(0.0), now_ms: 0 }
    }

    /// Asks for three times the rate in all. Returns how much was let through, in percent of the rate, in the second
    /// half of the time.
    fn run(&mut self, time_ms: u64, is_silent: bool) -> f64 {
        let (begin_ms, end_ms) = (self.now_ms, self.now_ms + time_ms);
        let (mut passed, mut lost) = (0.0, vec![None; self.views.len()]);
        // Each node asks every 10 ms, but not in the same moment as the next.
        let cost = 3.0 * self.plan.rate_per_s / 100.0 / f64::from(self.plan.nodes);
        while self.now_ms < end_ms {
            let now = START + Duration::from_millis(self.now_ms);
            for (number, view) in self.views.iter_mut().enumerate() {
                let is_its_turn = self.now_ms % 10 == number as u64 % 10;
                if is_its_turn && view.judge(&self.plan, cost, now).is_ok() {
                    passed += if self.now_ms >= (begin_ms + end_ms) / 2 { cost } else { 0.0 };
                }
                // A silent store costs a message its time, as a connection does that is refused.
                if is_silent
                    && let Some((_, message)) = lost[number].take_if(|(at_ms, _)| self.now_ms >= *at_ms)
                {
                    view.lost(&message);
                }
                if !is_its_turn || lost[number].is_some() || !view.has_to_tell(&self.plan, now) {
                    continue;
                }
                let message = view.message(&self.plan, now);
                if is_silent {
                    lost[number] = Some((self.now_ms + 150, message));
                    continue;
                }
                let at_s = self.now_ms as f64 / 1e3;
                let reply = self.record.merge(&message, at_s);
                view.reply(&self.plan, &message, &reply, now + TRIP);
            }
            self.now_ms += 1;
        }
        let under_way = self.views.iter_mut().zip(lost).filter_map(|(view, lost)| Some((view, lost?.1)));
        under_way.for_each(|(view, message)| view.lost(&message));
        200_000.0 * passed / (time_ms as f64 * self.plan.rate_per_s)
    }
}

/// The store's sums of the demand have faded in a silence, and those of the nodes have not.
#[test]
fn a_second_silence_is_no_worse_than_the_first() {
    for (first_ms, between_ms) in
        [(60_000, 10_000), (60_000, 3_000), (60_000, 1_000), (60_000, 300), (5_000, 3_000), (2_000, 1_000)]
    {
        let mut nodes = Nodes::new(10);
        nodes.run(20_000, false);
        nodes.run(first_ms, true);
        nodes.run(between_ms, false);
        let passed = nodes.run(60_000, true);
        assert!((97.0..=103.0).contains(&passed), "{first_ms} ms, {between_ms} ms later again: {passed} %");
    }
}
