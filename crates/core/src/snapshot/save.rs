//! Saving: a walk through the state of a throttle.

use std::io::{self, Write};

use crate::base::key::Key;
use crate::base::slo_id::SloId;
use crate::base::target::TEXT_BYTES_MAX;
use crate::base::time::Timestamp;
use crate::snapshot::frames::FRAME_BYTES_MAX;
use crate::snapshot::parts::{Head, Lifetime, Part, PartWriter, Row, SavedBlock};
use crate::table::{Cursor, Found, PAGE_ROWS, Page};
use crate::throttle::{Block, Throttle};

/// Blocks in one part. However long their values are, they fit a frame: the text of the fields, and the numbers beside
/// it.
const BLOCKS_PER_PART: usize = FRAME_BYTES_MAX / (TEXT_BYTES_MAX + 64) - 1;

/// What a snapshot holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    pub rows: u64,
    pub bytes: u64,
}

/// Writes the state of a throttle at `head.saved_at`. A shard is locked for a page at most, so no request waits for
/// longer than for `show table`.
///
/// # Errors
/// Those of `to`.
pub fn save(throttle: &Throttle, head: Head, to: impl Write) -> io::Result<Saved> {
    let now = head.saved_at;
    let (mut parts, rows) = keys(throttle, head, to)?;
    save_blocks(throttle, now, &mut parts)?;
    Ok(Saved { rows, bytes: parts.end()? })
}

/// Writes the keys alone: a first part of the state, for a process that gets the rest by [`save_rest`].
///
/// # Errors
/// Those of `to`.
pub fn save_keys(throttle: &Throttle, head: Head, to: impl Write) -> io::Result<Saved> {
    let (parts, rows) = keys(throttle, head, to)?;
    Ok(Saved { rows, bytes: parts.end()? })
}

/// Writes the changed keys as they are now.
///
/// # Errors
/// Those of `to`.
pub fn save_changes(throttle: &Throttle, head: Head, changed: &[Key], to: impl Write) -> io::Result<Saved> {
    let (parts, rows) = changes(throttle, head, changed, to)?;
    Ok(Saved { rows, bytes: parts.end()? })
}

/// Writes the changed keys as they are now, and all blocks: the last part of the state.
///
/// # Errors
/// Those of `to`.
pub fn save_rest(throttle: &Throttle, head: Head, changed: &[Key], to: impl Write) -> io::Result<Saved> {
    let now = head.saved_at;
    let (mut parts, rows) = changes(throttle, head, changed, to)?;
    save_blocks(throttle, now, &mut parts)?;
    Ok(Saved { rows, bytes: parts.end()? })
}

/// The head and all keys, with the number of their rows.
fn keys<W: Write>(throttle: &Throttle, head: Head, to: W) -> io::Result<(PartWriter<W>, u64)> {
    let now = head.saved_at;
    let mut parts = begin(head, to)?;
    let rows = save_rows(throttle, now, &mut parts)?;
    save_aux(throttle, &throttle.aux_keys(), now, &mut parts)?;
    Ok((parts, rows))
}

/// The head and the changed keys, with the number of their rows.
fn changes<W: Write>(
    throttle: &Throttle,
    head: Head,
    changed: &[Key],
    to: W,
) -> io::Result<(PartWriter<W>, u64)> {
    let now = head.saved_at;
    let mut parts = begin(head, to)?;
    let mut rows = 0;
    for keys in changed.chunks(PAGE_ROWS) {
        let found: Vec<Row> =
            keys.iter().filter_map(|&key| throttle.table().row(key, now)).map(row).collect();
        rows += found.len() as u64;
        parts.write(&Part::Gone(keys.to_vec()))?;
        parts.write(&Part::Rows(found))?;
    }
    save_aux(throttle, changed, now, &mut parts)?;
    Ok((parts, rows))
}

fn begin<W: Write>(head: Head, to: W) -> io::Result<PartWriter<W>> {
    let mut parts = PartWriter::new(to)?;
    parts.write(&Part::Head(head))?;
    Ok(parts)
}

fn save_aux(
    throttle: &Throttle,
    keys: &[Key],
    now: Timestamp,
    parts: &mut PartWriter<impl Write>,
) -> io::Result<()> {
    for &key in keys {
        if let Some((copy, left)) = throttle.aux_copy(key, now) {
            parts.write(&Part::AuxCopy(key, now + left, copy))?;
        }
    }
    Ok(())
}

fn save_blocks(throttle: &Throttle, now: Timestamp, parts: &mut PartWriter<impl Write>) -> io::Result<()> {
    for blocks in throttle.blocks(usize::MAX, now).chunks(BLOCKS_PER_PART) {
        parts.write(&Part::Blocks(blocks.iter().map(saved).collect()))?;
    }
    Ok(())
}

fn save_rows(throttle: &Throttle, now: Timestamp, parts: &mut PartWriter<impl Write>) -> io::Result<u64> {
    let (mut page, mut next, mut rows) = (Page::new(), Some(Cursor::default()), 0);
    while let Some(cursor) = next {
        next = throttle.table().page(cursor, now, &mut page);
        if !page.is_empty() {
            rows += page.len() as u64;
            parts.write(&Part::Rows(page.iter().copied().map(row).collect()))?;
        }
    }
    Ok(rows)
}

fn row(found: Found) -> Row {
    Row { key: found.key, left: Lifetime::of(found.left), entry: found.entry }
}

fn saved(block: &Block) -> SavedBlock {
    let (slo, is_dry_run) = block.origin.slo();
    SavedBlock {
        target: block.target.to_string(),
        until: block.until,
        slo: slo.map(SloId::number),
        is_dry_run,
    }
}
