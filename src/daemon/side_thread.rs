//! A thread for a listener beside those of the proxies.

use std::thread;

use anyhow::Context;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// A thread for a listener beside those of the proxies, so that its load does not slow decisions down.
#[derive(Debug)]
pub(super) struct SideThread {
    handle: Handle,
    _end: oneshot::Sender<()>,
}

impl SideThread {
    pub(super) fn start(name: &str) -> anyhow::Result<SideThread> {
        let runtime =
            Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        let serve = move || drop(runtime.block_on(ended));
        thread::Builder::new().name(name.into()).spawn(serve).context("cannot start a thread")?;
        Ok(SideThread { handle, _end: end })
    }

    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> anyhow::Result<T> {
        Ok(self.handle.spawn(work).await?)
    }

    /// Calls `open`. Tasks that it spawns run in the thread.
    pub(super) fn enter(&self, open: impl FnOnce()) {
        let _entered = self.handle.enter();
        open();
    }
}
