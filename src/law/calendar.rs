//! The calendar of one bucket: which of its coming slots are taken, and when each sharer may take its next.
//!
//! ```text
//! slots, 1/rate each:   … │ begun │ 1 │ 2 │ 3 │ 4 │ …         a ring of bits: is the slot taken?
//!                             ▲ now
//! tokens                  slots that began and nobody had taken, a burst of them at most
//! sharer                  eligible: the slot from which on it may take one;  last: the last that it took
//! ```
//! A sharer is pending while a slot of its lies ahead. A request takes tokens, or the first free slots from its
//! sharer's `eligible` on, which then moves on by as many slots as there are sharers pending. So a greedy sharer
//! leaves the slots in between to the others, and what nobody takes becomes a token for whoever comes.
//!
//! A pending sharer leaves every fourth slot alone, and some tokens. Otherwise one that comes first could book all there
//! is within the longest delay, and each slot more as it comes into sight, and nobody else would ever get
//! one. What is kept like that and not wanted becomes tokens, which a pending sharer may take: nothing is lost.

/// The slots of one bucket; times are nanoseconds, slots are numbered from when the calendar began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calendar {
    slot_ns: u64,
    tokens_max: u32,
    /// When slot 0 began, or would have.
    origin_ns: u64,
    /// The last slot that has begun.
    begun: u64,
    tokens: u32,
    /// How many slots after `begun` are taken.
    taken: u32,
    ring: Box<[u64]>,
    sharers: Vec<Sharer>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sharer {
    id: u64,
    eligible: u64,
    last: u64,
}

/// What a calendar is made for; another one begins anew.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) slot_ns: u64,
    pub(super) tokens_max: u32,
    /// How many slots ahead can be taken.
    pub(super) slots_max: u32,
    pub(super) sharers_max: u32,
}

impl Plan {
    fn words(&self) -> usize {
        // The slot that is under way, and one that the longest delay ends in.
        (self.slots_max as usize + 2).div_ceil(WORD_BITS as usize)
    }

    /// The most that a calendar of it takes up.
    pub(super) fn bytes(&self) -> usize {
        self.words() * size_of::<u64>()
            + (self.sharers_max as usize).next_power_of_two() * size_of::<Sharer>()
    }
}

/// One request's wish.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) now_ns: u64,
    pub(super) cost: u32,
    pub(super) sharer: u64,
    pub(super) max_delay_ns: u64,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Booking {
    /// There were tokens enough.
    Now,
    /// Its last slot begins then.
    At(u64),
    /// Nothing is taken: its last slot would begin later than it may.
    TooLate,
}

const WORD_BITS: u64 = 64;

/// The slots that one with slots ahead may take: three of four.
const OPEN: u64 = 0x7777_7777_7777_7777;

/// The slots that one with nothing ahead may take.
const ALL: u64 = u64::MAX;

/// Enough for some clients that come together; while they gather, that much of the rate is held back.
const KEPT_TOKENS_MAX: u32 = 8;

impl Calendar {
    /// Brings it to `now`; begins anew where it is not of this plan, from a bucket that is full at `full_at_ns`.
    pub(super) fn advance(&mut self, plan: &Plan, now_ns: u64, full_at_ns: u64) {
        let is_same =
            (self.slot_ns, self.tokens_max, self.ring.len()) == (plan.slot_ns, plan.tokens_max, plan.words());
        // A clock that went back a little is waited for; one that went back further than a delay starts it over.
        let begun_at = self.origin_ns.saturating_add(self.begun.saturating_mul(self.slot_ns));
        let ahead = begun_at.saturating_sub(now_ns) > plan.slot_ns.saturating_mul(u64::from(plan.slots_max));
        if !is_same || ahead {
            *self = Calendar::new(plan, now_ns, full_at_ns);
        }
        self.pass((now_ns.saturating_sub(self.origin_ns) / self.slot_ns).max(self.begun));
        if self.taken == 0 && self.tokens == self.tokens_max {
            // A full bucket fills no further: its next slot begins one slot after the first token goes.
            self.origin_ns =
                now_ns.saturating_sub(self.begun.saturating_mul(self.slot_ns)).max(self.origin_ns);
        }
    }

    /// As the bucket of `pace` would be: tokens for what has passed since it was full, slots taken for what it owes.
    fn new(plan: &Plan, now_ns: u64, full_at_ns: u64) -> Calendar {
        let (slot_ns, tokens_max) = (plan.slot_ns, plan.tokens_max);
        let ring = vec![0; plan.words()].into_boxed_slice();
        let mut calendar = Calendar { slot_ns, tokens_max, ring, ..Calendar::default() };
        match full_at_ns.checked_sub(now_ns) {
            None | Some(0) => {
                let since = now_ns - full_at_ns;
                calendar.tokens = u32::try_from(since / slot_ns).unwrap_or(u32::MAX).min(tokens_max);
                calendar.origin_ns = now_ns - since % slot_ns;
            }
            Some(owed) => {
                let slots = owed.div_ceil(slot_ns).min(u64::from(plan.slots_max));
                calendar.origin_ns = full_at_ns.saturating_sub(slots * slot_ns).min(now_ns);
                (1..=slots).for_each(|slot| calendar.take(slot));
            }
        }
        calendar
    }

    /// Books the slots of a request. False: there was no place for its sharer among the others.
    pub(super) fn book(&mut self, wish: &Wish, sharers_max: u32) -> (Booking, bool) {
        // While nobody waits there is nothing to share.
        if self.taken == 0 && wish.cost <= self.tokens {
            self.tokens -= wish.cost;
            return (Booking::Now, true);
        }
        let (own, others_pending) = self.place(wish.sharer, sharers_max);
        let next = self.begun + 1;
        let from = own.map_or(next, |own| self.sharers[own].eligible.max(next));
        let is_pending = own.is_none_or(|own| self.sharers[own].last > self.begun);
        let is_kept_for = self.taken == 0 || (!is_pending && from == next);
        let tokens = if is_kept_for { self.tokens } else { self.tokens.saturating_sub(self.kept_tokens()) };
        let wanted = wish.cost - wish.cost.min(tokens);

        let latest_ns = wish.now_ns.saturating_add(wish.max_delay_ns).saturating_sub(self.origin_ns);
        let end = (latest_ns / self.slot_ns).min(self.begun + self.slots()) + 1;
        let free = if is_pending { OPEN } else { ALL };
        let Some(last) = self.nth_free(from, end, wanted, free) else {
            return (Booking::TooLate, own.is_some());
        };
        self.tokens -= wish.cost - wanted;
        self.take_free(from, wanted, free);
        if let Some(own) = own {
            // One that has slots ahead already lets the others go first where they meet.
            let yields = u64::from(is_pending && others_pending > 0);
            let turn = u64::from(others_pending) + 1 + yields;
            let sharer = &mut self.sharers[own];
            sharer.eligible = from + turn * u64::from(wish.cost);
            sharer.last = sharer.last.max(last);
        }
        match wanted {
            0 => (Booking::Now, own.is_some()),
            _ => {
                (Booking::At(self.origin_ns.saturating_add(last.saturating_mul(self.slot_ns))), own.is_some())
            }
        }
    }

    pub(super) fn tokens(&self) -> u32 {
        self.tokens
    }

    /// Frees the last slots of a request that was to leave at `due_ns`, as far as they lie ahead.
    pub(super) fn free(&mut self, cost: u32, now_ns: u64, due_ns: u64) {
        if due_ns <= now_ns {
            self.tokens = self.tokens.saturating_add(cost).min(self.tokens_held_max());
            return;
        }
        let mut slot = due_ns.saturating_sub(self.origin_ns) / self.slot_ns.max(1);
        let mut freed = 0;
        slot = slot.min(self.begun + self.slots());
        while freed < cost && slot > self.begun {
            if self.is_taken(slot) {
                self.ring[self.word(slot)] &= !self.bit(slot);
                self.taken -= 1;
                freed += 1;
            }
            slot -= 1;
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.ring.len() * size_of::<u64>() + self.sharers.capacity() * size_of::<Sharer>()
    }

    /// With slots taken, one of them may begin in the moment after the last token went.
    fn tokens_held_max(&self) -> u32 {
        if self.taken == 0 { self.tokens_max } else { self.tokens_max - 1 }
    }

    /// Slots up to this one begin: the taken are over, and each other is a token.
    fn pass(&mut self, now: u64) {
        let end = now.min(self.begun + self.slots()) + 1;
        let mut next = self.begun + 1;
        while let Some(slot) = self.next_taken(next, end) {
            self.gain(slot - next);
            self.ring[self.word(slot)] &= !self.bit(slot);
            self.taken -= 1;
            next = slot + 1;
        }
        self.gain((now + 1).saturating_sub(next));
        self.begun = now;
    }

    fn gain(&mut self, slots: u64) {
        let tokens = u64::from(self.tokens).saturating_add(slots);
        self.tokens = tokens.min(u64::from(self.tokens_held_max())) as u32;
    }

    /// Where a sharer stands, entered if there is room for it, and how many others are pending.
    fn place(&mut self, id: u64, sharers_max: u32) -> (Option<usize>, u32) {
        let (mut own, mut over, mut others_pending) = (None, None, 0);
        for (place, sharer) in self.sharers.iter().enumerate() {
            if sharer.id == id {
                own = Some(place);
            } else if sharer.last > self.begun {
                others_pending += 1;
            } else if over.is_none() && sharer.eligible <= self.begun {
                over = Some(place);
            }
        }
        if own.is_none() {
            let fresh = Sharer { id, eligible: 0, last: 0 };
            match over {
                Some(place) => self.sharers[place] = fresh,
                None if self.sharers.len() < sharers_max as usize => self.sharers.push(fresh),
                None => return (None, others_pending),
            }
            own = over.or(Some(self.sharers.len() - 1));
        }
        (own, others_pending)
    }

    /// The slots that the ring has beside the one under way.
    fn slots(&self) -> u64 {
        self.ring.len() as u64 * WORD_BITS - 1
    }

    fn word(&self, slot: u64) -> usize {
        (slot / WORD_BITS) as usize % self.ring.len()
    }

    fn bit(&self, slot: u64) -> u64 {
        1 << (slot % WORD_BITS)
    }

    fn is_taken(&self, slot: u64) -> bool {
        self.ring[self.word(slot)] & self.bit(slot) != 0
    }

    fn take(&mut self, slot: u64) {
        self.ring[self.word(slot)] |= self.bit(slot);
        self.taken += 1;
    }

    /// As many of the tokens are for those who have nothing waiting.
    fn kept_tokens(&self) -> u32 {
        (self.tokens_max / 2).min(KEPT_TOKENS_MAX)
    }

    fn next_taken(&self, from: u64, end: u64) -> Option<u64> {
        self.next(from, end, |word| word)
    }

    fn next_free(&self, from: u64, end: u64, free: u64) -> Option<u64> {
        self.next(from, end, |word| !word & free)
    }

    /// The first slot from `from` to before `end` whose bit is set in what `wanted` makes of its word.
    fn next(&self, from: u64, end: u64, wanted: impl Fn(u64) -> u64) -> Option<u64> {
        let mut slot = from;
        while slot < end {
            let ahead = wanted(self.ring[self.word(slot)]) >> (slot % WORD_BITS);
            if ahead != 0 {
                let found = slot + u64::from(ahead.trailing_zeros());
                return (found < end).then_some(found);
            }
            slot = (slot / WORD_BITS + 1) * WORD_BITS;
        }
        None
    }

    /// The last of so many free slots; of none the one that is under way.
    fn nth_free(&self, from: u64, end: u64, count: u32, free: u64) -> Option<u64> {
        let mut slot = self.begun;
        let mut next = from;
        for _ in 0..count {
            slot = self.next_free(next, end, free)?;
            next = slot + 1;
        }
        Some(slot)
    }

    fn take_free(&mut self, from: u64, count: u32, free: u64) {
        let mut slot = from;
        for _ in 0..count {
            slot = self.next_free(slot, u64::MAX, free).expect("they were found before");
            self.take(slot);
        }
    }
}

#[cfg(debug_assertions)]
impl Calendar {
    /// What is always true of it.
    pub(super) fn check(&self) {
        let set: u32 = self.ring.iter().map(|word| word.count_ones()).sum();
        assert_eq!(set, self.taken, "every taken slot lies ahead, and is counted");
        assert!(self.tokens <= self.tokens_held_max());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// 50/s with a burst of 100, five seconds ahead.
    const PLAN: Plan = Plan { slot_ns: 20 * MS, tokens_max: 100, slots_max: 250, sharers_max: 8 };

    fn ask(calendar: &mut Calendar, sharer: u64, ms: u64) -> Booking {
        let wish = Wish { now_ns: ms * MS, cost: 1, sharer, max_delay_ns: 5_000 * MS };
        calendar.advance(&PLAN, wish.now_ns, 0);
        let (booking, has_place) = calendar.book(&wish, PLAN.sharers_max);
        calendar.check();
        assert!(has_place);
        booking
    }

    #[test]
    fn one_who_comes_late_is_not_starved_by_one_who_books_all_there_is() {
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
        // The burst, 50/s, and what is booked for the next five seconds; but for what the other had, and what is kept.
        let most = 100 + 30 * 50 + 250;
        assert!((most - 50 - 64 - 8..=most).contains(&passed), "{passed} of {most}");
    }
}
