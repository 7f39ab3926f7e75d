//! The memory and the file descriptors of a process, second by second, and whether they grow.

use std::fs;

/// Memory may grow by this part between two quarters of a life, and by [`SLACK_KIB`].
///
/// It does grow at first: the status keeps the last 300 s, and the allocator needs minutes until it finds a hole for
/// every new map, connection and line. A quarter of a short soak falls into that time. A leak of a hundred bytes for
/// each key of the floods would be 200 KiB a second.
const GROWTH_PERCENT: u64 = 10;

/// A life of ten seconds varies by half of that.
const SLACK_KIB: u64 = 2_048;

/// File descriptors may grow by this number. Each client and peer has one at a time, so their number is bounded. It
/// varies with the holds of the moment: HAProxy 2.6 has a connection for each. A leak of one per reload, reader or
/// stalled peer would be one a second.
const SLACK_DESCRIPTORS: u64 = 32;

/// The quarters of a shorter life are a few seconds, after a start in which everyone connects again.
const LIFE_SECONDS_MIN: usize = 24;

/// A process in one second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    pub resident_kib: u64,
    pub descriptors: u64,
}

impl Sample {
    /// None: the process has ended.
    pub fn of(process: u32) -> Option<Sample> {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let resident_kib = resident.trim().trim_end_matches(" kB").parse().ok()?;
        let descriptors = fs::read_dir(format!("/proc/{process}/fd")).ok()?.count() as u64;
        Some(Sample { resident_kib, descriptors })
    }
}

/// One figure of a process, second by second.
pub struct Figure {
    pub name: &'static str,
    pub of: fn(&Sample) -> u64,
    /// The most that may follow a value.
    pub most_after: fn(u64) -> u64,
}

pub const RESIDENT: Figure = Figure {
    name: "RSS in KiB",
    of: |sample| sample.resident_kib,
    most_after: |before| before + before * GROWTH_PERCENT / 100 + SLACK_KIB,
};

pub const DESCRIPTORS: Figure = Figure {
    name: "file descriptors",
    of: |sample| sample.descriptors,
    most_after: |before| before + SLACK_DESCRIPTORS,
};

impl Figure {
    /// The medians of the second and the last quarter of a life.
    fn quarters(&self, life: &[Sample]) -> [u64; 2] {
        let count = life.len();
        [&life[count / 4..count / 2], &life[count * 3 / 4..]].map(|part| self.median(part))
    }

    fn median(&self, samples: &[Sample]) -> u64 {
        self.sorted(samples)[samples.len() / 2]
    }

    fn sorted(&self, samples: &[Sample]) -> Vec<u64> {
        let mut values: Vec<u64> = samples.iter().map(self.of).collect();
        values.sort_unstable();
        values
    }

    /// The least, the median and the most of all lives, and the quarters of the longest.
    pub fn shown(&self, lives: &[Vec<Sample>]) -> String {
        let values = self.sorted(&lives.concat());
        let [least, median, most] = [0, values.len() / 2, values.len() - 1].map(|place| values[place]);
        let longest = lives.iter().max_by_key(|life| life.len()).expect("there is a life");
        let [second, last] = self.quarters(longest);
        let name = self.name;
        format!("{name:<16} {least:>6} / {median:>6} / {most:>6}, second quarter {second:>6}, last {last:>6}")
    }

    /// What grew: within a life, or from the first life to the last at the same age.
    pub fn grew(&self, lives: &[Vec<Sample>]) -> Vec<String> {
        let mut outcome = Vec::new();
        for (number, life) in (1..).zip(lives).filter(|(_, life)| life.len() >= LIFE_SECONDS_MIN) {
            let [second, last] = self.quarters(life);
            if last > (self.most_after)(second) {
                outcome.push(format!("{}: {second}, then {last} in life {number}", self.name));
            }
        }
        if let [first, .., last] = lives {
            let age = first.len().min(last.len());
            let [first, last] = [first, last].map(|life| self.quarters(&life[..age])[1]);
            if last > (self.most_after)(first) {
                outcome.push(format!("{}: {first} in the first life, {last} in the last", self.name));
            }
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(seconds: u64, kib_a_second: u64, descriptors_a_second: u64) -> Vec<Sample> {
        let at = |second| Sample {
            resident_kib: 20_000 + second * kib_a_second,
            descriptors: 100 + second * descriptors_a_second,
        };
        (0..seconds).map(at).collect()
    }

    #[test]
    fn a_leak_is_seen() {
        assert!(RESIDENT.grew(&[life(60, 10, 0)]).is_empty());
        assert_eq!(RESIDENT.grew(&[life(60, 200, 0)]).len(), 1);
        assert_eq!(DESCRIPTORS.grew(&[life(90, 0, 1)]).len(), 1);
        assert_eq!(RESIDENT.grew(&[life(3_600, 3, 0)]).len(), 1);
    }

    #[test]
    fn what_outlives_a_kill_is_seen() {
        let mut later = life(60, 0, 0);
        later.iter_mut().for_each(|sample| sample.resident_kib += 10_000);
        assert!(RESIDENT.grew(&[life(60, 0, 0), life(30, 0, 0)]).is_empty());
        assert_eq!(RESIDENT.grew(&[life(60, 0, 0), later]).len(), 1);
    }
}
