//! Leases: how long a request may hold its place if no end is reported.

use std::time::Duration;

use crate::base::Timestamp;
use crate::law::protect::request::{InFlight, Requests};
use crate::law::protect::slab::List;

/// The shortest lease, and how many times as long as the page's base a lease is.
const LEAST: Duration = Duration::from_secs(5);
const BASES: f64 = 20.0;

/// The number of lease classes: the shortest lease, doubled up to seven times, up to 640 s.
const CLASSES: usize = 8;

/// The requests inside, in one list for each length of lease, in the order in which the leases end. The end of a
/// request may go unreported, and a stream may last for hours, so no request keeps its place beyond its lease.
#[derive(Clone, Debug)]
pub(super) struct Leases {
    classes: [List; CLASSES],
}

impl Leases {
    pub(super) const LONGEST: Duration = Duration::from_secs(640);

    pub(super) fn new() -> Leases {
        Leases { classes: [List::EMPTY; CLASSES] }
    }

    /// The lease class of a page with this base.
    pub(super) fn class(base_ns: Option<f64>) -> u8 {
        let least_ns = LEAST.as_nanos() as f64;
        let is_short = |class: &u8| base_ns.unwrap_or(0.0) * BASES <= least_ns * f64::from(1u32 << class);
        (0..CLASSES as u8 - 1).find(is_short).unwrap_or(CLASSES as u8 - 1)
    }

    /// The time at which the lease of a request inside ends.
    pub(super) fn end_of(request: &InFlight) -> Timestamp {
        request.since + LEAST * (1 << request.class)
    }

    pub(super) fn begin(&mut self, place: u32, requests: &mut Requests) {
        let class = requests.slab[place].class;
        requests.slab.append(&mut self.classes[usize::from(class)], place);
    }

    pub(super) fn end(&mut self, place: u32, requests: &mut Requests) {
        let class = requests.slab[place].class;
        requests.slab.unlink(&mut self.classes[usize::from(class)], place);
    }

    /// The time at which the first lease ends, and the place of its request.
    pub(super) fn first(&self, requests: &Requests) -> Option<(Timestamp, u32)> {
        let of_class = |list: &List| {
            let request = (!list.is_empty()).then(|| requests.slab[list.first])?;
            Some((Leases::end_of(&request), list.first))
        };
        self.classes.iter().filter_map(of_class).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_twenty_times_the_page_in_doublings_of_five_seconds() {
        let class = |base_ms: f64| Leases::class(Some(base_ms * 1e6));
        assert_eq!(Leases::class(None), 0);
        assert_eq!([0.0, 250.0, 251.0, 500.0, 501.0].map(class), [0, 0, 1, 1, 2]);
        assert_eq!(class(1e9), 7, "five seconds, doubled seven times");
        assert_eq!(LEAST * (1 << 7), Leases::LONGEST);
    }
}
