//! The frequent items of a stream, found in a fixed amount of memory: the Misra-Gries summary.
//!
//! Misra and Gries, "Finding Repeated Elements" (Science of Computer Programming, 1982). Many counters are reduced at
//! once, as in Anderson et al., "A High-Performance Algorithm for Identifying Frequent Items in Data Streams" (IMC
//! 2017).
//!
//! ```text
//! count ≤ weight ≤ true weight ≤ count + error        error ≤ 2 * total / room
//! ```
//! Each key gets a counter until `room` counters are taken. For the next new key, the median count is
//! subtracted from all counts, counters at zero or below are removed, and the error grows by the median. The
//! weight of a key that stays is not reduced: the weight is exact from the moment when the key got its
//! counter. Decay multiplies counts, weights and error by the same factor.

use hashbrown::HashTable;

/// Keys below this weight are removed. A single request decays to this weight in seven time constants.
const FORGOTTEN: f64 = 1e-3;

/// A key with its weight.
#[derive(Clone, Debug, PartialEq)]
pub struct Counter<T> {
    pub key: u64,
    /// The part of the key's weight that is left after all reductions.
    count: f64,
    /// The key's weight since it got its counter.
    pub weight: f64,
    /// Other facts about the key since then.
    pub facts: T,
}

/// The summary. Its keys must be spread evenly, like hashes.
///
/// ```
/// use slowlane_core::table::Frequent;
/// let mut pages = Frequent::new(4);
/// for page in [7, 7, 7, 7, 7, 1, 2, 3, 4] {
///     pages.add(page, 1.0, || ());
/// }
/// let weight = |page| pages.get(page).map(|counter| counter.weight);
/// assert_eq!([7, 1, 4].map(weight), [Some(5.0), None, Some(1.0)], "the fifth page found no room");
/// assert_eq!(pages.error(), 1.0);
/// ```
#[derive(Clone, Debug)]
pub struct Frequent<T> {
    counters: HashTable<Counter<T>>,
    room: usize,
    error: f64,
}

impl<T> Frequent<T> {
    /// A summary with room for at least two counters. Its memory is allocated up front.
    pub fn new(room: usize) -> Frequent<T> {
        Frequent { counters: HashTable::with_capacity(room), room: room.max(2), error: 0.0 }
    }

    /// Adds to the weight of a key, and returns the key's facts. `begin` makes the facts of a new key.
    pub fn add(&mut self, key: u64, weight: f64, begin: impl FnOnce() -> T) -> &mut T {
        if self.counters.len() >= self.room && self.get(key).is_none() {
            self.reduce();
        }
        let place = self.counters.entry(key, |counter| counter.key == key, |counter| counter.key);
        let counter =
            place.or_insert_with(|| Counter { key, count: 0.0, weight: 0.0, facts: begin() }).into_mut();
        counter.count += weight;
        counter.weight += weight;
        &mut counter.facts
    }

    /// Makes room: removes at least half of the counters.
    #[cold]
    fn reduce(&mut self) {
        let mut counts: Vec<f64> = self.counters.iter().map(|counter| counter.count).collect();
        let middle = counts.len() / 2;
        let (_, &mut median, _) = counts.select_nth_unstable_by(middle, f64::total_cmp);
        self.error += median;
        self.counters.retain(|counter| {
            counter.count -= median;
            counter.count > 0.0
        });
    }

    /// Multiplies all counts, all weights and the error by a factor, and passes the facts of each key to `fade`. Keys
    /// with a weight close to zero are removed, and the largest of their weights is added to the error.
    pub fn fade(&mut self, factor: f64, mut fade: impl FnMut(&mut T)) {
        let mut forgotten = 0.0_f64;
        self.counters.retain(|counter| {
            counter.count *= factor;
            counter.weight *= factor;
            fade(&mut counter.facts);
            if counter.weight < FORGOTTEN {
                forgotten = forgotten.max(counter.weight);
            }
            counter.weight >= FORGOTTEN
        });
        self.error = self.error * factor + forgotten;
    }

    /// All counters, in no particular order.
    pub fn counters(&self) -> impl Iterator<Item = &Counter<T>> {
        self.counters.iter()
    }

    /// The facts of a key that has a counter.
    pub fn facts_mut(&mut self, key: u64) -> Option<&mut T> {
        self.counters.find_mut(key, |counter| counter.key == key).map(|counter| &mut counter.facts)
    }

    /// The counter of a key.
    pub fn get(&self, key: u64) -> Option<&Counter<T>> {
        self.counters.find(key, |counter| counter.key == key)
    }

    /// The greatest weight that a key without a counter can have, or that a key can have had before it got its counter.
    pub fn error(&self) -> f64 {
        self.error
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    /// A well-spread key for each number.
    fn key(number: u64) -> u64 {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (number << 56)
    }

    #[derive(Clone, Debug)]
    enum Step {
        Add(u64, u32),
        Fade(f64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let number = || prop_oneof![0u64..4, 0u64..200];
        prop::collection::vec(
            prop_oneof![
                20 => (number(), 1u32..9).prop_map(|(number, weight)| Step::Add(number, weight)),
                1 => (0.0..1.0).prop_map(Step::Fade),
            ],
            0..800,
        )
    }

    proptest! {
        /// Whatever is added and faded, each true weight is at least that of its counter, and at most the error more.
        #[test]
        fn a_weight_is_within_the_error(steps in steps(), room in 2usize..40) {
            let (mut summary, mut exact) = (Frequent::new(room), HashMap::<u64, f64>::new());
            let mut total = 0.0;
            for step in steps {
                match step {
                    Step::Add(number, weight) => {
                        summary.add(key(number), weight.into(), || ());
                        *exact.entry(key(number)).or_default() += f64::from(weight);
                        total += f64::from(weight);
                    }
                    Step::Fade(factor) => {
                        summary.fade(factor, |()| {});
                        exact.values_mut().for_each(|weight| *weight *= factor);
                        total = total * factor + FORGOTTEN * room as f64;
                    }
                }
                prop_assert!(summary.counters().count() <= room);
            }
            for (&key, &weight) in &exact {
                let found = summary.get(key).map_or(0.0, |counter| counter.weight);
                prop_assert!(found <= weight * (1.0 + 1e-9) + 1e-9, "{found} of {weight}");
                prop_assert!(weight <= (found + summary.error()) * (1.0 + 1e-9) + 1e-9, "{weight}: {found}");
            }
            prop_assert!(summary.error() <= 2.0 * total / room as f64 + 1e-9, "{} of {total}", summary.error());
        }
    }

    #[test]
    fn a_key_that_nobody_asks_for_leaves() {
        let mut summary = Frequent::new(8);
        summary.add(key(1), 1.0, || ());
        summary.add(key(2), 10_000.0, || ());
        (0..11).for_each(|_| summary.fade(0.5, |()| {}));
        assert_eq!(summary.counters().map(|counter| counter.key).collect::<Vec<_>>(), [key(2)]);
    }
}
