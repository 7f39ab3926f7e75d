//! The number of different keys in the last minute, estimated in two kilobytes: HyperLogLog.
//!
//! Flajolet, Fusy, Gandouet, Meunier, "HyperLogLog: the analysis of a near-optimal cardinality estimation algorithm"
//! (AofA 2007). A key is a keyed hash, so its bits are as good as random. The standard error is 1.04 / √1024 = 3 %.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

use slowlane_core::base::Key;

const REGISTERS: usize = 1024;

/// The bits of a key that choose its register.
const REGISTER_BITS: u32 = REGISTERS.trailing_zeros();

/// Ticks after which the older half is forgotten: the estimate covers 30 to 60 s.
const TICKS: u32 = 30;

type Registers = [AtomicU8; REGISTERS];

/// The keys of the last half-minute, and of the previous one.
#[derive(Debug)]
pub(super) struct Distinct {
    now: Registers,
    before: Registers,
    ticks: AtomicU32,
}

impl Default for Distinct {
    fn default() -> Distinct {
        let none = || [const { AtomicU8::new(0) }; REGISTERS];
        Distinct { now: none(), before: none(), ticks: AtomicU32::new(0) }
    }
}

impl Distinct {
    /// Notes a key. Usually that is only a read: a register changes when a rarer key arrives.
    #[inline]
    pub(super) fn note(&self, key: Key) {
        let register = &self.now[key.bits() as usize % REGISTERS];
        let rank = rank(key.bits() >> REGISTER_BITS);
        if register.load(Relaxed) < rank {
            register.fetch_max(rank, Relaxed);
        }
    }

    /// Forgets old keys. Call it once a second.
    pub(super) fn tick(&self) {
        let ticks = self.ticks.load(Relaxed) + 1;
        self.ticks.store(ticks % TICKS, Relaxed);
        if ticks == TICKS {
            for (now, before) in self.now.iter().zip(&self.before) {
                before.store(now.swap(0, Relaxed), Relaxed);
            }
        }
    }

    /// The estimated number of keys.
    pub(super) fn count(&self) -> u64 {
        let registers = self.now.iter().zip(&self.before);
        let ranks = registers.map(|(now, before)| now.load(Relaxed).max(before.load(Relaxed)));
        let (mut sum, mut empty) = (0.0, 0);
        for rank in ranks {
            sum += (-f64::from(rank)).exp2();
            empty += usize::from(rank == 0);
        }
        let all = REGISTERS as f64;
        let raw = 0.7213 / (1.0 + 1.079 / all) * all * all / sum;
        // For few keys, the number of empty registers is more exact.
        let count = if raw <= 2.5 * all && empty > 0 { all * (all / empty as f64).ln() } else { raw };
        count.round() as u64
    }
}

/// The place of the lowest bit that is set, counted from 1.
fn rank(bits: u64) -> u8 {
    (bits.trailing_zeros().min(u64::BITS - REGISTER_BITS) + 1) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Five standard errors.
    fn assert_about(distinct: &Distinct, exact: u64) {
        let (count, off) = (distinct.count(), exact / 6);
        assert!((exact - off..=exact + off).contains(&count), "{count} of {exact}");
    }

    #[test]
    fn the_estimate_is_near_the_number_of_different_keys_however_often_each_comes() {
        for exact in [0, 1, 10, 100, 1_000, 30_000, 1_000_000] {
            let (distinct, mut random) = (Distinct::default(), fastrand::Rng::with_seed(exact));
            for _ in 0..exact {
                let key = Key::from_bits(random.u64(..));
                (0..3).for_each(|_| distinct.note(key));
            }
            assert_about(&distinct, exact);
        }
    }

    #[test]
    fn a_key_counts_for_half_a_minute_to_a_minute() {
        let (distinct, mut random) = (Distinct::default(), fastrand::Rng::with_seed(1));
        (0..1_000).for_each(|_| distinct.note(Key::from_bits(random.u64(..))));
        (0..30).for_each(|_| distinct.tick());
        assert_about(&distinct, 1_000);
        (0..29).for_each(|_| distinct.tick());
        assert_about(&distinct, 1_000);
        distinct.tick();
        assert_eq!(distinct.count(), 0);
    }
}
