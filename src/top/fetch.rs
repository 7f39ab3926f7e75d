//! Questions to the daemon, with answers of bounded length.

use std::io::{self, Write};

use anyhow::anyhow;

use crate::admin_client::{AdminClient, AskError, Question};
use crate::observe::status::{KeyLine, Snapshot};

/// The longest answer that is read: several times the longest snapshot.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// The daemon's status.
pub(super) fn snapshot(daemon: &AdminClient) -> anyhow::Result<Snapshot> {
    let body = get(daemon, "/api/status")?;
    serde_json::from_slice(&body)
        .map_err(|error| anyhow!("the server at {} is not slowlane: {error}", daemon.address))
}

/// The reason why a key is throttled. If not all of its fields are known: its row in the table.
pub(super) fn why(daemon: &AdminClient, key: &KeyLine) -> String {
    let text = match &key.why {
        Some(query) => get(daemon, &format!("/api/why?{query}")),
        None => get(daemon, &format!("/api/table/{}", key.key)),
    };
    match text {
        Ok(text) => String::from_utf8_lossy(&text).into_owned(),
        Err(AskError::Unknown { .. }) => format!("the table has no entry of key {} any more", key.key),
        Err(error) => error.to_string(),
    }
}

fn get(daemon: &AdminClient, path: &str) -> Result<Vec<u8>, AskError> {
    let mut answer = Bounded(Vec::new());
    daemon.ask(Question::get(path), &mut answer)?;
    Ok(answer.0)
}

/// An answer of limited length.
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.0.len() + piece.len() > ANSWER_BYTES_MAX {
            return Err(io::Error::other("it has no end"));
        }
        self.0.write(piece)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
