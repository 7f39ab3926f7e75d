//! Restoring the parts of a snapshot into a throttle.

use std::io::Read;

use crate::base::{Target, Timestamp};
use crate::snapshot::{Parts, SnapshotError, SnapshotPart, SnapshotRow};
use crate::throttle::Throttle;

/// The numbers of restored and dropped items, and the notes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    pub rows: u64,
    pub blocks: u64,
    /// Rows that had expired.
    pub over: u64,
    /// Auxiliary states and blocks that had expired, or that found no room.
    pub left_out: u64,
    /// The notes of the caller.
    pub notes: Vec<Vec<u8>>,
}

/// Restores a snapshot into a throttle. The time since the snapshot counts: expired items are dropped. `keys`:
/// whether its keys have the secret of this throttle; without it, only the blocks set by operators are usable.
///
/// # Errors
/// The rest of the snapshot is damaged. All parts before it have been restored.
pub fn restore(
    mut parts: Parts<impl Read>,
    keys: bool,
    throttle: &Throttle,
    now: Timestamp,
) -> Result<Restored, SnapshotError> {
    let age = now.since(parts.head.saved_at);
    let mut restored = Restored::default();
    while let Some(part) = parts.next()? {
        match part {
            SnapshotPart::Rows(rows) if keys => {
                rows.into_iter().for_each(|SnapshotRow { key, left, entry }| match left.after(age) {
                    Some(left) => {
                        throttle.table().put_back(key, entry, left, now);
                        restored.rows += 1;
                    }
                    None => restored.over += 1,
                })
            }
            SnapshotPart::AuxState(key, expires, aux) if keys => {
                let is_back = expires > now && throttle.aux_store().put_back(key, aux, expires, now);
                restored.left_out += u64::from(!is_back);
            }
            SnapshotPart::Blocks(mut blocks) => {
                let count = blocks.len() as u64;
                // An SLO's block is useless without its key.
                let is_known = |target: &Target| keys || matches!(target, Target::Fields(_));
                blocks.retain(|block| block.until > now && is_known(&block.target));
                let in_time = blocks.len() as u64;
                let without_room = throttle.block_again(blocks, now) as u64;
                restored.blocks += in_time - without_room;
                restored.left_out += count - in_time + without_room;
            }
            SnapshotPart::Note(note) => restored.notes.push(note),
            SnapshotPart::Gone(gone) if keys => {
                gone.into_iter().for_each(|key| throttle.forget(key, |_| true))
            }
            SnapshotPart::Gone(_)
            | SnapshotPart::Rows(_)
            | SnapshotPart::AuxState(..)
            | SnapshotPart::Head(_)
            | SnapshotPart::End(_) => {}
        }
    }
    Ok(restored)
}
