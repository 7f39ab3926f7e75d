//! The effort of a bench: its parts, their duration and their size.

use std::time::Duration;

use super::median;

/// Below this time per measurement, a run is short: it only shows that the bench works.
const SHORT: Duration = Duration::from_millis(500);

/// A short run divides its sizes by this.
const SHORT_PART: u32 = 20;

#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// The time for each measurement.
    pub time: Duration,
}

impl Effort {
    /// The first argument that is a number is the seconds for each measurement.
    pub fn from_arguments(seconds_default: f64) -> Effort {
        let given = std::env::args().skip(1).find_map(|argument| argument.parse().ok());
        Effort { time: Duration::from_secs_f64(given.unwrap_or(seconds_default)) }
    }

    pub fn seconds(self) -> f64 {
        self.time.as_secs_f64()
    }

    /// Measures the subjects in turn, several times, and returns the median of each figure.
    pub fn in_turns<S, const N: usize>(
        self,
        subjects: &mut [S],
        mut measure: impl FnMut(&mut S) -> [f64; N],
    ) -> Vec<[f64; N]> {
        let mut runs: Vec<Vec<[f64; N]>> = subjects.iter().map(|_| Vec::new()).collect();
        for _ in 0..self.turns() {
            for (subject, runs) in subjects.iter_mut().zip(&mut runs) {
                runs.push(measure(subject));
            }
        }
        let medians =
            |runs: &Vec<[f64; N]>| std::array::from_fn(|place| median(runs.iter().map(|run| run[place])));
        runs.iter().map(medians).collect()
    }

    pub fn turns(self) -> usize {
        if self.is_short() { 1 } else { 3 }
    }

    /// A number of keys, lines, entries or starts; fewer in a short run.
    pub fn count(self, whole: u32) -> u32 {
        if self.is_short() { whole / SHORT_PART } else { whole }
    }

    pub fn is_short(self) -> bool {
        self.time < SHORT
    }
}

/// A part of a bench, by its name.
pub type Part = (&'static str, fn(Effort));

/// Runs the parts that the arguments name, or all if they name none.
pub fn run(parts: &[Part], effort: Effort) {
    let is_named = |name: &str| std::env::args().any(|argument| argument == name);
    let are_all_wanted = parts.iter().all(|(name, _)| !is_named(name));
    for (_, print) in parts.iter().filter(|(name, _)| are_all_wanted || is_named(name)) {
        print(effort);
    }
}
