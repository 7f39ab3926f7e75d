//! The shutdown: it notifies every task, and waits for all of them.

use std::future::poll_fn;
use std::io;
use std::mem::{replace, take};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use socket2::{Domain, SockRef};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::unconstrained;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::server::Stream;
use crate::server::spoe::SpopState;

/// The current order to all tasks that serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Serve,
    /// Pass each connection on to the next process, or answer its pending requests and close it if that is impossible.
    HandOver,
    /// Answer pending requests, and close.
    End,
}

/// Starts the shutdown, or the handover to another process.
#[derive(Debug)]
pub struct Trigger {
    phase: watch::Sender<Phase>,
    serving: TaskTracker,
    deciding: TaskTracker,
    transfers: Transfers,
}

/// Connections that may continue in another process.
type Transfers = Arc<Mutex<Vec<Transfer>>>;

/// Every serving task holds one of these, and drops it when the task ends.
#[derive(Clone, Debug)]
pub struct Shutdown {
    /// Signals that the task must stop, whether its connection is closed or passed on.
    pub(crate) signal: Signal,
    _serving: TaskTrackerToken,
    /// `None` once the task no longer decides anything.
    deciding: Option<TaskTrackerToken>,
    transfers: Transfers,
}

/// Notifies a task of the shutdown. Unlike a [`Shutdown`], it does not keep the trigger waiting.
#[derive(Clone, Debug)]
pub struct Signal(watch::Receiver<Phase>);

/// A shutdown that has not begun, with its trigger.
pub fn channel() -> (Trigger, Shutdown) {
    let (phase, _) = watch::channel(Phase::Serve);
    let (serving, deciding) = (TaskTracker::new(), TaskTracker::new());
    // Even without tasks, waiting for a tracker ends only once the tracker is closed.
    for tasks in [&serving, &deciding] {
        tasks.close();
    }
    let trigger = Trigger { phase, serving, deciding, transfers: Transfers::default() };
    let shutdown = trigger.shutdown();
    (trigger, shutdown)
}

impl Trigger {
    /// A [`Shutdown`] for one more task.
    pub(crate) fn shutdown(&self) -> Shutdown {
        Shutdown {
            signal: Signal(self.phase.subscribe()),
            _serving: self.serving.token(),
            deciding: Some(self.deciding.token()),
            transfers: self.transfers.clone(),
        }
    }

    /// Begins the shutdown, and waits until every task has dropped its `Shutdown`.
    pub async fn end(&self) {
        self.phase.send_replace(Phase::End);
        self.served().await;
    }

    /// Waits until every task has dropped its `Shutdown`.
    pub(crate) async fn served(&self) {
        self.serving.wait().await;
    }

    /// Stops all tasks from deciding. Returns false if some have not stopped in time.
    pub(crate) async fn hand_over(&self, within: Duration) -> bool {
        self.phase.send_replace(Phase::HandOver);
        timeout(within, self.deciding.wait()).await.is_ok()
    }

    /// Takes the connections that may continue in another process.
    pub(crate) fn passed_on(&self) -> Vec<Transfer> {
        take(&mut *self.transfers.lock())
    }

    /// Takes back the connections that the other process has not taken.
    pub(crate) fn give_back(&self, transfers: Vec<Transfer>) {
        self.transfers.lock().extend(transfers);
    }

    /// Ends the handover, so that new tasks serve again. Returns all connections that were passed on, or `None` if no
    /// handover had begun.
    pub(crate) fn go_on(&self) -> Option<Vec<Transfer>> {
        let has_begun = self.phase.send_if_modified(|phase| replace(phase, Phase::Serve) != Phase::Serve);
        // From here on, no task passes anything on.
        has_begun.then(|| self.passed_on())
    }
}

impl Shutdown {
    /// The handover, if one is in progress.
    pub(crate) fn handover(&self) -> Option<Handover<'_>> {
        let phase = self.signal.0.borrow();
        (*phase == Phase::HandOver).then_some(Handover { _phase: phase, transfers: &self.transfers })
    }

    /// Notes that the task no longer decides anything, though it may still send answers.
    pub(crate) fn decides_no_more(&mut self) {
        self.deciding = None;
    }
}

/// The handover cannot end before this value is dropped; otherwise a connection could be lost.
#[derive(Debug)]
pub(crate) struct Handover<'s> {
    _phase: watch::Ref<'s, Phase>,
    transfers: &'s Transfers,
}

impl Handover<'_> {
    /// Passes a connection on to the next process.
    pub(crate) fn pass_on(self, transfer: Transfer) {
        self.transfers.lock().push(transfer);
    }
}

impl Signal {
    /// Completes when tasks must stop, whether their connections are closed or passed on.
    pub async fn begun(&self) {
        let mut phases = self.0.clone();
        // Unconstrained, because if the runtime postponed this wait for other tasks, its waker would not be registered.
        let mut wait = pin!(unconstrained(phases.wait_for(|phase| *phase != Phase::Serve)));
        let mut noted: Option<Waker> = None;
        poll_fn(|context| {
            let is_noted = noted.as_ref().is_some_and(|waker| waker.will_wake(context.waker()));
            // Every query polls this, so the poll is cheap if nothing has changed and this task is already registered.
            if is_noted && self.0.has_changed().is_ok_and(|has_changed| !has_changed) {
                return Poll::Pending;
            }
            noted = Some(context.waker().clone());
            // An error means that the trigger was dropped, which counts as a shutdown.
            wait.as_mut().poll(context).map(drop)
        })
        .await;
    }

    /// The result of the work, or `None` if tasks must stop first, in which case the work is dropped.
    pub(crate) async fn unless_begun<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            // The work is polled first, because the shutdown need not be polled if the work is ready at once.
            biased;
            result = work => Some(result),
            () = self.begun() => None,
        }
    }

    /// Returns when all connections must close.
    pub async fn ended(&self) {
        let _ = self.0.clone().wait_for(|phase| *phase == Phase::End).await;
    }

    pub fn has_ended(&self) -> bool {
        *self.0.borrow() == Phase::End
    }
}

/// A connection that continues in another process.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) stream: Stream,
    pub(crate) state: TransferState,
}

/// The state of a connection, by its protocol.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum TransferState {
    /// A connection of HAProxy.
    Spop(SpopState),
    /// A connection of nginx or another proxy: the bytes that were read but not used.
    Http(Vec<u8>),
}

impl TransferState {
    /// The name of the acceptor that continues the connection.
    pub(crate) fn acceptor(&self) -> &'static str {
        match self {
            TransferState::Spop(_) => "spop",
            TransferState::Http(_) => "http",
        }
    }
}

impl Transfer {
    /// Converts a socket from another process to a stream. A Unix socket is registered with the caller's runtime.
    ///
    /// # Errors
    /// The runtime does not accept the socket.
    pub(crate) fn open(socket: OwnedFd, state: TransferState) -> io::Result<Transfer> {
        let stream = match SockRef::from(&socket).domain()? == Domain::UNIX {
            false => Stream::Fresh(Some(socket.into())),
            true => Stream::Unix(UnixStream::from_std(socket.into())?),
        };
        Ok(Transfer { stream, state })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::mpsc;
    use tokio::task::yield_now;

    use super::*;
    use crate::server::stream::Stream;

    /// Waits for the shutdown as a busy connection does: each request polls the wait anew.
    async fn busy(signal: Signal, mut asked: mpsc::Receiver<()>) -> u32 {
        let (mut ending, mut requests) = (pin!(signal.begun()), 0);
        loop {
            tokio::select! {
                biased;
                () = ending.as_mut() => return requests,
                _ = asked.recv() => requests += 1,
            }
        }
    }

    #[tokio::test]
    async fn a_busy_task_learns_of_a_shutdown_also_after_a_handover_that_failed() {
        for tries in 0..3 {
            let (trigger, shutdown) = channel();
            for _ in 0..tries {
                assert!(!trigger.hand_over(Duration::ZERO).await);
                trigger.go_on();
            }
            let (ask, asked) = mpsc::channel(1);
            let task = tokio::spawn(busy(shutdown.signal.clone(), asked));
            // More often than the runtime lets a task go on without a break.
            for _ in 0..1_000 {
                ask.send(()).await.unwrap();
            }
            for _ in 0..100 {
                yield_now().await;
            }
            drop(shutdown);
            trigger.end().await;
            assert_eq!(task.await.unwrap(), 1_000);
        }
    }

    /// A connection of nobody.
    fn transfer() -> Transfer {
        let (stream, _) = tokio::net::UnixStream::pair().unwrap();
        Transfer { stream: Stream::Unix(stream), state: TransferState::Http(b"GET".to_vec()) }
    }

    #[tokio::test]
    async fn a_handover_that_fails_leaves_no_connection_behind() {
        let (trigger, shutdown) = channel();
        assert!(shutdown.handover().is_none());
        assert!(trigger.go_on().is_none());
        assert!(!trigger.hand_over(Duration::ZERO).await, "this task has not stopped deciding");
        shutdown.handover().unwrap().pass_on(transfer());
        assert_eq!(trigger.go_on().unwrap().len(), 1);
        assert!(shutdown.handover().is_none(), "from now on it would be passed on to nobody");

        let stopping = async {
            shutdown.signal.begun().await;
            shutdown.handover().unwrap().pass_on(transfer());
            drop(shutdown);
        };
        let (has_stopped, ()) = tokio::join!(trigger.hand_over(Duration::from_secs(60)), stopping);
        assert!(has_stopped);
        let given = trigger.passed_on();
        assert_eq!(given.len(), 1);
        trigger.give_back(given);
        assert_eq!(trigger.go_on().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_wait_that_moves_to_another_task_is_told_there() {
        let (trigger, shutdown) = channel();
        let signal = shutdown.signal.clone();
        let mut ending = Box::pin(async move { signal.begun().await });
        let here = timeout(Duration::ZERO, ending.as_mut()).await;
        assert!(here.is_err());
        let task = tokio::spawn(ending);
        yield_now().await;
        drop(shutdown);
        trigger.end().await;
        task.await.unwrap();
    }
}
