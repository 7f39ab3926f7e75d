//! The outcomes of the requests, second by second.

use std::mem::take;
use std::time::Duration;

use parking_lot::Mutex;

/// The client that sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Crawler,
    Customer,
}

/// The outcome of a request: the status of the answer, if there was one, and the time that the request took.
#[derive(Debug)]
pub(super) struct TimedAnswer {
    pub(super) who: Who,
    pub(super) status: Option<u16>,
    pub(super) took: Duration,
}

/// The answers since the last call of `take`.
#[derive(Debug, Default)]
pub(super) struct AnswerTally(Mutex<Vec<TimedAnswer>>);

impl AnswerTally {
    pub(super) fn add(&self, answer: TimedAnswer) {
        self.0.lock().push(answer);
    }

    /// Sums up the answers since the last call as the answers of one second.
    pub(super) fn take(&self) -> Second {
        let answers = take(&mut *self.0.lock());
        let count = |status| answers.iter().filter(|answer| answer.status == Some(status)).count();
        let (crawler_per_s, crawler_ms) = passed(&answers, Who::Crawler);
        let (customer_per_s, customer_ms) = passed(&answers, Who::Customer);
        let (refused, lost) = (count(429) as u32, (answers.len() - count(200) - count(429)) as u32);
        Second { crawler_per_s, crawler_ms, customer_per_s, customer_ms, refused, lost }
    }
}

/// One second, or the mean of several.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Second {
    pub(super) crawler_per_s: f64,
    /// The median time until an answer with status 200; 0 if there was no such answer.
    pub(super) crawler_ms: f64,
    pub(super) customer_per_s: f64,
    pub(super) customer_ms: f64,
    /// The number of requests answered with a 429.
    pub(super) refused: u32,
    /// The number of requests with no answer, or with an unexpected answer.
    pub(super) lost: u32,
}

impl Second {
    /// The mean rates and times, and the sums of the other values.
    pub(super) fn mean(seconds: &[Second]) -> Second {
        let mean =
            |value: fn(&Second) -> f64| seconds.iter().map(value).sum::<f64>() / seconds.len().max(1) as f64;
        Second {
            crawler_per_s: mean(|second| second.crawler_per_s),
            crawler_ms: mean(|second| second.crawler_ms),
            customer_per_s: mean(|second| second.customer_per_s),
            customer_ms: mean(|second| second.customer_ms),
            refused: seconds.iter().map(|second| second.refused).sum(),
            lost: seconds.iter().map(|second| second.lost).sum(),
        }
    }
}

/// How many requests of a client passed, and the median of their times in milliseconds.
fn passed(answers: &[TimedAnswer], who: Who) -> (f64, f64) {
    let passed = answers.iter().filter(|answer| answer.who == who && answer.status == Some(200));
    let mut times: Vec<Duration> = passed.map(|answer| answer.took).collect();
    times.sort_unstable();
    let median = times.get(times.len() / 2);
    (times.len() as f64, median.map_or(0.0, |time| time.as_secs_f64() * 1000.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_what_came_in_it_and_the_next_begins_at_nothing() {
        let tally = AnswerTally::default();
        for (status, ms) in [(Some(200), 10), (Some(200), 30), (Some(200), 20), (Some(429), 1), (None, 1)] {
            tally.add(TimedAnswer { who: Who::Crawler, status, took: Duration::from_millis(ms) });
        }
        tally.add(TimedAnswer { who: Who::Customer, status: Some(200), took: Duration::from_millis(5) });
        let second = tally.take();
        assert_eq!((second.crawler_per_s, second.crawler_ms), (3.0, 20.0));
        assert_eq!((second.customer_per_s, second.customer_ms), (1.0, 5.0));
        assert_eq!((second.refused, second.lost), (1, 1));
        assert_eq!(tally.take(), Second::default());
        let mean = Second::mean(&[second, Second::default()]);
        assert_eq!((mean.crawler_per_s, mean.refused), (1.5, 1));
        assert_eq!(Second::mean(&[]), Second::default());
    }
}
