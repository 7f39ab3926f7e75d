//! The messages about blocks between nodes and the store, and the store's list of all blocks.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::{Target, Timestamp};

/// The maximum number of blocks that operators can set. Each node has the same maximum.
const OPERATOR_BLOCKS_MAX: usize = 10_000;

/// The maximum number of blocked keys. This limit is separate, because clients can cause any number of such blocks.
const KEY_BLOCKS_MAX: usize = 20_000;

/// A node that has missed more changes than this gets the whole list of blocks.
const CHANGES_MAX: usize = 1_000;

/// The longest time for which a block lasts.
const REST_MAX: Duration = Duration::from_secs(366 * 86_400);

/// When a node restores a block, the block's end replaces the end in the list only if it is later by more than this
/// time, because messages take time.
const LATER: Duration = Duration::from_secs(1);

/// The blocks that a node reports to the store, and the node's position in the store's list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockUpdate {
    pub epoch: String,
    pub seq: u64,
    pub changes: Vec<BlockChange>,
}

/// A block that is set, changed or lifted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockChange {
    pub target: Target,
    /// The remaining time. None if the key or the fields are no longer blocked.
    pub rest: Option<Duration>,
    /// Whether the node reports the block again, in case the store has lost the block.
    pub is_restored: bool,
}

/// The store's answer to a [`BlockUpdate`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockNews {
    pub epoch: String,
    pub seq: u64,
    pub extent: Extent,
    pub list: Vec<(Target, Option<Duration>)>,
    /// The positions of the node's changes for which there was no room. Other nodes do not learn of such changes.
    pub refused: Vec<usize>,
}

/// The content of a list from the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Extent {
    /// The changes since the last answer.
    News,
    /// All blocks in force.
    All,
    /// All blocks that the store knows. The store has lost earlier blocks, so other blocks may be in force.
    Lost,
}

/// The blocks of all nodes, with the last changes. Each node reads the changes that it has not yet seen.
#[derive(Debug)]
pub struct BlockLog {
    /// Distinguishes this list from the list before a restart.
    epoch: String,
    /// The number of the last change.
    seq: u64,
    of_operators: Room,
    of_keys: Room,
    /// The last changes, each with the end of its block, or with `None` if the block was lifted.
    changes: VecDeque<(Target, Option<Timestamp>)>,
}

impl BlockLog {
    pub fn new(epoch: String) -> BlockLog {
        let (of_operators, of_keys) = (Room::new(OPERATOR_BLOCKS_MAX), Room::new(KEY_BLOCKS_MAX));
        BlockLog { epoch, seq: 0, of_operators, of_keys, changes: VecDeque::new() }
    }

    /// Applies the changes of a node, and answers with the changes of the other nodes.
    pub fn send(&mut self, arguments: &BlockUpdate, now: Timestamp) -> BlockNews {
        let (extent, list) = self.news(arguments, now);
        let has_no_room = |(place, word)| (!self.change(word, now)).then_some(place);
        let refused = arguments.changes.iter().enumerate().filter_map(has_no_room).collect();
        BlockNews { epoch: self.epoch.clone(), seq: self.seq, extent, list, refused }
    }

    /// The changes that the node has not seen yet.
    fn news(&self, arguments: &BlockUpdate, now: Timestamp) -> (Extent, Vec<(Target, Option<Duration>)>) {
        let rest = |ends: Timestamp| (ends > now).then(|| ends.since(now));
        let has_lost = arguments.epoch != self.epoch || arguments.seq > self.seq;
        let missed = usize::try_from(self.seq.saturating_sub(arguments.seq)).unwrap_or(usize::MAX);
        if !has_lost && missed <= self.changes.len() {
            let news = self.changes.iter().skip(self.changes.len() - missed);
            let response =
                |(target, ends): &(Target, Option<Timestamp>)| (target.clone(), ends.and_then(rest));
            return (Extent::News, news.map(response).collect());
        }
        let all = self.of_operators.ends.iter().chain(&self.of_keys.ends);
        let in_force = all.filter_map(|(target, &ends)| Some((target.clone(), Some(rest(ends)?))));
        (if has_lost { Extent::Lost } else { Extent::All }, in_force.collect())
    }

    /// Applies a change. Returns false if there is no room for the change.
    fn change(&mut self, word: &BlockChange, now: Timestamp) -> bool {
        let room = match word.target {
            Target::Fields(_) => &mut self.of_operators,
            Target::Key(_) => &mut self.of_keys,
        };
        let ends = word.rest.map(|rest| now + rest.min(REST_MAX));
        let before = room.ends.get(&word.target).copied();
        let is_later = ends.is_some_and(|ends| before.is_none_or(|before| ends > before + LATER));
        if word.is_restored && !is_later {
            return true;
        }
        if !room.put(&word.target, ends, now) {
            return false;
        }
        self.seq += 1;
        self.changes.push_back((word.target.clone(), ends));
        if self.changes.len() > CHANGES_MAX {
            self.changes.pop_front();
        }
        true
    }
}

/// Blocks of one kind, each with its end.
#[derive(Debug)]
struct Room {
    ends: BTreeMap<Target, Timestamp>,
    most: usize,
}

impl Room {
    fn new(most: usize) -> Room {
        Room { ends: BTreeMap::new(), most }
    }

    /// Sets or ends a block. Returns false if there is no room for another block.
    fn put(&mut self, target: &Target, ends: Option<Timestamp>, now: Timestamp) -> bool {
        match ends {
            None => {
                self.ends.remove(target);
            }
            Some(ends) if self.ends.contains_key(target) || self.has_room(now) => {
                self.ends.insert(target.clone(), ends);
            }
            Some(_) => return false,
        }
        true
    }

    fn has_room(&mut self, now: Timestamp) -> bool {
        self.ends.len() < self.most || {
            self.ends.retain(|_, ends| *ends > now);
            self.ends.len() < self.most
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_nanos(1_000_000_000_000);

    fn target(number: usize) -> Target {
        Target::parse(format!("source=192.0.2.{number}").as_bytes()).unwrap()
    }

    fn block(number: usize, rest_s: u64) -> BlockChange {
        BlockChange { target: target(number), rest: Some(Duration::from_secs(rest_s)), is_restored: false }
    }

    /// A node at this block log, with what it knows of it.
    #[derive(Default)]
    struct Reader(String, u64);

    impl Reader {
        fn send(&mut self, block_log: &mut BlockLog, changes: Vec<BlockChange>, now: Timestamp) -> BlockNews {
            let arguments = BlockUpdate { epoch: self.0.clone(), seq: self.1, changes };
            let news = block_log.send(&arguments, now);
            (self.0, self.1) = (news.epoch.clone(), news.seq);
            news
        }
    }

    #[test]
    fn a_change_reaches_every_other_node_once() {
        let mut block_log = BlockLog::new("a".into());
        let (mut one, mut other) = (Reader::default(), Reader::default());
        assert_eq!(one.send(&mut block_log, vec![block(1, 60)], START).extent, Extent::Lost);
        let news = other.send(&mut block_log, vec![], START);
        assert_eq!(news.list, [(target(1), Some(Duration::from_secs(60)))]);
        assert_eq!(one.send(&mut block_log, vec![], START).list, [], "a node has no news of its own change");
        let end = BlockChange { rest: None, ..block(1, 0) };
        other.send(&mut block_log, vec![end], START);
        assert_eq!(one.send(&mut block_log, vec![], START).list, [(target(1), None)]);
        assert_eq!(one.send(&mut block_log, vec![], START).list, []);
    }

    #[test]
    fn a_node_that_was_away_for_long_reads_the_whole_list() {
        let mut block_log = BlockLog::new("a".into());
        let (mut one, mut other) = (Reader::default(), Reader::default());
        other.send(&mut block_log, vec![], START);
        for _ in 0..=CHANGES_MAX {
            one.send(&mut block_log, vec![block(1, 60), block(2, 5)], START);
        }
        let news = other.send(&mut block_log, vec![], START + Duration::from_secs(10));
        assert_eq!(news.extent, Extent::All);
        assert_eq!(news.list, [(target(1), Some(Duration::from_secs(50)))], "the other one is over");
    }

    #[test]
    fn a_list_that_begins_anew_is_taught_by_the_nodes() {
        let (mut block_log, mut node) = (BlockLog::new("a".into()), Reader::default());
        node.send(&mut block_log, vec![block(1, 60)], START);
        let mut next = BlockLog::new("b".into());
        assert_eq!(node.send(&mut next, vec![], START).extent, Extent::Lost);
        let restore = |rest_s| BlockChange { is_restored: true, ..block(1, rest_s) };
        for _ in 0..2 {
            node.send(&mut next, vec![restore(60)], START);
        }
        assert_eq!(next.seq, 1, "what is restored twice is no news");
        node.send(&mut next, vec![restore(30)], START);
        assert_eq!(
            next.of_operators.ends[&target(1)],
            START + Duration::from_secs(60),
            "the later end counts"
        );
    }

    fn word(text: String) -> BlockChange {
        let target = Target::parse(text.as_bytes()).unwrap();
        BlockChange { target, rest: Some(Duration::from_secs(60)), is_restored: false }
    }

    #[test]
    fn there_is_room_for_so_many_and_no_more() {
        let mut block_log = BlockLog::new("a".into());
        let word = |number: usize| word(format!("website={number}.example"));
        let mut node = Reader::default();
        let refused = (0..OPERATOR_BLOCKS_MAX + 5)
            .map(|number| node.send(&mut block_log, vec![word(number)], START).refused.len())
            .sum::<usize>();
        assert_eq!((block_log.of_operators.ends.len(), refused), (OPERATOR_BLOCKS_MAX, 5));
        assert_eq!((block_log.seq, block_log.changes.len()), (OPERATOR_BLOCKS_MAX as u64, CHANGES_MAX));
        let gone = BlockChange { rest: None, ..word(OPERATOR_BLOCKS_MAX) };
        let changes = vec![word(0), word(OPERATOR_BLOCKS_MAX + 5), gone];
        let news = node.send(&mut block_log, changes, START);
        assert_eq!(news.refused, [1], "a known block needs no room, and an end needs none");
        node.send(&mut block_log, vec![word(OPERATOR_BLOCKS_MAX + 5)], START + Duration::from_secs(61));
        assert_eq!(block_log.of_operators.ends.len(), 1, "those that are over make room");
    }

    /// Clients can cause blocks of keys as fast as they like.
    #[test]
    fn keys_take_no_room_of_operators() {
        let mut block_log = BlockLog::new("a".into());
        let mut node = Reader::default();
        for number in 0..=KEY_BLOCKS_MAX {
            let news = node.send(&mut block_log, vec![word(format!("key={number:016X}"))], START);
            assert_eq!(news.refused.len(), usize::from(number == KEY_BLOCKS_MAX));
        }
        assert!(node.send(&mut block_log, vec![block(1, 60)], START).refused.is_empty());
        let news = Reader::default().send(&mut block_log, vec![], START);
        assert_eq!((news.list[0].0.clone(), news.list.len()), (target(1), KEY_BLOCKS_MAX + 1));
    }
}
