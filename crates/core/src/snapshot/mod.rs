//! The snapshot: the state that survives a restart, written to a file in parts.
//!
//! ```text
//! Throttle ─▶ save ─▶ SnapshotPart, … ─▶ PartWriter ─▶ bytes       every few seconds, and at shutdown
//! bytes ─▶ Parts ─▶ SnapshotPart, … ─▶ restore ─▶ Throttle     at startup
//! ```
//! Each part has a checksum, and the last part counts the other parts. [`Parts::check`] thus detects a file that is
//! truncated or changed in even a single bit; call `check` before restoring the first row.

mod frames;
mod parts;
mod restore;
mod save;

use parts::{SnapshotPart, SnapshotRow};

pub use frames::{FRAME_BYTES_MAX, PartWriter, Parts, SnapshotError, VERSION};
pub use parts::SnapshotHead;
pub use restore::{Restored, restore, resumed};
pub use save::{NOTE_BYTES_MAX, Saved, save};
