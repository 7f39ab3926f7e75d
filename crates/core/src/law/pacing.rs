//! The numbers of a law that keeps a theoretical arrival time.

use std::time::Duration;

use crate::law::bucket::Bucket;

/// The numbers of a law that keeps a theoretical arrival time (TAT), so that nodes can share it.
///
/// ```
/// use std::time::Duration;
/// use slowlane_core::law::{Law, Objective, Options};
/// let objective = Objective { burst: 100, rate: "50/s".parse().unwrap() };
/// let pacing = Law::new("pace", objective, Options::default()).unwrap().pacing().unwrap();
/// assert_eq!(pacing.slot(), Duration::from_millis(20));
/// assert_eq!((pacing.burst(), pacing.max_delay), (Duration::from_secs(2), Duration::from_secs(5)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pacing {
    bucket: Bucket,
    /// The longest delay. Zero: the law never delays, it refuses.
    pub max_delay: Duration,
}

impl Pacing {
    pub(super) fn new(bucket: Bucket, max_delay: Duration) -> Pacing {
        Pacing { bucket, max_delay }
    }

    /// The time of one request.
    pub fn slot(&self) -> Duration {
        Duration::from_nanos(self.bucket.slot_ns.max(1))
    }

    /// The time of a full burst.
    pub fn burst(&self) -> Duration {
        Duration::from_nanos(self.bucket.burst_ns)
    }

    /// The requests of a full burst.
    pub fn burst_requests(&self) -> u32 {
        self.bucket.requests(self.bucket.burst_ns)
    }

    /// The clients that a delay stands for, in thousandths.
    pub fn milli_clients(&self, delay: Duration) -> u32 {
        self.bucket.milli_clients(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX))
    }
}
