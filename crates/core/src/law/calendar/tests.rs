//! Tests of a calendar: words of slots against single slots, greedy sharers, and branches.

use proptest::prelude::*;

use crate::law::calendar::*;

const MS: u64 = 1_000_000;

/// 50/s with a burst of 100, five seconds ahead.
const PLAN: Plan = Plan { slot_ns: 20 * MS, tokens_max: 100, slots_max: 250, sharers_max: 8 };

fn ask(calendar: &mut Calendar, sharer: u64, ms: u64) -> Booking {
    let request = SlotRequest { now_ns: ms * MS, cost: 1, sharer, levels: 1, max_delay_ns: 5_000 * MS };
    calendar.advance(&PLAN, request.now_ns, 0);
    let offer = calendar.offer(&request, PLAN.sharers_max);
    calendar.take_up(&offer);
    assert!(calendar.is_sound());
    assert!(offer.place.is_some());
    offer.booking
}

/// The same as `clock_at`, slot by slot.
fn clock_by_slots(calendar: &Calendar, now_ns: u64) -> Clock {
    let mut clock = calendar.clock;
    let now = (now_ns.saturating_sub(clock.origin_ns) / calendar.slot_ns).max(clock.begun);
    for slot in clock.begun + 1..=now {
        match is_taken(calendar, slot) {
            true => clock.taken -= 1,
            false => clock.tokens = (clock.tokens + 1).min(held_max(calendar.tokens_max, clock.taken)),
        }
    }
    clock.begun = now;
    clock.is_full = clock.taken == 0 && clock.tokens == calendar.tokens_max;
    if clock.is_full {
        (clock.begun, clock.reach, clock.origin_ns) = (0, 0, now_ns);
    }
    clock
}

fn is_taken(calendar: &Calendar, slot: u64) -> bool {
    slot <= calendar.clock.reach
        && calendar.ring[calendar.place_of(slot / WORD_BITS)] >> (slot % WORD_BITS) & 1 == 1
}

/// Requests: the time since the last one, the sharer, the cost, and whether it is taken back.
fn requests() -> impl Strategy<Value = Vec<(u64, u64, u32, bool)>> {
    let pause_ms = prop_oneof![3 => 0..30u64, 1 => 0..3_000u64];
    prop::collection::vec(
        (pause_ms, 0..4u64, prop_oneof![4 => Just(1), 1 => 0..90u32], any::<bool>()),
        0..120,
    )
}

fn plans() -> impl Strategy<Value = Plan> {
    (1..5u64, 1..9u32, 1..300u32, 1..5u32).prop_map(|(slot, tokens_max, slots_max, sharers_max)| Plan {
        slot_ns: slot * 10 * MS,
        tokens_max,
        slots_max,
        sharers_max,
    })
}

proptest! {
    /// A word of slots at once gives what slot by slot gives. What is possible once, stays possible.
    #[test]
    fn words_of_slots_are_as_good_as_slots(plan in plans(), requests in requests(), debt_ms in 0..2_000u64) {
        let (mut calendar, mut now_ns) = (Calendar::default(), 100_000 * MS);
        let (paid_at_ns, max_delay_ns) = (now_ns + debt_ms * MS, plan.slot_ns * u64::from(plan.slots_max));
        for (pause_ms, sharer, cost, is_taken_back) in requests {
            now_ns += pause_ms * MS;
            if calendar.slot_ns > 0 {
                prop_assert_eq!(calendar.clock_at(now_ns), clock_by_slots(&calendar, now_ns));
            }
            calendar.advance(&plan, now_ns, paid_at_ns);
            prop_assert!(calendar.is_sound());
            let request = SlotRequest { now_ns, cost, sharer, levels: 1, max_delay_ns };
            let offer = calendar.offer(&request, plan.sharers_max);
            let free: Vec<u64> = (offer.from..=calendar.clock.reach)
                .filter(|&slot| !is_taken(&calendar, slot) && offer.free >> (slot % WORD_BITS) & 1 == 1)
                .take(offer.wanted as usize)
                .collect();
            if offer.booking != Booking::TooLate && offer.wanted > 0 {
                let due_ns = calendar.start_ns(&calendar.clock, *free.last().unwrap());
                prop_assert_eq!(offer.booking, Booking::At(due_ns));
                prop_assert_eq!(free.len(), offer.wanted as usize);
            }
            let possible: Vec<bool> =
                (0..70).map(|s| calendar.would_come_true(&request, s * 1_000 * MS, plan.sharers_max)).collect();
            prop_assert!(possible.is_sorted(), "{possible:?}");
            let before = calendar.clone();
            calendar.take_up(&offer);
            prop_assert!(calendar.is_sound());
            if let Booking::At(due_ns) = offer.booking {
                prop_assert!(free.iter().all(|&slot| is_taken(&calendar, slot)));
                if is_taken_back {
                    calendar.free(cost, now_ns, due_ns);
                    prop_assert!(calendar.is_sound());
                    prop_assert!(calendar.clock.taken <= before.clock.taken);
                }
            }
        }
    }
}

#[test]
fn a_late_sharer_is_not_starved_by_one_that_books_every_slot() {
    let mut calendar = Calendar::default();
    let mut passed = 0;
    for ms in (100_000..130_000).step_by(2) {
        if ask(&mut calendar, 1, ms) != Booking::TooLate {
            passed += 1;
        }
        // From the twentieth second on another asks five times a second.
        if ms >= 120_000 && ms % 200 == 0 {
            match ask(&mut calendar, 2, ms) {
                Booking::Now => {}
                Booking::At(due_ns) => assert!(due_ns <= (ms + 80) * MS, "{} ms", due_ns / MS - ms),
                Booking::TooLate => panic!("denied at {ms} ms"),
            }
        }
    }
    // The burst, 50/s, and the bookings of the next five seconds; less the other's share and the kept part.
    let most = 100 + 30 * 50 + 250;
    assert!((most - 50 - 64 - 8..=most).contains(&passed), "{passed} of {most}");
}

#[test]
fn each_level_divides_the_slots_of_the_one_above() {
    let leaf = |network: u64, source: u64| network << 32 | source;
    let pending = [leaf(1, 1), leaf(1, 2), leaf(1, 3), leaf(2, 1), leaf(3, 1), leaf(3, 2)];
    let slots = |id| branches(pending.into_iter(), id, 2);
    assert_eq!([leaf(1, 2), leaf(2, 1), leaf(3, 1)].map(slots), [3 * 3, 3, 3 * 2]);
    assert_eq!(slots(leaf(2, 9)), 3 * 2, "another source of a network");
    assert_eq!(slots(leaf(4, 1)), 4, "another network");
    assert_eq!(branches([].into_iter(), leaf(1, 1), 2), 1);
    let deep = |country: u64, network: u64, source: u64| country << 42 | network << 21 | source;
    let pending = [deep(1, 1, 1), deep(1, 2, 1), deep(1, 2, 2), deep(2, 1, 1)];
    assert_eq!(branches(pending.into_iter(), deep(1, 2, 1), 3), 2 * 2 * 2);
}
