//! The numbers of words and answers, as the store's scripts have them.

use std::time::Duration;

use slowlane_core::cluster::{
    Answer, Arguments, CountMessage, CountReply, LeaseMessage, LeaseReply, Message, Plan, Reply,
};

/// The arguments of a key, for the script of these words.
pub(super) fn of(arguments: &Arguments) -> Vec<String> {
    match arguments {
        Arguments::Rate(message) => of_rate(message),
        Arguments::Count(message) => of_count(message),
        Arguments::Lease(message) => of_lease(message),
    }
}

fn of_rate(message: &Message) -> Vec<String> {
    vec![
        us(message.charge_s()),
        format!("{:.3}", message.asked),
        format!("{:.3}", message.asked_lately),
        us(message.burst_s),
        us(message.cap_s + Plan::AHEAD_MAX_S),
        message.restore_s.map_or(String::new(), us),
        us(message.memory_s),
        ms(message.kept_s),
        us(message.known_age_s),
        number(f64::from(u8::from(message.returns))),
    ]
}

fn of_count(message: &CountMessage) -> Vec<String> {
    let CountReply { current, before, over, age_s } = message.restore.unwrap_or_default();
    vec![
        number(message.charge),
        message.restore.map_or(String::new(), |_| number(current)),
        number(before),
        number(over),
        us(age_s),
        number(message.limit),
        us(message.window_s),
        ms(message.kept_s),
    ]
}

fn of_lease(message: &LeaseMessage) -> Vec<String> {
    let (given, rest_s) = message.restore.unwrap_or_default();
    vec![
        number(message.want),
        number(message.asked),
        message.restore.map_or(String::new(), |_| number(given)),
        us(rest_s),
        number(message.limit),
        number(message.kept_back),
        us(message.window_s),
        message.age_s.map_or(String::new(), us),
        ms(message.kept_s),
    ]
}

/// The rest of a block, in milliseconds; negative: it has ended.
pub(super) fn of_rest(rest: Option<Duration>) -> String {
    rest.map_or(-1, |rest| i64::try_from(rest.as_millis()).unwrap_or(i64::MAX)).to_string()
}

/// The inverse of [`of_rest`]. None if it is no number.
pub(super) fn rest(text: &[u8]) -> Option<Option<Duration>> {
    let rest_ms: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    Some(u64::try_from(rest_ms).ok().map(Duration::from_millis))
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

/// Reads the answer to these words. None if a number is missing.
pub(super) fn answer(arguments: &Arguments, text: &str) -> Option<Answer> {
    let mut numbers = text.split(' ').map(|number| number.parse::<f64>().ok());
    let mut next = || numbers.next().flatten();
    let answer = match arguments {
        Arguments::Rate(_) => Answer::Rate(Reply {
            ahead_s: next()? / 1e6,
            demand: next()?,
            slow_demand: next()?,
            age_s: next()? / 1e6,
        }),
        Arguments::Count(_) => Answer::Count(CountReply {
            current: next()?,
            before: next()?,
            over: next()?,
            age_s: next()? / 1e6,
        }),
        Arguments::Lease(_) => {
            Answer::Lease(LeaseReply { granted: next()?, given: next()?, rest_s: next()? / 1e6 })
        }
    };
    numbers.next().is_none().then_some(answer)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn arguments() -> [Arguments; 3] {
        let count = CountMessage { limit: 1_000.0, window_s: 60.0, ..CountMessage::default() };
        let lease = LeaseMessage { want: 5.0, limit: 1_000.0, window_s: 60.0, ..LeaseMessage::default() };
        [Arguments::Rate(Message::default()), Arguments::Count(count), Arguments::Lease(lease)]
    }

    /// The answer that a node takes.
    fn answer(arguments: &Arguments, text: &str) -> Option<Answer> {
        super::answer(arguments, text).filter(|answer| answer.fits(arguments))
    }

    #[test]
    fn numbers_beyond_all_reason_are_no_answer() {
        let [rate, count, lease] = arguments();
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
            for arguments in arguments() {
                if let Some(Answer::Rate(reply)) = answer(&arguments, &text) {
                    prop_assert!(reply.ahead_s.is_finite() && reply.demand >= 0.0 && reply.age_s >= 0.0);
                }
            }
        }
    }
}
