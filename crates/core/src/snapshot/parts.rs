//! The parts of a snapshot.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::{Key, KeySecret, Timestamp};
use crate::law::AuxState;
use crate::table::Entry;
use crate::throttle::Block;

/// A part of a snapshot. The first part is the head, and the last part is the end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum SnapshotPart {
    Head(SnapshotHead),
    Rows(Vec<SnapshotRow>),
    /// The auxiliary state or the tickets of a key, and the moment at which they expire.
    AuxState(Key, Timestamp, AuxState),
    Blocks(Vec<Block>),
    /// The number of parts before this one.
    End(u64),
    /// Keys to drop before the next parts set the keys' current state.
    Gone(Vec<Key>),
    /// Bytes that the caller stores with the state.
    Note(Vec<u8>),
}

/// The facts that must be known before the other parts can be restored.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct SnapshotHead {
    /// The moment of the snapshot, on the clock of the process.
    pub saved_at: Timestamp,
    /// The same moment on the wall clock, since 1970.
    pub wall: Duration,
    secret: String,
    /// The SLOs at the moment of the snapshot, each with its number and its description.
    pub slos: Vec<(u32, String)>,
}

impl SnapshotHead {
    pub fn new(
        saved_at: Timestamp,
        wall: Duration,
        secret: KeySecret,
        slos: Vec<(u32, String)>,
    ) -> SnapshotHead {
        SnapshotHead { saved_at, wall, secret: secret.to_hex(), slos }
    }

    /// The secret of the saved keys. None if the snapshot has no readable secret.
    pub fn key_secret(&self) -> Option<KeySecret> {
        KeySecret::read(self.secret.as_bytes())
    }
}

/// Leaves out the secret.
impl fmt::Debug for SnapshotHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SnapshotHead { saved_at, wall, secret: _, slos } = self;
        f.debug_struct("Head")
            .field("saved_at", saved_at)
            .field("wall", wall)
            .field("slos", slos)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SnapshotRow {
    pub(super) key: Key,
    /// The lifetime left at the moment of the snapshot, rounded down: a timestamp would take more room.
    pub(super) left_ms: u64,
    pub(super) entry: Entry,
}
