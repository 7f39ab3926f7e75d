//! Restoring: the parts of a snapshot, put back into a throttle.

use std::io::Read;

use crate::base::slo_id::SloId;
use crate::base::target::Target;
use crate::base::time::Timestamp;
use crate::snapshot::error::SnapshotError;
use crate::snapshot::parts::{Part, Parts, Row, SavedBlock};
use crate::throttle::{Block, BlockOrigin, Throttle};

/// What was put back, and what was not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    pub rows: u64,
    pub blocks: u64,
    /// Rows whose time was over.
    pub over: u64,
    /// Auxiliary states and blocks whose time was over, or that found no room.
    pub left_out: u64,
}

/// Puts a snapshot back into a throttle. The time since then counts as time: what has expired is left out. `keys`: its
/// keys have the secret of this throttle; without it, only the blocks of operators mean anything.
///
/// # Errors
/// The rest of the snapshot is not whole. What came before has been put back.
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
            Part::Rows(rows) if keys => {
                rows.into_iter().for_each(|Row { key, left, entry }| match left.after(age) {
                    Some(left) => {
                        throttle.table().put_back(key, entry, left, now);
                        restored.rows += 1;
                    }
                    None => restored.over += 1,
                })
            }
            Part::AuxCopy(key, expires, copy) if keys => {
                let is_back = expires > now && throttle.put_aux(key, copy, expires, now);
                restored.left_out += u64::from(!is_back);
            }
            Part::Blocks(saved) => {
                let count = saved.len() as u64;
                let blocks: Vec<Block> =
                    saved.into_iter().filter_map(|saved| block(saved, keys, now)).collect();
                let in_time = blocks.len() as u64;
                let without_room = throttle.block_again(blocks, now) as u64;
                restored.blocks += in_time - without_room;
                restored.left_out += count - in_time + without_room;
            }
            Part::Gone(gone) if keys => gone.into_iter().for_each(|key| throttle.forget(key, |_| true)),
            Part::Gone(_) | Part::Rows(_) | Part::AuxCopy(..) | Part::Head(_) | Part::End(_) => {}
        }
    }
    Ok(restored)
}

/// None: it is over, it means nothing without its key, or no operator can have set it.
fn block(saved: SavedBlock, keys: bool, now: Timestamp) -> Option<Block> {
    let SavedBlock { target, until, slo, is_dry_run } = saved;
    let (target, slo) = (Target::parse(target.as_bytes()).ok()?, slo.and_then(SloId::new));
    let origin = match &target {
        Target::Fields(_) => BlockOrigin::Operator,
        Target::Key(_) if !keys => return None,
        Target::Key(_) => BlockOrigin::of_key(slo, is_dry_run),
    };
    (until > now).then_some(Block { target, until, origin })
}
