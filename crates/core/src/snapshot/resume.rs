//! The moment at which the clock of a new process continues from a snapshot.

use std::time::Duration;

use crate::base::{EARLIEST, Timestamp};

/// A clock that was set back by more than this is trusted: the snapshot then dates from a time when the clock was
/// wrong.
const AHEAD_MAX: Duration = Duration::from_secs(86_400);

/// The moment at which the clock of a process starts, if it continues from a snapshot. `wall` is the time of the wall
/// clock now, and `wall_then` and `saved_at` are those of the snapshot.
///
/// The time in between counts, and the clock never goes back: entries would otherwise contain moments in the future.
/// If the wall clock was set forward, the clock follows it; counts then seem older than they are, and no key gets
/// less. If it was set back, the clock continues from the snapshot, ahead of the wall clock.
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
/// The snapshot is too far in the future of a wall clock that has been set.
pub fn resumed(wall: Duration, saved_at: Timestamp, wall_then: Duration) -> Result<Timestamp, Duration> {
    let went_on = saved_at + wall.saturating_sub(wall_then);
    let ahead = went_on.since(Timestamp::default() + wall);
    if wall > EARLIEST && ahead > AHEAD_MAX {
        return Err(ahead);
    }
    Ok(went_on.max(Timestamp::default() + wall.max(EARLIEST)))
}
