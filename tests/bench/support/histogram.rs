//! A histogram of times, in buckets whose width grows with the time.

/// Buckets for each power of two. The error is at most 1/32.
const PARTS: u64 = 32;

const BUCKETS: usize = 64 * PARTS as usize;

/// Times in nanoseconds.
pub struct Histogram {
    counts: Box<[u64; BUCKETS]>,
    count: u64,
    max_ns: u64,
}

impl Histogram {
    pub fn new() -> Histogram {
        Histogram { counts: Box::new([0; BUCKETS]), count: 0, max_ns: 0 }
    }

    pub fn add(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.count += 1;
        self.max_ns = self.max_ns.max(ns);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The given percentile, in nanoseconds.
    pub fn percentile_ns(&self, percent: f64) -> u64 {
        let rank = (self.count as f64 * percent / 100.0).ceil() as u64;
        let mut seen = 0;
        let last = self.counts.iter().position(|&count| {
            seen += count;
            seen >= rank
        });
        last.map_or(0, |bucket| longest_ns(bucket).min(self.max_ns))
    }
}

/// ```text
/// 0, 1 … 31 │ 32, 33 … 63 │ 64-65, 66-67 … 126-127 │ 128-131 …      32 buckets between two bars
/// ```
fn bucket(ns: u64) -> usize {
    let shift = (ns | (2 * PARTS - 1)).ilog2() - (2 * PARTS - 1).ilog2();
    (u64::from(shift) * PARTS + (ns >> shift)) as usize
}

/// The longest time of a bucket.
fn longest_ns(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let shift = (bucket / PARTS).saturating_sub(1);
    let first = bucket - shift * PARTS;
    (first << shift) + (1 << shift) - 1
}
