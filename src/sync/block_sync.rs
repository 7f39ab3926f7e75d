//! Synchronises blocks between this node and the store.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::Duration;

use slowlane_core::base::{Target, Timestamp};
use slowlane_core::cluster::{BlockChange, BlockNews, BlockUpdate, Extent};
use slowlane_core::throttle::{Block, Change, Changes, Ordered, Reach, Receipt, Throttle};

/// An exchange carries at most this many changes. The rest follow in the next one.
const CHANGES_MAX: usize = 500;

/// If more changes than this are pending, the whole list of blocks is sent instead.
const WAITING_MAX: usize = 10_000;

/// How often blocks without room in the store are offered to it again.
const OFFER: Duration = Duration::from_secs(2);

/// Synchronises blocks between this node and the store.
#[derive(Debug, Default)]
pub(super) struct BlockSync {
    epoch: String,
    seq: u64,
    /// Changes of this node that the store has not applied yet, and blocks that it may have forgotten.
    waiting: VecDeque<WaitingChange>,
    teaching: VecDeque<WaitingChange>,
    /// The number of both that are in flight.
    sent: (usize, usize),
    /// Blocks for which the store has no room, with their ends. They are in force on this node only. At most all of
    /// its blocks.
    pub(super) alone: BTreeMap<Target, Timestamp>,
    offered: Timestamp,
}

/// A change that waits for the store.
#[derive(Debug)]
struct WaitingChange {
    change: Change,
    is_restored: bool,
    receipt: Option<Receipt>,
}

impl WaitingChange {
    fn restore(target: Target, until: Timestamp) -> WaitingChange {
        WaitingChange { change: Change { target, until: Some(until) }, is_restored: true, receipt: None }
    }

    fn word(&self, now: Timestamp) -> BlockChange {
        let Change { target, until } = &self.change;
        let rest = until.map(|until| until.since(now));
        BlockChange { target: target.clone(), rest, is_restored: self.is_restored }
    }
}

impl BlockSync {
    /// Collects the changes of this node. True if there are any to report.
    pub(super) fn gather(&mut self, throttle: &Throttle, now: Timestamp) -> bool {
        let Changes { ordered, keys, lost } = throttle.take_changes();
        let new = |change, receipt| WaitingChange { change, is_restored: false, receipt };
        self.waiting.extend(ordered.into_iter().map(|Ordered { change, receipt }| new(change, receipt)));
        self.waiting.extend(keys.into_iter().map(|change| new(change, None)));
        if lost > 0 || self.waiting.len() > WAITING_MAX {
            self.restore_all(throttle, now);
        }
        if self.teaching.is_empty() && !self.alone.is_empty() && now.since(self.offered) >= OFFER {
            self.offered = now;
            let some = self.alone.iter().filter(|(_, until)| **until > now).take(CHANGES_MAX);
            self.teaching =
                some.map(|(target, until)| WaitingChange::restore(target.clone(), *until)).collect();
        }
        !self.waiting.is_empty() || !self.teaching.is_empty()
    }

    pub(super) fn arguments(&mut self, now: Timestamp) -> BlockUpdate {
        let waiting = self.waiting.len().min(CHANGES_MAX);
        self.sent = (waiting, self.teaching.len().min(CHANGES_MAX - waiting));
        let sent = self.waiting.iter().take(self.sent.0).chain(self.teaching.iter().take(self.sent.1));
        let changes = sent.map(|waiting| waiting.word(now)).collect();
        BlockUpdate { epoch: self.epoch.clone(), seq: self.seq, changes }
    }

    /// Applies the answer of the store. Returns the number of its blocks for which this node has no room.
    pub(super) fn news(&mut self, news: BlockNews, throttle: &Throttle, now: Timestamp) -> usize {
        let mut own: Vec<WaitingChange> = self.waiting.drain(..self.sent.0).collect();
        own.extend(self.teaching.drain(..self.sent.1));
        self.sent = (0, 0);
        self.settle(&own, &news, now);
        let of_store: HashSet<&Target> = news.list.iter().map(|(target, _)| target).collect();
        // For the same target, the store applies the change of this node after that of another.
        let mine: Vec<Change> = own
            .iter()
            .filter(|own| !own.is_restored && of_store.contains(&own.change.target))
            .map(|own| own.change.clone())
            .collect();
        if news.extent != Extent::News {
            let on_their_way = own.iter().chain(&self.waiting).chain(&self.teaching);
            let known: HashSet<&Target> = on_their_way.map(|waiting| &waiting.change.target).collect();
            let is_gone = |Block { target, .. }: &Block| {
                !of_store.contains(target) && !known.contains(target) && !self.alone.contains_key(target)
            };
            let here = throttle.blocks(usize::MAX, now).into_iter().filter(Block::is_in_force);
            let gone: Vec<Block> = here.filter(is_gone).collect();
            match news.extent {
                Extent::Lost => self.restores(gone),
                // They were ended while this node did not listen.
                _ => end(throttle, gone, now),
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

    /// Records which of its own changes the store has applied.
    fn settle(&mut self, own: &[WaitingChange], news: &BlockNews, now: Timestamp) {
        for (target, _) in &news.list {
            self.alone.remove(target);
        }
        for (place, WaitingChange { change, receipt, .. }) in own.iter().enumerate() {
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

    /// The report was lost, or may be lost. It is sent again.
    pub(super) fn lost(&mut self) {
        self.sent = (0, 0);
    }

    /// Restores these blocks in the store.
    fn restores(&mut self, blocks: impl IntoIterator<Item = Block>) {
        self.teaching =
            blocks.into_iter().map(|block| WaitingChange::restore(block.target, block.until)).collect();
    }

    /// Restores every block of this node in the store, instead of the pending changes. A block that an operator has
    /// ended stays ended.
    fn restore_all(&mut self, throttle: &Throttle, now: Timestamp) {
        let is_end =
            |Change { target, until }: &Change| until.is_none() && matches!(target, Target::Fields(_));
        self.waiting.retain(|waiting| is_end(&waiting.change));
        self.waiting.truncate(WAITING_MAX);
        self.restores(throttle.blocks(usize::MAX, now).into_iter().filter(Block::is_in_force));
    }
}

fn end(throttle: &Throttle, blocks: Vec<Block>, now: Timestamp) {
    if !blocks.is_empty() {
        throttle.apply(blocks.into_iter().map(|block| Change { target: block.target, until: None }), now);
    }
}
