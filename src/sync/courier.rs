//! Carries blocks between this node and the store.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use crate::base::target::Target;
use crate::base::time::Timestamp;
use crate::cluster::{BlockNews, BlockWord, BlockWords, Extent};
use crate::throttle::{Block, Change, Throttle};

/// An exchange carries this many changes at most. The rest goes with the next one.
const CHANGES_MAX: usize = 500;

/// More changes than this wait for the store as the whole list of blocks.
const WAITING_MAX: usize = 10_000;

/// Carries blocks between this node and the store.
#[derive(Debug, Default)]
pub(super) struct Courier {
    epoch: String,
    seq: u64,
    /// Changes of this node that the store has not taken up yet.
    waiting: VecDeque<(Change, bool)>,
    /// How many of them are on their way.
    sent: usize,
}

impl Courier {
    /// Takes up the changes of this node. True if there are any to tell.
    pub(super) fn gather(&mut self, throttle: &Throttle, now: Timestamp) -> bool {
        let changes = throttle.take_changes();
        self.waiting.extend(changes.list.into_iter().map(|change| (change, false)));
        if changes.lost > 0 || self.waiting.len() > WAITING_MAX {
            self.teach_all(throttle, now);
        }
        !self.waiting.is_empty()
    }

    pub(super) fn words(&mut self, now: Timestamp) -> BlockWords {
        self.sent = self.waiting.len().min(CHANGES_MAX);
        let word = |(change, is_taught): &(Change, bool)| BlockWord {
            target: change.target.clone(),
            rest: change.until.map(|until| until.since(now)),
            is_taught: *is_taught,
        };
        let changes = self.waiting.iter().take(self.sent).map(word).collect();
        BlockWords { epoch: self.epoch.clone(), seq: self.seq, changes }
    }

    /// Takes up the answer of the store.
    pub(super) fn news(&mut self, news: BlockNews, throttle: &Throttle, now: Timestamp) {
        let own: Vec<(Change, bool)> = self.waiting.drain(..self.sent).collect();
        self.sent = 0;
        let of_store: HashSet<&Target> = news.list.iter().map(|(target, _)| target).collect();
        // Of one target, the store takes the change of this node after that of another.
        let mine: Vec<Change> = own
            .iter()
            .filter(|(change, is_taught)| !is_taught && of_store.contains(&change.target))
            .map(|(change, _)| change.clone())
            .collect();
        if news.extent != Extent::News {
            let is_gone = |target: &Target| {
                !of_store.contains(target)
                    && own.iter().chain(&self.waiting).all(|(change, _)| change.target != *target)
            };
            let here = throttle.blocks(usize::MAX, now).into_iter().filter(Block::is_in_force);
            let gone: Vec<Block> = here.filter(|block| is_gone(&block.target)).collect();
            match news.extent {
                Extent::Lost => self.teach(gone),
                // They were ended while this node did not listen.
                _ => end(throttle, gone, now),
            }
        }
        let change = |(target, rest): (Target, Option<Duration>)| Change {
            target,
            until: rest.map(|rest| now + rest),
        };
        let changes: Vec<Change> = news.list.into_iter().map(change).chain(mine).collect();
        if !changes.is_empty() {
            throttle.apply(changes, now);
        }
        (self.epoch, self.seq) = (news.epoch, news.seq);
    }

    /// The words did not reach the store, or nobody knows. They are sent again.
    pub(super) fn lost(&mut self) {
        self.sent = 0;
    }

    /// Teaches the store these blocks.
    fn teach(&mut self, blocks: impl IntoIterator<Item = Block>) {
        let change = |Block { target, until, .. }| (Change { target, until: Some(until) }, true);
        self.waiting.extend(blocks.into_iter().map(change));
    }

    /// Teaches the store every block of this node, instead of the changes that wait.
    fn teach_all(&mut self, throttle: &Throttle, now: Timestamp) {
        self.waiting.clear();
        self.teach(throttle.blocks(usize::MAX, now).into_iter().filter(Block::is_in_force));
    }
}

fn end(throttle: &Throttle, blocks: Vec<Block>, now: Timestamp) {
    if !blocks.is_empty() {
        throttle.apply(blocks.into_iter().map(|block| Change { target: block.target, until: None }), now);
    }
}
