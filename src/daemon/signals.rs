//! The signals of the daemon.

use std::sync::Arc;

use anyhow::anyhow;
use futures_util::future::select_all;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::config::ConfigFile;
use crate::observe::{log, systemd};
use crate::server::Tls;
use crate::watch::Reload;

/// The signals of the daemon.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    user1: Signal,
    user2: Signal,
}

/// A signal that ends the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    End,
    Upgrade,
}

impl Signals {
    pub(super) fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            user1: signal(SignalKind::user_defined1())?,
            user2: signal(SignalKind::user_defined2())?,
        })
    }

    /// Returns on SIGTERM, SIGINT or SIGUSR2. It can be dropped and called again.
    ///
    /// SIGHUP reads the policy and the certificates again, and reports an edited config file. SIGUSR1 turns debug
    /// logging on or off.
    pub(super) async fn wait(
        &mut self,
        reload: Option<&Reload>,
        certificates: &[Arc<Tls>],
        file: Option<&ConfigFile>,
    ) -> Order {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return Order::End,
                _ = self.interrupt.recv() => return Order::End,
                _ = self.user2.recv() => return Order::Upgrade,
                _ = self.user1.recv() => log::toggle_debug(),
                _ = self.hangup.recv() => {
                    if let Some(news) = file.and_then(ConfigFile::news) {
                        tracing::warn!("{news}");
                    }
                    certificates.iter().for_each(|tls| tls.reload());
                    match reload {
                        Some(reload) => reload.ask(),
                        None => {
                            systemd::reloading();
                            if certificates.is_empty() {
                                tracing::info!("nothing to reload: there is no policy directory");
                            }
                            systemd::ready();
                        }
                    }
                }
            }
        }
    }
}

/// Waits, in a command, for Ctrl-C, Ctrl-\, SIGTERM, or the end of the terminal.
pub(crate) fn asked_to_end() -> anyhow::Result<impl Future<Output = ()>> {
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()];
    let signals: Result<Vec<Signal>, _> = kinds.into_iter().map(signal).collect();
    let mut signals = signals.map_err(|error| anyhow!("cannot wait for signals: {error}"))?;
    Ok(async move {
        select_all(signals.iter_mut().map(|signal| Box::pin(signal.recv()))).await;
    })
}
