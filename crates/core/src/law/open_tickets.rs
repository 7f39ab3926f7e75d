//! The open tickets of one key, which stand for requests that have begun but not ended.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::{Quantile, Timestamp};
use crate::table::deque_bytes_after;

/// The open tickets of one key, in order of serial number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenTickets {
    open: VecDeque<Open>,
    last_serial: u32,
}

/// The open tickets of one key whose SLO counts work, and the estimated cost of its requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reservations {
    pub(crate) tickets: OpenTickets,
    pub(crate) costs: Quantile,
    lease_ms: u32,
}

impl Reservations {
    /// The state of a key that starts from `costs`, the estimate over all keys.
    pub(crate) fn new(tickets: OpenTickets, costs: Quantile, lease: Duration) -> Reservations {
        let lease_ms = u32::try_from(lease.as_millis()).unwrap_or(u32::MAX);
        Reservations { tickets, costs: costs.restarted(), lease_ms }
    }

    /// The number of tickets within their lease.
    pub(crate) fn open_at(&self, now: Timestamp) -> usize {
        let is_open =
            |open: &&Open| (now.ticks_ms().wrapping_sub(open.begun_ms) as i32) < self.lease_ms as i32;
        self.tickets.open.iter().filter(is_open).count()
    }
}

/// A request that has begun, with the start time that its ticket records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Open {
    serial: u32,
    begun_ms: u32,
}

impl OpenTickets {
    /// An empty list that gives its first ticket the serial after `last_serial`.
    pub(crate) fn after(last_serial: u32) -> OpenTickets {
        OpenTickets { open: VecDeque::new(), last_serial }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(crate) fn last_serial(&self) -> u32 {
        self.last_serial
    }

    /// Opens a ticket and returns its serial, which is never 0. Tickets older than `lease` are forgotten.
    pub(crate) fn open(&mut self, now: Timestamp, lease: Duration) -> u32 {
        let (begun_ms, lease_ms) = (now.ticks_ms(), i32::try_from(lease.as_millis()).unwrap_or(i32::MAX));
        // The age is signed, because another thread's clock may be a moment ahead.
        while self.open.front().is_some_and(|open| begun_ms.wrapping_sub(open.begun_ms) as i32 >= lease_ms) {
            self.open.pop_front();
        }
        self.last_serial = self.last_serial.checked_add(1).unwrap_or(1);
        self.open.push_back(Open { serial: self.last_serial, begun_ms });
        self.last_serial
    }

    /// Closes a ticket. Returns false if the ticket was never issued, is already closed, or has outlived its lease.
    pub(crate) fn close(&mut self, serial: u32, begun_ms: u32) -> bool {
        let Some(first) = self.open.front().map(|open| open.serial) else { return false };
        // Counted from the first serial, the serials increase even where they wrap around.
        let since_first = |serial: u32| serial.wrapping_sub(first);
        let place = self.open.partition_point(|open| since_first(open.serial) < since_first(serial));
        let is_open = self.open.get(place) == Some(&Open { serial, begun_ms });
        if is_open {
            self.open.remove(place);
        }
        is_open
    }

    pub(super) fn bytes(&self) -> usize {
        self.open.capacity() * size_of::<Open>()
    }

    /// The invariant: counted from the first serial, the serials increase.
    pub(super) fn is_sound(&self) -> bool {
        let first = self.open.front().map_or(0, |open| open.serial);
        self.open.iter().map(|open| open.serial.wrapping_sub(first)).is_sorted_by(|one, next| one < next)
    }

    /// The maximum memory after one more ticket.
    pub(crate) fn bytes_after(&self) -> usize {
        deque_bytes_after(&self.open, 1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const LEASE: Duration = Duration::from_secs(1);

    #[derive(Clone, Debug)]
    enum Step {
        Open {
            after_ms: u64,
        },
        /// Closes one of the tickets opened so far, perhaps once more.
        Close {
            which: prop::sample::Index,
        },
        Forge {
            serial: u32,
            begun_ms: u32,
        },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0u64..300).prop_map(|after_ms| Step::Open { after_ms }),
            any::<prop::sample::Index>().prop_map(|which| Step::Close { which }),
            (0u32..20, 0u32..2_000).prop_map(|(serial, begun_ms)| Step::Forge { serial, begun_ms }),
        ];
        prop::collection::vec(step, 0..200)
    }

    proptest! {
        #[test]
        fn a_ticket_closes_once_and_within_its_lease(steps in steps(), last_serial in prop_oneof![Just(0), Just(u32::MAX - 9)]) {
            let mut tickets = OpenTickets { last_serial, ..OpenTickets::default() };
            let (mut now_ms, mut issued, mut open) = (0, Vec::new(), BTreeMap::new());
            for step in steps {
                let room = tickets.bytes_after();
                let (serial, begun_ms) = match step {
                    Step::Open { after_ms } => {
                        now_ms += after_ms;
                        let serial = tickets.open(Timestamp::from_millis(now_ms), LEASE);
                        prop_assert!(serial > 0 && tickets.bytes() <= room);
                        open.retain(|_, begun_ms| now_ms - u64::from(*begun_ms) < 1_000);
                        prop_assert_eq!(open.insert(serial, now_ms as u32), None);
                        issued.push((serial, now_ms as u32));
                        prop_assert_eq!(tickets.open.len(), open.len());
                        continue;
                    }
                    Step::Close { which } if !issued.is_empty() => *which.get(&issued),
                    Step::Close { .. } => continue,
                    Step::Forge { serial, begun_ms } => (serial, begun_ms),
                };
                let is_open = open.get(&serial) == Some(&begun_ms);
                if is_open {
                    open.remove(&serial);
                }
                prop_assert_eq!(tickets.close(serial, begun_ms), is_open);
                prop_assert!(!tickets.close(serial, begun_ms), "twice");
            }
        }
    }

    #[test]
    fn a_clock_that_is_behind_forgets_no_ticket() {
        let mut tickets = OpenTickets::default();
        let ahead = tickets.open(Timestamp::from_millis(5_000), LEASE);
        tickets.open(Timestamp::from_millis(4_990), LEASE);
        assert!(tickets.close(ahead, 5_000));
    }

    #[test]
    fn serials_rise_from_the_first_on_and_begin_anew_behind_the_last() {
        let of = |serials: &[u32]| {
            let open = serials.iter().map(|&serial| Open { serial, begun_ms: 0 }).collect();
            OpenTickets { open, last_serial: 0 }.is_sound()
        };
        assert!(of(&[]) && of(&[7]) && of(&[7, 8, 12]) && of(&[u32::MAX - 1, u32::MAX, 1]));
        assert!(!of(&[7, 7]) && !of(&[7, 12, 8]) && !of(&[7, 8, 7]));
    }
}
