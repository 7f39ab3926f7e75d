//! The index of a shard: from key to row, in one array that never has to be rebuilt.

use crate::base::key::Key;

/// Three quarters full at most: on average a key is found two or three slots from home, in one line of the cache.
const FULL_QUARTERS: usize = 3;

/// Keys are spread by a product with this: the golden ratio of 2^64, odd.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// Half of a key's spread bits above the number of its row. Row 0 is no key's, so 0 is a slot that is empty: memory
/// comes from the system like that, and only when it is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot(u64);

impl Slot {
    const EMPTY: Slot = Slot(0);

    fn new(tag: u32, row: u32) -> Slot {
        debug_assert!(row != 0);
        Slot((u64::from(tag) << 32) | u64::from(row))
    }

    fn tag(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn row(self) -> u32 {
        self.0 as u32
    }
}

/// Open addressing with linear probing. What is removed leaves no mark: those behind it move up, so there is
/// never anything to clean up at some unlucky request.
///
/// ```text
/// slots: │ … │ a │ b │ c │   │ …      home of a tag: tag * slots / 2^32, so tags stand nearly in order
/// ```
#[derive(Debug)]
pub(super) struct Index {
    slots: Box<[u64]>,
    /// Unknown to clients, or they could choose keys that all have one home.
    secret: u64,
    len: usize,
}

impl Index {
    pub(super) fn new(keys_max: u32, secret: u64) -> Index {
        let slots = keys_max as usize + keys_max as usize / FULL_QUARTERS + 2;
        Index { slots: vec![0; slots].into_boxed_slice(), secret, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The row for which `is_same` holds, of those that may be the key's.
    pub(super) fn find(&self, key: Key, is_same: impl Fn(u32) -> bool) -> Option<u32> {
        let tag = self.tag(key);
        let mut place = self.home(tag);
        loop {
            let slot = self.slot(place);
            if slot == Slot::EMPTY {
                return None;
            }
            if slot.tag() == tag && is_same(slot.row()) {
                return Some(slot.row());
            }
            place = self.after(place);
        }
    }

    /// Enters a key that is not there. There must be room: no more than `keys_max` of them.
    pub(super) fn insert(&mut self, key: Key, row: u32) {
        let tag = self.tag(key);
        let mut place = self.home(tag);
        while self.slot(place) != Slot::EMPTY {
            place = self.after(place);
        }
        self.slots[place] = Slot::new(tag, row).0;
        self.len += 1;
    }

    /// Removes a key by its row.
    pub(super) fn remove(&mut self, key: Key, row: u32) {
        let mut place = self.home(self.tag(key));
        while self.slot(place).row() != row {
            if self.slot(place) == Slot::EMPTY {
                return;
            }
            place = self.after(place);
        }
        self.close(place);
        self.len -= 1;
    }

    /// Moves up those behind a gap that would not be found across it.
    fn close(&mut self, mut gap: usize) {
        let mut place = self.after(gap);
        while self.slot(place) != Slot::EMPTY {
            let home = self.home(self.slot(place).tag());
            if self.way(home, place) >= self.way(gap, place) {
                self.slots[gap] = self.slots[place];
                gap = place;
            }
            place = self.after(place);
        }
        self.slots[gap] = Slot::EMPTY.0;
    }

    fn slot(&self, place: usize) -> Slot {
        Slot(self.slots[place])
    }

    fn tag(&self, key: Key) -> u32 {
        ((key.bits() ^ self.secret).wrapping_mul(SPREAD) >> 32) as u32
    }

    fn home(&self, tag: u32) -> usize {
        ((u64::from(tag) * self.slots.len() as u64) >> 32) as usize
    }

    fn after(&self, place: usize) -> usize {
        if place + 1 == self.slots.len() { 0 } else { place + 1 }
    }

    /// How many steps lead from one place to another.
    fn way(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.slots.len() - from }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_behaves_like_a_map(
            secret: u64, steps in prop::collection::vec((0u64..40, any::<bool>()), 1..400),
        ) {
            let (mut index, mut map) = (Index::new(24, secret), HashMap::new());
            for (number, (bits, enter)) in steps.into_iter().enumerate() {
                let (key, row) = (Key::from_bits(bits), number as u32 + 1);
                match (enter, map.get(&bits)) {
                    (true, None) if map.len() < 24 => {
                        index.insert(key, row);
                        map.insert(bits, row);
                    }
                    (false, Some(&row)) => {
                        index.remove(key, row);
                        map.remove(&bits);
                    }
                    _ => {}
                }
                prop_assert_eq!(index.len(), map.len());
                for bits in 0..40 {
                    let is_same = |row| map.get(&bits) == Some(&row);
                    prop_assert_eq!(index.find(Key::from_bits(bits), is_same), map.get(&bits).copied());
                }
            }
        }
    }
}
