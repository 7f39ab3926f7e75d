//! Counts over time, in a bounded number of bins for logs of any length.

/// The maximum number of bins. Beyond this number, bins are joined in pairs.
const BINS_MAX: usize = 2_048;

const SECOND_NS: u64 = 1_000_000_000;

/// The counts of one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bin {
    /// The number of requests that arrived.
    pub offered: u64,
    /// The number of admitted requests, each counted when its delay ended.
    pub let_through: u64,
    pub denied: u64,
    /// The sum of the delays of requests that arrived in this interval.
    pub delay_ms: u64,
}

impl Bin {
    fn add(&mut self, other: &Bin) {
        self.offered += other.offered;
        self.let_through += other.let_through;
        self.denied += other.denied;
        self.delay_ms = self.delay_ms.saturating_add(other.delay_ms);
    }
}

/// Bins of equal length, starting at the first request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    pub(super) begins_ns: u64,
    pub(super) bin_ns: u64,
    pub(super) bins: Vec<Bin>,
}

impl Default for Series {
    fn default() -> Series {
        Series { begins_ns: 0, bin_ns: SECOND_NS, bins: Vec::new() }
    }
}

impl Series {
    /// The bin for a moment. Any moment before the first bin counts in the first bin.
    pub(super) fn at(&mut self, at_ns: u64) -> &mut Bin {
        if self.bins.is_empty() {
            self.begins_ns = at_ns / SECOND_NS * SECOND_NS;
        }
        let since_ns = at_ns.saturating_sub(self.begins_ns);
        while since_ns / self.bin_ns >= BINS_MAX as u64 {
            self.join();
        }
        let place = (since_ns / self.bin_ns) as usize;
        if self.bins.len() <= place {
            self.bins.resize(place + 1, Bin::default());
        }
        &mut self.bins[place]
    }

    /// Joins the bins in pairs.
    fn join(&mut self) {
        let joined = |bins: &[Bin]| {
            let mut joined = Bin::default();
            bins.iter().for_each(|bin| joined.add(bin));
            joined
        };
        self.bins = self.bins.chunks(2).map(joined).collect();
        self.bin_ns *= 2;
    }

    pub fn seconds_each(&self) -> f64 {
        self.bin_ns as f64 / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_log_has_longer_bins() {
        let mut series = Series::default();
        let begin_ns = 1_000 * SECOND_NS;
        for second in 0..10_000 {
            series.at(begin_ns + second * SECOND_NS + 5).offered += 1;
        }
        assert_eq!((series.begins_ns, series.bin_ns), (begin_ns, 8 * SECOND_NS));
        assert!(series.bins.iter().all(|bin| bin.offered == 8));
    }

    #[test]
    fn the_end_of_all_times_is_one_too() {
        let mut series = Series::default();
        series.at(0).offered += 1;
        series.at(u64::MAX).offered += 1;
        assert!(series.bins.len() <= BINS_MAX);
    }
}
