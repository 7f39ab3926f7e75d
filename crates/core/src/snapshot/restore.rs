//! Restoring the parts of a snapshot into a throttle, whose clock continues from the snapshot's clock.

use std::io::Read;
use std::time::Duration;

use crate::base::{EARLIEST, Target, Timestamp};
use crate::snapshot::{Parts, SnapshotError, SnapshotPart, SnapshotRow};
use crate::throttle::Throttle;

/// How many items were restored and dropped, and the notes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    pub rows: u64,
    pub blocks: u64,
    /// The number of rows that had expired.
    pub over: u64,
    /// How many auxiliary states and blocks had expired or found no room, and how many blocks had unusable keys.
    pub left_out: u64,
    /// The notes of the caller.
    pub notes: Vec<Vec<u8>>,
}

/// Restores a snapshot into a throttle. Items that have expired since the snapshot are dropped. `keys` shows whether
/// the snapshot's keys were made with this throttle's secret; if not, only notes and blocks by fields are restored.
///
/// # Errors
/// The snapshot is damaged, truncated or unreadable. All parts before the damage have been restored.
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
                for SnapshotRow { key, left_ms, entry } in rows {
                    let left = Duration::from_millis(left_ms).saturating_sub(age);
                    if left.is_zero() {
                        restored.over += 1;
                        continue;
                    }
                    throttle.table().put_back(key, entry, left, now);
                    restored.rows += 1;
                }
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

/// A clock that was set back by more than this is trusted: the clock must have been wrong when the snapshot was taken.
const AHEAD_MAX: Duration = Duration::from_secs(86_400);

/// The moment at which a clock that continues from a snapshot starts. `wall` is the current time of the wall clock.
/// `wall_then` and `saved_at` are the moment of the snapshot on the wall clock and on the process's clock.
///
/// The time since the snapshot counts, and the clock never goes back: entries would otherwise contain future moments.
/// If the wall clock was set forward, the process's clock follows it; counts then seem older than they are, and no key
/// gets less. If the wall clock was set back, the process's clock continues from the snapshot, ahead of the wall clock.
///
/// ```
/// use std::time::Duration;
/// use slowlane_core::base::Timestamp;
/// use slowlane_core::snapshot::resumed;
///
/// let at = |second: u64| Timestamp::from_millis(1_700_000_000_000 + second * 1_000);
/// let wall = |second: i64| Duration::from_secs((1_700_000_000 + second) as u64);
/// assert_eq!(resumed(wall(70), at(60), wall(60)), Ok(at(70)));
/// assert_eq!(resumed(wall(3_670), at(60), wall(60)), Ok(at(3_670)));
/// assert_eq!(resumed(wall(-3_600), at(60), wall(60)), Ok(at(60)), "it was set back by an hour");
/// assert_eq!(resumed(wall(-90_000), at(60), wall(60)), Err(Duration::from_secs(90_060)));
/// assert_eq!(resumed(Duration::ZERO, at(60), wall(60)), Ok(at(60)), "it is not set yet");
/// ```
///
/// # Errors
/// The snapshot is more than a day ahead of a wall clock that has been set. The error holds the difference.
pub fn resumed(wall: Duration, saved_at: Timestamp, wall_then: Duration) -> Result<Timestamp, Duration> {
    let went_on = saved_at + wall.saturating_sub(wall_then);
    let ahead = went_on.since(Timestamp::default() + wall);
    if wall > EARLIEST && ahead > AHEAD_MAX {
        return Err(ahead);
    }
    Ok(went_on.max(Timestamp::default() + wall.max(EARLIEST)))
}
