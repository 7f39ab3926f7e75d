//! Credit: how far a member's turn may lie from the virtual time of its group.

use std::time::Duration;

use crate::base::Timestamp;

const SECOND_NS: i64 = 1_000_000_000;

/// The maximum work that a member can earn by using less than its share.
const EARNED_NS: i64 = 3 * SECOND_NS;

/// The work that a new member may do before it takes turns. With more, each new crawler would be served first.
const NEW_NS: i64 = 3 * SECOND_NS / 10;

/// After a pause, a member's debt is at most the work that each member of its group was given in this time.
const HORIZON: Duration = Duration::from_secs(5);

/// Each release moves the virtual time of a group by this part of the released work, divided by the number of active
/// members, or to the tag of the member whose turn it is, whichever is later. With a part of 0, members without credit
/// would already wait at half of the capacity; with a part of 1, new members would.
const PART: (i64, i64) = (1, 2);

/// The virtual time of a group: the work that each of its members has been given. It follows start-time fair queueing
/// (Goyal, Vin and Cheng, 1996), where virtual time is the start tag of the request in service.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct VirtualTime {
    now_ns: i64,
    /// The virtual time at the last two marks. A mark is set after every half of the horizon.
    marks_ns: [i64; 2],
    marked: Timestamp,
}

impl VirtualTime {
    pub(super) fn now_ns(&self) -> i64 {
        self.now_ns
    }

    /// Advances the virtual time when a request is released.
    pub(super) fn serve(&mut self, tag_ns: i64, work_ns: i64, active: u32, now: Timestamp) {
        let part_ns = work_ns * PART.0 / PART.1 / i64::from(active.max(1));
        self.now_ns = (self.now_ns + part_ns).max(tag_ns);
        let passed = now.since(self.marked);
        if passed >= HORIZON / 2 {
            let before_ns = if passed >= HORIZON { self.now_ns } else { self.marks_ns[1] };
            (self.marks_ns, self.marked) = ([before_ns, self.now_ns], now);
        }
    }

    /// The work that each member has been given within the horizon.
    pub(super) fn lately_ns(&self) -> i64 {
        self.now_ns - self.marks_ns[0]
    }

    /// The tag of a new member.
    pub(super) fn of_new(&self) -> i64 {
        self.now_ns - NEW_NS
    }

    /// The tag of a member that has been idle.
    pub(super) fn of_idle(&self, tag_ns: i64) -> i64 {
        tag_ns.clamp(self.now_ns - EARNED_NS, self.now_ns + self.lately_ns())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_member_has_little_credit_and_a_quiet_one_more() {
        let mut virtual_time = VirtualTime::default();
        virtual_time.serve(48 * SECOND_NS, 0, 1, Timestamp::from_millis(1_000));
        assert_eq!(virtual_time.of_new(), 48 * SECOND_NS - 300_000_000);
        assert_eq!(virtual_time.of_idle(0), 45 * SECOND_NS);
        assert_eq!(virtual_time.of_idle(47 * SECOND_NS), 47 * SECOND_NS);
    }

    #[test]
    fn debt_is_at_most_what_a_share_was_given_lately() {
        let mut virtual_time = VirtualTime::default();
        for ms in 0..60_000 {
            // A thousand members take turns, 8 s of work each second: 8 ms for each.
            let tag_ns = virtual_time.now_ns() + 8_000;
            virtual_time.serve(tag_ns, 8_000_000, 1_000, Timestamp::from_millis(ms));
        }
        let debt_ns = virtual_time.of_idle(i64::MAX) - virtual_time.now_ns();
        assert!((20_000_000..=40_000_000).contains(&debt_ns), "{debt_ns}");
    }

    #[test]
    fn a_request_out_of_turn_moves_virtual_time_by_half_its_part() {
        let mut virtual_time = VirtualTime::default();
        virtual_time.serve(i64::MIN, 8_000, 4, Timestamp::from_millis(1));
        assert_eq!(virtual_time.now_ns(), 1_000);
    }
}
