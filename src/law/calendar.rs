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
            // A vector grows by doubling, from four.
            + (self.sharers_max as usize).next_power_of_two().max(4) * size_of::<Sharer>()
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
    /// Nothing is taken. Its slot would begin so much later than it may.
    TooLate(u64),
}

const WORD_BITS: u64 = 64;

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

    /// Books the slots of a request, or only tells which it would get.
    pub(super) fn book(&mut self, wish: &Wish, sharers_max: u32, is_kept: bool) -> (Booking, bool) {
        let wanted = wish.cost.saturating_sub(self.tokens);
        if wanted == 0 {
            self.tokens -= if is_kept { wish.cost } else { 0 };
            return (Booking::Now, true);
        }
        let (own, others_pending) = self.place(wish.sharer, sharers_max);
        let next = self.begun + 1;
        let from = own.map_or(next, |own| self.sharers[own].eligible.max(next));
        let latest_ns = wish.now_ns.saturating_add(wish.max_delay_ns).saturating_sub(self.origin_ns);
        let end = (latest_ns / self.slot_ns).min(self.begun + self.slots()) + 1;
        let Some(last) = self.nth_free(from, end, wanted) else {
            let late_ns = self.late_ns(wish, from, wanted).max(1);
            return (Booking::TooLate(late_ns), own.is_some());
        };
        if is_kept {
            self.tokens = 0;
            self.take_free(from, wanted);
        }
        if let Some(own) = own.filter(|_| is_kept) {
            let sharer = &mut self.sharers[own];
            // One that has slots ahead already lets the others go first where they meet.
            let yields = u64::from(others_pending > 0 && sharer.last > self.begun);
            let turn = u64::from(others_pending) + 1 + yields;
            sharer.eligible = from + turn * u64::from(wanted);
            sharer.last = sharer.last.max(last);
        }
        (Booking::At(self.origin_ns.saturating_add(last.saturating_mul(self.slot_ns))), own.is_some())
    }

    /// After so long the free slots that a request wants come near enough; what passes until then may be lost.
    fn late_ns(&self, wish: &Wish, from: u64, wanted: u32) -> u64 {
        let near = (wish.max_delay_ns / self.slot_ns).max(1);
        let due_ns = |slot: u64| self.origin_ns.saturating_add(slot.saturating_mul(self.slot_ns));
        let until = |moment_ns: u64| moment_ns.saturating_sub(wish.now_ns);
        if u64::from(wanted) <= near {
            return until(due_ns(self.nearest(from, wanted, near)).saturating_sub(wish.max_delay_ns));
        }
        // It wants a full bucket as well, and that fills when every slot that is taken is over.
        let (mut full, end) = (self.begun, self.begun + self.slots() + 1);
        while let Some(slot) = self.next_taken(full + 1, end) {
            full = slot;
        }
        full += u64::from(self.tokens_max);
        let rest = wish.cost.saturating_sub(self.tokens_max).max(1);
        let last = self.nearest(from.max(full + 1), rest, u64::MAX);
        until(due_ns(full)).max(until(due_ns(last).saturating_sub(wish.max_delay_ns)))
    }

    /// The last of so many free slots, the first that lie this near to each other.
    fn nearest(&self, from: u64, wanted: u32, near: u64) -> u64 {
        let free = |slot: u64| {
            let end = self.begun + self.slots() + 1;
            if slot < end { self.next_free(slot, end).unwrap_or(end) } else { slot }
        };
        let (mut first, mut last) = (free(from), free(from));
        (1..wanted).for_each(|_| last = free(last + 1));
        while last - first >= near {
            (first, last) = (free(first + 1), free(last + 1));
        }
        last
    }

    /// When the slots that nobody has taken have made tokens enough for a request of this cost.
    pub(super) fn tokens_at(&self, cost: u32) -> Option<u64> {
        let is_kept = cost <= self.tokens_held_max();
        let wanted = cost.saturating_sub(self.tokens);
        let slot = self.nth_free(self.begun + 1, self.begun + self.slots() + 1, wanted)?;
        is_kept.then(|| self.origin_ns.saturating_add(slot.saturating_mul(self.slot_ns)))
    }

    pub(super) fn tokens(&self) -> u32 {
        self.tokens
    }

    /// Frees the last slots of a request that was to leave at `due_ns`, as far as they lie ahead.
    pub(super) fn free(&mut self, cost: u32, now_ns: u64, due_ns: u64) {
        if self.ring.is_empty() {
            // There was no room for it when the request came.
            return;
        }
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

    fn next_taken(&self, from: u64, end: u64) -> Option<u64> {
        self.next(from, end, |word| word)
    }

    fn next_free(&self, from: u64, end: u64) -> Option<u64> {
        self.next(from, end, |word| !word)
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

    fn nth_free(&self, from: u64, end: u64, nth: u32) -> Option<u64> {
        let mut slot = self.next_free(from, end)?;
        for _ in 1..nth {
            slot = self.next_free(slot + 1, end)?;
        }
        Some(slot)
    }

    fn take_free(&mut self, from: u64, count: u32) {
        let mut slot = from;
        for _ in 0..count {
            slot = self.next_free(slot, u64::MAX).expect("they were found before");
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
        assert!(self.tokens <= self.tokens_max);
    }
}
