//! The gates of the entrances, and the files of their TLS.

use std::sync::Arc;

use anyhow::anyhow;

use crate::config::{Config, Listen};
use crate::observe::clock::Clock;
use crate::observe::metrics::Metrics;
use crate::server::access_list::AccessList;
use crate::server::tls::Tls;
use crate::watch::{FileState, ReloadHandle};

/// The gates of the entrances, and the files of their TLS.
pub(super) struct AccessLists<'c> {
    /// As the files were before they were read.
    state: FileState,
    metrics: &'c Metrics,
    clock: Clock,
    secured: Vec<Arc<Tls>>,
}

impl<'c> AccessLists<'c> {
    pub(super) fn new(config: &Config, metrics: &'c Metrics, clock: Clock) -> AccessLists<'c> {
        AccessLists { state: FileState::of(config.tls_files()), metrics, clock, secured: Vec::new() }
    }

    /// The gate of a listener. The start fails if a file of its TLS cannot be used.
    pub(super) fn access_list(&mut self, listen: &Listen) -> anyhow::Result<Arc<AccessList>> {
        let tls = match (&listen.tls, &self.metrics.tls) {
            (Some(files), Some(metrics)) => {
                let tls = Tls::load(listen.secured(), files.clone(), metrics.of(listen.section), self.clock);
                let tls = tls.map_err(|error| anyhow!("[{}.tls] {error}", listen.section))?;
                let tls = Arc::new(tls);
                self.secured.push(tls.clone());
                Some(tls)
            }
            _ => None,
        };
        Ok(Arc::new(AccessList::new(listen.allow.clone(), tls)))
    }

    /// Reads the files again when they change. None: there is no TLS.
    pub(super) fn watch(self) -> Option<ReloadHandle> {
        let AccessLists { state, secured, .. } = self;
        if secured.is_empty() {
            return None;
        }
        Some(state.watch("certificates", move || secured.iter().for_each(|tls| tls.reload())))
    }
}
