//! Decides when to read an edited policy or a few other edited files: a state machine that takes the time as an
//! argument.
//!
//! ```text
//! an edit ─▶ wait until nothing changes ─▶ read ─▶ in force, or refused
//!                ▲     ▲ changed while it was read │
//!                │     └───────────────────────────┤ a map has lost more than half of its lines
//!                └ changed ─ wait for a second look ◀┘
//! ```
//! A writer that pauses leaves half of a file, and a truncated file is empty for a moment. Neither may come into force.

use std::path::PathBuf;
use std::time::Duration;

use crate::watch::fingerprint::Fingerprint;
use slowlane_core::base::Timestamp;

/// The time without changes before an edit is read, because a program like `cp` may write several files in turn.
const SETTLE: Duration = Duration::from_millis(100);

/// The time without changes before a file written in place is read, because a loop may open it for each line.
const SETTLE_IN_PLACE: Duration = Duration::from_secs(1);

/// The time without changes before an edit is read although a writer has a file open. Even when a writer crashes, its
/// files are closed.
const SETTLE_OPEN: Duration = Duration::from_secs(30);

/// The longest total wait for files that are replaced again and again.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// The longest total wait for a writer to finish, or before a smaller map comes into force.
const WAIT_FOR_WRITER_MAX: Duration = Duration::from_secs(60);

/// The wait before a map that has lost more than half of its lines comes into force.
pub(super) const SECOND_LOOK: Duration = Duration::from_secs(3);

/// The next step of the thread that reads policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchStep {
    /// Nothing has changed.
    Rest,
    /// Check again after this time, or at the next event.
    Wait(Duration),
    /// Read all files. With `force`, use them even if a map has lost more than half of its lines.
    Read { force: bool },
}

#[derive(Clone, Debug, Default)]
pub(super) struct Debounce {
    /// The files of the last policy that was put in force or rejected.
    taken: Fingerprint,
    /// The files at the last check.
    last: Fingerprint,
    /// The edit that has not been read yet.
    edit: Option<Edit>,
    /// Whether SIGHUP or a new key secret has requested a reload. The next check then reads even unchanged files.
    pub(super) is_asked: bool,
}

#[derive(Clone, Copy, Debug)]
struct Edit {
    /// The moment of the first change.
    since: Timestamp,
    /// The moment of the last change.
    changed: Timestamp,
    is_in_place: bool,
    /// When to check again, after a map turned out to be smaller.
    second_look: Option<Timestamp>,
}

impl Debounce {
    pub(super) fn new(taken: Fingerprint) -> Debounce {
        Debounce { last: taken.clone(), taken, edit: None, is_asked: false }
    }

    /// Checks the files. `is_open` says whether a writer has one of the files open.
    pub(super) fn look(&mut self, now: Timestamp, found: &Fingerprint, is_open: bool) -> WatchStep {
        if *found != self.last {
            let is_in_place = found.is_written_in_place_since(&self.last);
            self.last = found.clone();
            self.changed(now, is_in_place);
        }
        if self.is_asked {
            return WatchStep::Read { force: true };
        }
        if self.last == self.taken {
            self.edit = None;
        }
        self.edit.map_or(WatchStep::Rest, |edit| edit.next(now, is_open))
    }

    fn changed(&mut self, now: Timestamp, is_in_place: bool) {
        let new = Edit { since: now, changed: now, is_in_place, second_look: None };
        let before = self.edit.unwrap_or(new);
        let is_in_place = is_in_place || before.is_in_place;
        self.edit = Some(Edit { since: before.since, is_in_place, ..new });
    }

    /// Notes that the files of this check were read, and then put in force or rejected.
    pub(super) fn taken(&mut self, found: Fingerprint) {
        *self = Debounce::new(found);
    }

    /// Notes that the files changed while they were read. All waits start again, so the next attempt comes later.
    pub(super) fn torn(&mut self, now: Timestamp) {
        self.is_asked = false;
        self.edit = None;
        self.changed(now, false);
    }

    /// Notes that the files were read, and that a map has lost more than half of its lines.
    pub(super) fn shrunk(&mut self, now: Timestamp) {
        if let Some(edit) = &mut self.edit {
            edit.second_look = Some(now + SECOND_LOOK);
        }
    }
}

impl Edit {
    fn next(self, now: Timestamp, is_open: bool) -> WatchStep {
        let (waited, quiet) = (now.since(self.since), now.since(self.changed));
        let has_waited_long = waited >= WAIT_FOR_WRITER_MAX;
        if let Some(second_look) = self.second_look {
            let is_time = now >= second_look || has_waited_long;
            return if is_time {
                WatchStep::Read { force: true }
            } else {
                WatchStep::Wait(second_look.since(now))
            };
        }
        let (settle, wait_max) = match (is_open, self.is_in_place) {
            (true, _) => (SETTLE_OPEN, WAIT_FOR_WRITER_MAX),
            (false, true) => (SETTLE_IN_PLACE, WAIT_FOR_WRITER_MAX),
            (false, false) => (SETTLE, WAIT_MAX),
        };
        if quiet >= settle || waited >= wait_max {
            return WatchStep::Read { force: has_waited_long };
        }
        WatchStep::Wait((settle - quiet).min(wait_max - waited))
    }
}

/// A few files, watched for edits that are complete.
///
/// Files that belong together, like a certificate and its key, are written one after the other. So they are read only
/// when none of them has changed for a while.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileState {
    files: Vec<PathBuf>,
    debounce: Debounce,
}

impl FileState {
    /// Files that have not been read.
    pub(crate) fn new(files: Vec<PathBuf>) -> FileState {
        FileState { files, debounce: Debounce::default() }
    }

    /// Files that the caller reads right after this call.
    pub(crate) fn taken(files: Vec<PathBuf>) -> FileState {
        let debounce = Debounce::new(Fingerprint::of(&files));
        FileState { files, debounce }
    }

    /// Checks the files. Returns true if they have changed and must be read now.
    pub(crate) fn has_settled(&mut self, now: Timestamp) -> bool {
        let found = Fingerprint::of(&self.files);
        let has_settled = matches!(self.debounce.look(now, &found, false), WatchStep::Read { .. });
        if has_settled {
            self.debounce.taken(found);
        }
        has_settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::fingerprint::Seen;

    const START: Timestamp = Timestamp::from_millis(1_000_000);
    const READ: WatchStep = WatchStep::Read { force: false };
    const FORCED: WatchStep = WatchStep::Read { force: true };

    fn at(ms: u64) -> Timestamp {
        START + Duration::from_millis(ms)
    }

    /// A directory with one file of this inode, size and ctime.
    fn file(inode: u64, size: u64, changed: u64) -> Fingerprint {
        let seen = Seen { id: [1, inode], size, changed: [changed, 0] };
        Fingerprint { files: vec![Some(seen)], ..Fingerprint::default() }
    }

    fn gone() -> Fingerprint {
        Fingerprint { files: vec![None], ..Fingerprint::default() }
    }

    fn waits(step: WatchStep, ms: u64) {
        assert_eq!(step, WatchStep::Wait(Duration::from_millis(ms)));
    }

    fn debounce() -> Debounce {
        Debounce::new(file(1, 100, 0))
    }

    #[test]
    fn a_file_that_is_renamed_into_place_is_read_after_the_shortest_wait() {
        let mut debounce = debounce();
        assert_eq!(debounce.look(at(0), &file(1, 100, 0), false), WatchStep::Rest);
        let new = file(2, 50, 1);
        waits(debounce.look(at(10), &new, false), 100);
        waits(debounce.look(at(50), &new, false), 60);
        assert_eq!(debounce.look(at(110), &new, false), READ);
        debounce.taken(new.clone());
        assert_eq!(debounce.look(at(120), &new, false), WatchStep::Rest);
    }

    #[test]
    fn each_change_starts_the_wait_anew_up_to_a_bound() {
        let mut debounce = debounce();
        for step in 0..40 {
            waits(
                debounce.look(at(50 * step), &file(step + 2, 100, step + 1), false),
                (2_000 - 50 * step).min(100),
            );
        }
        assert_eq!(debounce.look(at(2_000), &file(99, 100, 99), false), READ);
    }

    #[test]
    fn a_writer_in_place_has_a_second_between_two_writes() {
        let mut debounce = debounce();
        let mut now = 0;
        for lines in 1..=100 {
            waits(debounce.look(at(now), &file(1, 100 + lines, lines), false), 1_000.min(60_000 - now));
            now += 400;
            assert_ne!(debounce.look(at(now), &file(1, 100 + lines, lines), false), READ);
        }
        assert_eq!(debounce.look(at(now + 600), &file(1, 200, 100), false), READ);
        // It never ends.
        for step in 2..50 {
            debounce.look(at(now + 400 * step), &file(1, 200 + step, 100 + step), false);
        }
        assert_eq!(debounce.look(at(60_000), &file(1, 900, 900), false), FORCED);
    }

    #[test]
    fn an_open_file_is_waited_for_until_it_is_closed() {
        let mut debounce = debounce();
        let half = file(1, 50, 1);
        waits(debounce.look(at(0), &half, true), 30_000);
        waits(debounce.look(at(20_000), &half, true), 10_000);
        let whole = file(1, 150, 2);
        waits(debounce.look(at(25_000), &whole, true), 30_000);
        waits(debounce.look(at(25_100), &whole, false), 900);
        assert_eq!(debounce.look(at(26_000), &whole, false), READ);
        // A writer that neither writes nor ends is not waited for.
        let mut debounce = self::debounce();
        debounce.look(at(0), &half, true);
        assert_eq!(debounce.look(at(30_000), &half, true), READ);
    }

    #[test]
    fn a_smaller_map_waits_for_a_second_look_and_an_edit_begins_anew() {
        let mut debounce = debounce();
        debounce.look(at(0), &gone(), false);
        assert_eq!(debounce.look(at(100), &gone(), false), READ);
        debounce.shrunk(at(100));
        waits(debounce.look(at(200), &gone(), false), 2_900);
        // It comes back, as a new file.
        let back = file(3, 90, 1);
        waits(debounce.look(at(1_000), &back, false), 1_000);
        assert_eq!(debounce.look(at(2_000), &back, false), READ, "it is read like any other");
        debounce.taken(back);

        debounce.look(at(10_000), &gone(), false);
        assert_eq!(debounce.look(at(10_100), &gone(), false), READ);
        debounce.shrunk(at(10_100));
        assert_eq!(debounce.look(at(13_100), &gone(), false), FORCED, "it is meant");
    }

    #[test]
    fn a_smaller_map_that_changes_all_the_time_goes_into_force_at_last() {
        let mut debounce = debounce();
        let mut forced = None;
        for step in 0..100 {
            let (now, found) = (at(1_000 * step), file(step + 2, 10, step + 1));
            debounce.look(now, &found, false);
            match debounce.look(now + SETTLE, &found, false) {
                WatchStep::Read { force: true } => forced = forced.or(Some(step)),
                WatchStep::Read { force: false } => debounce.shrunk(now + SETTLE),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(forced, Some(60));
    }

    #[test]
    fn who_asks_waits_for_nothing() {
        let mut debounce = debounce();
        debounce.is_asked = true;
        assert_eq!(debounce.look(at(0), &file(1, 100, 0), false), FORCED, "not even for an edit");
        debounce.taken(file(1, 100, 0));
        debounce.look(at(10), &gone(), true);
        debounce.shrunk(at(10));
        debounce.is_asked = true;
        assert!(debounce.is_asked);
        assert_eq!(debounce.look(at(11), &gone(), true), FORCED);
        debounce.taken(gone());
        assert!(!debounce.is_asked);
        assert_eq!(debounce.look(at(12), &gone(), true), WatchStep::Rest);
    }

    #[test]
    fn files_that_change_while_they_are_read_are_read_again() {
        let mut debounce = debounce();
        debounce.look(at(0), &file(2, 100, 1), false);
        assert_eq!(debounce.look(at(100), &file(2, 100, 1), false), READ);
        debounce.torn(at(150));
        waits(debounce.look(at(160), &file(2, 101, 2), false), 1_000);
        assert_eq!(debounce.look(at(1_160), &file(2, 101, 2), false), READ);
        // However long it takes, there is a pause between two attempts.
        debounce.torn(at(100_000));
        waits(debounce.look(at(100_000), &file(2, 101, 2), false), 100);
    }

    #[test]
    fn an_edit_that_is_undone_is_none() {
        let mut debounce = debounce();
        debounce.look(at(0), &gone(), false);
        assert_eq!(debounce.look(at(50), &file(1, 100, 0), false), WatchStep::Rest);
        assert_eq!(debounce.look(at(5_000), &file(1, 100, 0), false), WatchStep::Rest);
    }
}
