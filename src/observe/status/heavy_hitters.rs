//! The most throttled keys, found with bounded memory: the SpaceSaving sketch.
//!
//! Metwally, Agrawal, El Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data Streams" (ICDT
//! 2005).
//!
//! A new key replaces the one with the lowest weight, and inherits that weight as its error. The true weight of a key
//! is between `weight - error` and `weight`. Each key with more than 1/`PLACES` of the total has a place. All weights
//! decay by the same factor, so their order does not change.

use crate::observe::status::label::Label;
use slowlane_core::base::blocked::Blocked;
use slowlane_core::base::key::Key;
use slowlane_core::base::slo_id::SloId;
use slowlane_core::base::time::Timestamp;

/// The places of one sketch, few enough to scan all.
const PLACES: usize = 64;

/// Facts about a throttled key.
#[derive(Clone, Debug, Default)]
pub struct Hitter {
    /// The SLO that throttled it last.
    pub slo: Option<SloId>,
    /// The number of delayed requests since it got its place.
    pub delayed: u64,
    pub denied: u64,
    /// Its last delay, in milliseconds.
    pub delay_ms: u64,
    /// The moment at which it got its place; zero for a new key.
    pub since: Timestamp,
    pub seen: Timestamp,
    /// The block that refused it last.
    pub blocked: Option<Blocked>,
    /// The fields of the request that caused its place.
    pub label: Label,
}

/// A key with its weight and facts.
#[derive(Clone, Debug)]
pub struct Ranked {
    pub key: Key,
    /// The lower bound of its weight, after decay.
    pub weight: f32,
    pub hitter: Hitter,
}

/// The sketch. Keys and weights are separate arrays, so a search touches few cache lines.
#[derive(Debug)]
pub(super) struct HeavyHitters {
    keys: [Key; PLACES],
    weights: [f32; PLACES],
    errors: [f32; PLACES],
    hitters: Box<[Hitter]>,
    taken: usize,
}

impl Default for HeavyHitters {
    fn default() -> HeavyHitters {
        HeavyHitters {
            keys: [Key::from_bits(0); PLACES],
            weights: [0.0; PLACES],
            errors: [0.0; PLACES],
            hitters: vec![Hitter::default(); PLACES].into(),
            taken: 0,
        }
    }
}

impl HeavyHitters {
    /// Adds to the weight of a key, and returns its facts. They are empty if the key is new.
    pub(super) fn add(&mut self, key: Key, weight: f32) -> &mut Hitter {
        let known = self.keys[..self.taken].iter().position(|&known| known == key);
        let place = known.unwrap_or_else(|| self.place_for(key));
        self.weights[place] += weight;
        &mut self.hitters[place]
    }

    fn place_for(&mut self, key: Key) -> usize {
        let place = if self.taken < PLACES { self.taken } else { self.lightest() };
        self.taken = self.taken.max(place + 1);
        self.keys[place] = key;
        self.errors[place] = self.weights[place];
        let hitter = &mut self.hitters[place];
        (hitter.slo, hitter.since, hitter.blocked) = (None, Timestamp::default(), None);
        (hitter.delayed, hitter.denied, hitter.delay_ms) = (0, 0, 0);
        hitter.label.clear();
        place
    }

    fn lightest(&self) -> usize {
        let least = self.weights.iter().copied().fold(f32::INFINITY, f32::min);
        self.weights.iter().position(|&weight| weight == least).unwrap_or(0)
    }

    /// Multiplies all weights by a factor, and removes keys close to zero.
    pub(super) fn fade(&mut self, factor: f32) {
        for place in (0..self.taken).rev() {
            self.weights[place] *= factor;
            self.errors[place] *= factor;
            if self.weights[place] < FORGOTTEN {
                self.forget(place);
            }
        }
    }

    /// Removes the key at a place, and moves the last key there.
    fn forget(&mut self, place: usize) {
        let last = self.taken - 1;
        self.keys[place] = self.keys[last];
        self.weights[place] = std::mem::take(&mut self.weights[last]);
        self.errors[place] = std::mem::take(&mut self.errors[last]);
        self.hitters.swap(place, last);
        self.taken = last;
    }

    /// Whether every key since the last one faded has a place.
    pub(super) fn is_complete(&self) -> bool {
        self.taken < PLACES
    }

    /// All keys with a place, in no order.
    pub(super) fn keys(&self) -> &[Key] {
        &self.keys[..self.taken]
    }

    /// All keys with their weights and facts, in no order.
    pub(super) fn ranked(&self) -> impl Iterator<Item = Ranked> {
        (0..self.taken).map(|place| Ranked {
            key: self.keys[place],
            weight: self.weights[place] - self.errors[place],
            hitter: self.hitters[place].clone(),
        })
    }
}

/// Keys below this weight are removed. A single request decays to it in ten half-lives.
const FORGOTTEN: f32 = 1.0 / 1024.0;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_weight_is_never_overrated_and_heavy_keys_have_a_place(
            asked in prop::collection::vec(prop_oneof![0u64..5, 0u64..300], 0..2_000)
        ) {
            let (mut sketch, mut exact) = (HeavyHitters::default(), HashMap::new());
            for &key in &asked {
                sketch.add(Key::from_bits(key), 1.0);
                *exact.entry(key).or_insert(0) += 1;
            }
            let ranked: HashMap<u64, f32> = sketch.ranked().map(|at| (at.key.bits(), at.weight)).collect();
            for (key, &weight) in &ranked {
                prop_assert!(weight <= exact[key] as f32);
            }
            for (key, &count) in &exact {
                prop_assert!(count <= asked.len() / PLACES || ranked.contains_key(key), "{key} has {count}");
            }
        }
    }

    #[test]
    fn keys_without_requests_fade_and_are_forgotten() {
        let mut sketch = HeavyHitters::default();
        (0..PLACES as u64).for_each(|key| sketch.add(Key::from_bits(key), 1.0).delayed += key);
        sketch.add(Key::from_bits(7), 100.0);
        (0..11).for_each(|_| sketch.fade(0.5));
        let left: Vec<_> = sketch.ranked().map(|at| (at.key.bits(), at.hitter.delayed)).collect();
        assert_eq!(left, [(7, 7)]);
    }

    #[test]
    fn one_that_takes_a_place_is_another() {
        let mut sketch = HeavyHitters::default();
        (0..PLACES as u64).for_each(|key| sketch.add(Key::from_bits(key), 2.0).denied += 9);
        assert_eq!(sketch.add(Key::from_bits(1_000), 1.0).denied, 0);
        let newest = sketch.ranked().find(|at| at.key.bits() == 1_000).unwrap();
        assert_eq!(newest.weight, 1.0);
    }
}
