//! A limit update: the numbers that a proxy gets for one key.

use std::time::Duration;

use crate::base::time::Timestamp;
use crate::throttle::{Paced, ProxyLimits};

/// The columns of the table with the limits: slot, tau, the most, X. Microseconds, X modulo 2^32.
pub type Numbers = [u64; 4];

/// The most that a clock may be ahead. From 2^31 us on, 2147 s, HAProxy cannot tell it from the past.
const AHEAD_MAX: Duration = Duration::from_secs(2_100);

/// The age of the X of a full bucket: past, also if the clocks of two machines differ by minutes, and past for as long
/// as a limit lives.
const LONG_AGO: Duration = Duration::from_secs(600);

/// In place of tau, if the slot is 0: the request passes, and no other table is asked.
const UNLIMITED: u64 = 1;

/// In place of tau, if the slot is 0: the proxy queries over SPOE.
const ASK: u64 = 2;

/// What a proxy gets for one key. Times of the wall clock are times since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitUpdate {
    /// The key is none of this table's any more.
    Nothing,
    Unlimited,
    Ask,
    Refuse {
        /// In time of the wall clock.
        until: Duration,
    },
    Pace {
        slot_us: u64,
        tau_us: u64,
        /// Tau and the longest delay.
        max_us: u64,
        /// The theoretical arrival time in time of the wall clock. That of a full bucket is long ago.
        tat: Duration,
    },
}

impl LimitUpdate {
    /// The limit update of a standing; None: the key has another SLO, whose key is not that of the table. `wall` is the
    /// time of the wall clock at `now`.
    ///
    /// Slots are rounded down, to a microsecond at least. A proxy is then a little too fast by itself, and X, which is
    /// exact, slows it down.
    ///
    /// ```
    /// use std::time::Duration;
    /// use slowlane_core::{base::time::Timestamp, peers::LimitUpdate, throttle::{Paced, ProxyLimits}};
    /// // burst=100 rate=50/s: 20 ms a slot, 2 s a burst. The bucket is full in one second.
    /// let now = Timestamp::from_millis(60_000);
    /// let (slot, burst, max_delay) = (Duration::from_millis(20), Duration::from_secs(2), Duration::from_secs(5));
    /// let paced = Paced { slot, burst, max_delay, tat: now + Duration::from_secs(1) };
    /// let update = LimitUpdate::of(Some(ProxyLimits::Paced(paced)), now, Duration::from_secs(7_000));
    /// assert_eq!(update.numbers(), [20_000, 2_000_000, 7_000_000, 7_001_000_000 % (1 << 32)]);
    /// ```
    pub fn of(proxy_limits: Option<ProxyLimits>, now: Timestamp, wall: Duration) -> LimitUpdate {
        let Some(proxy_limits) = proxy_limits else { return LimitUpdate::Nothing };
        match proxy_limits {
            ProxyLimits::Unlimited => LimitUpdate::Unlimited,
            ProxyLimits::Ask => LimitUpdate::Ask,
            ProxyLimits::Refused(until) => {
                LimitUpdate::Refuse { until: wall + until.since(now).min(AHEAD_MAX) }
            }
            ProxyLimits::Paced(paced) if !fits(&paced) => LimitUpdate::Ask,
            ProxyLimits::Paced(Paced { slot, burst, max_delay, tat }) => {
                let slot_us = (slot.as_micros() as u64).max(1);
                let tau_us = burst.as_micros() as u64;
                let ahead = tat.since(now).min(AHEAD_MAX);
                let long_ago = wall.saturating_sub(LONG_AGO);
                LimitUpdate::Pace {
                    slot_us,
                    tau_us,
                    max_us: tau_us + max_delay.as_micros() as u64,
                    tat: if ahead.is_zero() { long_ago } else { wall + ahead },
                }
            }
        }
    }

    /// The columns of the table.
    pub fn numbers(&self) -> Numbers {
        match *self {
            LimitUpdate::Nothing => [0; 4],
            LimitUpdate::Unlimited => [0, UNLIMITED, 0, 0],
            LimitUpdate::Ask => [0, ASK, 0, 0],
            // Whatever the time is, one slot is more than the most.
            LimitUpdate::Refuse { until } => [1, 0, 0, on_clock(until)],
            LimitUpdate::Pace { slot_us, tau_us, max_us, tat } => [slot_us, tau_us, max_us, on_clock(tat)],
        }
    }

    /// Whether the proxy would act the same, but for X.
    pub fn is_like(&self, other: &LimitUpdate) -> bool {
        let [one, other] = [self, other].map(LimitUpdate::numbers);
        one[..3] == other[..3]
    }
}

/// Whether a bucket can be kept in microseconds modulo 2^32: no request that is let through is too far ahead.
fn fits(paced: &Paced) -> bool {
    !paced.slot.is_zero()
        && paced.burst.saturating_add(paced.max_delay).saturating_add(paced.slot) < AHEAD_MAX
}

/// A time as HAProxy's rules have it; never 0, which is that of an empty entry.
fn on_clock(wall: Duration) -> u64 {
    u64::from(wall.as_micros() as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(60_000);
    const WALL: Duration = Duration::from_secs(1_800_000_000);

    fn update(slot: Duration, burst: Duration, max_delay: Duration, ahead: Duration) -> LimitUpdate {
        LimitUpdate::of(
            Some(ProxyLimits::Paced(Paced { slot, burst, max_delay, tat: NOW + ahead })),
            NOW,
            WALL,
        )
    }

    #[test]
    fn what_does_not_fit_into_the_clock_of_haproxy_has_to_be_asked() {
        let (second, day) = (Duration::from_secs(1), Duration::from_secs(86_400));
        assert_eq!(update(second, day, second, second), LimitUpdate::Ask);
        assert_eq!(update(day, second, second, second), LimitUpdate::Ask);
        assert_eq!(update(second, second, Duration::MAX, second), LimitUpdate::Ask);
        assert!(matches!(update(second, second * 1_900, second * 100, second), LimitUpdate::Pace { .. }));
    }

    #[test]
    fn the_x_of_a_full_bucket_is_past_and_x_is_never_zero() {
        let second = Duration::from_secs(1);
        let x = update(second, second, second, Duration::ZERO).numbers()[3] as u32;
        let ahead = x.wrapping_sub(WALL.as_micros() as u32) as i32;
        assert_eq!(ahead, -600_000_000);
        assert_eq!(on_clock(Duration::from_micros(1 << 32)), 1);
        let refused = LimitUpdate::of(Some(ProxyLimits::Refused(NOW + second)), NOW, WALL);
        let until_us = (WALL + second).as_micros() as u64 % (1 << 32);
        assert_eq!(refused.numbers(), [1, 0, 0, until_us]);
        assert_eq!(
            [LimitUpdate::Nothing, LimitUpdate::Unlimited, LimitUpdate::Ask].map(|update| update.numbers()),
            [[0; 4], [0, 1, 0, 0], [0, 2, 0, 0]]
        );
    }

    #[test]
    fn slots_are_rounded_down() {
        let third = Duration::from_nanos(333_333_333);
        let update = update(third, third * 3, Duration::ZERO, Duration::ZERO);
        assert_eq!(update.numbers()[..3], [333_333, 999_999, 999_999]);
    }
}
