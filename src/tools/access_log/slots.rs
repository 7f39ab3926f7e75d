//! Where the wanted values of a line are kept.

use crate::tools::access_log::piece::Item;

/// The most values that are wanted of a line.
pub(super) const SLOTS_MAX: usize = 24;

/// What stands in the slots of a line; None: its item wrote nothing.
pub(super) type Slots<'l> = [Option<&'l [u8]>; SLOTS_MAX];

/// The items that are wanted, each with the number of its slot.
#[derive(Default)]
pub(super) struct SlotList {
    nouns: Vec<String>,
}

impl SlotList {
    pub(super) fn len(&self) -> usize {
        self.nouns.len()
    }

    pub(super) fn of(&mut self, item: &Item) -> usize {
        self.given(item).unwrap_or_else(|| {
            self.nouns.push(item.noun.clone());
            self.nouns.len() - 1
        })
    }

    pub(super) fn given(&self, item: &Item) -> Option<usize> {
        self.nouns.iter().position(|noun| *noun == item.noun)
    }
}
