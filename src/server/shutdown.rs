//! The shutdown: it notifies every task, and waits for all of them.

use tokio::sync::{mpsc, watch};

/// Starts the shutdown.
#[derive(Debug)]
pub struct Trigger {
    begun: watch::Sender<bool>,
    served: mpsc::Receiver<()>,
}

/// Every task that serves holds one and drops it at its end.
#[derive(Clone, Debug)]
pub struct Shutdown {
    begun: watch::Receiver<bool>,
    _serving: mpsc::Sender<()>,
}

/// A shutdown that has not begun, with its trigger.
pub fn channel() -> (Trigger, Shutdown) {
    let (begin, begun) = watch::channel(false);
    let (serving, served) = mpsc::channel(1);
    (Trigger { begun: begin, served }, Shutdown { begun, _serving: serving })
}

impl Trigger {
    /// Begins the shutdown, and waits until every task has dropped its `Shutdown`.
    pub async fn end(mut self) {
        let _ = self.begun.send(true);
        while self.served.recv().await.is_some() {}
    }
}

impl Shutdown {
    pub fn has_begun(&self) -> bool {
        *self.begun.borrow()
    }

    /// Returns once the shutdown has begun.
    pub async fn begun(&mut self) {
        // An error means that the trigger was dropped, which is a shutdown, too.
        let _ = self.begun.wait_for(|begun| *begun).await;
    }
}
