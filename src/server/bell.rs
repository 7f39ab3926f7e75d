//! Wakes a connection when the turn of a request that it holds moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

use slowlane_core::base::Turn;

/// Rings when a turn moves. All turns of a connection ring the same one.
#[derive(Debug, Default)]
pub(super) struct Bell {
    is_rung: AtomicBool,
    task: AtomicWaker,
}

impl Bell {
    /// From now on, this turn rings the bell when it moves.
    pub(super) fn listen_to(self: &Arc<Bell>, turn: &Turn) {
        turn.wake(Waker::from(self.clone()));
    }

    /// Ready once for any number of rings.
    pub(super) fn poll_rung(&self, context: &Context<'_>) -> Poll<()> {
        self.task.register(context.waker());
        if self.is_rung.swap(false, SeqCst) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Bell>) {
        self.is_rung.store(true, SeqCst);
        self.task.wake();
    }
}
