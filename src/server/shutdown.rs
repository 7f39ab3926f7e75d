//! The end: everybody is told once, and waited for.

use tokio::sync::{mpsc, watch};

/// The one who ends it.
#[derive(Debug)]
pub struct Trigger {
    begun: watch::Sender<bool>,
    served: mpsc::Receiver<()>,
}

/// Held by everyone who serves; dropped when they are done.
#[derive(Clone, Debug)]
pub struct Shutdown {
    begun: watch::Receiver<bool>,
    _serving: mpsc::Sender<()>,
}

pub fn channel() -> (Trigger, Shutdown) {
    let (begin, begun) = watch::channel(false);
    let (serving, served) = mpsc::channel(1);
    (Trigger { begun: begin, served }, Shutdown { begun, _serving: serving })
}

impl Trigger {
    /// Tells everyone, and waits until the last has dropped its `Shutdown`.
    pub async fn end(mut self) {
        let _ = self.begun.send(true);
        while self.served.recv().await.is_some() {}
    }
}

impl Shutdown {
    pub fn has_begun(&self) -> bool {
        *self.begun.borrow()
    }

    /// Returns once the end has begun, or at once if it has.
    pub async fn begun(&mut self) {
        // An error means that the trigger is gone, which is an end as well.
        let _ = self.begun.wait_for(|begun| *begun).await;
    }
}
