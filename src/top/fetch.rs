//! The explanation of a key, from the daemon.

use crate::admin_client::{AdminClient, AskError};
use crate::observe::status::KeyLine;

/// The reason why a key is throttled. If not all of its fields are known, its row in the table.
pub(super) fn why(daemon: &AdminClient, key: &KeyLine) -> String {
    let text = match &key.why {
        Some(query) => daemon.get(&format!("/api/why?{query}")),
        None => daemon.get(&format!("/api/table/{}", key.key)),
    };
    match text {
        Ok(text) => String::from_utf8_lossy(&text).into_owned(),
        Err(AskError::Unknown { .. }) => format!("the table has no entry of key {} any more", key.key),
        Err(error) => error.to_string(),
    }
}
