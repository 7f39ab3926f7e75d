//! The requests that got through, and the figures of their times.

use crate::crowd::Run;

/// A rate has settled when it is this near to the SLO in each of the windows that follow.
const NEAR: f64 = 0.05;

/// The windows that tell whether a rate has settled, and their distance, in seconds.
const WINDOW_S: f64 = 2.0;
const STEP_S: f64 = 0.1;

/// Seconds as they are printed, after [`Passed::settled`].
pub fn seconds(settled: f64) -> String {
    if settled.is_nan() { "not".to_owned() } else { format!("{settled:.1} s") }
}

/// The times of requests that got through, in seconds from the start of a run.
#[derive(Debug, Default)]
pub struct Passed {
    pub at: Vec<f64>,
    pub denied: usize,
}

impl Passed {
    /// Adds those of other clients.
    pub fn and(mut self, other: Passed) -> Passed {
        self.at.extend(other.at);
        self.at.sort_by(f64::total_cmp);
        Passed { at: self.at, denied: self.denied + other.denied }
    }

    /// The error of their rate in the steady part, in percent of an SLO.
    pub fn error(&self, run: Run, rate: f64) -> f64 {
        (self.rate(run.from.as_secs_f64(), run.until.as_secs_f64()) / rate - 1.0) * 100.0
    }

    /// The requests per second between two times.
    pub fn rate(&self, from: f64, until: f64) -> f64 {
        let first = self.at.partition_point(|&at| at < from);
        let end = self.at.partition_point(|&at| at < until);
        (end - first) as f64 / (until - from)
    }

    /// The most requests beyond a bucket, in any span of time: for each of them, a burst and the rate.
    pub fn most_above(&self, burst: f64, rate: f64) -> f64 {
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        for (number, at) in self.at.iter().enumerate() {
            let above = number as f64 - at * rate;
            least = least.min(above);
            most = most.max(above + 1.0 - least);
        }
        most - burst
    }

    /// The seconds from a time on until the rate has settled; NaN if it has not before the end.
    pub fn settled(&self, from: f64, until: f64, rate: f64) -> f64 {
        let windows = ((until - WINDOW_S - from) / STEP_S).floor();
        if windows < 0.0 {
            return f64::NAN;
        }
        let is_near = |number: &usize| {
            let begin = from + *number as f64 * STEP_S;
            // One request is not a deviation of the rate.
            let tolerance = (NEAR * rate).max(1.5 / WINDOW_S);
            (self.rate(begin, begin + WINDOW_S) - rate).abs() <= tolerance
        };
        let near = (0..=windows as usize).rev().take_while(is_near).count();
        if near == 0 { f64::NAN } else { (windows as usize + 1 - near) as f64 * STEP_S }
    }
}
