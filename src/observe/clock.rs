//! The clock of a process. The daemon creates only one clock.

#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "this is the clock")]

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use slowlane_core::base::{EARLIEST, Timestamp, date::WallShift};

/// How far the wall clock was ahead of the process's clock, in nanoseconds, at the last step that quotas followed.
static SHIFT: AtomicI64 = AtomicI64::new(0);

/// The wall clock that calendar quotas follow.
pub const WALL: WallShift = WallShift::of(&SHIFT);

/// Calendar quotas ignore steps smaller than this, in nanoseconds, because the difference would not be noticed.
const STEP_MIN: i64 = 1_000_000_000;

/// A monotonic clock that starts at the wall clock's time.
///
/// Later steps of the wall clock do not affect this clock. Its zero is 1970, so it can represent past moments, such as
/// one full burst ago. Moments remain comparable after a restart. A wall clock that shows a time before 1990 has not
/// been set; this clock then starts in 1990, because a full burst may be ten years ago.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    started_at: Timestamp,
}

impl Clock {
    pub fn start() -> Clock {
        Clock::starting_at(Clock::wall())
    }

    /// A clock that continues from a moment of an earlier process.
    pub fn going_on_at(moment: Timestamp) -> Clock {
        Clock { started: Instant::now(), started_at: moment }
    }

    /// A clock that continues the clock of another process: `moment` is that clock's reading at `monotonic`, a time of
    /// the system's monotonic clock.
    pub fn going_on_from(moment: Timestamp, monotonic: Duration) -> Clock {
        let started = Instant::now();
        Clock { started, started_at: moment + monotonic_now().saturating_sub(monotonic) }
    }

    /// A moment of this clock, and the same moment of the monotonic clock of the system.
    pub fn mark(&self) -> (Timestamp, Duration) {
        (self.now(), monotonic_now())
    }

    /// The time of the wall clock, since 1970.
    pub fn wall() -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    /// Makes calendar quotas follow a step of the wall clock of a second or more. Returns the step in nanoseconds.
    pub fn follow_wall(&self) -> Option<i64> {
        let shift = self.shift_to(Clock::wall());
        let step = shift - SHIFT.load(Relaxed);
        (step.abs() >= STEP_MIN).then(|| {
            SHIFT.store(shift, Relaxed);
            step
        })
    }

    /// How far the wall clock is ahead of this clock, in nanoseconds.
    fn shift_to(&self, wall: Duration) -> i64 {
        let (wall, now) = (wall.as_nanos() as i128, i128::from(self.now().as_nanos()));
        (wall - now).clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    fn starting_at(wall: Duration) -> Clock {
        Clock { started: Instant::now(), started_at: Timestamp::default() + wall.max(EARLIEST) }
    }

    pub fn now(&self) -> Timestamp {
        self.started_at + self.started.elapsed()
    }

    /// The time since startup.
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// A moment as an `Instant`, for the runtime's timers.
    pub fn instant(&self, moment: Timestamp) -> Instant {
        self.started + moment.since(self.started_at)
    }
}

fn monotonic_now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use slowlane_core::base::Verdict;
    use slowlane_core::law::{Arrival, Law, Objective, Options};
    use slowlane_core::table::Entry;

    /// A machine without a battery starts in 1970 and learns the time later.
    #[test]
    fn a_fresh_key_has_its_burst_before_the_time_is_known() {
        for_each_law(Duration::from_secs(9));
    }

    /// The wall clock may be ten years off at the start. Its steps after that change nothing.
    #[test]
    fn a_fresh_key_has_its_burst_and_then_its_rate_in_any_year() {
        for years in [0, 1, 19, 21, 46, 56, 66, 130, 230] {
            for_each_law(Duration::from_secs(years * 365 * 86_400));
        }
    }

    /// Under each law a fresh key gets requests through, is throttled at some time, and a day later is fresh again.
    fn for_each_law(wall: Duration) {
        let start = Clock::starting_at(wall).now();
        let objective = Objective { burst: 10, rate: "10/h".parse().unwrap() };
        for name in Law::NAMES {
            let law = Law::new(name, objective, Options::default()).unwrap();
            let (mut entry, mut aux) = (Entry::default(), law.aux());
            let mut burst = |now| {
                let mut ask = || law.judge(&mut entry, aux.as_mut(), &Arrival::at(now)).verdict;
                (0..100).take_while(|_| ask() == Verdict::Pass).count()
            };
            let first = burst(start);
            assert!((1..100).contains(&first), "{name} at {wall:?}: {first}");
            assert!(burst(start + Duration::from_secs(86_400)) >= 1, "{name} at {wall:?}");
        }
    }
}
