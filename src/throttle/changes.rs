//! The changes of blocks, kept for one reader.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use crate::base::target::Target;
use crate::base::time::Timestamp;

/// The most changes that wait for the reader. Further ones push the oldest out.
pub const CHANGES_MAX: usize = 10_000;

/// A block that was set, or one that was ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub target: Target,
    /// The first moment outside the block. None: it was ended.
    pub until: Option<Timestamp>,
}

/// The changes since the reader took them last, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub list: VecDeque<Change>,
    /// Changes that were pushed out. If there are any, the reader needs the whole list of blocks.
    pub lost: u64,
}

/// Keeps changes once there is a reader. Without one, it keeps nothing.
#[derive(Debug, Default)]
pub(super) struct Feed {
    has_reader: AtomicBool,
    changes: Mutex<Changes>,
}

impl Feed {
    /// Keeps a change for the reader.
    pub(super) fn note(&self, change: impl FnOnce() -> Change) {
        if !self.has_reader.load(Relaxed) {
            return;
        }
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        if changes.list.len() == CHANGES_MAX {
            changes.list.pop_front();
            changes.lost += 1;
        }
        changes.list.push_back(change());
    }

    /// The changes since the last call. The first call returns none: changes are kept from then on.
    pub(super) fn take(&self) -> Changes {
        self.has_reader.store(true, Relaxed);
        std::mem::take(&mut self.changes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::key::Key;

    #[test]
    fn nothing_is_kept_without_a_reader_and_the_newest_with_one() {
        let feed = Feed::default();
        let note = |bits| {
            feed.note(|| Change { target: Target::Key(Key::from_bits(bits)), until: None });
        };
        note(1);
        assert_eq!(feed.take(), Changes::default());
        (0..CHANGES_MAX as u64 + 3).for_each(note);
        let Changes { list, lost } = feed.take();
        assert_eq!((list.len(), lost), (CHANGES_MAX, 3));
        assert_eq!(list[0].target, Target::Key(Key::from_bits(3)));
        assert_eq!(feed.take(), Changes::default());
    }
}
