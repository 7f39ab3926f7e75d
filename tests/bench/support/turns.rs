//! Measuring in turns: how long, how often, and the line that is printed of each figure.

#![allow(dead_code, reason = "each bench uses a part of it")]

use std::time::Duration;

/// Who gives a measurement less time than this only wants to see that it runs.
const SHORT: Duration = Duration::from_millis(500);

/// What a bench is given for each measurement.
#[derive(Clone, Copy, Debug)]
pub struct Turns {
    pub time: Duration,
}

impl Turns {
    /// The first argument that is a number is the seconds for each measurement.
    pub fn from_arguments(seconds_default: f64) -> Turns {
        let given = std::env::args().skip(1).find_map(|argument| argument.parse().ok());
        Turns { time: Duration::from_secs_f64(given.unwrap_or(seconds_default)) }
    }

    pub fn is_short(self) -> bool {
        self.time < SHORT
    }

    /// Measures one subject after the other, and so on in turns; the median of each figure counts.
    pub fn take<S, const N: usize>(
        self,
        subjects: &[S],
        mut measure: impl FnMut(&S) -> [f64; N],
    ) -> Vec<[f64; N]> {
        let turns = if self.is_short() { 1 } else { 3 };
        let mut runs: Vec<Vec<[f64; N]>> = subjects.iter().map(|_| Vec::new()).collect();
        for _ in 0..turns {
            for (subject, runs) in subjects.iter().zip(&mut runs) {
                runs.push(measure(subject));
            }
        }
        runs.iter()
            .map(|runs| std::array::from_fn(|place| median(runs.iter().map(|run| run[place]))))
            .collect()
    }
}

pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The value that so many percent of these do not exceed; they are sorted.
pub fn percentile(sorted: &[f64], percent: usize) -> f64 {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

/// Prints one figure, and its ratio to what each of some others has.
pub fn print(what: &str, whose: &str, figure: f64, unit: &str, others: &[(&str, f64)]) {
    let ratio = |(other, theirs): &(&str, f64)| format!("x{:.2} of {other}", figure / theirs);
    let ratios: Vec<String> = others.iter().map(ratio).collect();
    let digits = if figure >= 1_000.0 { 0 } else { 2 };
    let line = format!("{what:<36} {whose:<28} {figure:>10.digits$} {unit:<11} {}", ratios.join(", "));
    println!("{}", line.trim_end());
}
