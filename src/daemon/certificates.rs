//! The certificates of all listeners, which are read again when their files change.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::observe::revive::revived;
use crate::server::tls::Tls;
use crate::watch::FileState;

/// The time between two looks at the files.
const LOOK: Duration = Duration::from_millis(200);

/// The certificates of all listeners.
#[derive(Clone, Debug)]
pub(super) struct Certificates(Arc<[Arc<Tls>]>);

impl Certificates {
    /// Starts the thread that reads the files again when they change, if there are any. `state` is from before they were
    /// read.
    ///
    /// # Errors
    /// The system starts no thread.
    pub(super) fn watch(secured: Vec<Arc<Tls>>, mut state: FileState) -> io::Result<Certificates> {
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

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads the files again, changed or not.
    pub(super) fn reload(&self) {
        self.0.iter().for_each(|tls| tls.reload());
    }
}
