//! The changes of blocks, recorded for one reader.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use crate::base::{Target, Timestamp};

/// The maximum number of unread changes to blocks by fields, and to blocks by key. An additional change replaces the
/// oldest change of the same kind, so blocks caused by clients never displace blocks that operators set.
pub const CHANGES_MAX: usize = 10_000;

/// A block that was set, or one that was ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub target: Target,
    /// The first moment after the block. None if the block was ended.
    pub until: Option<Timestamp>,
}

/// The nodes on which a block is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reach {
    /// The store has not answered yet.
    Unknown,
    /// The store has the block, so it is in force on all nodes.
    All,
    /// The store has no room for the block, so it is in force only here.
    Here,
}

/// Tells an operator on which nodes a new block is in force. The reader of the changes fills in the answer.
#[derive(Clone, Debug, Default)]
pub struct Receipt(Arc<AtomicU8>);

impl Receipt {
    pub fn reach(&self) -> Reach {
        [Reach::Unknown, Reach::All, Reach::Here][usize::from(self.0.load(Relaxed))]
    }

    pub fn write(&self, reach: Reach) {
        self.0.store(reach as u8, Relaxed);
    }
}

/// A change by an operator, with a receipt if it sets a block.
#[derive(Clone, Debug)]
pub struct Ordered {
    pub change: Change,
    pub receipt: Option<Receipt>,
}

/// The changes since the last read, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// The changes of blocks by fields.
    pub ordered: VecDeque<Ordered>,
    /// The changes of blocks by key.
    pub keys: VecDeque<Change>,
    /// The number of displaced changes. If any were displaced, the reader needs the whole list of blocks.
    pub lost: u64,
}

/// Records changes, but only after a reader has called `take` for the first time.
#[derive(Debug, Default)]
pub(super) struct Feed {
    has_reader: AtomicBool,
    changes: Mutex<Changes>,
}

impl Feed {
    /// Records a change, if there is a reader. Returns a receipt if the change sets a block of fields.
    pub(super) fn note(&self, change: impl FnOnce() -> Change) -> Option<Receipt> {
        if !self.has_reader.load(Relaxed) {
            return None;
        }
        let change = change();
        let changes = &mut *self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Target::Key(_) = change.target {
            push(&mut changes.keys, change, &mut changes.lost);
            return None;
        }
        let receipt = change.until.map(|_| Receipt::default());
        push(&mut changes.ordered, Ordered { change, receipt: receipt.clone() }, &mut changes.lost);
        receipt
    }

    /// The changes since the last call. The first call returns none, because changes are recorded only from then on.
    pub(super) fn take(&self) -> Changes {
        self.has_reader.store(true, Relaxed);
        std::mem::take(&mut self.changes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn push<T>(list: &mut VecDeque<T>, change: T, lost: &mut u64) {
    if list.len() == CHANGES_MAX {
        list.pop_front();
        *lost += 1;
    }
    list.push_back(change);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Key;

    #[test]
    fn nothing_is_kept_without_a_reader_and_the_newest_with_one() {
        let feed = Feed::default();
        let note = |bits| {
            feed.note(|| Change { target: Target::Key(Key::from_bits(bits)), until: None });
        };
        note(1);
        assert!(feed.take().keys.is_empty());
        (0..CHANGES_MAX as u64 + 3).for_each(note);
        let Changes { keys, lost, .. } = feed.take();
        assert_eq!((keys.len(), lost), (CHANGES_MAX, 3));
        assert_eq!(keys[0].target, Target::Key(Key::from_bits(3)));
        assert!(feed.take().keys.is_empty());
    }

    #[test]
    fn what_clients_earn_pushes_out_no_change_of_an_operator() {
        let feed = Feed::default();
        feed.take();
        let fields = || Target::parse(b"source=192.0.2.66").unwrap();
        let block = feed.note(|| Change { target: fields(), until: Some(Timestamp::default()) });
        let end = feed.note(|| Change { target: fields(), until: None });
        assert!(block.is_some_and(|receipt| receipt.reach() == Reach::Unknown) && end.is_none());
        for bits in 0..=CHANGES_MAX as u64 {
            feed.note(|| Change { target: Target::Key(Key::from_bits(bits)), until: None });
        }
        let changes = feed.take();
        assert_eq!((changes.ordered.len(), changes.lost), (2, 1));
    }
}
