//! Governor's keyed rate limiter, with the keys of the table.

use governor::clock::FakeRelativeClock;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};
use hashbrown::DefaultHashBuilder;
use slowlane_core::base::Key;

/// Uses the default hash of hashbrown, which is faster than that of governor.
pub type Keyed =
    RateLimiter<Key, DashMapStateStore<Key, DefaultHashBuilder>, FakeRelativeClock, NoOpMiddleware<Nanos>>;

pub fn limiter(quota: Quota, clock: FakeRelativeClock) -> Keyed {
    RateLimiter::dashmap_with_clock_and_hasher(quota, clock, DefaultHashBuilder::default())
}
