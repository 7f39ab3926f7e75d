//! The keys that a node shares with others.

use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::{Key, Timestamp};
use crate::cluster::{Arguments, LocalView, Share};
use crate::table::{BoundedMap, Expiring};

/// A view used within this time is not evicted: its requests may not be reported yet, as a node reports each key within
/// a second.
const IN_USE: Duration = Duration::from_secs(1);

/// A view without requests is kept for its burst, its longest delay and this time: twice the longest memory of a
/// demand.
const IDLE: Duration = Duration::from_secs(10);

/// The keys that a node shares with others, with its view of each. Bounded: without room for one more key, a view that
/// has long been idle is dropped.
///
/// A decision locks one key, as the task that talks to the store does.
#[derive(Debug)]
pub(super) struct SharedKeys {
    pub(super) views: BoundedMap<Kept>,
    /// Keys with something to report, now or later.
    to_tell: Mutex<Vec<Key>>,
}

/// A node's state for a shared key.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) local_view: LocalView,
    used: Timestamp,
    pub(super) is_listed: bool,
    /// The key is used so much that every node must share it.
    pub(super) is_crowded: bool,
}

impl Kept {
    /// Whether requests are held.
    fn holds(&self) -> bool {
        matches!(&self.local_view, LocalView::Rate((_, view)) if view.holds())
    }
}

impl Expiring for Kept {
    /// Everything is reported, and the law has forgotten the key.
    fn is_over(&self, now: Timestamp) -> bool {
        self.local_view.is_settled(now)
            && now.since(self.used) > self.local_view.share().memory().saturating_add(IDLE)
    }

    fn idle(&self, now: Timestamp) -> Option<Duration> {
        Some(now.since(self.used)).filter(|&idle| idle > IN_USE && !self.holds())
    }
}

/// A node's pending report about a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyUpdate {
    pub key: Key,
    pub arguments: Arguments,
}

impl SharedKeys {
    pub(super) fn new(keys_max: usize) -> SharedKeys {
        SharedKeys { views: BoundedMap::new(keys_max), to_tell: Mutex::default() }
    }

    /// Passes a key's state to `judge`, creating it with `begin` if needed. None without room.
    pub(super) fn with<R>(
        &self,
        key: Key,
        share: &Share<'_>,
        now: Timestamp,
        mut begin: impl FnMut() -> LocalView,
        judge: impl FnOnce(&mut LocalView) -> R,
    ) -> Option<R> {
        let mut place = self.views.at(key);
        if place.get().is_none() {
            let kept = Kept { local_view: begin(), used: now, is_listed: false, is_crowded: false };
            place.put(kept, now);
        }
        let kept = place.get()?;
        if !kept.local_view.follow(share) {
            kept.local_view = begin();
        }
        kept.used = now;
        if !mem::replace(&mut kept.is_listed, true) {
            self.to_tell().push(key);
        }
        Some(judge(&mut kept.local_view))
    }

    /// Passes a key's state to `read`, if there is any.
    pub(super) fn with_known<R>(&self, key: Key, read: impl FnOnce(&mut LocalView) -> R) -> Option<R> {
        self.views.at(key).get().map(|kept| read(&mut kept.local_view))
    }

    /// A copy of a key's state under these terms. None if their mode differs.
    pub(super) fn copy(&self, key: Key, share: &Share<'_>) -> Option<LocalView> {
        let mut local_view = self.with_known(key, |local_view| local_view.clone())?;
        local_view.follow(share).then_some(local_view)
    }

    pub(super) fn to_tell(&self) -> MutexGuard<'_, Vec<Key>> {
        self.to_tell.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The manual and the config speak of 300 to 600 bytes a key. The list and the hash table may have room for as many
    /// keys again.
    #[test]
    fn a_shared_key_takes_three_hundred_bytes() {
        let least = size_of::<(Key, Kept)>() + 1 + size_of::<Key>();
        assert!((250..=300).contains(&least), "{least}");
    }
}
