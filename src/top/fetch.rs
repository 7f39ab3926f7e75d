//! The answers of the daemon.

use std::time::Duration;

use crate::admin_client::{self, AdminClient, AskError};
use crate::observe::status::{HistoryLines, KeyLine, Snapshot};

/// The status of a moment, and the history of a time span.
#[derive(Debug, Default)]
pub(super) struct Fetched {
    pub(super) snapshot: Snapshot,
    pub(super) history: HistoryLines,
}

pub(super) fn status(daemon: &AdminClient, span: Duration) -> Result<Fetched, String> {
    let snapshot = daemon.snapshot().map_err(|error| error.to_string())?;
    // An older daemon has no history.
    Ok(Fetched { snapshot, history: history(daemon, span).unwrap_or_default() })
}

/// The keys throttled in the last `span`.
pub(super) fn history(daemon: &AdminClient, span: Duration) -> anyhow::Result<HistoryLines> {
    Ok(serde_json::from_slice(&daemon.get(&admin_client::history(span))?)?)
}

/// The reason why a key is throttled. If not all of its fields are known, its row in the table.
pub(super) fn why(daemon: &AdminClient, key: &KeyLine) -> String {
    let text = match &key.why {
        Some(query) => daemon.get(&format!("/api/why?{query}")),
        None => daemon.get(&format!("/api/table/{}", key.key)),
    };
    match text {
        Ok(text) => String::from_utf8_lossy(&text).into_owned(),
        Err(AskError::Unknown { .. }) => format!("the table no longer has an entry for key {}", key.key),
        Err(error) => error.to_string(),
    }
}
