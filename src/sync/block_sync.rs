//! Synchronises blocks between this node and the store.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::mem;
use std::time::Duration;

use slowlane_core::base::{Target, Timestamp};
use slowlane_core::cluster::{BlockChange, BlockNews, BlockUpdate, Extent};
use slowlane_core::throttle::{Block, Change, Changes, Ordered, Reach, Throttle};

/// The maximum number of changes in an exchange. The remaining changes follow in the next exchange.
const CHANGES_MAX: usize = 500;

/// If more changes than this are pending, the whole list of blocks is sent instead.
const WAITING_MAX: usize = 10_000;

/// The time after which blocks for which the store had no room are offered again.
const OFFER: Duration = Duration::from_secs(2);

/// Synchronises blocks between this node and the store.
#[derive(Debug, Default)]
pub(super) struct BlockSync {
    epoch: String,
    seq: u64,
    /// Changes of this node that the store has not applied yet; `restoring` has blocks that it may have forgotten.
    waiting: VecDeque<Ordered>,
    restoring: VecDeque<Ordered>,
    /// How many entries of `waiting` and of `restoring` are in flight.
    sent: (usize, usize),
    /// Blocks for which the store has no room, with their end times. They are in force on this node only, so there are
    /// at most as many as this node has blocks.
    pub(super) alone: BTreeMap<Target, Timestamp>,
    offered: Timestamp,
}

impl BlockSync {
    /// Collects the changes of this node. Returns true if there is anything to report, including blocks to restore.
    pub(super) fn gather(&mut self, throttle: &Throttle, now: Timestamp) -> bool {
        let Changes { ordered, keys, lost } = throttle.take_changes();
        self.waiting.extend(ordered);
        self.waiting.extend(keys.into_iter().map(|change| Ordered { change, receipt: None }));
        if lost > 0 || self.waiting.len() > WAITING_MAX {
            self.restore_all(throttle, now);
        }
        if self.restoring.is_empty() && !self.alone.is_empty() && now.since(self.offered) >= OFFER {
            self.offered = now;
            let some = self.alone.iter().filter(|(_, until)| **until > now).take(CHANGES_MAX);
            self.restoring = some.map(|(target, until)| restored(target.clone(), *until)).collect();
        }
        !self.waiting.is_empty() || !self.restoring.is_empty()
    }

    pub(super) fn arguments(&mut self, now: Timestamp) -> BlockUpdate {
        let waiting = self.waiting.len().min(CHANGES_MAX);
        self.sent = (waiting, self.restoring.len().min(CHANGES_MAX - waiting));
        let own = self.waiting.range(..self.sent.0).map(|own| (own, false));
        let sent = own.chain(self.restoring.range(..self.sent.1).map(|own| (own, true)));
        let word = |(Ordered { change: Change { target, until }, .. }, is_restored): (&Ordered, bool)| {
            BlockChange { target: target.clone(), rest: until.map(|until| until.since(now)), is_restored }
        };
        let changes = sent.map(word).collect();
        BlockUpdate { epoch: self.epoch.clone(), seq: self.seq, changes }
    }

    /// Applies the store's answer. Returns how many of the store's blocks this node has no room for.
    pub(super) fn news(&mut self, news: BlockNews, throttle: &Throttle, now: Timestamp) -> usize {
        let (changed, restored_count) = mem::take(&mut self.sent);
        let mut own: Vec<Ordered> = self.waiting.drain(..changed).collect();
        own.extend(self.restoring.drain(..restored_count));
        self.settle(&own, &news, now);
        let of_store: HashSet<&Target> = news.list.iter().map(|(target, _)| target).collect();
        // For the same target, the store applies this node's change after the changes of other nodes.
        let mine = own[..changed].iter().filter(|own| of_store.contains(&own.change.target));
        let mine: Vec<Change> = mine.map(|own| own.change.clone()).collect();
        if news.extent != Extent::News {
            let on_their_way = own.iter().chain(&self.waiting).chain(&self.restoring);
            let known: HashSet<&Target> = on_their_way.map(|waiting| &waiting.change.target).collect();
            let is_gone = |Block { target, .. }: &Block| {
                !of_store.contains(target) && !known.contains(target) && !self.alone.contains_key(target)
            };
            let here = throttle.blocks(usize::MAX, now).into_iter().filter(Block::is_in_force);
            let gone: Vec<Block> = here.filter(is_gone).collect();
            match news.extent {
                Extent::Lost => self.restores(gone),
                _ if gone.is_empty() => {}
                // These blocks were ended by changes that this node has missed.
                _ => {
                    let end = |Block { target, .. }| Change { target, until: None };
                    throttle.apply(gone.into_iter().map(end), now);
                }
            }
        }
        let change = |(target, rest): (Target, Option<Duration>)| Change {
            target,
            until: rest.map(|rest| now + rest),
        };
        (self.epoch, self.seq) = (news.epoch, news.seq);
        let changes: Vec<Change> = news.list.into_iter().map(change).chain(mine).collect();
        if changes.is_empty() { 0 } else { throttle.apply(changes, now) }
    }

    /// Notes which of this node's own changes the store has applied or refused, also in their receipts.
    fn settle(&mut self, own: &[Ordered], news: &BlockNews, now: Timestamp) {
        for (target, _) in &news.list {
            self.alone.remove(target);
        }
        for (place, Ordered { change, receipt }) in own.iter().enumerate() {
            let is_refused = news.refused.contains(&place);
            match change.until.filter(|_| is_refused) {
                Some(until) => self.alone.insert(change.target.clone(), until),
                None => self.alone.remove(&change.target),
            };
            if let Some(receipt) = receipt {
                receipt.write(if is_refused { Reach::Here } else { Reach::All });
            }
        }
        self.alone.retain(|_, until| *until > now);
    }

    /// Notes that the report was lost, or may have been lost, so that it is sent again.
    pub(super) fn lost(&mut self) {
        self.sent = (0, 0);
    }

    /// Makes the next reports restore these blocks in the store.
    fn restores(&mut self, blocks: impl IntoIterator<Item = Block>) {
        self.restoring = blocks.into_iter().map(|block| restored(block.target, block.until)).collect();
    }

    /// Restores every block of this node in the store, instead of reporting pending changes. A block that an operator
    /// has ended stays ended.
    fn restore_all(&mut self, throttle: &Throttle, now: Timestamp) {
        let is_end =
            |Change { target, until }: &Change| until.is_none() && matches!(target, Target::Fields(_));
        self.waiting.retain(|waiting| is_end(&waiting.change));
        self.waiting.truncate(WAITING_MAX);
        self.restores(throttle.blocks(usize::MAX, now).into_iter().filter(Block::is_in_force));
    }
}

/// A block that the store may have forgotten.
fn restored(target: Target, until: Timestamp) -> Ordered {
    Ordered { change: Change { target, until: Some(until) }, receipt: None }
}
