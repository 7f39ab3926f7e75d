//! The log of one key: the admissions of the last window.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::table::deque_bytes_after;

/// The auxiliary state of `sliding-log`. Times are nanoseconds, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Log {
    admitted_at: VecDeque<u64>,
    /// From here on the log holds every admission that counts. 0: the log has not begun.
    whole_at: u64,
}

impl Log {
    /// Advances the log to `now`. A new log lacks the admissions of the last `unknown_ns`.
    pub(super) fn advance(&mut self, now_ns: u64, window_ns: u64, unknown_ns: u64) {
        if self.whole_at == 0 {
            self.whole_at = now_ns.saturating_add(unknown_ns).max(1);
        }
        // The clock went back: no admission can be later than now.
        let later = self.admitted_at.iter().rev().take_while(|&&at| at > now_ns).count();
        let from = self.admitted_at.len() - later;
        self.admitted_at.range_mut(from..).for_each(|at| *at = now_ns);
        while self.admitted_at.front().is_some_and(|&at| now_ns - at >= window_ns) {
            self.admitted_at.pop_front();
        }
        self.whole_at = self.whole_at.min(now_ns.saturating_add(window_ns));
    }

    /// The number of admissions in the log.
    pub(super) fn len(&self) -> usize {
        self.admitted_at.len()
    }

    /// The time until the log is complete.
    pub(super) fn unknown_ns(&self, now_ns: u64) -> u64 {
        self.whole_at.saturating_sub(now_ns)
    }

    /// The time of the last of the oldest `count` admissions; `count` is at least 1.
    pub(super) fn nth_ns(&self, count: usize) -> u64 {
        self.admitted_at[count - 1]
    }

    /// Adds a request, once for each unit of its cost.
    pub(super) fn remember(&mut self, now_ns: u64, cost: u32) {
        self.admitted_at.extend((0..cost).map(|_| now_ns));
    }

    /// Removes up to `cost` admissions at the moment `due_ns`.
    pub(super) fn take_back(&mut self, due_ns: u64, cost: u32) {
        let from = self.admitted_at.partition_point(|&at| at < due_ns);
        let end = self.admitted_at.partition_point(|&at| at <= due_ns);
        self.admitted_at.drain(from..end.min(from.saturating_add(cost as usize)));
    }

    /// The invariant: oldest first.
    pub(super) fn is_sound(&self) -> bool {
        self.admitted_at.iter().is_sorted()
    }

    /// The maximum memory after `more` admissions.
    pub(super) fn bytes_after(&self, more: usize) -> usize {
        deque_bytes_after(&self.admitted_at, more)
    }

    pub(super) fn bytes(&self) -> usize {
        self.admitted_at.capacity() * size_of::<u64>()
    }
}
