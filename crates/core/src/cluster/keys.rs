//! The keys that a node shares with others.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashTable;
use serde::{Deserialize, Serialize};

use crate::base::key::Key;
use crate::base::time::Timestamp;
use crate::cluster::mode::{Answer, Held, Terms, Words};
use crate::cluster::terms::Situation;
use crate::table::Spread;

/// Threads seldom meet in one of this many shards.
const SHARDS: usize = 64;

/// A full shard looks at this many views for one to evict. The oldest of eight is among the oldest third in 96 of 100
/// cases.
const SAMPLES: usize = 8;

/// A view used within this time is not evicted: its requests may not be told yet, as a node tells of each key within a
/// second.
const IN_USE: Duration = Duration::from_secs(1);

/// A view without requests is kept for its burst, its longest delay and this time: twice the longest memory of a demand.
const IDLE: Duration = Duration::from_secs(10);

/// A lock is held for this many keys at most, some microseconds.
const TOLD_AT_ONCE: usize = 32;

/// The keys that a node shares with others, with its view of each. Bounded: without room for one more key, the view
/// that has been idle for longest goes.
///
/// A decision locks one shard, as the task that talks to the store does for a few keys at a time.
#[derive(Debug)]
pub(super) struct SharedKeys {
    shards: Box<[Mutex<Shard>]>,
    spread: Spread,
    views_max: usize,
    count: AtomicUsize,
    refused: AtomicU64,
}

#[derive(Debug, Default)]
struct Shard {
    views: Vec<Kept>,
    /// Places in `views`.
    places: HashTable<u32>,
    /// Keys that have something to tell, now or later.
    to_tell: Vec<Key>,
    /// Where the next search for an idle view begins.
    next_sample: usize,
}

#[derive(Debug)]
struct Kept {
    key: Key,
    held: Held,
    used: Timestamp,
    is_listed: bool,
    /// All nodes together ask for so much that each of them has to share the key.
    is_crowded: bool,
}

impl Kept {
    fn new(key: Key, held: Held, used: Timestamp) -> Kept {
        Kept { key, held, used, is_listed: false, is_crowded: false }
    }

    /// Whether it is no longer of use: everything is told, and its law has forgotten it.
    fn is_idle(&self, now: Timestamp) -> bool {
        self.held.is_settled(now) && now.since(self.used) > self.held.terms().memory().saturating_add(IDLE)
    }
}

/// What a node has to tell the store of a key.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Telling {
    pub key: Key,
    pub words: Words,
}

impl SharedKeys {
    pub(super) fn new(keys_max: usize) -> SharedKeys {
        SharedKeys {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            spread: Spread::new(),
            views_max: keys_max.div_ceil(SHARDS),
            count: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// Gives `judge` what is held of a key, or `begin`s to hold it. None without room.
    pub(super) fn with<R>(
        &self,
        key: Key,
        terms: &Terms,
        now: Timestamp,
        mut begin: impl FnMut() -> Held,
        judge: impl FnOnce(&mut Held) -> R,
    ) -> Option<R> {
        let mut shard = self.shard(key);
        let place = match self.place(&shard, key) {
            Some(place) => place,
            None => self.begin(&mut shard, Kept::new(key, begin(), now), now)?,
        };
        let Shard { views, to_tell, .. } = &mut *shard;
        let kept = &mut views[place];
        if !kept.held.follow(terms) {
            kept.held = begin();
        }
        kept.used = now;
        if !kept.is_listed {
            kept.is_listed = true;
            to_tell.push(key);
        }
        Some(judge(&mut kept.held))
    }

    /// Gives `read` what is held of a key, if anything is.
    pub(super) fn with_known<R>(&self, key: Key, read: impl FnOnce(&mut Held) -> R) -> Option<R> {
        let mut shard = self.shard(key);
        let place = self.place(&shard, key)?;
        Some(read(&mut shard.views[place].held))
    }

    /// A copy of what is held of a key, under these terms. None if their mode is another one.
    pub(super) fn copy(&self, key: Key, terms: &Terms) -> Option<Held> {
        let mut held = self.with_known(key, |held| held.clone())?;
        held.follow(terms).then_some(held)
    }

    /// The words that are due, and those views gone that nobody uses.
    pub(super) fn collect(
        &self,
        situation: &Situation<'_>,
        now: Timestamp,
        tellings_max: usize,
    ) -> Vec<Telling> {
        let mut tellings = Vec::new();
        for shard in &self.shards {
            let listed = lock(shard).to_tell.len();
            for begin in (0..listed).step_by(TOLD_AT_ONCE) {
                let mut shard = lock(shard);
                let chunk = TOLD_AT_ONCE.min(listed - begin).min(shard.to_tell.len());
                for key in shard.to_tell.drain(..chunk).collect::<Vec<_>>() {
                    let has_room = tellings.len() < tellings_max;
                    tellings.extend(self.tell(&mut shard, key, situation, now, has_room));
                }
            }
        }
        tellings
    }

    /// What there is to tell of a key now. The key is listed again unless everything is told.
    fn tell(
        &self,
        shard: &mut Shard,
        key: Key,
        situation: &Situation<'_>,
        now: Timestamp,
        has_room: bool,
    ) -> Option<Telling> {
        let place = self.place(shard, key)?;
        let Kept { held, is_listed, .. } = &mut shard.views[place];
        let words = if has_room { held.words(situation, now) } else { None };
        *is_listed = !held.is_settled(now);
        if *is_listed {
            shard.to_tell.push(key);
        }
        words.map(|words| Telling { key, words })
    }

    /// Forgets what is held of keys that nobody has asked about for long.
    pub(super) fn sweep(&self, now: Timestamp) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            for place in (0..shard.views.len()).rev() {
                if shard.views[place].is_idle(now) {
                    self.remove(&mut shard, place);
                }
            }
        }
    }

    /// Takes up the answer to a telling.
    pub(super) fn reply(
        &self,
        situation: &Situation<'_>,
        telling: &Telling,
        answer: &Answer,
        now: Timestamp,
    ) {
        let Telling { key, words } = telling;
        let mut shard = self.shard(*key);
        let Some(place) = self.place(&shard, *key) else { return };
        let kept = &mut shard.views[place];
        kept.is_crowded = kept.held.reply(situation, words, answer, now);
    }

    /// Notes that a telling did not reach the store.
    pub(super) fn lost(&self, telling: &Telling) {
        self.with_known(telling.key, |held| held.lost(&telling.words));
    }

    /// Keys that are asked for so often that all nodes have to share them. At most so many.
    pub(super) fn crowded(&self, now: Timestamp, most: usize) -> Vec<Key> {
        let mut crowded = Vec::new();
        for shard in &self.shards {
            let shard = lock(shard);
            let is_it = |kept: &&Kept| kept.is_crowded && now.since(kept.used) < IN_USE;
            crowded.extend(shard.views.iter().filter(is_it).map(|kept| kept.key).take(most - crowded.len()));
        }
        crowded
    }

    pub(super) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// Requests that found no room for the view of their key.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Requests let through and not yet told, over all keys.
    pub(super) fn owed(&self) -> f64 {
        let of_shard =
            |shard: &Mutex<Shard>| lock(shard).views.iter().map(|kept| kept.held.owed()).sum::<f64>();
        // An empty sum of floats is -0.
        0.0 + self.shards.iter().map(of_shard).sum::<f64>()
    }

    fn place(&self, shard: &Shard, key: Key) -> Option<usize> {
        let is_it = |place: &u32| shard.views[*place as usize].key == key;
        shard.places.find(self.spread.bits(key), is_it).map(|place| *place as usize)
    }

    /// Adds a view, and returns its place.
    fn begin(&self, shard: &mut Shard, kept: Kept, now: Timestamp) -> Option<usize> {
        if shard.views.len() >= self.views_max {
            let Some(idle) = shard.idle(now) else {
                self.refused.fetch_add(1, Relaxed);
                return None;
            };
            self.remove(shard, idle);
        }
        let (place, hash) = (shard.views.len(), self.spread.bits(kept.key));
        shard.views.push(kept);
        let Shard { views, places, .. } = shard;
        places.insert_unique(hash, place as u32, |place| self.spread.bits(views[*place as usize].key));
        self.count.fetch_add(1, Relaxed);
        Some(place)
    }

    fn remove(&self, shard: &mut Shard, place: usize) {
        self.forget_place(shard, place);
        shard.views.swap_remove(place);
        if let Some(moved) = shard.views.get(place) {
            let (hash, from) = (self.spread.bits(moved.key), shard.views.len() as u32);
            if let Some(known) = shard.places.find_mut(hash, |place| *place == from) {
                *known = place as u32;
            }
        }
        self.count.fetch_sub(1, Relaxed);
    }

    fn forget_place(&self, shard: &mut Shard, place: usize) {
        let hash = self.spread.bits(shard.views[place].key);
        if let Ok(found) = shard.places.find_entry(hash, |known| *known as usize == place) {
            found.remove();
        }
    }

    fn shard(&self, key: Key) -> MutexGuard<'_, Shard> {
        // The hash table uses both ends of the bits.
        lock(&self.shards[(self.spread.bits(key) >> 40) as usize % SHARDS])
    }
}

impl Shard {
    /// The place of a view that has been idle for long, among some.
    fn idle(&mut self, now: Timestamp) -> Option<usize> {
        let (count, first) = (self.views.len(), self.next_sample);
        self.next_sample = (first + SAMPLES) % count.max(1);
        let places = (first..first + SAMPLES.min(count)).map(|place| place % count);
        let oldest = places.min_by_key(|place| self.views[*place].used)?;
        (now.since(self.views[oldest].used) > IN_USE).then_some(oldest)
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The manual and the config speak of 300 to 600 bytes a key. Each of the three lists may have room for as many keys
    /// again.
    #[test]
    fn a_shared_key_takes_three_hundred_bytes() {
        let least = size_of::<Kept>() + size_of::<u32>() + size_of::<Key>();
        assert!((250..=300).contains(&least), "{least}");
    }
}
