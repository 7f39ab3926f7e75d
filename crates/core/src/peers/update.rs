//! A limit update: the numbers pushed to a proxy for one key.

use std::time::Duration;

use crate::base::Timestamp;
use crate::throttle::{Paced, ProxyLimits};

/// The columns of the table with the limits: slot, tau (the burst), the maximum (tau plus the longest delay) and X. All
/// columns are in microseconds, and X is modulo 2^32.
pub type Numbers = [u64; 4];

/// The longest time that a key's clock may be ahead. From 2^31 us (2147 s) on, HAProxy takes the future for the past.
const AHEAD_MAX: Duration = Duration::from_secs(2_100);

/// The age of X for a full bucket. Such an X stays in the past for the lifetime of a limit, even if the clocks of two
/// machines differ by minutes.
const LONG_AGO: Duration = Duration::from_secs(600);

/// With a slot of 0, this value in place of tau means that the request passes and no other table is consulted.
const UNLIMITED: u64 = 1;

/// With a slot of 0, this value in place of tau means that the proxy queries over SPOE.
const ASK: u64 = 2;

/// The limits in a form that a proxy can enforce: it must query slowlane if a bucket does not fit the proxy's clock.
pub(super) fn kept(limits: ProxyLimits) -> ProxyLimits {
    match limits {
        ProxyLimits::Paced(paced) if !fits(&paced) => ProxyLimits::Ask,
        limits => limits,
    }
}

/// The columns of the table for a key with limits that a proxy can enforce. `limits` is None if the SLO's key has
/// different fields from the table. `wall` is the time of the wall clock at `now`, since 1970.
///
/// Slots are rounded down, but to at least a microsecond. On its own, the proxy is then slightly too fast, and X, which
/// is exact, corrects the error.
///
/// ```
/// use std::time::Duration;
/// use slowlane_core::{base::Timestamp, peers::numbers, throttle::{Paced, ProxyLimits}};
/// // burst=100 rate=50/s: 20 ms a slot, 2 s a burst. The bucket is full in one second.
/// let now = Timestamp::from_millis(60_000);
/// let (slot, burst, max_delay) = (Duration::from_millis(20), Duration::from_secs(2), Duration::from_secs(5));
/// let paced = ProxyLimits::Paced(Paced { slot, burst, max_delay, tat: now + Duration::from_secs(1) });
/// let numbers = numbers(Some(paced), now, Duration::from_secs(7_000));
/// assert_eq!(numbers, [20_000, 2_000_000, 7_000_000, 7_001_000_000 % (1 << 32)]);
/// ```
pub fn numbers(limits: Option<ProxyLimits>, now: Timestamp, wall: Duration) -> Numbers {
    let ahead = |of: Timestamp| of.since(now).min(AHEAD_MAX);
    match limits {
        None => [0; 4],
        Some(ProxyLimits::Unlimited) => [0, UNLIMITED, 0, 0],
        Some(ProxyLimits::Ask) => [0, ASK, 0, 0],
        // A slot of 1 us always exceeds a maximum of 0, whatever the time is.
        Some(ProxyLimits::Refused(until)) => [1, 0, 0, on_clock(wall + ahead(until))],
        Some(ProxyLimits::Paced(Paced { slot, burst, max_delay, tat })) => {
            let [slot_us, tau_us, delay_us] = [slot, burst, max_delay].map(|time| time.as_micros() as u64);
            // The X of a full bucket lies far in the past.
            let x = if tat <= now { wall.saturating_sub(LONG_AGO) } else { wall + ahead(tat) };
            [slot_us.max(1), tau_us, tau_us + delay_us, on_clock(x)]
        }
    }
}

/// Whether a bucket can be kept in microseconds modulo 2^32: no admitted request is too far ahead. The burst must also
/// have room for one request, because the proxy's rules pass any request of a key whose clock is not ahead.
fn fits(paced: &Paced) -> bool {
    !paced.slot.is_zero()
        && paced.slot <= paced.burst
        && paced.burst.saturating_add(paced.max_delay).saturating_add(paced.slot) < AHEAD_MAX
}

/// A time in the units of HAProxy's rules. Never 0, because that is the value of an empty entry.
fn on_clock(wall: Duration) -> u64 {
    u64::from(wall.as_micros() as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(60_000);
    const WALL: Duration = Duration::from_secs(1_800_000_000);

    fn paced(slot: Duration, burst: Duration, max_delay: Duration, ahead: Duration) -> ProxyLimits {
        ProxyLimits::Paced(Paced { slot, burst, max_delay, tat: NOW + ahead })
    }

    #[test]
    fn what_does_not_fit_into_the_clock_of_haproxy_has_to_be_asked() {
        let (second, day) = (Duration::from_secs(1), Duration::from_secs(86_400));
        assert_eq!(kept(paced(second, day, second, second)), ProxyLimits::Ask);
        assert_eq!(kept(paced(day, second, second, second)), ProxyLimits::Ask);
        assert_eq!(kept(paced(second, second, Duration::MAX, second)), ProxyLimits::Ask);
        assert_eq!(kept(paced(second, Duration::ZERO, second, second)), ProxyLimits::Ask);
        let longest = paced(second, second * 1_900, second * 100, second);
        assert_eq!(kept(longest), longest);
    }

    #[test]
    fn the_x_of_a_full_bucket_is_past_and_x_is_never_zero() {
        let second = Duration::from_secs(1);
        let full = paced(second, second, second, Duration::ZERO);
        let x = numbers(Some(full), NOW, WALL)[3] as u32;
        let ahead = x.wrapping_sub(WALL.as_micros() as u32) as i32;
        assert_eq!(ahead, -600_000_000);
        assert_eq!(on_clock(Duration::from_micros(1 << 32)), 1);
        let refused = numbers(Some(ProxyLimits::Refused(NOW + second)), NOW, WALL);
        let until_us = (WALL + second).as_micros() as u64 % (1 << 32);
        assert_eq!(refused, [1, 0, 0, until_us]);
        let free = [None, Some(ProxyLimits::Unlimited), Some(ProxyLimits::Ask)];
        assert_eq!(free.map(|limits| numbers(limits, NOW, WALL)), [[0; 4], [0, 1, 0, 0], [0, 2, 0, 0]]);
    }

    #[test]
    fn slots_are_rounded_down() {
        let third = Duration::from_nanos(333_333_333);
        let limits = paced(third, third * 3, Duration::ZERO, Duration::ZERO);
        assert_eq!(numbers(Some(limits), NOW, WALL)[..3], [333_333, 999_999, 999_999]);
    }
}
