//! The numbers of words and answers, as the store's scripts have them.

use std::time::Duration;

use crate::sync::call::Call;
use slowlane_core::cluster::{
    Answer, CountPosting, CountReply, LeasePosting, LeaseReply, Plan, Posting, RatePosting, Reply, Words,
};

/// The arguments of a key, for the script of these words.
pub(super) fn of(posting: &Posting) -> Vec<String> {
    match posting {
        Posting::Rate(posting) => of_rate(posting),
        Posting::Count(posting) => of_count(posting),
        Posting::Lease(posting) => of_lease(posting),
    }
}

fn of_rate(posting: &RatePosting) -> Vec<String> {
    vec![
        us(posting.charge_s),
        format!("{:.3}", posting.asked),
        format!("{:.3}", posting.asked_lately),
        us(posting.burst_s),
        us(posting.cap_s + Plan::AHEAD_MAX_S),
        posting.taught_s.map_or(String::new(), us),
        us(posting.memory_s),
        ms(posting.kept_s),
        us(posting.known_age_s),
        number(f64::from(u8::from(posting.returns))),
    ]
}

fn of_count(posting: &CountPosting) -> Vec<String> {
    let CountReply { current, before, over, age_s } = posting.taught.unwrap_or_default();
    vec![
        number(posting.charge),
        posting.taught.map_or(String::new(), |_| number(current)),
        number(before),
        number(over),
        us(age_s),
        number(posting.limit),
        us(posting.window_s),
        ms(posting.kept_s),
    ]
}

fn of_lease(posting: &LeasePosting) -> Vec<String> {
    let (given, rest_s) = posting.taught.unwrap_or_default();
    vec![
        number(posting.want),
        number(posting.asked),
        posting.taught.map_or(String::new(), |_| number(given)),
        us(rest_s),
        number(posting.limit),
        number(posting.kept_back),
        us(posting.window_s),
        posting.age_s.map_or(String::new(), us),
        ms(posting.kept_s),
    ]
}

/// The most requests of a number.
const MOST: f64 = 1e12;

/// The longest time, about 30 years.
const LONGEST_S: f64 = 1e9;

/// Reads the arguments of a key: the inverse of [`of`]. None if one is missing, or beyond all reason.
pub(super) fn posting(call: Call, words: &[&[u8]]) -> Option<Posting> {
    let mut words = words.iter();
    let mut text = || std::str::from_utf8(words.next()?).ok();
    let read = |text: &str, low: f64, high: f64| {
        text.parse().ok().filter(|number: &f64| (low..=high).contains(number))
    };
    let seconds = |text: &str, low: f64, unit: f64| Some(read(text, low * unit, LONGEST_S * unit)? / unit);
    // An empty text is a number that the node does not know.
    let known = |text: &str, low: f64, high: f64| match text {
        "" => Some(None),
        text => read(text, low, high).map(Some),
    };
    let posting = match call {
        Call::Rate => Posting::Rate(RatePosting {
            charge_s: seconds(text()?, -LONGEST_S, 1e6)?,
            asked: read(text()?, 0.0, MOST)?,
            asked_lately: read(text()?, 0.0, MOST)?,
            burst_s: seconds(text()?, 0.0, 1e6)?,
            cap_s: (seconds(text()?, 0.0, 1e6)? - Plan::AHEAD_MAX_S).max(0.0),
            taught_s: known(text()?, -LONGEST_S * 1e6, LONGEST_S * 1e6)?.map(|us| us / 1e6),
            memory_s: seconds(text()?, 1e-3, 1e6)?,
            kept_s: seconds(text()?, 1e-3, 1e3)?,
            known_age_s: seconds(text()?, 0.0, 1e6)?,
            returns: read(text()?, 0.0, 1.0)? == 1.0,
        }),
        Call::Count => {
            let charge = read(text()?, -MOST, MOST)?;
            let current = known(text()?, 0.0, MOST)?;
            let (before, over) = (read(text()?, 0.0, MOST)?, read(text()?, 0.0, MOST)?);
            let age_s = seconds(text()?, 0.0, 1e6)?;
            Posting::Count(CountPosting {
                charge,
                taught: current.map(|current| CountReply { current, before, over, age_s }),
                limit: read(text()?, 1.0, MOST)?,
                window_s: seconds(text()?, 1e-3, 1e6)?,
                kept_s: seconds(text()?, 1e-3, 1e3)?,
            })
        }
        Call::Lease => {
            let (want, asked) = (read(text()?, -MOST, MOST)?, read(text()?, 0.0, MOST)?);
            let (given, rest_s) = (known(text()?, 0.0, MOST)?, seconds(text()?, -LONGEST_S, 1e6)?);
            Posting::Lease(LeasePosting {
                want,
                asked,
                taught: given.map(|given| (given, rest_s)),
                limit: read(text()?, 0.0, MOST)?,
                kept_back: read(text()?, 0.0, MOST)?,
                window_s: seconds(text()?, 1e-3, 1e6)?,
                age_s: known(text()?, 0.0, LONGEST_S * 1e6)?.map(|us| us / 1e6),
                kept_s: seconds(text()?, 1e-3, 1e3)?,
            })
        }
        Call::Beat | Call::Blocks => return None,
    };
    text().is_none().then_some(posting)
}

/// The answer about a key, as the scripts write it.
pub(super) fn of_answer(answer: &Answer) -> String {
    match answer {
        Answer::Rate(Reply { ahead_s, demand, slow_demand, age_s }) => {
            format!("{:.0} {demand:.4} {slow_demand:.4} {:.0}", ahead_s * 1e6, age_s * 1e6)
        }
        Answer::Count(CountReply { current, before, over, age_s }) => {
            format!("{current:.0} {before:.0} {over:.0} {:.0}", age_s * 1e6)
        }
        Answer::Lease(LeaseReply { granted, given, rest_s }) => {
            format!("{granted:.0} {given:.0} {:.0}", rest_s * 1e6)
        }
    }
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
    use slowlane_core::cluster::{CountMessage, LeaseMessage, Message, QuotaPlan};

    fn words() -> [Words; 3] {
        let pacing = slowlane_core::law::Law::new(
            "pace",
            slowlane_core::law::Objective { burst: 100, rate: "50/s".parse().unwrap() },
            slowlane_core::law::Options::default(),
        );
        let plan =
            Plan::new(&pacing.unwrap().pacing().unwrap(), &slowlane_core::cluster::Settings::default(), 3);
        let quota = QuotaPlan {
            limit: 1_000.0,
            window_s: 60.0,
            period: std::time::Duration::from_millis(100),
            round_trip_s: 0.001,
            nodes: 3,
            is_sliding: false,
            calendar: None,
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

        /// What a node writes, a token server reads, to within a microsecond and a thousandth of a request.
        #[test]
        fn a_posting_reads_back_as_it_was_written(
            charge in -1e3..1e6f64, asked in 0.0..1e6f64, taught in prop::option::of(-1e3..1e3f64), age in 0.0..1e5f64,
            returns: bool,
        ) {
            let [mut rate, mut count, mut lease] = words();
            if let Words::Rate(_, message) = &mut rate {
                *message = Message {
                    charge, asked, asked_lately: asked, taught_s: taught, known_age_s: age, returns, own: 0.0,
                };
            }
            if let Words::Count(_, message) = &mut count {
                let taught = taught.map(|_| CountReply { current: asked, before: 7.0, over: 3.0, age_s: age });
                *message = CountMessage { charge, taught, sent_s: 0.0 };
            }
            if let Words::Lease(_, message) = &mut lease {
                let taught = taught.map(|rest_s| (asked, rest_s));
                let period = taught.map(|(_, rest_s)| (age, age + rest_s.abs() + 1.0));
                *message = LeaseMessage { want: charge, asked, taught, period, ..LeaseMessage::default() };
            }
            for (call, words) in [(Call::Rate, rate), (Call::Count, count), (Call::Lease, lease)] {
                let written = of(&words.posting());
                let read: Vec<&[u8]> = written.iter().map(String::as_bytes).collect();
                prop_assert_eq!(Some(read.len()), call.arguments());
                let read = posting(call, &read);
                prop_assert_eq!(read.as_ref().map(of), Some(written));
            }
        }

        #[test]
        fn any_words_are_a_posting_with_finite_numbers_or_none(
            words in prop::collection::vec("[-0-9nae.]{0,8}|nan|inf|1e300", 0..12),
        ) {
            let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
            for call in Call::ALL {
                if let Some(Posting::Rate(posting)) = posting(call, &words) {
                    prop_assert!(posting.charge_s.is_finite() && posting.memory_s > 0.0 && posting.kept_s > 0.0);
                }
            }
        }
    }
}
