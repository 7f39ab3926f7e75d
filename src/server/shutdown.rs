//! The shutdown: every task is told once, and waited for.

use tokio::sync::{mpsc, watch};

/// Starts the shutdown.
#[derive(Debug)]
pub(crate) struct Trigger {
    begun: watch::Sender<bool>,
    served: mpsc::Receiver<()>,
}

/// Held by every task that serves, and dropped when it is done.
#[derive(Clone, Debug)]
pub struct Shutdown {
    begun: watch::Receiver<bool>,
    _serving: mpsc::Sender<()>,
}

pub(crate) fn channel() -> (Trigger, Shutdown) {
    let (begin, begun) = watch::channel(false);
    let (serving, served) = mpsc::channel(1);
    (Trigger { begun: begin, served }, Shutdown { begun, _serving: serving })
}

impl Trigger {
    /// Tells every task, and waits until the last has dropped its `Shutdown`.
    pub(crate) async fn end(mut self) {
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
        // An error means that the trigger is gone, which is a shutdown too.
        let _ = self.begun.wait_for(|begun| *begun).await;
    }
}
