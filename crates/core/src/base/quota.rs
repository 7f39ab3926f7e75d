//! The quota of an SLO, for the header fields `RateLimit-Policy` and `RateLimit`.
//!
//! Both fields are defined by draft-ietf-httpapi-ratelimit-headers, revision 10. `RateLimit-Policy:
//! "3001";q=100;w=2` means that the policy `3001` allows 100 requests in 2 seconds. `RateLimit:
//! "3001";r=40;t=3` means that 40 requests are left, and more become available in 3 seconds.

use std::fmt;
use std::time::Duration;

use arrayvec::ArrayString;

use crate::base::Rate;

/// A number of requests in a window or in flight at once, or an amount of work in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    Window {
        requests: u64,
        /// In whole seconds, because the draft allows no fractions.
        window_s: u64,
    },
    Concurrent {
        requests: u64,
    },
    /// An amount of work in a window.
    Work {
        amount: u64,
        window_s: u64,
        unit: QuotaUnit,
    },
}

/// The name of a quota's unit.
pub type QuotaUnit = ArrayString<UNIT_BYTES_MAX>;

/// The maximum length of a unit's name, in bytes.
pub(crate) const UNIT_BYTES_MAX: usize = 32;

impl Quota {
    /// The quota of a bucket: the smallest whole number of rate periods that allows at least `burst` requests.
    ///
    /// `q` / `w` is exactly the rate, and the number of requests left never exceeds `q`.
    ///
    /// ```
    /// use slowlane_core::base::Quota;
    /// let quota = |burst, rate: &str| Quota::of_bucket(burst, rate.parse().unwrap()).to_string();
    /// assert_eq!(quota(100, "50/s"), "q=100;w=2");
    /// assert_eq!(quota(10, "30/m"), "q=30;w=60");
    /// assert_eq!(quota(0, "7/h"), "q=7;w=3600");
    /// assert_eq!(quota(9, "0/s"), "q=0;w=1");
    /// ```
    pub fn of_bucket(burst: u32, rate: Rate) -> Quota {
        let (period, period_s) = (rate.requests_in(rate.period()) as u64, rate.period().as_secs());
        let periods =
            u64::from(burst).checked_div(period).map_or(1, |_| u64::from(burst).div_ceil(period).max(1));
        Quota::Window { requests: period * periods, window_s: period_s * periods }
    }

    /// The quota of a window. A window with a fraction of a second is multiplied, along with its requests,
    /// until no fraction is left.
    ///
    /// ```
    /// use std::time::Duration;
    /// use slowlane_core::base::Quota;
    /// assert_eq!(Quota::of_window(1000, Duration::from_secs(60)).to_string(), "q=1000;w=60");
    /// assert_eq!(Quota::of_window(20, Duration::from_millis(1500)).to_string(), "q=40;w=3");
    /// ```
    pub fn of_window(requests: u32, window: Duration) -> Quota {
        const SECOND_NS: u128 = 1_000_000_000;
        let windows = SECOND_NS / common_divisor(window.as_nanos(), SECOND_NS);
        let window_s = window.as_nanos() * windows / SECOND_NS;
        Quota::Window { requests: u64::from(requests) * windows as u64, window_s: window_s as u64 }
    }
}

fn common_divisor(one: u128, other: u128) -> u128 {
    if other == 0 { one } else { common_divisor(other, one % other) }
}

/// The parameters of a `RateLimit-Policy` item, without the policy name that precedes them.
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Quota::Window { requests, window_s } => write!(f, "q={requests};w={window_s}"),
            Quota::Concurrent { requests } => write!(f, "q={requests};qu=\"concurrent-requests\""),
            Quota::Work { amount, window_s, unit } => write!(f, "q={amount};w={window_s};qu=\"{unit}\""),
        }
    }
}

/// The maximum length of an item, in bytes: a name of up to six digits in quotes, two parameters with numbers
/// of up to 20 digits, and a unit in quotes.
pub const POLICY_BYTES_MAX: usize = 64 + UNIT_BYTES_MAX + 6;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The largest integer in a header field (RFC 9651, 3.3.1).
    const INTEGER_MAX: u64 = 999_999_999_999_999;

    proptest! {
        #[test]
        fn a_quota_is_the_rate_and_holds_the_burst(burst in 0u32.., count in 1u64..86_400, period in 0usize..4) {
            let rate: Rate = format!("{count}/{}", ["s", "m", "h", "d"][period]).parse().unwrap();
            let Quota::Window { requests, window_s } = Quota::of_bucket(burst, rate) else { unreachable!() };
            prop_assert_eq!(u128::from(requests), rate.requests_in(Duration::from_secs(window_s)));
            prop_assert!(requests >= u64::from(burst));
            prop_assert!(requests <= INTEGER_MAX && window_s <= INTEGER_MAX);
        }

        #[test]
        fn any_window_is_told_in_whole_seconds(requests in 1u32..1 << 30, window_ms in 10u64..1_000_000) {
            let window = Duration::from_millis(window_ms);
            let Quota::Window { requests: reported, window_s } = Quota::of_window(requests, window) else { unreachable!() };
            prop_assert!(window_s > 0 && reported <= INTEGER_MAX);
            prop_assert_eq!(u128::from(reported) * u128::from(window_ms), u128::from(requests) * u128::from(window_s) * 1000);
            let item = format!("\"{}\";{}", 999_999, Quota::Window { requests: u64::MAX, window_s: u64::MAX });
            prop_assert!(item.len() <= POLICY_BYTES_MAX);
        }
    }
}
