//! The outcomes of the requests, second by second.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Crawler,
    Customer,
}

/// Counts since the last call of `take`.
#[derive(Debug, Default)]
pub(super) struct AnswerTally(Mutex<DemoCounts>);

#[derive(Debug, Default)]
struct DemoCounts {
    crawler: Vec<Duration>,
    customer: Vec<Duration>,
    refused: u32,
    lost: u32,
}

impl AnswerTally {
    /// Counts an answer, or its absence, after this time.
    pub(super) fn count(&self, who: Who, status: Option<u16>, took: Duration) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match (status, who) {
            (Some(200), Who::Crawler) => counts.crawler.push(took),
            (Some(200), Who::Customer) => counts.customer.push(took),
            (Some(429), _) => counts.refused += 1,
            _ => counts.lost += 1,
        }
    }

    /// The counts since the last call.
    pub(super) fn take(&self) -> Second {
        let counts = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        Second {
            crawler_per_s: counts.crawler.len() as f64,
            crawler_ms: median_ms(counts.crawler),
            customer_per_s: counts.customer.len() as f64,
            customer_ms: median_ms(counts.customer),
            refused: counts.refused,
            lost: counts.lost,
        }
    }
}

/// One second, or the mean of several.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Second {
    pub(super) crawler_per_s: f64,
    /// The median of the times until an answer; 0 if there was none.
    pub(super) crawler_ms: f64,
    pub(super) customer_per_s: f64,
    pub(super) customer_ms: f64,
    /// Requests answered with a 429.
    pub(super) refused: u32,
    /// Requests with no answer, or with an unexpected one.
    pub(super) lost: u32,
}

impl Second {
    /// The mean of the rates and the times. The other values are sums.
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

fn median_ms(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_what_came_in_it_and_the_next_begins_at_nothing() {
        let tally = AnswerTally::default();
        for (status, ms) in [(Some(200), 10), (Some(200), 30), (Some(200), 20), (Some(429), 1), (None, 1)] {
            tally.count(Who::Crawler, status, Duration::from_millis(ms));
        }
        tally.count(Who::Customer, Some(200), Duration::from_millis(5));
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
