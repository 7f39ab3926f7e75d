//! Saving the state of a throttle as the parts of a snapshot.

use std::borrow::Cow;
use std::io::{self, Write};

use crate::base::{Key, TEXT_BYTES_MAX, Timestamp};
use crate::snapshot::parts::{SnapshotHead, SnapshotPart, SnapshotRow};
use crate::snapshot::{FRAME_BYTES_MAX, PartWriter};
use crate::table::{Cursor, Found, PAGE_ROWS, Page};
use crate::throttle::Throttle;

/// The maximum number of blocks in one part. Even with the longest values, this many blocks fit in a frame.
const BLOCKS_PER_PART: usize = FRAME_BYTES_MAX / (TEXT_BYTES_MAX + 64) - 1;

/// The maximum size of a note, in bytes.
pub const NOTE_BYTES_MAX: usize = FRAME_BYTES_MAX - 16;

/// The size of a snapshot, in rows and in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    pub rows: u64,
    pub bytes: u64,
}

/// Writes the state of a throttle at `head.saved_at`. A shard is locked for at most one page, so no request waits
/// longer than during `show table`.
///
/// An upgrade saves in steps: first all keys, without the blocks; then, in their current state, the keys that have
/// `changed` since the previous step. The last step adds the `rest`: all blocks, and the caller's notes.
///
/// # Errors
/// `to` fails, or a note has more than [`NOTE_BYTES_MAX`] bytes.
pub fn save(
    throttle: &Throttle,
    head: SnapshotHead,
    changed: Option<&[Key]>,
    rest: Option<&[Vec<u8>]>,
    to: impl Write,
) -> io::Result<Saved> {
    let (now, mut parts) = (head.saved_at, PartWriter::new(to)?);
    parts.write(&SnapshotPart::Head(head))?;
    let rows = match changed {
        Some(keys) => save_changed(throttle, keys, now, &mut parts)?,
        None => save_rows(throttle, now, &mut parts)?,
    };
    let keys = changed.map_or_else(|| throttle.aux_store().keys().into(), Cow::Borrowed);
    for &key in &*keys {
        if let Some((aux, left)) = throttle.aux_store().kept(key, now) {
            parts.write(&SnapshotPart::AuxState(key, now + left, aux))?;
        }
    }
    if let Some(notes) = rest {
        for blocks in throttle.blocks(usize::MAX, now).chunks(BLOCKS_PER_PART) {
            parts.write(&SnapshotPart::Blocks(blocks.to_vec()))?;
        }
        for note in notes {
            parts.write(&SnapshotPart::Note(note.clone()))?;
        }
    }
    Ok(Saved { rows, bytes: parts.end()? })
}

/// Writes the changed keys. A restore drops each of these keys, and then sets its current state.
fn save_changed(
    throttle: &Throttle,
    changed: &[Key],
    now: Timestamp,
    parts: &mut PartWriter<impl Write>,
) -> io::Result<u64> {
    let mut rows = 0;
    for keys in changed.chunks(PAGE_ROWS) {
        let found: Vec<SnapshotRow> =
            keys.iter().filter_map(|&key| throttle.table().row(key, now)).map(row).collect();
        rows += found.len() as u64;
        parts.write(&SnapshotPart::Gone(keys.to_vec()))?;
        parts.write(&SnapshotPart::Rows(found))?;
    }
    Ok(rows)
}

fn save_rows(throttle: &Throttle, now: Timestamp, parts: &mut PartWriter<impl Write>) -> io::Result<u64> {
    let (mut page, mut next, mut rows) = (Page::new(), Some(Cursor::default()), 0);
    while let Some(cursor) = next {
        next = throttle.table().page(cursor, now, &mut page);
        if !page.is_empty() {
            rows += page.len() as u64;
            parts.write(&SnapshotPart::Rows(page.iter().copied().map(row).collect()))?;
        }
    }
    Ok(rows)
}

fn row(found: Found) -> SnapshotRow {
    let left_ms = u64::try_from(found.left.as_millis()).unwrap_or(u64::MAX);
    SnapshotRow { key: found.key, left_ms, entry: found.entry }
}
