//! The calendar of one bucket: its taken slots, and the next turn of each sharer.
//!
//! ```text
//! slots, 1/rate each:   … │ begun │ 1 │ 2 │ 3 │ 4 │ …         a ring of bits: is the slot taken?
//!                             ▲ now
//! tokens                  slots that began unused, at most a burst of them
//! sharer                  eligible: the first slot that it may take;  last: the last that it took
//! ```
//! A sharer is pending while one of its slots lies ahead. A request takes tokens and, if there are too few, the first
//! free slots from its sharer's `eligible` on. For each slot, `eligible` moves on by at least the number of pending
//! sharers, so a greedy sharer leaves slots in between to others. An untaken slot becomes a token for any sharer.
//!
//! A pending sharer leaves every fourth slot and some tokens free. Otherwise, the first sharer to arrive could book
//! every slot within the longest delay. Unused reserved slots become tokens, and a pending sharer may take these
//! tokens. A bucket of one token reserves nothing, because its token belongs to the current slot.

use serde::{Deserialize, Serialize};

/// Slots are stored as the bits of words of this size.
const WORD_BITS: u64 = 64;

/// The auxiliary state of `fair`. Times are in nanoseconds; slots are numbered from the calendar's beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calendar {
    slot_ns: u64,
    tokens_max: u32,
    clock: Clock,
    ring: Box<[u64]>,
    sharers: Vec<Sharer>,
}

/// The part of a calendar that advances with time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Clock {
    /// The time at which slot 0 begins.
    origin_ns: u64,
    /// The current slot.
    begun: u64,
    tokens: u32,
    /// The number of taken slots after `begun`.
    taken: u32,
    /// The last slot in the ring. No later slot is taken.
    reach: u64,
    /// Whether the bucket is full and no request waits. The calendar then equals a new calendar, which has no sharers.
    is_full: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Sharer {
    id: u64,
    eligible: u64,
    last: u64,
}

/// The numbers of an SLO that shape its calendar, which starts again if `slot_ns`, `tokens_max` or the ring changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) slot_ns: u64,
    pub(super) tokens_max: u32,
    /// How many slots can be taken ahead.
    pub(super) slots_max: u32,
    pub(super) sharers_max: u32,
}

impl Plan {
    fn words(&self) -> usize {
        // One more bit for the current slot, and another for the slot in which the longest delay ends.
        (self.slots_max as usize + 2).div_ceil(WORD_BITS as usize)
    }

    /// The maximum memory of a calendar with this plan, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.words() * size_of::<u64>()
            // A vector grows by doubling, starting at four.
            + (self.sharers_max as usize).next_power_of_two().max(4) * size_of::<Sharer>()
    }
}

/// A request for slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotRequest {
    pub(super) now_ns: u64,
    pub(super) cost: u32,
    pub(super) sharer: u64,
    /// The number of levels in the tree of sharers. Each level uses an equal part of the bits of a sharer's id.
    pub(super) levels: u32,
    pub(super) max_delay_ns: u64,
}

/// The outcome of a request for slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Booking {
    /// There are enough tokens.
    #[default]
    Now,
    /// The request waits for its last slot, which begins at this time.
    At(u64),
    /// The request's last slot would begin after the longest delay.
    TooLate,
}

/// A possible answer to a request: tokens, and the first `wanted` free slots from `from` on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Offer {
    pub(super) booking: Booking,
    /// The place of the request's sharer in the list. `None` if the list is full: `pace` then serves the request.
    pub(super) place: Option<SlotPlace>,
    tokens: u32,
    wanted: u32,
    /// Whether the sharer may take the reserved tokens and slots.
    is_kept_for: bool,
    from: u64,
    /// The slots that the sharer may take: in every word of the ring, the slots whose bits are set here.
    free: u64,
    /// The state of the sharer once the offer is booked.
    sharer: Sharer,
}

/// An index in the list of sharers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotPlace {
    At(usize),
    New,
    /// The request needs no place in the list.
    Any,
}

/// The slots that a pending sharer may take: three out of every four.
const OPEN: u64 = 0x7777_7777_7777_7777;

/// The slots for any other sharer.
const ALL: u64 = u64::MAX;

/// The maximum number of reserved tokens: enough for a few clients that arrive together. Collecting these tokens delays
/// an equal number of pending requests.
const KEPT_TOKENS_MAX: u32 = 8;

impl Calendar {
    /// Advances the calendar to `now_ns`. A calendar that was made for a different plan starts again, from a bucket
    /// whose debt is paid at `paid_at_ns`.
    pub(super) fn advance(&mut self, plan: &Plan, now_ns: u64, paid_at_ns: u64) {
        let is_same =
            (self.slot_ns, self.tokens_max, self.ring.len()) == (plan.slot_ns, plan.tokens_max, plan.words());
        // If the clock was set back by at most the longest delay, the calendar stands still; otherwise it starts again.
        let begun_at = self.start_ns(&self.clock, self.clock.begun);
        let ahead = begun_at.saturating_sub(now_ns) > plan.slot_ns.saturating_mul(u64::from(plan.slots_max));
        if !is_same || ahead {
            *self = Calendar::new(plan, now_ns, paid_at_ns);
        }
        let clock = self.clock_at(now_ns);
        if clock.is_full {
            self.sharers.clear();
        }
        if clock.taken == 0 {
            self.clear(self.clock.reach);
        } else {
            self.clear(clock.begun);
        }
        self.clock = Clock { reach: clock.begun + self.slots(), ..clock };
    }

    /// Frees the slots up to `last`, which have passed.
    fn clear(&mut self, last: u64) {
        if self.clock.taken > 0 {
            for (word, bits) in words(self.clock.begun + 1, last.min(self.clock.reach) + 1) {
                let word = self.place_of(word);
                self.ring[word] &= !bits;
            }
        }
    }

    /// The state of `pace` as a calendar: tokens for the time since `paid_at_ns`, or taken slots for a debt.
    fn new(plan: &Plan, now_ns: u64, paid_at_ns: u64) -> Calendar {
        let (slot_ns, tokens_max) = (plan.slot_ns, plan.tokens_max);
        let ring = vec![0; plan.words()].into_boxed_slice();
        let mut calendar = Calendar { slot_ns, tokens_max, ring, ..Calendar::default() };
        calendar.clock.reach = calendar.slots();
        match paid_at_ns.checked_sub(now_ns) {
            None | Some(0) => {
                let since = now_ns - paid_at_ns;
                calendar.clock.tokens = u32::try_from(since / slot_ns).unwrap_or(u32::MAX).min(tokens_max);
                calendar.clock.origin_ns = now_ns - since % slot_ns;
            }
            Some(debt) => {
                let slots = debt.div_ceil(slot_ns).min(u64::from(plan.slots_max));
                calendar.clock.origin_ns = paid_at_ns.saturating_sub(slots * slot_ns).min(now_ns);
                calendar.take(1, slots as u32, ALL);
            }
        }
        calendar
    }

    /// Makes an offer to a request, but does not book the offer.
    pub(super) fn offer(&self, request: &SlotRequest, sharers_max: u32) -> Offer {
        self.offer_at(&self.clock, request, sharers_max)
    }

    /// Whether the request would get its slots if it came again after `wait_ns` and no other request came first.
    pub(super) fn would_come_true(&self, request: &SlotRequest, wait_ns: u64, sharers_max: u32) -> bool {
        let later = SlotRequest { now_ns: request.now_ns.saturating_add(wait_ns), ..*request };
        self.offer_at(&self.clock_at(later.now_ns), &later, sharers_max).booking != Booking::TooLate
    }

    fn offer_at(&self, clock: &Clock, request: &SlotRequest, sharers_max: u32) -> Offer {
        // While no request waits, there is nothing to share.
        if clock.taken == 0 && request.cost <= clock.tokens {
            return Offer { tokens: request.cost, place: Some(SlotPlace::Any), ..Offer::default() };
        }
        let (place, own, others_pending) = self.place(clock, request.sharer, sharers_max);
        let next = clock.begun + 1;
        let from = own.eligible.max(next);
        let is_pending = own.last > clock.begun || place.is_none();
        let is_kept_for = clock.taken > 0 && !is_pending && from == next;
        let kept = if clock.taken == 0 || is_kept_for { 0 } else { self.kept_tokens() };
        let tokens = clock.tokens.saturating_sub(kept).min(request.cost);
        let wanted = request.cost - tokens;

        let latest_ns = request.now_ns.saturating_add(request.max_delay_ns).saturating_sub(clock.origin_ns);
        let end = (latest_ns / self.slot_ns).min(clock.begun + self.slots()) + 1;
        let free = if is_pending { self.open() } else { ALL };
        let last = self.nth_free(clock, from, end, wanted, free);
        let booking = match last {
            None => Booking::TooLate,
            Some(_) if wanted == 0 => Booking::Now,
            Some(last) => Booking::At(self.start_ns(clock, last)),
        };
        // A pending sharer lets the others go first.
        let yields = u64::from(is_pending && others_pending > 0);
        let turn = match request.levels {
            ..=1 => u64::from(others_pending) + 1 + yields,
            levels => {
                let pending = self.known(clock).iter().filter(|sharer| sharer.last > clock.begun);
                branches(pending.map(|sharer| sharer.id), request.sharer, levels)
            }
        };
        // Tokens count against a sharer's turn only if they were reserved for that sharer. In a tree, all tokens count:
        // otherwise the widest branches, which ask most often, would get most tokens.
        let charged = wanted + if is_kept_for || request.levels > 1 { tokens } else { 0 };
        let eligible = if charged == 0 { own.eligible } else { from + turn * u64::from(charged) };
        let last = if wanted == 0 { own.last } else { own.last.max(last.unwrap_or(0)) };
        let sharer = Sharer { id: own.id, eligible, last };
        Offer { booking, place, tokens, wanted, is_kept_for, from, free, sharer }
    }

    /// The numbers behind an offer, as text for an explanation.
    pub(super) fn explain(&self, offer: &Offer, request: &SlotRequest) -> String {
        let (clock, cost) = (&self.clock, request.cost);
        if offer.place == Some(SlotPlace::Any) {
            return format!("no queue; tokens {} >= cost {cost}", clock.tokens);
        }
        let kept = if clock.taken == 0 || offer.is_kept_for { 0 } else { self.kept_tokens() };
        let left = clock.tokens.saturating_sub(kept);
        let compared = if left < cost { "<" } else { ">=" };
        let (_, _, others) = self.place(clock, request.sharer, u32::MAX);
        let (taken, turn) = (clock.taken, offer.from.saturating_sub(clock.begun));
        format!(
            "tokens {} - {kept} kept for others = {left} {compared} cost {cost}; slots taken: {taken}, \
             other sources waiting: {others}, this source's turn: from slot {turn} on",
            clock.tokens
        )
    }

    /// Books an offer, unless it is too late.
    pub(super) fn take_up(&mut self, offer: &Offer) {
        if offer.booking == Booking::TooLate {
            return;
        }
        self.clock.tokens -= offer.tokens;
        self.take(offer.from, offer.wanted, offer.free);
        match offer.place {
            Some(SlotPlace::At(place)) => self.sharers[place] = offer.sharer,
            Some(SlotPlace::New) => self.sharers.push(offer.sharer),
            Some(SlotPlace::Any) | None => {}
        }
    }

    /// How many more requests of the same sharer would pass at once after an offer is booked.
    pub(super) fn remaining(&self, offer: &Offer) -> u32 {
        let (tokens, wanted) = match offer.booking {
            Booking::TooLate => (0, 0),
            Booking::Now | Booking::At(_) => (offer.tokens, offer.wanted),
        };
        let tokens = self.clock.tokens - tokens;
        let kept = if self.clock.taken + wanted == 0 { 0 } else { self.kept_tokens() };
        // A sharer that got nothing may still take the first of the reserved tokens.
        let first = offer.booking == Booking::TooLate && offer.is_kept_for;
        tokens.saturating_sub(kept).max(tokens.min(u32::from(first)))
    }

    /// Frees the future slots of a request that was to leave at `due_ns`, or later gives back the request's tokens.
    pub(super) fn free(&mut self, cost: u32, now_ns: u64, due_ns: u64) {
        if self.ring.is_empty() {
            // When the request arrived, there was no memory for the calendar.
            return;
        }
        if due_ns <= now_ns {
            let clock = &mut self.clock;
            clock.tokens = clock.tokens.saturating_add(cost).min(held_max(self.tokens_max, clock.taken));
            return;
        }
        let last = (due_ns.saturating_sub(self.clock.origin_ns) / self.slot_ns.max(1)).min(self.clock.reach);
        let mut left = cost;
        for (word, bits) in words(self.clock.begun + 1, last + 1).rev() {
            let freed = highest(self.taken(&self.clock, word) & bits, left);
            let place = self.place_of(word);
            self.ring[place] &= !freed;
            self.clock.taken -= freed.count_ones();
            left -= freed.count_ones();
            if left == 0 {
                return;
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.ring.len() * size_of::<u64>() + self.sharers.capacity() * size_of::<Sharer>()
    }

    /// The clock, moved on to a later moment. The slots up to that moment have passed, and each untaken slot has become
    /// a token if the bucket had room.
    fn clock_at(&self, now_ns: u64) -> Clock {
        let mut clock = self.clock;
        let now = (now_ns.saturating_sub(clock.origin_ns) / self.slot_ns).max(clock.begun);
        let mut next = clock.begun + 1;
        if clock.taken > 0 {
            let (over, last) = self.taken_before(&clock, now.min(clock.reach) + 1);
            self.gain(&mut clock, (last + 1 - next).saturating_sub(over.into()));
            clock.taken -= over;
            next = last + 1;
        }
        self.gain(&mut clock, (now + 1).saturating_sub(next));
        clock.begun = now;
        clock.is_full = clock.taken == 0 && clock.tokens == self.tokens_max;
        if clock.is_full {
            // A full bucket gains no more tokens: its next slot begins one slot after the first token is taken.
            (clock.begun, clock.reach, clock.origin_ns) = (0, 0, now_ns);
        }
        clock
    }

    fn gain(&self, clock: &mut Clock, slots: u64) {
        let tokens = u64::from(clock.tokens).saturating_add(slots);
        clock.tokens = tokens.min(u64::from(held_max(self.tokens_max, clock.taken))) as u32;
    }

    /// The index that a sharer has or could get, the sharer itself, and the number of other pending sharers.
    fn place(&self, clock: &Clock, id: u64, sharers_max: u32) -> (Option<SlotPlace>, Sharer, u32) {
        let (mut own, mut over, mut others_pending) = (None, None, 0);
        let known = self.known(clock);
        for (place, sharer) in known.iter().enumerate() {
            if sharer.id == id {
                own = Some((place, *sharer));
            } else if sharer.last > clock.begun {
                others_pending += 1;
            } else if over.is_none() && sharer.eligible <= clock.begun {
                over = Some(SlotPlace::At(place));
            }
        }
        if let Some((place, sharer)) = own {
            return (Some(SlotPlace::At(place)), sharer, others_pending);
        }
        let room = (known.len() < sharers_max as usize).then_some(SlotPlace::New);
        (over.or(room), Sharer { id, eligible: 0, last: 0 }, others_pending)
    }

    fn known(&self, clock: &Clock) -> &[Sharer] {
        if clock.is_full { &[] } else { &self.sharers }
    }

    fn start_ns(&self, clock: &Clock, slot: u64) -> u64 {
        clock.origin_ns.saturating_add(slot.saturating_mul(self.slot_ns))
    }

    /// The number of slots in the ring, not counting the current slot.
    fn slots(&self) -> u64 {
        self.ring.len() as u64 * WORD_BITS - 1
    }

    /// The index in the ring of a word of slots.
    fn place_of(&self, word: u64) -> usize {
        word as usize % self.ring.len()
    }

    /// The taken slots of a word. Slots beyond `reach` count as free: their place in the ring holds earlier slots.
    fn taken(&self, clock: &Clock, word: u64) -> u64 {
        match clock.reach.checked_sub(word * WORD_BITS) {
            None => 0,
            Some(last @ 0..63) => self.ring[self.place_of(word)] & ((2 << last) - 1),
            Some(_) => self.ring[self.place_of(word)],
        }
    }

    /// The number of taken slots from the current slot to `end`, and the last of them (or the current slot, if none).
    fn taken_before(&self, clock: &Clock, end: u64) -> (u32, u64) {
        let (mut count, mut last) = (0, clock.begun);
        for (word, bits) in words(clock.begun + 1, end) {
            let taken = self.taken(clock, word) & bits;
            if taken != 0 {
                count += taken.count_ones();
                last = word * WORD_BITS + u64::from(taken.ilog2());
            }
        }
        (count, last)
    }

    /// Takes the first `count` free slots from `from` on, among those whose bits are set in `free`.
    fn take(&mut self, from: u64, count: u32, free: u64) {
        let mut left = count;
        for (word, bits) in words(from, self.clock.reach + 1) {
            if left == 0 {
                break;
            }
            let taken = lowest(!self.taken(&self.clock, word) & free & bits, left);
            let place = self.place_of(word);
            self.ring[place] |= taken;
            left -= taken.count_ones();
        }
        debug_assert_eq!(left, 0, "an offer has as many free slots as it wants");
        self.clock.taken += count - left;
    }

    /// The number of tokens reserved for sharers that are not pending: at most half of what the bucket can hold.
    fn kept_tokens(&self) -> u32 {
        (held_max(self.tokens_max, 1) / 2).min(KEPT_TOKENS_MAX)
    }

    /// The slots that a pending sharer may take. Slots are reserved only if the bucket could hold them as tokens.
    fn open(&self) -> u64 {
        if held_max(self.tokens_max, 1) == 0 { ALL } else { OPEN }
    }

    /// The last of the first `count` free slots; 0 if `count` is 0. `None` if `from..end` has fewer.
    fn nth_free(&self, clock: &Clock, from: u64, end: u64, count: u32, free: u64) -> Option<u64> {
        let Some(mut before) = count.checked_sub(1) else { return Some(0) };
        for (word, bits) in words(from, end) {
            let found = !self.taken(clock, word) & free & bits;
            match before.checked_sub(found.count_ones()) {
                Some(left) => before = left,
                None => {
                    let nth = found & !lowest(found, before);
                    return Some(word * WORD_BITS + u64::from(nth.trailing_zeros()));
                }
            }
        }
        None
    }
}

/// The maximum number of tokens: one fewer while slots are taken, as a slot may begin just after the last token goes.
fn held_max(tokens_max: u32, taken: u32) -> u32 {
    if taken == 0 { tokens_max } else { tokens_max - 1 }
}

impl Calendar {
    /// The invariant: every taken slot lies ahead and is counted, and there are not too many tokens.
    pub(super) fn is_sound(&self) -> bool {
        let set: u32 = self.ring.iter().map(|word| word.count_ones()).sum();
        set == self.clock.taken && self.clock.tokens <= held_max(self.tokens_max, self.clock.taken)
    }

    /// Whether requests can have produced this calendar: it is empty, or its numbers agree with its ring.
    pub(super) fn is_whole(&self) -> bool {
        let Clock { begun, reach, taken, .. } = self.clock;
        let is_in_reach = || begun < u64::MAX / 2 && reach <= begun + self.slots();
        let is_counted = || self.is_sound() && self.taken_before(&self.clock, reach + 1).0 == taken;
        let is_filled = self.slot_ns > 0 && self.tokens_max > 0 && !self.ring.is_empty();
        *self == Calendar::default() || is_filled && is_in_reach() && is_counted()
    }
}

/// The words that contain the slots `from..end`, each with the bits that stand for these slots.
fn words(from: u64, end: u64) -> impl DoubleEndedIterator<Item = (u64, u64)> {
    let bits = move |word: u64| {
        let (first, next) = (word * WORD_BITS, (word + 1) * WORD_BITS);
        (u64::MAX << from.saturating_sub(first)) & (u64::MAX >> next.saturating_sub(end))
    };
    let words = if from < end { from / WORD_BITS..end.div_ceil(WORD_BITS) } else { 0..0 };
    words.map(move |word| (word, bits(word)))
}

/// The lowest `count` bits that are set in a word.
fn lowest(word: u64, count: u32) -> u64 {
    word & !(0..count.min(word.count_ones())).fold(word, |left, _| left & (left - 1))
}

/// The highest `count` bits that are set in a word.
fn highest(word: u64, count: u32) -> u64 {
    lowest(word.reverse_bits(), count).reverse_bits()
}

/// A sharer gets one slot in this many. At each level, the slots of a branch are shared between its sub-branches with
/// pending sharers and the sub-branch that contains this sharer. Each level uses an equal part of the bits of an id,
/// the outermost level first.
#[cold]
fn branches(pending: impl Iterator<Item = u64> + Clone, id: u64, levels: u32) -> u64 {
    let width = u64::BITS / levels;
    let at_level = |below: u32| {
        let own = id >> (below * width);
        let others = pending.clone().map(|other| other >> (below * width));
        let siblings = others.filter(|&other| other != own && other >> width == own >> width);
        1 + if below == 0 { siblings.count() as u64 } else { distinct(siblings) }
    };
    (0..levels).map(at_level).product()
}

/// Estimates the number of distinct hashes, up to a few hundred. The estimate may be slightly too low, because two
/// hashes may share a bit.
fn distinct(hashes: impl Iterator<Item = u64>) -> u64 {
    let mut bits = [0_u64; 64];
    hashes.for_each(|hash| bits[(hash >> 6 & 63) as usize] |= 1 << (hash & 63));
    bits.iter().map(|word| u64::from(word.count_ones())).sum()
}

#[cfg(test)]
#[path = "calendar/tests.rs"]
mod tests;
