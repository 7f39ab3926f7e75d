//! How much of a bench is run, for how long, how often, and how much it sets up for that.

use std::time::Duration;

use super::median;

/// Who gives a measurement less time than this only wants to see that it runs.
const SHORT: Duration = Duration::from_millis(500);

/// Of what a bench sets up, a short run has this part.
const SHORT_PART: u32 = 20;

#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// For each measurement.
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

    /// Measures one subject after the other, and so on in turns; the median of each figure counts.
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

    /// So many keys, lines, entries or starts; fewer in a short run.
    pub fn count(self, whole: u32) -> u32 {
        if self.is_short() { whole / SHORT_PART } else { whole }
    }

    fn is_short(self) -> bool {
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
