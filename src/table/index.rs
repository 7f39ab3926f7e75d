//! The index of a shard: from key to row, in one array that is never rebuilt.

use crate::base::key::Key;
use crate::table::spread::Spread;

/// At most three quarters full. On average a key is then two or three slots from home, in one cache line.
const FULL_QUARTERS: usize = 3;

/// Upper half: half of the key's spread bits. Lower half: the number of its row. No key has row 0, so 0 marks
/// an empty slot. The system hands out zeroed memory, and backs it only when it is written to.
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

/// Open addressing with linear probing. A removal leaves no mark: the entries behind it move up. So no
/// request ever pays for a clean-up.
///
/// ```text
/// slots: │ … │ a │ b │ c │   │ …      home of a tag: tag * slots / 2^32, so tags stand nearly in order
/// ```
#[derive(Debug)]
pub(super) struct Index {
    slots: Box<[u64]>,
    /// Its low bits choose a home; a shard is chosen by the high ones.
    spread: Spread,
    len: usize,
}

impl Index {
    pub(super) fn new(keys_max: u32, spread: Spread) -> Index {
        // A third more slots than keys leaves a quarter of them empty. Two more cover rounding.
        let slots = keys_max as usize + keys_max as usize / FULL_QUARTERS + 2;
        Index { slots: vec![0; slots].into_boxed_slice(), spread, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Finds the row of a key: the first candidate for which `is_same` holds.
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

    /// Inserts an absent key. At most `keys_max` keys fit, and the caller makes sure of that.
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

    /// Moves up the entries behind a gap that could not be found across it.
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
        self.spread.bits(key) as u32
    }

    fn home(&self, tag: u32) -> usize {
        ((u64::from(tag) * self.slots.len() as u64) >> 32) as usize
    }

    fn after(&self, place: usize) -> usize {
        if place + 1 == self.slots.len() { 0 } else { place + 1 }
    }

    /// Steps from one place to another.
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
            let (mut index, mut map) = (Index::new(24, Spread::of(secret, !secret)), HashMap::new());
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
