//! The auxiliary state of a key: what its law remembers besides the entry, such as a log of admissions or the open
//! tickets. Most keys have none.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::law::calendar::Calendar;
use crate::law::{OpenTickets, Reservations};
use crate::table::deque_bytes_after;

/// The auxiliary state of one key. A new state is empty and allocates nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum AuxState {
    /// The future slots of a `fair` bucket.
    Calendar(Calendar),
    /// The admissions under `sliding-log`.
    Log(Log),
    /// The open tickets of a key whose law needs to know when requests end.
    Tickets(OpenTickets),
    /// The open tickets of a key whose SLO counts work, and the estimated cost of its requests.
    Work(Reservations),
}

impl AuxState {
    /// The heap memory of the state, in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            AuxState::Calendar(calendar) => calendar.bytes(),
            AuxState::Log(log) => log.bytes(),
            AuxState::Tickets(tickets) => tickets.bytes(),
            AuxState::Work(work) => work.tickets.bytes(),
        }
    }

    /// Whether a law could have produced this state.
    pub fn is_sound(&self) -> bool {
        match self {
            AuxState::Calendar(calendar) => calendar.is_whole(),
            AuxState::Log(log) => log.is_sound(),
            AuxState::Tickets(tickets) => tickets.is_sound(),
            AuxState::Work(work) => work.tickets.is_sound() && work.costs.is_sound(),
        }
    }

    pub(super) fn calendar(aux: Option<&mut AuxState>) -> Option<&mut Calendar> {
        match aux {
            Some(AuxState::Calendar(calendar)) => Some(calendar),
            _ => None,
        }
    }

    pub(super) fn log(aux: Option<&mut AuxState>) -> Option<&mut Log> {
        match aux {
            Some(AuxState::Log(log)) => Some(log),
            _ => None,
        }
    }

    pub(crate) fn tickets(&mut self) -> Option<&mut OpenTickets> {
        match self {
            AuxState::Tickets(tickets) => Some(tickets),
            AuxState::Work(work) => Some(&mut work.tickets),
            _ => None,
        }
    }
}

/// The auxiliary state of `sliding-log`: the admissions of the last window. Times are in nanoseconds, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Log {
    admitted_at: VecDeque<u64>,
    /// From this time on, the log holds every admission that counts. 0 if the log has not begun.
    whole_at: u64,
}

impl Log {
    /// Advances the log to `now`. A new log lacks the admissions of the last `unknown_ns`.
    pub(super) fn advance(&mut self, now_ns: u64, window_ns: u64, unknown_ns: u64) {
        if self.whole_at == 0 {
            self.whole_at = now_ns.saturating_add(unknown_ns).max(1);
        }
        // If the clock went back, admissions later than now are moved to now.
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

    /// The time of the `count`-th oldest admission; `count` is at least 1.
    pub(super) fn nth_ns(&self, count: usize) -> u64 {
        self.admitted_at[count - 1]
    }

    /// Adds a request, once for each unit of its cost.
    pub(super) fn remember(&mut self, now_ns: u64, cost: u32) {
        self.admitted_at.extend((0..cost).map(|_| now_ns));
    }

    /// Removes up to `cost` admissions that were logged at `due_ns`.
    pub(super) fn take_back(&mut self, due_ns: u64, cost: u32) {
        let from = self.admitted_at.partition_point(|&at| at < due_ns);
        let end = self.admitted_at.partition_point(|&at| at <= due_ns);
        self.admitted_at.drain(from..end.min(from.saturating_add(cost as usize)));
    }

    /// The invariant: admissions are sorted, oldest first.
    pub(super) fn is_sound(&self) -> bool {
        self.admitted_at.iter().is_sorted()
    }

    /// The maximum memory after `more` additional admissions, in bytes.
    pub(super) fn bytes_after(&self, more: usize) -> usize {
        deque_bytes_after(&self.admitted_at, more)
    }

    pub(super) fn bytes(&self) -> usize {
        self.admitted_at.capacity() * size_of::<u64>()
    }
}
