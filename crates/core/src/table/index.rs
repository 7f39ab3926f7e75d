//! The index of a shard: from key to row, in one array that is never rebuilt.

use crate::base::Key;
use crate::table::spread::Spread;

/// The array is at most four fifths full. On average, a key is then two slots from its home slot, usually in the same
/// cache line.
const FULL_FIFTHS: usize = 4;

/// The longest distance from home that a slot can record. In practice, with a secret spread, no key is that far from
/// home.
const FAR: usize = 0xFF;

/// The memory of a slot. The system hands out zeroed memory, and backs it only when it is written to.
type Bits = [u16; 3];

/// Six bytes: the distance from home, eight bits of the key's spread, and the number of the row. No key has row 0, so 0
/// marks an empty slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot(Bits);

impl Slot {
    const EMPTY: Slot = Slot([0; 3]);

    fn new(distance: usize, tag: u32, row: u32) -> Slot {
        debug_assert!(row != 0);
        Slot([Slot::sign(distance, tag), (row >> 16) as u16, row as u16])
    }

    /// The first 16 bits of a slot: the distance from home, and eight bits of the key's spread.
    fn sign(distance: usize, tag: u32) -> u16 {
        (distance.min(FAR) as u16) << 8 | (tag as u16 & 0xFF)
    }

    /// The distance from home, [`FAR`] at most.
    fn stored_distance(self) -> usize {
        usize::from(self.0[0] >> 8)
    }

    fn row(self) -> u32 {
        u32::from(self.0[1]) << 16 | u32::from(self.0[2])
    }

    fn at(self, distance: usize) -> Slot {
        Slot::new(distance, self.0[0].into(), self.row())
    }
}

/// Open addressing with linear probing, where a key far from home takes the slot of a key that is nearer to
/// its own home (Robin Hood hashing; Celis, 1986). Distances then stay short even if the array is nearly
/// full. A removal leaves no mark: the entries after it move up. So no request ever pays for a clean-up.
///
/// ```text
/// slots: │ … │ a │ b │ c │   │ …      home of a tag: tag * slots / 2^32, so homes are in the order of tags
/// ```
#[derive(Debug)]
pub(super) struct Index {
    slots: Box<[Bits]>,
    /// The low bits of a key's spread choose its home; the high bits choose its shard.
    spread: Spread,
    len: usize,
}

impl Index {
    pub(super) fn new(keys_max: u32, spread: Spread) -> Index {
        // Two more slots allow for rounding.
        let slots = keys_max as usize * 5 / FULL_FIFTHS + 2;
        Index { slots: vec![[0; 3]; slots].into_boxed_slice(), spread, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Finds the row of a key: the first candidate for which `is_same` holds.
    #[inline]
    pub(super) fn find(&self, key: Key, is_same: impl Fn(u32) -> bool) -> Option<u32> {
        let tag = self.tag(key);
        let mut place = self.home(tag);
        for distance in 0.. {
            let slot = self.slot(place);
            if slot.0[0] == Slot::sign(distance, tag) && slot != Slot::EMPTY && is_same(slot.row()) {
                return Some(slot.row());
            }
            // If the key were present, it would have taken this slot.
            if slot == Slot::EMPTY || slot.stored_distance() < distance.min(FAR) {
                return None;
            }
            place = self.after(place);
        }
        None
    }

    /// Inserts an absent key. The caller must ensure that fewer than `keys_max` keys are in the index. `key_of` returns
    /// the key of a row that is in the index.
    pub(super) fn insert(&mut self, key: Key, row: u32, key_of: impl Fn(u32) -> Key) {
        let tag = self.tag(key);
        let (mut place, mut distance) = (self.home(tag), 0);
        let mut homeless = Slot::new(0, tag, row);
        while self.slot(place) != Slot::EMPTY {
            let there = self.distance(place, &key_of);
            if there < distance {
                let moved = std::mem::replace(&mut self.slots[place], homeless.at(distance).0);
                (homeless, distance) = (Slot(moved), there);
            }
            (place, distance) = (self.after(place), distance + 1);
        }
        self.slots[place] = homeless.at(distance).0;
        self.len += 1;
    }

    /// Removes a key by its row. `key_of` returns the key of a row that is in the index.
    pub(super) fn remove(&mut self, key: Key, row: u32, key_of: impl Fn(u32) -> Key) {
        let mut gap = self.home(self.tag(key));
        while self.slot(gap).row() != row {
            if self.slot(gap) == Slot::EMPTY {
                return;
            }
            gap = self.after(gap);
        }
        // The entries after the gap move up, until there is an empty slot or an entry at home.
        loop {
            let next = self.after(gap);
            let distance = if self.slot(next) == Slot::EMPTY { 0 } else { self.distance(next, &key_of) };
            if distance == 0 {
                break;
            }
            self.slots[gap] = self.slot(next).at(distance - 1).0;
            gap = next;
        }
        self.slots[gap] = Slot::EMPTY.0;
        self.len -= 1;
    }

    /// How far the key in a non-empty slot is from home.
    fn distance(&self, place: usize, key_of: impl Fn(u32) -> Key) -> usize {
        let slot = self.slot(place);
        match slot.stored_distance() {
            FAR => self.way(self.home(self.tag(key_of(slot.row()))), place),
            distance => distance,
        }
    }

    fn slot(&self, place: usize) -> Slot {
        Slot(self.slots[place])
    }

    fn tag(&self, key: Key) -> u32 {
        self.spread.bits(key) as u32
    }

    fn home(&self, tag: u32) -> usize {
        ((u64::from(tag) * self.slots.len() as u64) >> 32) as usize
    }

    fn after(&self, place: usize) -> usize {
        if place + 1 == self.slots.len() { 0 } else { place + 1 }
    }

    /// The distance from one slot to another. The array is a ring.
    fn way(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.slots.len() - from }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

    use proptest::prelude::*;

    use super::*;

    /// Inserts and removes keys as told, in an index and in a map, and compares the two after each step.
    fn compare(keys_max: usize, spread: Spread, steps: Vec<(u64, bool)>) -> Result<(), TestCaseError> {
        let (mut index, mut map) = (Index::new(keys_max as u32, spread), HashMap::new());
        let mut keys = vec![Key::from_bits(0)];
        let seen: Vec<u64> = steps.iter().map(|&(bits, _)| bits).collect();
        for (bits, enter) in steps {
            let (key, row) = (Key::from_bits(bits), keys.len() as u32);
            keys.push(key);
            match (enter, map.get(&bits)) {
                (true, None) if map.len() < keys_max => {
                    index.insert(key, row, |row| keys[row as usize]);
                    map.insert(bits, row);
                }
                (false, Some(&row)) => {
                    index.remove(key, row, |row| keys[row as usize]);
                    map.remove(&bits);
                }
                _ => {}
            }
            prop_assert_eq!(index.len(), map.len());
            for &bits in &seen {
                let found = index.find(Key::from_bits(bits), |row| map.get(&bits) == Some(&row));
                prop_assert_eq!(found, map.get(&bits).copied());
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn it_behaves_like_a_map(
            secret: u64, steps in prop::collection::vec((0u64..40, any::<bool>()), 1..400),
        ) {
            compare(24, Spread::of(secret, !secret), steps)?;
        }
    }

    proptest! {
        // Each compares a million times.
        #![proptest_config(ProptestConfig::with_cases(8))]

        /// All keys have one home, the first slot or the last one, so most are further away than a slot can record.
        #[test]
        fn distances_beyond_a_slots_range_are_no_harm(
            steps in prop::collection::vec((0u64..500, prop::bool::weighted(0.9)), 500..900),
            mask in prop::sample::select(vec![0, !0]),
        ) {
            compare(400, Spread::of(mask, 1), steps)?;
        }
    }

    /// All keys have one home in the middle, so the last ones are further away than a slot can record.
    #[test]
    fn keys_far_from_home_are_found_until_they_are_removed() {
        const KEYS: u32 = 400;
        let mut index = Index::new(800, Spread::of(1 << 31, 1));
        let key_of = |row: u32| Key::from_bits(u64::from(row));
        (1..=KEYS).for_each(|row| index.insert(key_of(row), row, key_of));
        let places: Vec<usize> =
            (0..index.slots.len()).filter(|&place| index.slot(place) != Slot::EMPTY).collect();
        assert_eq!((places[0], places[399]), (501, 900), "side by side from the home on");
        for removed in 0..=KEYS {
            if removed > 0 {
                index.remove(key_of(removed), removed, key_of);
            }
            if removed.is_multiple_of(50) {
                let found = |row: &u32| index.find(key_of(*row), |found| found == *row).is_some();
                assert!((1..=removed).all(|row| !found(&row)) && (removed + 1..=KEYS).all(|row| found(&row)));
            }
        }
        assert_eq!(index.len(), 0);
    }

    #[test]
    fn a_full_index_has_short_ways() {
        let keys = 100_000;
        let mut index = Index::new(keys, Spread::of(0x0123_4567_89AB_CDEF, 0xFEDC_BA98_7654_3210));
        let key_of = |row: u32| Key::from_bits(BuildHasherDefault::<DefaultHasher>::default().hash_one(row));
        for row in 1..=keys {
            index.insert(key_of(row), row, |_| unreachable!("none is so far from home"));
        }
        assert!((1..=keys).all(|row| index.find(key_of(row), |found| found == row) == Some(row)));
        let distances: Vec<usize> = index.slots.iter().map(|&bits| Slot(bits).stored_distance()).collect();
        let (longest, sum) = (distances.iter().max().unwrap(), distances.iter().sum::<usize>());
        assert!(*longest < 64, "{longest}");
        assert!(sum < 3 * keys as usize, "{sum}");
    }
}
