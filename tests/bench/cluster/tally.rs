//! What a load got through, by time.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

/// What a load got through, by time.
#[derive(Debug)]
pub struct Tally {
    /// Let through, by tenths of a second of their leaving; and refused.
    passed: Vec<f64>,
    refused: Vec<f64>,
    clients: Vec<Vec<f64>>,
    delays_ms: Vec<(f64, f64)>,
    /// Moments of answers, and how long each took.
    answers_us: Vec<(f64, f64)>,
    /// CPU time that other machines took from this one, in percent of all, over the whole load.
    pub stolen: f64,
}

/// The figures of a part of a load.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub per_s: f64,
    /// The difference from the rate in percent: in the mean, in the worst second and in the least.
    pub error: f64,
    pub worst: f64,
    pub least: f64,
    pub jain: f64,
    /// The part that is refused, in percent.
    pub refused: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// The time of an answer, in microseconds.
    pub answer_p999_us: f64,
    pub stolen: f64,
}

impl Tally {
    pub fn new(clients: usize) -> Tally {
        let clients = vec![Vec::new(); clients];
        Tally {
            passed: Vec::new(),
            refused: Vec::new(),
            clients,
            delays_ms: Vec::new(),
            answers_us: Vec::new(),
            stolen: f64::NAN,
        }
    }

    pub fn passed(&mut self, leaves: Duration, delay: Duration, client: usize) {
        add(&mut self.passed, leaves);
        self.delays_ms.push((leaves.as_secs_f64(), delay.as_secs_f64() * 1e3));
        if let Some(times) = self.clients.get_mut(client) {
            times.push(leaves.as_secs_f64());
        }
    }

    pub fn refused(&mut self, at: Duration) {
        add(&mut self.refused, at);
    }

    pub fn answered(&mut self, at: Duration, took: Duration) {
        self.answers_us.push((at.as_secs_f64(), took.as_secs_f64() * 1e6));
    }

    /// The figures of these seconds, against a rate.
    pub fn figures(&self, seconds: Range<f64>, rate_per_s: f64) -> Figures {
        let tenths = |bins: &[f64]| -> Vec<f64> {
            let range = (seconds.start * 10.0) as usize..(seconds.end * 10.0) as usize;
            range.map(|tenth| bins.get(tenth).copied().unwrap_or(0.0)).collect()
        };
        let (passed, refused) = (tenths(&self.passed), tenths(&self.refused).iter().sum::<f64>());
        let percent = |per_s: f64| (per_s / rate_per_s - 1.0) * 100.0;
        let windows: Vec<f64> = passed.windows(10).map(|second| second.iter().sum()).collect();
        let count: f64 = passed.iter().sum();
        let per_s = count / (seconds.end - seconds.start);
        let within = |time: &f64| seconds.contains(time);
        let shares: Vec<f64> = self
            .clients
            .iter()
            .map(|times| times.iter().filter(|time| within(time)).count() as f64)
            .collect();
        let (sum, squares) =
            shares.iter().fold((0.0, 0.0), |(sum, squares), share| (sum + share, squares + share * share));
        let at_the_time = |values: &[(f64, f64)]| -> Vec<f64> {
            values.iter().filter(|(at, _)| within(at)).map(|(_, value)| *value).collect()
        };
        let (mut delays, mut answers) = (at_the_time(&self.delays_ms), at_the_time(&self.answers_us));
        Figures {
            per_s,
            error: percent(per_s),
            worst: percent(windows.iter().copied().fold(0.0, f64::max)),
            least: percent(windows.iter().copied().fold(f64::INFINITY, f64::min)),
            jain: if squares > 0.0 { sum * sum / (shares.len() as f64 * squares) } else { f64::NAN },
            refused: 100.0 * refused / (refused + count).max(1.0),
            p50_ms: quantile(&mut delays, 0.5),
            p99_ms: quantile(&mut delays, 0.99),
            answer_p999_us: quantile(&mut answers, 0.999),
            stolen: self.stolen,
        }
    }
}

fn add(bins: &mut Vec<f64>, at: Duration) {
    let tenth = (at.as_secs_f64() * 10.0) as usize;
    if bins.len() <= tenth {
        bins.resize(tenth + 1, 0.0);
    }
    bins[tenth] += 1.0;
}

fn quantile(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values
        .get(((values.len() as f64 * part) as usize).min(values.len().saturating_sub(1)))
        .copied()
        .unwrap_or(0.0)
}

impl Figures {
    pub const HEADER: &str =
        "     per s  mean %  worst s %  least s %   Jain  429 %  p50 ms  p99 ms  answer p99.9 us  stolen %";
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figures { per_s, error, worst, least, jain, refused, p50_ms, p99_ms, answer_p999_us, stolen } =
            self;
        write!(
            f,
            "{per_s:>10.1} {error:>+7.2} {worst:>+10.1} {least:>+10.1} {jain:>6.3} {refused:>6.2} {p50_ms:>7.0} \
             {p99_ms:>7.0} {answer_p999_us:>16.0} {stolen:>9.1}"
        )
    }
}
