//! `fair`: the same total as `pace`, shared evenly.

use proptest::prelude::*;
use slowlane_core::base::Verdict;
use slowlane_core::law::{Arrival, AuxState};

use super::oracle::{Admissions, SECOND_NS, Subject, arrivals, at_ms, at_ns, retry_after_s, schedule};

/// Closed-loop sources, each with this many requests waiting for their answers at any time. Gives how many of each left
/// from `from_s` to `until_s`.
fn closed_loop(
    subject: &mut Subject,
    waiting: &[usize],
    from_s: u64,
    until_s: u64,
) -> (Vec<u64>, Admissions) {
    // An answer takes a tenth of a millisecond.
    closed_loop_of(subject, waiting, from_s, until_s, |source| source as u64, || 100_000)
}

/// The same for sources with these hashes, whose answers take this time.
fn closed_loop_of(
    subject: &mut Subject,
    waiting: &[usize],
    from_s: u64,
    until_s: u64,
    sharer: impl Fn(usize) -> u64,
    mut answered_ns: impl FnMut() -> u64,
) -> (Vec<u64>, Admissions) {
    let mut next: Vec<(u64, usize)> = Vec::new();
    for (source, &waiting) in waiting.iter().enumerate() {
        next.extend((0..waiting).map(|number| (number as u64 * 10_007 + source as u64 * 1_009, source)));
    }
    let (mut counts, mut admissions) = (vec![0; waiting.len()], Admissions::default());
    loop {
        let (place, &(now_ns, source)) = next.iter().enumerate().min_by_key(|(_, next)| next.0).unwrap();
        if now_ns >= until_s * SECOND_NS {
            return (counts, admissions);
        }
        let arrival = Arrival { sharer: sharer(source), ..Arrival::at(at_ns(now_ns)) };
        let verdict = subject.judge(arrival).verdict;
        admissions.note(arrival, verdict);
        let left_ns = now_ns + verdict.wait().as_nanos() as u64;
        if verdict.is_let_through() && (from_s * SECOND_NS..until_s * SECOND_NS).contains(&left_ns) {
            counts[source] += 1;
        }
        next[place].0 = match verdict {
            Verdict::Deny { retry_after_s } => now_ns + u64::from(retry_after_s) * SECOND_NS,
            _ => left_ns + answered_ns(),
        };
    }
}

/// Jain's fairness index: 1 if all have the same, 1 / n if one has all.
fn jain(counts: &[u64]) -> f64 {
    let sum: f64 = counts.iter().map(|&count| count as f64).sum();
    let squares: f64 = counts.iter().map(|&count| (count as f64).powi(2)).sum();
    sum * sum / (counts.len() as f64 * squares)
}

#[test]
fn one_greedy_source_and_nine_light_ones_get_the_same() {
    for (greedy, burst, rate) in [(10, 10u32, 50), (100, 100, 50), (200, 10, 50), (50, 2, 20), (20, 1, 100)] {
        let mut waiting = vec![1; 10];
        waiting[3] = greedy;
        let mut subject = Subject::new(&format!("burst={burst} rate={rate}/s law=fair"));
        let (counts, admissions) = closed_loop(&mut subject, &waiting, 20, 80);
        assert!(jain(&counts) >= 0.99, "{greedy} at {rate}/s: {counts:?} is {}", jain(&counts));
        let total: u64 = counts.iter().sum();
        assert!(total as f64 >= 0.99 * 60.0 * f64::from(rate), "{greedy} at {rate}/s: {total} in all");
        assert_eq!(admissions.past_bucket(u64::from(burst), subject.slot_ns()), None);

        // Under `pace` the greedy source has nearly all of the rate.
        let mut subject = Subject::new(&format!("burst={burst} rate={rate}/s law=pace"));
        let (counts, _) = closed_loop(&mut subject, &waiting, 20, 80);
        assert!(jain(&counts) < 0.7, "{greedy} under pace: {counts:?}");
    }
}

/// The hash of a source in a network: both have a half of the bits.
fn leaf(network: usize, source: usize) -> u64 {
    let half = |number: usize| u64::from((number as u32 + 1).wrapping_mul(0x9e37_79b1));
    half(network) << 32 | half(source)
}

/// However many sources a network has, it gets what another network gets; and each source what its neighbours get.
#[test]
fn networks_share_the_rate_and_their_sources_the_part_of_each() {
    let part_of = |networks: &[usize], waiting: usize, share: &str| {
        let of: Vec<usize> = networks
            .iter()
            .enumerate()
            .flat_map(|(network, &size)| std::iter::repeat_n(network, size))
            .collect();
        let network = |source: usize| of[source];
        let mut subject = Subject::new(&format!("burst=10 rate=100/s law=fair max_delay=30s share={share}"));
        let waiting = vec![waiting; of.len()];
        let mut rng = fastrand::Rng::with_seed(7);
        let hash = |source| leaf(network(source), source);
        let (counts, _) =
            closed_loop_of(&mut subject, &waiting, 60, 660, hash, || rng.u64(100_000..50_000_000));
        let total: u64 = counts.iter().sum();
        assert!(total >= 59_900, "no slot is lost: {total} of 60000");
        let mut of_networks = vec![0; networks.len()];
        counts.iter().enumerate().for_each(|(source, count)| of_networks[network(source)] += count);
        (of_networks, counts)
    };
    for networks in [&[40, 1, 1, 1][..], &[20, 20, 1, 4], &[3, 2, 1]] {
        let (of_networks, counts) = part_of(networks, 12, "network+source");
        assert!(jain(&of_networks) > 0.999, "{networks:?}: {of_networks:?}");
        assert!(jain(&counts[..networks[0]]) > 0.999, "{counts:?}");

        let (of_networks, _) = part_of(networks, 12, "source");
        assert!(jain(&of_networks) < 0.9, "by source alone: {of_networks:?}");
    }
}

/// Work-conserving: while any source waits, the whole rate is used.
#[test]
fn no_slot_is_lost_while_somebody_waits() {
    for burst in [4, 10] {
        for waiting in [vec![1], vec![50], vec![200], vec![1, 1], vec![40, 1], vec![30, 30], vec![100, 5, 1]]
        {
            let mut subject = Subject::new(&format!("burst={burst} rate=50/s law=fair"));
            let (counts, _) = closed_loop(&mut subject, &waiting, 10, 70);
            let total: u64 = counts.iter().sum();
            // An answer takes a tenth of a millisecond of 20: the bucket makes up for it.
            assert!((2_999..=3_001).contains(&total), "{burst}, {waiting:?}: {counts:?}");
        }
    }
}

/// A source that was denied has no waiting request, so the first reserved token is for it.
#[test]
fn a_source_that_was_denied_for_its_cost_is_told_of_the_token_that_is_kept_for_it() {
    let mut subject = Subject::new("burst=3 rate=10/s law=fair max_delay=1s");
    // Source 1 takes the burst and slots 1, 2, 4 and 5. The third passes while it waits, and is a token.
    (0..7).for_each(|_| _ = subject.ask_of(1, at_ms(0)));
    let denied = subject.judge(Arrival { sharer: 2, cost: 40, ..Arrival::at(at_ms(350)) });
    assert!(matches!(denied.verdict, Verdict::Deny { .. }), "{denied:?}");
    assert_eq!(denied.remaining, 1);
    assert_eq!(subject.ask_of(2, at_ms(350)), Verdict::Pass);
}

proptest! {
    /// Of a source alone every fourth slot and some tokens are kept, for others that may come. Where the burst has room
    /// for all the slots that were kept in vain, it waits a third longer than under `pace` at most, and for as many
    /// slots as there are such tokens.
    #[test]
    fn a_source_alone_waits_little_longer_than_under_pace(
        burst in 50..80u32, rate in 1..200u32, steps in schedule(150, 1),
    ) {
        let line = format!("burst={burst} rate={rate}/s max_delay=300s");
        let mut fair = Subject::new(&format!("{line} law=fair"));
        let mut pace = Subject::new(&format!("{line} law=pace"));
        for arrival in arrivals(&steps) {
            let arrival = Arrival { sharer: 7, ..arrival };
            let (fair, of_pace) = (fair.judge(arrival).verdict, pace.judge(arrival).verdict);
            let slots = |verdict: Verdict| verdict.wait().as_secs_f64() * f64::from(rate);
            prop_assert!(slots(fair) <= (slots(of_pace) + 8.0) * 4.0 / 3.0 + 2.01, "{:?}, {:?}", fair, of_pace);
        }
    }

    /// For any burst, a single source gets three of four slots while it waits.
    #[test]
    fn a_source_alone_gets_three_quarters_of_the_slots_at_least(
        burst in 1..20u32, rate in 1..200u32, steps in schedule(150, 1),
    ) {
        let mut subject = Subject::new(&format!("burst={burst} rate={rate}/s law=fair max_delay=300s"));
        let (mut began_ns, mut last_ns, mut taken) = (0, 0, 0);
        for arrival in arrivals(&steps) {
            let arrival = Arrival { sharer: 7, ..arrival };
            let now_ns = arrival.now.as_nanos();
            if last_ns <= now_ns {
                (began_ns, taken) = (now_ns, 0);
            }
            let wait_ns = subject.judge(arrival).verdict.wait().as_nanos() as u64;
            if wait_ns > 0 {
                taken += 1;
                last_ns = last_ns.max(now_ns + wait_ns);
                prop_assert!((last_ns - began_ns).div_ceil(subject.slot_ns()) <= (taken + 2) * 4 / 3);
            }
        }
    }

    /// A source that comes anew gets the first slot that is free: nobody would get an earlier one, and it waits at
    /// most for those that wait already, one slot for each. What is left to others is never left at its cost.
    #[test]
    fn who_comes_anew_gets_the_first_free_slot(burst in 1..6u32, steps in schedule(150, 1)) {
        let mut subject = Subject::new(&format!("burst={burst} rate=20/s law=fair"));
        let mut waiting: Vec<u64> = Vec::new();
        for arrival in arrivals(&steps) {
            let now_ns = arrival.now.as_nanos();
            waiting.retain(|&due_ns| due_ns > now_ns);
            let new = subject.would(Arrival { sharer: 99, ..arrival }).verdict;
            if new.is_let_through() {
                let wait_ns = new.wait().as_nanos() as u64;
                prop_assert!(wait_ns <= (waiting.len() as u64 + 1) * subject.slot_ns());
                for sharer in 0..4 {
                    let known = subject.would(Arrival { sharer, ..arrival }).verdict;
                    prop_assert!(!known.is_let_through() || known.wait() >= new.wait());
                }
            }
            let verdict = subject.judge(arrival).verdict;
            if verdict.is_let_through() {
                waiting.push((arrival.now + verdict.wait()).as_nanos());
            }
        }
    }

    /// Requests that are taken back free their slots, and no two requests leave in the same slot.
    #[test]
    fn a_slot_that_is_taken_back_is_dealt_out_again(
        burst in 1..6u32, steps in schedule(150, 1), rng in prop::collection::vec(0..4u8, 150),
    ) {
        let mut subject = Subject::new(&format!("burst={burst} rate=10/s law=fair"));
        let mut admissions = Admissions::default();
        for (arrival, rng) in arrivals(&steps).zip(rng) {
            let before = subject.clone();
            let verdict = subject.judge(arrival).verdict;
            match verdict {
                Verdict::Delay(wait) if rng == 0 => {
                    subject.take_back(1, arrival.now, arrival.now + wait);
                    // A source without waiting requests gets the same verdict as without the undone request.
                    let other = Arrival { sharer: 99, ..arrival };
                    prop_assert_eq!(subject.would(other).verdict, before.would(other).verdict);
                }
                verdict => drop(admissions.note(arrival, verdict)),
            }
        }
        let past = admissions.past_bucket(u64::from(burst), subject.slot_ns());
        prop_assert!(past.is_none(), "{:?}", past);
    }

    /// The foreseen verdict equals the real one, and foreseeing does not change the calendar.
    #[test]
    fn what_is_foreseen_is_not_booked(
        law in prop::sample::select(vec!["fair sources_max=3", "sliding-log"]), steps in schedule(150, 4),
    ) {
        let mut subject = Subject::new(&format!("burst=4 rate=10/s law={law}"));
        let mut other = subject.clone();
        for arrival in arrivals(&steps) {
            for cost in [1, 3] {
                let arrival = Arrival { cost, sharer: 2, ..arrival };
                let mut copy = other.entry;
                let foreseen = other.law.foresee(&mut copy, other.aux.as_mut(), &arrival);
                prop_assert_eq!(foreseen, other.would(arrival));
            }
            prop_assert_eq!(other.judge(arrival), subject.judge(arrival));
        }
    }
}

/// With a token that counts for nothing past its burst, a request of more than that is told when it will get through.
#[test]
fn a_request_that_wants_more_tokens_than_are_kept_is_not_told_to_wait_for_them() {
    let mut subject = Subject::new("burst=1 rate=335/m law=fair max_delay=1s");
    subject.ask_of(0, at_ms(0));
    subject.judge(Arrival { cost: 2, sharer: 3, ..Arrival::at(at_ms(21)) });
    subject.ask_of(0, at_ms(74));
    subject.ask_of(3, at_ms(74));
    subject.ask_of(3, at_ms(74));
    let arrival = Arrival { cost: 6, ..Arrival::at(at_ms(74)) };
    let later = std::time::Duration::from_secs(retry_after_s(subject.judge(arrival).verdict).into());
    assert!(subject.judge(Arrival { now: arrival.now + later, ..arrival }).verdict.is_let_through());
}

#[test]
fn a_source_too_many_is_judged_without_a_place_of_its_own_and_counted() {
    let mut subject = Subject::new("burst=1 rate=1/s law=fair sources_max=2");
    let ask = |sharer| subject.judge(Arrival { sharer, ..Arrival::at(at_ms(0)) });
    // The first takes the token and needs no place.
    let judged = [1, 1, 2, 3].map(ask);
    assert_eq!(judged.map(|one| one.fell_back), [false, false, false, true]);
    assert_eq!(judged[3].verdict.delay_ms(), 3_000);
}

#[test]
fn a_source_too_many_is_counted_too_if_it_is_denied() {
    let mut subject = Subject::new("burst=1 rate=1/s law=fair sources_max=2 max_delay=2s");
    let judged = [1, 1, 2, 3].map(|sharer| subject.judge(Arrival { sharer, ..Arrival::at(at_ms(0)) }));
    assert_eq!(judged.map(|one| one.verdict.is_let_through()), [true, true, true, false]);
    assert_eq!(judged.map(|one| one.fell_back), [false, false, false, true]);
}

#[test]
fn too_many_slots_within_the_longest_delay_are_refused() {
    assert!(Subject::parse("burst=1 rate=13107/s law=fair").is_ok());
    assert_eq!(
        Subject::parse("burst=1 rate=20000/s law=fair").unwrap_err(),
        "max_delay 5s: at 20000/s, it spans 100000 slots, but fair keeps at most 65536: shorten max_delay"
    );
}

#[test]
fn a_request_that_was_judged_without_a_calendar_is_taken_back_from_one_that_has_not_begun() {
    let mut subject = Subject::new("burst=1 rate=1/s law=fair");
    let empty = subject.aux.take();
    assert_eq!([subject.ask(at_ms(0)).delay_ms(), subject.ask(at_ms(0)).delay_ms()], [0, 1_000]);
    subject.aux = empty;
    subject.take_back(1, at_ms(0), at_ms(1_000));
    assert_eq!(subject.ask(at_ms(0)).delay_ms(), 1_000);
}

/// Four requests take the tokens, and two take slots. The ring has the current slot and 63 to come. While slots are
/// taken, the bucket holds three tokens at most.
#[test]
fn a_calendar_that_requests_cannot_have_made_is_not_sound() {
    let mut subject = Subject::new("burst=4 rate=10/s law=fair");
    assert!(subject.aux.as_ref().unwrap().is_sound(), "a new one");
    for _ in 0..6 {
        subject.ask(at_ms(0));
    }
    let made = serde_json::to_value(subject.aux.unwrap()).unwrap();
    let with = |place: &str, number: u64| {
        let mut changed = made.clone();
        *changed.pointer_mut(&format!("/Calendar/{place}")).unwrap() = number.into();
        serde_json::from_value::<AuxState>(changed).unwrap().is_sound()
    };
    for (place, number) in
        [("tokens_max", 4), ("clock/begun", 0), ("clock/taken", 2), ("clock/reach", 63), ("ring/0", 0b110)]
    {
        assert_eq!(made.pointer(&format!("/Calendar/{place}")), Some(&number.into()), "{place}");
    }
    assert!(with("clock/tokens", 3) && !with("clock/tokens", 4));
    assert!(with("clock/reach", 63) && !with("clock/reach", 64));
    assert!(!with("clock/taken", 1) && !with("clock/taken", 3));
    assert!(!with("slot_ns", 0) && !with("tokens_max", 0));
}
