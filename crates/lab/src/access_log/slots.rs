//! Where the wanted values of a line are kept.

use crate::access_log::piece::Item;

/// The most values that are kept.
pub(super) const SLOTS_MAX: usize = 24;

/// The wanted values of a line. None: the item wrote nothing.
pub(super) type Slots<'l> = [Option<&'l [u8]>; SLOTS_MAX];

/// The wanted items; an item's place is its slot.
#[derive(Default)]
pub(super) struct SlotList {
    nouns: Vec<String>,
}

impl SlotList {
    pub(super) fn len(&self) -> usize {
        self.nouns.len()
    }

    /// The slot of an item, which is wanted from now on.
    pub(super) fn of(&mut self, item: &Item) -> usize {
        self.given(item).unwrap_or_else(|| {
            self.nouns.push(item.noun.clone());
            self.nouns.len() - 1
        })
    }

    /// The slot of an item, if it is wanted.
    pub(super) fn given(&self, item: &Item) -> Option<usize> {
        self.nouns.iter().position(|noun| *noun == item.noun)
    }
}
