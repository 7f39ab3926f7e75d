//! The turn of a held request: the moment at which the request passes. The turn may move while the request waits.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::task::Waker;

use crate::base::Timestamp;

/// The turn of a held request. The request's queue may move the turn, and a connection waits for the turn.
///
/// ```
/// use slowlane_core::base::{Timestamp, Turn};
/// let turn = Turn::new(Timestamp::from_millis(9_000));
/// turn.move_to(Timestamp::from_millis(8_500));
/// assert_eq!(turn.due(), Some(Timestamp::from_millis(8_500)));
/// turn.refuse();
/// assert_eq!(turn.due(), None);
/// ```
#[derive(Debug)]
pub struct Turn {
    due_ns: AtomicU64,
    /// Wakes the task that holds the answer when the turn moves.
    waker: Mutex<Option<Waker>>,
}

/// The value of `due_ns` for a refused request.
const REFUSED: u64 = u64::MAX;

impl Turn {
    pub fn new(due: Timestamp) -> Turn {
        Turn { due_ns: AtomicU64::new(due.as_nanos()), waker: Mutex::default() }
    }

    /// The moment at which the request passes, as currently known. None if the request is refused.
    pub fn due(&self) -> Option<Timestamp> {
        Some(self.due_ns.load(Relaxed)).filter(|&due_ns| due_ns != REFUSED).map(Timestamp::from_nanos)
    }

    /// Moves the turn, and wakes the task that holds the answer if the moment changes.
    pub fn move_to(&self, due: Timestamp) {
        self.store(due.as_nanos().min(REFUSED - 1));
    }

    /// Refuses the request.
    pub fn refuse(&self) {
        self.store(REFUSED);
    }

    /// Sets which task to wake when the turn moves.
    pub fn wake(&self, waker: Waker) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker);
    }

    fn store(&self, due_ns: u64) {
        if self.due_ns.swap(due_ns, Relaxed) != due_ns
            && let Some(waker) = &*self.waker.lock().unwrap_or_else(PoisonError::into_inner)
        {
            waker.wake_by_ref();
        }
    }
}
