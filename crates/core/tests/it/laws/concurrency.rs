//! `concurrency`: the limit of requests in flight, as the proxy sees them, and lost reports of their end.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fastrand::Rng;
use slowlane_core::base::{Counted, Key, KeySecret, Ticket, Timestamp, Verdict};
use slowlane_core::law::Arrival;

use super::oracle::{SECOND_NS, Subject, at_ms, at_ns, retry_after_s};

/// Requests come at random for a minute and take up to `longest_ms`. `lost_thousandths` of their ends are lost.
///
/// Returns the most requests in flight at the proxy, the number in flight by the law at the end, and the number that
/// passed.
fn simulate(subject: &mut Subject, seed: u64, longest_ms: u64, lost_thousandths: u32) -> (usize, u32, u32) {
    let mut rng = Rng::with_seed(seed);
    // The requests in flight by their end, each with its ticket if the end will be reported.
    let mut under_way: BinaryHeap<Reverse<(u64, u64, bool)>> = BinaryHeap::new();
    let (mut now_ns, mut most, mut passed) = (0, 0, 0);
    let end_all = |subject: &mut Subject, under_way: &mut BinaryHeap<_>, now_ns: u64| {
        while let Some(&Reverse((end_ns, begun_ns, is_reported))) = under_way.peek() {
            if end_ns > now_ns {
                break;
            }
            under_way.pop();
            if is_reported {
                // As the proxy hands it back: to the millisecond.
                let counted = [Counted { slo: subject.slo.id, key: Key::from_bits(1), serial: 1, cost: 1 }];
                let text = Ticket::new(at_ns(begun_ns), counted).sealed(KeySecret::KNOWN).to_string();
                let ticket = Ticket::open(&text, KeySecret::KNOWN).unwrap();
                let now = at_ns(end_ns);
                subject.end(1, ticket.begun(now), now);
            }
        }
    };
    while now_ns < 60 * SECOND_NS {
        now_ns += rng.u64(0..4_000_000);
        end_all(subject, &mut under_way, now_ns);
        if subject.ask(at_ns(now_ns)) == Verdict::Pass {
            passed += 1;
            let is_reported = rng.u32(0..1_000) >= lost_thousandths;
            under_way.push(Reverse((now_ns + rng.u64(0..longest_ms * 1_000_000), now_ns, is_reported)));
        }
        most = most.max(under_way.len());
    }
    now_ns += longest_ms * 1_000_000;
    end_all(subject, &mut under_way, now_ns);
    (most, subject.would(Arrival::at(at_ns(now_ns))).remaining, passed)
}

#[test]
fn there_are_never_more_under_way_than_max() {
    // Leases that are no whole multiple of four milliseconds, too.
    for (seed, lease_ms) in [(1, 400), (2, 1_000), (3, 101), (4, 150), (5, 333)] {
        let mut subject =
            Subject::new(&format!("burst=0 rate=1/s law=concurrency max=20 lease={lease_ms}ms"));
        let (most, remaining, _) = simulate(&mut subject, seed, lease_ms * 3 / 4, 0);
        assert_eq!(most, 20, "lease of {lease_ms} ms");
        assert_eq!(remaining, 19, "every end was counted, with a lease of {lease_ms} ms");
    }
}

#[test]
fn lost_ends_are_forgotten_within_a_lease() {
    let mut lost = 0;
    for seed in 0..5 {
        let mut subject = Subject::new("burst=0 rate=1/s law=concurrency max=50 lease=2s");
        let (most, _, passed) = simulate(&mut subject, seed, 1_000, 10);
        assert!(most <= 50 && passed > 5_000, "{most} of {passed}");
        let in_flight =
            |after_ms: u64| 50 - 1 - subject.would(Arrival::at(at_ms(61_000 + after_ms))).remaining;
        lost += in_flight(0);
        assert_eq!(in_flight(2_000), 0);
    }
    assert!(lost > 0, "some ends were lost in the last seconds");
}

#[test]
fn an_end_counts_against_the_time_of_its_beginning() {
    let mut subject = Subject::new("burst=0 rate=1/s law=concurrency max=2 lease=1s");
    assert_eq!([subject.ask(at_ms(240)), subject.ask(at_ms(260))], [Verdict::Pass; 2]);
    subject.end(1, at_ms(240), at_ms(700));
    assert_eq!(subject.ask(at_ms(700)), Verdict::Pass);
    // The first once more, and one that began before all: both change nothing.
    subject.end(1, at_ms(240), at_ms(710));
    subject.end(1, Timestamp::from_millis(1), at_ms(710));
    assert_eq!(retry_after_s(subject.ask(at_ms(710))), 1);
}

#[test]
fn what_is_taken_back_after_its_quarter_is_over_is_taken_back() {
    let mut subject = Subject::new("burst=0 rate=1/s law=concurrency max=1 lease=1s");
    assert_eq!(subject.ask(at_ms(0)), Verdict::Pass);
    subject.take_back(1, at_ms(300), at_ms(0));
    assert_eq!(subject.ask(at_ms(300)), Verdict::Pass);
}

#[test]
fn an_end_in_a_quarter_that_begins_within_a_millisecond_is_counted() {
    // A quarter of 101 ms would be 25.25 ms, and a ticket knows nothing of the rest.
    let mut subject = Subject::new("burst=0 rate=1/s law=concurrency max=1 lease=101ms");
    for us in (0..200_000).step_by(50) {
        let now = at_ns(us * 1_000);
        assert_eq!(subject.ask(now), Verdict::Pass, "at {us} us");
        let begun = Timestamp::from_millis(now.as_nanos() / 1_000_000);
        subject.end(1, begun, now);
    }
}
