//! Refusal: a request that would wait too long is refused on arrival, the newest of the greediest first.

use std::time::Duration;

/// Where the turn of a request lies among all.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Position {
    /// The virtual time until its turn.
    pub(super) ahead_ns: i64,
    /// Its turn has come: it has used less than its share.
    pub(super) has_credit: bool,
}

/// The work that waits, in nanoseconds inside.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backlog {
    work_ns: i64,
    with_credit_ns: i64,
}

impl Backlog {
    pub(super) fn add(&mut self, position: Position, work_ns: i64) {
        self.work_ns += work_ns;
        self.with_credit_ns += if position.has_credit { work_ns } else { 0 };
    }

    pub(super) fn remove(&mut self, position: Position, work_ns: i64) {
        self.add(position, -work_ns);
    }

    pub(super) fn work_ns(&self) -> i64 {
        self.work_ns
    }

    /// How long a request waits as the last of all (Little, 1961).
    pub(super) fn queue(&self, limit: usize) -> Duration {
        time(self.work_ns, limit)
    }

    /// About how long a request would wait. Those with credit go first. Until the turn of another, each active group is
    /// given as much work as virtual time passes.
    pub(super) fn expected(&self, position: Position, limit: usize, active: u32) -> Duration {
        let others_ns = position.ahead_ns.max(0).saturating_mul(i64::from(active));
        time(self.with_credit_ns.saturating_add(others_ns), limit)
    }
}

/// The time that work takes with so many at a time.
fn time(work_ns: i64, limit: usize) -> Duration {
    Duration::from_nanos(work_ns.max(0) as u64 / limit.max(1) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: i64 = 1_000_000_000;

    #[test]
    fn those_with_credit_wait_for_each_other_and_the_rest_for_its_turn_too() {
        let (credit, other) = (
            Position { ahead_ns: 0, has_credit: true },
            Position { ahead_ns: 4 * SECOND_NS, has_credit: false },
        );
        let mut backlog = Backlog::default();
        backlog.add(credit, 8 * SECOND_NS);
        backlog.add(other, 80 * SECOND_NS);
        assert_eq!(backlog.queue(8), Duration::from_secs(11));
        assert_eq!(backlog.expected(credit, 8, 10), Duration::from_secs(1));
        assert_eq!(
            backlog.expected(other, 8, 10),
            Duration::from_secs(6),
            "1 s, and 4 s of each of ten groups"
        );
        backlog.remove(credit, 8 * SECOND_NS);
        assert_eq!(backlog.expected(credit, 8, 10), Duration::ZERO);
    }
}
