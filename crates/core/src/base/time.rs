//! Moments, which functions take as arguments instead of reading a clock.

use std::ops::Add;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The end of 1989 on the wall clock. A clock that shows an earlier time has not been set.
pub const EARLIEST: Duration = Duration::from_secs(20 * 365 * 86_400);

/// A moment in nanoseconds since the Unix epoch, on a clock that never steps.
///
/// Functions below the sockets take a `Timestamp` as an argument and read no clock, so tests need no waiting:
///
/// ```
/// use std::time::Duration;
/// use slowlane_core::base::Timestamp;
///
/// let noon = Timestamp::from_millis(1_000);
/// assert_eq!((noon + Duration::from_millis(5)).since(noon), Duration::from_millis(5));
/// assert_eq!(noon.since(noon + Duration::from_millis(5)), Duration::ZERO);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Timestamp(u64);

impl Timestamp {
    pub const fn from_nanos(nanos: u64) -> Timestamp {
        Timestamp(nanos)
    }

    pub const fn from_millis(millis: u64) -> Timestamp {
        Timestamp(millis * 1_000_000)
    }

    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    pub const fn since_epoch(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// Milliseconds modulo 2^32: HAProxy's ticks, the unit of a rate counter.
    pub const fn ticks_ms(self) -> u32 {
        (self.0 / 1_000_000) as u32
    }

    /// The moment this many nanoseconds later, or earlier if the number is negative.
    pub const fn shifted(self, nanos: i64) -> Timestamp {
        Timestamp(self.0.saturating_add_signed(nanos))
    }

    /// The time since `earlier`; zero if `earlier` is in the future.
    pub const fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Timestamp;

    /// Saturates at the last moment that 64 bits can hold, in the year 2554.
    fn add(self, delay: Duration) -> Timestamp {
        let nanos = delay.as_secs().saturating_mul(1_000_000_000);
        let nanos = nanos.saturating_add(u64::from(delay.subsec_nanos()));
        Timestamp(self.0.saturating_add(nanos))
    }
}
