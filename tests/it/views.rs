//! What a node knows of a shared key stays within its bounds, whatever happens to it and whatever the store answers.

use std::time::Duration;

use proptest::prelude::*;
use slowlane::base::time::Timestamp;
use slowlane::cluster::{
    CountReply, CountView, LeaseReply, LeaseView, OnSilence, Plan, QuotaPlan, Reply, View,
};

/// Something that happens to a view, after a time in milliseconds.
#[derive(Clone, Debug)]
enum Event {
    Asked(u32),
    TakenBack,
    Told,
    Lost,
    /// The store answers the last message, with numbers between 0 and 1 that each view reads in its own way.
    Answered([f64; 4]),
}

fn events() -> impl Strategy<Value = Vec<(u64, Event)>> {
    let number = || prop_oneof![Just(0.0), 0.0..1.0f64, Just(1.0)];
    let event = prop_oneof![
        6 => (1u32..5).prop_map(Event::Asked),
        1 => Just(Event::TakenBack),
        3 => Just(Event::Told),
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
        },
    )
}

fn quota() -> impl Strategy<Value = QuotaPlan> {
    (1u32..10_000, 1u32..86_400, 1u32..100, any::<bool>()).prop_map(|(limit, window, nodes, is_sliding)| {
        QuotaPlan {
            limit: f64::from(limit),
            window_s: f64::from(window),
            period: Duration::from_millis(100),
            round_trip_s: 0.001,
            nodes,
            is_sliding,
        }
    })
}

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const TRIP: Duration = Duration::from_millis(1);

proptest! {
    #[test]
    fn no_request_waits_longer_than_the_longest_delay(plan in plan(), events in events()) {
        let (mut view, mut now, mut sent, mut last) = (View::new(&plan, START), START, None, None);
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
                Event::TakenBack => if let Some(cost) = last.take() {
                    view.take_back(&plan, cost.into());
                },
                Event::Told => sent = Some(view.message(&plan, now)),
                Event::Lost => if let Some(message) = sent.take() {
                    view.lost(&message);
                },
                Event::Answered([ahead, demand, slow, age]) => if let Some(message) = sent.take() {
                    let reply = Reply {
                        ahead_s: (ahead - 0.5) * 2e11,
                        demand: demand * 1e13,
                        slow_demand: slow * 1e13,
                        age_s: age * 1e11,
                    };
                    view.reply(&plan, &message, &reply, TRIP, now);
                },
            }
            let _ = view.has_to_tell(&plan, now);
            let glance = view.clone().glance(&plan, now);
            let all = [glance.ahead_s, glance.own_per_s, glance.others_per_s, glance.share.unwrap_or(1.0), view.owed()];
            prop_assert!(all.iter().all(|number| number.is_finite()), "{glance:?}");
            prop_assert!(view.owed() >= 0.0 && glance.share.is_none_or(|share| (0.0..=1.0).contains(&share)));
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
                    Err(wait) => prop_assert!(wait <= Duration::from_secs_f64(plan.window_s)),
                },
                Event::TakenBack | Event::Lost => if let Some(message) = sent.take() {
                    view.lost(&message);
                },
                Event::Told => sent = Some(view.message(&plan, now)),
                Event::Answered([current, before, over, age]) => if let Some(message) = sent.take() {
                    let reply = CountReply {
                        current: current * 1e13,
                        before: before * 1e13,
                        over: over * plan.limit,
                        age_s: age * plan.window_s,
                    };
                    view.reply(&message, &reply, now);
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
                Event::TakenBack | Event::Lost => if let Some(message) = sent.take() {
                    view.lost(&message);
                },
                Event::Told => sent = Some(view.message(&plan, now)),
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
