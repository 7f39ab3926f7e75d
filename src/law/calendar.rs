//! The calendar of one bucket: its taken slots, and each sharer's next turn.
//!
//! ```text
//! slots, 1/rate each:   … │ begun │ 1 │ 2 │ 3 │ 4 │ …         a ring of bits: is the slot taken?
//!                             ▲ now
//! tokens                  slots that began unused, at most a burst of them
//! sharer                  eligible: the first slot that it may take;  last: the last that it took
//! ```
//! A sharer is pending while one of its slots lies ahead. A request takes tokens, or the first free slots from its
//! sharer's `eligible` on. Then `eligible` moves on by as many slots as there are pending sharers. So a greedy sharer
//! leaves the slots in between to the others. A slot that nobody takes becomes a token for any of them.
//!
//! A pending sharer leaves every fourth slot alone, and some tokens. Otherwise the first to come could book every slot
//! within the longest delay, and each new slot as it comes into sight. Nobody else would ever get one. Unused kept
//! slots become tokens, and a pending sharer may take those. So nothing is lost that the bucket has room for. A bucket
//! of one token keeps nothing: its token belongs to the current slot.

/// The annex of `fair`. Times are nanoseconds; slots are numbered from the calendar's beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calendar {
    slot_ns: u64,
    tokens_max: u32,
    tide: Tide,
    ring: Box<[u64]>,
    sharers: Vec<Sharer>,
}

/// The part that changes with time alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tide {
    /// The beginning of slot 0.
    origin_ns: u64,
    /// The current slot.
    begun: u64,
    tokens: u32,
    /// The number of taken slots after `begun`.
    taken: u32,
    /// The last slot in the ring. No slot beyond it is taken.
    reach: u64,
    /// The bucket is full and nobody waits: the calendar equals a new one, without sharers.
    is_full: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sharer {
    id: u64,
    eligible: u64,
    last: u64,
}

/// The numbers of an SLO. A calendar of another plan begins anew.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) slot_ns: u64,
    pub(super) tokens_max: u32,
    /// How many slots can be taken ahead.
    pub(super) slots_max: u32,
    pub(super) sharers_max: u32,
}

impl Plan {
    fn words(&self) -> usize {
        // Plus the current slot, and the slot in which the longest delay ends.
        (self.slots_max as usize + 2).div_ceil(WORD_BITS as usize)
    }

    /// The most memory that such a calendar takes.
    pub(super) fn bytes(&self) -> usize {
        self.words() * size_of::<u64>()
            // A vector grows by doubling, from four.
            + (self.sharers_max as usize).next_power_of_two().max(4) * size_of::<Sharer>()
    }
}

/// The wish of one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) now_ns: u64,
    pub(super) cost: u32,
    pub(super) sharer: u64,
    pub(super) max_delay_ns: u64,
}

/// The outcome of a wish.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Booking {
    /// There are enough tokens.
    #[default]
    Now,
    /// The beginning of its last slot.
    At(u64),
    /// Its last slot would begin after the longest delay.
    TooLate,
}

/// An answer to a wish: tokens, and the first `wanted` free slots from `from` on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Offer {
    pub(super) booking: Booking,
    /// Its sharer's place in the list. `None`: the list is full, and the request is served as under `pace`.
    pub(super) place: Option<Place>,
    tokens: u32,
    wanted: u32,
    /// Its sharer is one that tokens and slots are kept for.
    is_kept_for: bool,
    from: u64,
    /// The slots that it may take, as bits of a word.
    free: u64,
    /// The sharer after the offer is taken up.
    sharer: Sharer,
}

/// A place in the list of sharers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    At(usize),
    New,
    /// It needs no place.
    Any,
}

const WORD_BITS: u64 = 64;

/// The slots for a pending sharer: three of four.
const OPEN: u64 = 0x7777_7777_7777_7777;

/// The slots for any other sharer.
const ALL: u64 = u64::MAX;

/// Enough for a few clients that come together. Gathering these tokens holds back as many pending requests.
const KEPT_TOKENS_MAX: u32 = 8;

impl Calendar {
    /// Brings the calendar to `now`. One of another plan begins anew, from a bucket that is full at `full_at_ns`.
    pub(super) fn advance(&mut self, plan: &Plan, now_ns: u64, full_at_ns: u64) {
        let is_same =
            (self.slot_ns, self.tokens_max, self.ring.len()) == (plan.slot_ns, plan.tokens_max, plan.words());
        // After a small step back of the clock, wait. After one beyond the longest delay, begin anew.
        let begun_at = self.start_ns(&self.tide, self.tide.begun);
        let ahead = begun_at.saturating_sub(now_ns) > plan.slot_ns.saturating_mul(u64::from(plan.slots_max));
        if !is_same || ahead {
            *self = Calendar::new(plan, now_ns, full_at_ns);
        }
        let tide = self.tide_at(now_ns);
        if tide.is_full {
            self.sharers.clear();
        }
        if tide.taken == 0 {
            self.clear(self.tide.reach);
        } else {
            self.clear(tide.begun);
        }
        self.tide = Tide { reach: tide.begun + self.slots(), ..tide };
    }

    /// Frees the slots up to `last`: they are over.
    fn clear(&mut self, last: u64) {
        let mut left = self.tide.taken;
        let mut next = self.tide.begun + 1;
        while left > 0
            && let Some(slot) = self.next_taken(&self.tide, next, last + 1)
        {
            self.ring[self.word(slot)] &= !self.bit(slot);
            (left, next) = (left - 1, slot + 1);
        }
    }

    /// The state of `pace` as a calendar: tokens for the time since `full_at_ns`, taken slots for a debt.
    fn new(plan: &Plan, now_ns: u64, full_at_ns: u64) -> Calendar {
        let (slot_ns, tokens_max) = (plan.slot_ns, plan.tokens_max);
        let ring = vec![0; plan.words()].into_boxed_slice();
        let mut calendar = Calendar { slot_ns, tokens_max, ring, ..Calendar::default() };
        calendar.tide.reach = calendar.slots();
        match full_at_ns.checked_sub(now_ns) {
            None | Some(0) => {
                let since = now_ns - full_at_ns;
                calendar.tide.tokens = u32::try_from(since / slot_ns).unwrap_or(u32::MAX).min(tokens_max);
                calendar.tide.origin_ns = now_ns - since % slot_ns;
            }
            Some(owed) => {
                let slots = owed.div_ceil(slot_ns).min(u64::from(plan.slots_max));
                calendar.tide.origin_ns = full_at_ns.saturating_sub(slots * slot_ns).min(now_ns);
                (1..=slots).for_each(|slot| calendar.take(slot));
            }
        }
        calendar
    }

    /// The offer to a request.
    pub(super) fn offer(&self, wish: &Wish, sharers_max: u32) -> Offer {
        self.offer_at(&self.tide, wish, sharers_max)
    }

    /// Whether the same wish would come true after `wait_ns`, if nobody else came.
    pub(super) fn would_come_true(&self, wish: &Wish, wait_ns: u64, sharers_max: u32) -> bool {
        let later = Wish { now_ns: wish.now_ns.saturating_add(wait_ns), ..*wish };
        self.offer_at(&self.tide_at(later.now_ns), &later, sharers_max).booking != Booking::TooLate
    }

    fn offer_at(&self, tide: &Tide, wish: &Wish, sharers_max: u32) -> Offer {
        // While nobody waits, there is nothing to share.
        if tide.taken == 0 && wish.cost <= tide.tokens {
            return Offer { tokens: wish.cost, place: Some(Place::Any), ..Offer::default() };
        }
        let (place, own, others_pending) = self.place(tide, wish.sharer, sharers_max);
        let next = tide.begun + 1;
        let from = own.eligible.max(next);
        let is_pending = own.last > tide.begun || place.is_none();
        let is_kept_for = tide.taken > 0 && !is_pending && from == next;
        let kept = if tide.taken == 0 || is_kept_for { 0 } else { self.kept_tokens() };
        let tokens = tide.tokens.saturating_sub(kept).min(wish.cost);
        let wanted = wish.cost - tokens;

        let latest_ns = wish.now_ns.saturating_add(wish.max_delay_ns).saturating_sub(tide.origin_ns);
        let end = (latest_ns / self.slot_ns).min(tide.begun + self.slots()) + 1;
        let free = if is_pending { self.open() } else { ALL };
        let last = self.nth_free(tide, from, end, wanted, free);
        let booking = match last {
            None => Booking::TooLate,
            Some(_) if wanted == 0 => Booking::Now,
            Some(last) => Booking::At(self.start_ns(tide, last)),
        };
        // A pending sharer lets the others go first.
        let yields = u64::from(is_pending && others_pending > 0);
        let turn = u64::from(others_pending) + 1 + yields;
        // Tokens use up its turn only if they were kept for it.
        let charged = wanted + if is_kept_for { tokens } else { 0 };
        let eligible = if charged == 0 { own.eligible } else { from + turn * u64::from(charged) };
        let last = if wanted == 0 { own.last } else { own.last.max(last.unwrap_or(0)) };
        let sharer = Sharer { id: own.id, eligible, last };
        Offer { booking, place, tokens, wanted, is_kept_for, from, free, sharer }
    }

    /// The numbers behind an offer.
    pub(super) fn explain(&self, offer: &Offer, wish: &Wish) -> String {
        let (tide, cost) = (&self.tide, wish.cost);
        if offer.place == Some(Place::Any) {
            return format!("nobody waits; tokens {} >= cost {cost}", tide.tokens);
        }
        let kept = if tide.taken == 0 || offer.is_kept_for { 0 } else { self.kept_tokens() };
        let left = tide.tokens.saturating_sub(kept);
        let compared = if left < cost { "<" } else { ">=" };
        let (_, _, others) = self.place(tide, wish.sharer, u32::MAX);
        let (taken, turn) = (tide.taken, offer.from.saturating_sub(tide.begun));
        format!(
            "tokens {} - {kept} kept for others = {left} {compared} cost {cost}; slots taken: {taken}, other sources \
             waiting: {others}, its turn: from slot {turn} on",
            tide.tokens
        )
    }

    /// Books an offer, unless it is too late.
    pub(super) fn take_up(&mut self, offer: &Offer) {
        if offer.booking == Booking::TooLate {
            return;
        }
        self.tide.tokens -= offer.tokens;
        let mut slot = offer.from;
        for _ in 0..offer.wanted {
            slot = self.next_free(&self.tide, slot, u64::MAX, offer.free).expect("they were found before");
            self.take(slot);
        }
        match offer.place {
            Some(Place::At(place)) => self.sharers[place] = offer.sharer,
            Some(Place::New) => self.sharers.push(offer.sharer),
            Some(Place::Any) | None => {}
        }
    }

    /// How many requests of the same sharer would still pass at once, after an offer is taken up.
    pub(super) fn remaining(&self, offer: &Offer) -> u32 {
        let (tokens, wanted) = match offer.booking {
            Booking::TooLate => (0, 0),
            Booking::Now | Booking::At(_) => (offer.tokens, offer.wanted),
        };
        let tokens = self.tide.tokens - tokens;
        let kept = if self.tide.taken + wanted == 0 { 0 } else { self.kept_tokens() };
        // A sharer that got nothing may still take the first of the kept tokens.
        let first = offer.booking == Booking::TooLate && offer.is_kept_for;
        tokens.saturating_sub(kept).max(tokens.min(u32::from(first)))
    }

    /// Frees the slots of a request that was to leave at `due_ns`, if they lie ahead.
    pub(super) fn free(&mut self, cost: u32, now_ns: u64, due_ns: u64) {
        if self.ring.is_empty() {
            // There was no memory for the calendar when the request came.
            return;
        }
        if due_ns <= now_ns {
            let tide = &mut self.tide;
            tide.tokens = tide.tokens.saturating_add(cost).min(held_max(self.tokens_max, tide.taken));
            return;
        }
        let mut slot = due_ns.saturating_sub(self.tide.origin_ns) / self.slot_ns.max(1);
        let mut freed = 0;
        slot = slot.min(self.tide.begun + self.slots());
        while freed < cost && slot > self.tide.begun {
            if self.is_taken(slot) {
                self.ring[self.word(slot)] &= !self.bit(slot);
                self.tide.taken -= 1;
                freed += 1;
            }
            slot -= 1;
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.ring.len() * size_of::<u64>() + self.sharers.capacity() * size_of::<Sharer>()
    }

    /// The tide at a later moment. Taken slots are over by then; each other slot has become a token.
    fn tide_at(&self, now_ns: u64) -> Tide {
        let mut tide = self.tide;
        let now = (now_ns.saturating_sub(tide.origin_ns) / self.slot_ns).max(tide.begun);
        let end = now.min(tide.reach) + 1;
        let mut next = tide.begun + 1;
        while tide.taken > 0
            && let Some(slot) = self.next_taken(&tide, next, end)
        {
            self.gain(&mut tide, slot - next);
            tide.taken -= 1;
            next = slot + 1;
        }
        self.gain(&mut tide, (now + 1).saturating_sub(next));
        tide.begun = now;
        tide.is_full = tide.taken == 0 && tide.tokens == self.tokens_max;
        if tide.is_full {
            // A full bucket fills no further: its next slot begins one slot after the first token goes.
            (tide.begun, tide.reach, tide.origin_ns) = (0, 0, now_ns);
        }
        tide
    }

    fn gain(&self, tide: &mut Tide, slots: u64) {
        let tokens = u64::from(tide.tokens).saturating_add(slots);
        tide.tokens = tokens.min(u64::from(held_max(self.tokens_max, tide.taken))) as u32;
    }

    /// A sharer's place or its possible place, the sharer itself, and the number of other pending sharers.
    fn place(&self, tide: &Tide, id: u64, sharers_max: u32) -> (Option<Place>, Sharer, u32) {
        let (mut own, mut over, mut others_pending) = (None, None, 0);
        let known = if tide.is_full { &[] } else { self.sharers.as_slice() };
        for (place, sharer) in known.iter().enumerate() {
            if sharer.id == id {
                own = Some((place, *sharer));
            } else if sharer.last > tide.begun {
                others_pending += 1;
            } else if over.is_none() && sharer.eligible <= tide.begun {
                over = Some(Place::At(place));
            }
        }
        if let Some((place, sharer)) = own {
            return (Some(Place::At(place)), sharer, others_pending);
        }
        let room = (known.len() < sharers_max as usize).then_some(Place::New);
        (over.or(room), Sharer { id, eligible: 0, last: 0 }, others_pending)
    }

    fn start_ns(&self, tide: &Tide, slot: u64) -> u64 {
        tide.origin_ns.saturating_add(slot.saturating_mul(self.slot_ns))
    }

    /// The number of slots in the ring, without the current one.
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
        self.tide.taken += 1;
    }

    /// The number of tokens kept for sharers that are not pending. The bucket can always hold one more.
    fn kept_tokens(&self) -> u32 {
        (held_max(self.tokens_max, 1) / 2).min(KEPT_TOKENS_MAX)
    }

    /// The slots that a pending sharer may take. The others must fit among the tokens.
    fn open(&self) -> u64 {
        if held_max(self.tokens_max, 1) == 0 { ALL } else { OPEN }
    }

    fn next_taken(&self, tide: &Tide, from: u64, end: u64) -> Option<u64> {
        self.next(tide, from, end, |word| word)
    }

    fn next_free(&self, tide: &Tide, from: u64, end: u64, free: u64) -> Option<u64> {
        self.next(tide, from, end, |word| !word & free)
    }

    /// The first slot in `from..end` whose bit is set in `wanted(word)`.
    fn next(&self, tide: &Tide, from: u64, end: u64, wanted: impl Fn(u64) -> u64) -> Option<u64> {
        let mut slot = from;
        while slot < end {
            let word = if slot > tide.reach { 0 } else { self.ring[self.word(slot)] };
            let ahead = wanted(word) >> (slot % WORD_BITS);
            if ahead != 0 {
                let found = slot + u64::from(ahead.trailing_zeros());
                return (found < end).then_some(found);
            }
            slot = (slot / WORD_BITS + 1) * WORD_BITS;
        }
        None
    }

    /// The last of the first `count` free slots; 0 if `count` is 0.
    fn nth_free(&self, tide: &Tide, from: u64, end: u64, count: u32, free: u64) -> Option<u64> {
        let (mut slot, mut next) = (0, from);
        for _ in 0..count {
            slot = self.next_free(tide, next, end, free)?;
            next = slot + 1;
        }
        Some(slot)
    }
}

/// The most tokens. While slots are taken it is one fewer: a slot may begin just after the last token went.
fn held_max(tokens_max: u32, taken: u32) -> u32 {
    if taken == 0 { tokens_max } else { tokens_max - 1 }
}

impl Calendar {
    /// The invariant: every taken slot lies ahead and is counted, and there are not too many tokens.
    pub(super) fn is_sound(&self) -> bool {
        let set: u32 = self.ring.iter().map(|word| word.count_ones()).sum();
        set == self.tide.taken && self.tide.tokens <= held_max(self.tokens_max, self.tide.taken)
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
        let offer = calendar.offer(&wish, PLAN.sharers_max);
        calendar.take_up(&offer);
        assert!(calendar.is_sound());
        assert!(offer.place.is_some());
        offer.booking
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
}
