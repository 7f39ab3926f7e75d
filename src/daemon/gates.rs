//! The gates of the entrances, and the files of their TLS.

use std::sync::Arc;

use anyhow::anyhow;

use crate::config::{Config, Listen};
use crate::observe::clock::Clock;
use crate::observe::metrics::Metrics;
use crate::server::gate::Gate;
use crate::server::tls::Tls;
use crate::watch::{Again, Sight};

/// The gates of the entrances, and the files of their TLS.
pub(super) struct Gates<'c> {
    /// As the files were before they were read.
    sight: Sight,
    metrics: &'c Metrics,
    clock: Clock,
    secured: Vec<Arc<Tls>>,
}

impl<'c> Gates<'c> {
    pub(super) fn new(config: &Config, metrics: &'c Metrics, clock: Clock) -> Gates<'c> {
        Gates { sight: Sight::of(config.tls_files()), metrics, clock, secured: Vec::new() }
    }

    /// The gate of a listener. The start fails if a file of its TLS cannot be used.
    pub(super) fn gate(&mut self, listen: &Listen) -> anyhow::Result<Arc<Gate>> {
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
        Ok(Arc::new(Gate::new(listen.allow.clone(), tls)))
    }

    /// Reads the files again when they change. None: there is no TLS.
    pub(super) fn watch(self) -> Option<Again> {
        let Gates { sight, secured, .. } = self;
        if secured.is_empty() {
            return None;
        }
        Some(sight.watch("certificates", move || secured.iter().for_each(|tls| tls.reload())))
    }
}
