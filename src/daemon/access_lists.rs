//! The gates of the entrances, and the files of their TLS.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::anyhow;

use crate::config::{Config, Listen};
use crate::observe::clock::Clock;
use crate::observe::metrics::Metrics;
use crate::observe::revive::revived;
use crate::server::access_list::AccessList;
use crate::server::tls::Tls;
use crate::watch::FileState;

/// The time between two looks at the files.
const LOOK: Duration = Duration::from_millis(200);

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
        AccessLists { state: FileState::taken(config.tls_files()), metrics, clock, secured: Vec::new() }
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

    /// Starts the thread that reads the files again when they change, if there are any.
    ///
    /// # Errors
    /// The system starts no thread.
    pub(super) fn watch(self) -> io::Result<Certificates> {
        let AccessLists { mut state, secured, .. } = self;
        let certificates = Certificates(secured.into());
        if !certificates.is_empty() {
            let watched = certificates.clone();
            let mut look = move || loop {
                thread::sleep(LOOK);
                if state.has_settled() {
                    watched.reload();
                }
            };
            let work = move || revived("the look at the certificates", &mut look);
            thread::Builder::new().name("certificates".into()).spawn(work)?;
        }
        Ok(certificates)
    }
}

/// The certificates of all listeners.
#[derive(Clone, Debug)]
pub(super) struct Certificates(Arc<[Arc<Tls>]>);

impl Certificates {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads the files again, changed or not.
    pub(super) fn reload(&self) {
        self.0.iter().for_each(|tls| tls.reload());
    }
}
