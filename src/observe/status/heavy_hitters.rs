//! The most throttled keys, found with bounded memory by the SpaceSaving sketch.
//!
//! Metwally, Agrawal, El Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data Streams" (ICDT
//! 2005).
//!
//! If all places are taken, a new key replaces the key with the lowest weight, and inherits that weight as its error.
//! The true weight of a key is between `weight - error` and `weight`. Each key with more than 1/`PLACES` of the total
//! has a place. All weights decay by the same factor, so their order does not change.

use crate::observe::status::Label;
use slowlane_core::base::{Blocked, Key, SloId, Timestamp};

/// The number of places in one sketch, few enough to scan them all.
pub(super) const PLACES: usize = 64;

/// A throttled key with its weight and facts.
#[derive(Clone, Debug)]
pub struct Hitter {
    pub key: Key,
    /// The upper bound of the key's weight, after decay.
    weight: f32,
    error: f32,
    /// The SLO that throttled the key last.
    pub slo: SloId,
    /// The number of delayed requests since the key got its place.
    pub delayed: u64,
    pub denied: u64,
    /// The number of requests delayed and denied since the last read, about a second ago.
    pub new: [u64; 2],
    /// The key's last delay, in milliseconds.
    pub delay_ms: u64,
    /// The moment at which the key got its place; zero for a new key.
    pub since: Timestamp,
    pub seen: Timestamp,
    /// The block that refused the key last.
    pub blocked: Option<Blocked>,
    /// The fields of the request that gave the key its place.
    pub label: Label,
}

impl Hitter {
    /// A new key without facts, which inherits a weight.
    pub(super) fn new(key: Key, weight: f32) -> Hitter {
        Hitter {
            key,
            weight,
            error: weight,
            slo: SloId::DEFAULT,
            delayed: 0,
            denied: 0,
            new: [0; 2],
            delay_ms: 0,
            since: Timestamp::default(),
            seen: Timestamp::default(),
            blocked: None,
            label: Label::default(),
        }
    }

    /// The lower bound of the key's weight, after decay.
    pub fn weight_min(&self) -> f32 {
        self.weight - self.error
    }
}

/// The sketch: its places, allocated up front.
#[derive(Debug)]
pub(super) struct HeavyHitters(Vec<Hitter>);

impl Default for HeavyHitters {
    fn default() -> HeavyHitters {
        HeavyHitters(Vec::with_capacity(PLACES))
    }
}

impl HeavyHitters {
    /// Adds to the weight of a key, and returns the key's facts, which are empty if the key is new.
    pub(super) fn add(&mut self, key: Key, weight: f32) -> &mut Hitter {
        let known = self.0.iter().position(|place| place.key == key);
        let place = known.unwrap_or_else(|| self.place_for(key));
        let place = &mut self.0[place];
        place.weight += weight;
        place
    }

    fn place_for(&mut self, key: Key) -> usize {
        if self.0.len() < PLACES {
            self.0.push(Hitter::new(key, 0.0));
            return self.0.len() - 1;
        }
        let lightest =
            self.0.iter().enumerate().min_by(|(_, one), (_, other)| one.weight.total_cmp(&other.weight));
        let (place, &Hitter { weight, .. }) = lightest.expect("all places are taken");
        self.0[place] = Hitter::new(key, weight);
        place
    }

    /// Multiplies all weights by a factor, and removes keys close to zero.
    pub(super) fn fade(&mut self, factor: f32) {
        self.0.retain_mut(|place| {
            place.weight *= factor;
            place.error *= factor;
            place.weight >= FORGOTTEN
        });
    }

    /// The number of keys with a place.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// All keys, in no particular order.
    pub(super) fn all(&mut self) -> &mut [Hitter] {
        &mut self.0
    }
}

/// Keys below this weight are removed. The weight of a single request decays to this value in ten half-lives.
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
            let ranked: HashMap<u64, f32> = sketch.all().iter().map(|at| (at.key.bits(), at.weight_min())).collect();
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
        let left: Vec<_> = sketch.all().iter().map(|at| (at.key.bits(), at.delayed)).collect();
        assert_eq!(left, [(7, 7)]);
    }

    #[test]
    fn one_that_takes_a_place_is_another() {
        let mut sketch = HeavyHitters::default();
        (0..PLACES as u64).for_each(|key| sketch.add(Key::from_bits(key), 2.0).denied += 9);
        assert_eq!(sketch.add(Key::from_bits(1_000), 1.0).denied, 0);
        let newest = sketch.all().iter().find(|at| at.key.bits() == 1_000).unwrap();
        assert_eq!(newest.weight_min(), 1.0);
    }
}
