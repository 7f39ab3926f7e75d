//! The numbers of words and answers, as the store's scripts have them.

use crate::cluster::{
    Answer, CountMessage, CountReply, LeaseMessage, LeaseReply, Message, Plan, QuotaPlan, Reply, Words,
};

/// The arguments of a key, for the script of these words.
pub(super) fn of(words: &Words) -> Vec<String> {
    match words {
        Words::Rate(plan, message) => of_rate(plan, message),
        Words::Count(plan, message) => of_count(plan, message),
        Words::Lease(plan, message) => of_lease(plan, message),
    }
}

fn of_rate(plan: &Plan, message: &Message) -> Vec<String> {
    let (burst_s, cap_s) = (plan.burst_s(), plan.cap_s());
    vec![
        us(message.charge * plan.slot_s()),
        format!("{:.3}", message.asked),
        format!("{:.3}", message.asked_lately),
        us(burst_s),
        us(cap_s + Plan::AHEAD_MAX_S),
        message.taught_s.map_or(String::new(), us),
        us(plan.memory_s()),
        ms(burst_s + cap_s + Plan::KEPT_S),
        us(message.known_age_s),
        number(f64::from(u8::from(message.returns))),
    ]
}

fn of_count(plan: &QuotaPlan, message: &CountMessage) -> Vec<String> {
    let CountReply { current, before, over, age_s } = message.taught.unwrap_or_default();
    vec![
        number(message.charge),
        message.taught.map_or(String::new(), |_| number(current)),
        number(before),
        number(over),
        us(age_s),
        number(plan.limit),
        us(plan.window_s),
        ms(2.0 * plan.window_s + Plan::KEPT_S),
    ]
}

fn of_lease(plan: &QuotaPlan, message: &LeaseMessage) -> Vec<String> {
    let (given, rest_s) = message.taught.unwrap_or_default();
    vec![
        number(message.want),
        number(message.asked),
        message.taught.map_or(String::new(), |_| number(given)),
        us(rest_s),
        number(plan.limit),
        number(plan.kept_back()),
        us(plan.window_s),
        ms(plan.window_s + Plan::KEPT_S),
    ]
}

fn us(seconds: f64) -> String {
    format!("{:.0}", seconds * 1e6)
}

fn ms(seconds: f64) -> String {
    format!("{:.0}", seconds * 1e3)
}

fn number(number: f64) -> String {
    format!("{number:.0}")
}

/// Reads the answer to these words. None if a number is missing, or beyond all reason.
pub(super) fn answer(words: &Words, text: &str) -> Option<Answer> {
    let mut numbers = text.split(' ').map(|number| number.parse::<f64>().ok());
    let mut next = |low: f64, high: f64| numbers.next()?.filter(|number| (low..=high).contains(number));
    let answer = match words {
        Words::Rate(..) => Answer::Rate(Reply {
            ahead_s: next(-1e17, 1e17)? / 1e6,
            demand: next(0.0, 1e13)?,
            slow_demand: next(0.0, 1e13)?,
            age_s: next(0.0, 1e17)? / 1e6,
        }),
        Words::Count(plan, _) => Answer::Count(CountReply {
            current: next(0.0, 1e13)?,
            before: next(0.0, 1e13)?,
            over: next(0.0, plan.limit)?,
            age_s: next(0.0, plan.window_s * 1e6)? / 1e6,
        }),
        Words::Lease(plan, message) => Answer::Lease(LeaseReply {
            granted: next(-1e13, message.want.max(0.0))?,
            given: next(0.0, plan.limit)?,
            rest_s: next(0.0, plan.window_s * 1e6)? / 1e6,
        }),
    };
    numbers.next().is_none().then_some(answer)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words() -> [Words; 3] {
        let pacing = crate::law::Law::new(
            "pace",
            crate::law::Objective { burst: 100, rate: "50/s".parse().unwrap() },
            crate::law::Options::default(),
        );
        let plan = Plan::new(&pacing.unwrap().pacing().unwrap(), &crate::cluster::Settings::default(), 3);
        let quota = QuotaPlan {
            limit: 1_000.0,
            window_s: 60.0,
            period: std::time::Duration::from_millis(100),
            round_trip_s: 0.001,
            nodes: 3,
            is_sliding: false,
        };
        let lease = LeaseMessage { want: 5.0, ..LeaseMessage::default() };
        [
            Words::Rate(plan, Message::default()),
            Words::Count(quota, CountMessage::default()),
            Words::Lease(quota, lease),
        ]
    }

    #[test]
    fn numbers_beyond_all_reason_are_no_answer() {
        let [rate, count, lease] = words();
        assert!(answer(&rate, "-20000 3.5 7.25 1000000").is_some());
        assert!(answer(&count, "3 4 0 59999999").is_some());
        assert!(answer(&lease, "5 500 59999999").is_some());
        for text in ["nan 0 0 0", "1e300 0 0 0", "0 -1 0 0", "0 0 0", "0 0 0 0 0", "", "inf 0 0 0"] {
            assert_eq!(answer(&rate, text), None, "{text}");
        }
        for text in ["-1 0 0 0", "0 0 0 60000001", "0 0 1001 0", "0 0 0", "0 nan 0 0"] {
            assert_eq!(answer(&count, text), None, "{text}");
        }
        // More than was wanted, more than there is, later than the window.
        for text in ["6 500 0", "5 1001 0", "5 500 60000001", "nan 0 0"] {
            assert_eq!(answer(&lease, text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_an_answer_with_finite_numbers_or_none(text in "[-0-9naif.e ]{0,40}") {
            for words in words() {
                if let Some(Answer::Rate(reply)) = answer(&words, &text) {
                    prop_assert!(reply.ahead_s.is_finite() && reply.demand >= 0.0 && reply.age_s >= 0.0);
                }
            }
        }
    }
}
