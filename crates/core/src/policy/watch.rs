//! The fields that requests lack, or whose values cannot be used.

use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError, TryLockError};

use crate::base::Value;
use crate::policy::classify::{announcement, read_cost};
use crate::policy::{PLACES_MAX, Place, Text, Values};

/// The maximum number of bytes of a value that are kept as an example: 64, plus one to show that the value was longer.
pub(super) const EXAMPLE_BYTES: usize = 65;

const _: () = assert!(PLACES_MAX <= u64::BITS as usize, "a bit for each place");

/// Watches the fields of a policy for faults. While no field has a fault, checking a batch costs one read of one word.
///
/// ```text
/// a value cannot be used   ─▶ suspects │ the field is watched: every batch is examined, and faults are counted
/// a second without a fault ─▶ calm     │ the field is no longer watched
/// ```
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The fields to examine in each batch, one bit for each place.
    watched: AtomicU64,
    /// The needed fields that no request has carried yet.
    missing: AtomicU64,
    /// The fields that recently had a fault. All of them are watched.
    suspects: AtomicU64,
    /// The fields whose faults matter: those that the policy needs and, under a limit, the cost and announced work.
    needed: AtomicU64,
    /// The fields that every limit needs. A request that lacks one of them is under no limit.
    essential: AtomicU64,
    pub(super) fields: Box<[Watched]>,
}

#[derive(Debug, Default)]
pub(super) struct Watched {
    pub(super) kind: ValueKind,
    unreadable: AtomicU64,
    absent: AtomicU64,
    /// The sum of `unreadable` and `absent` at the last call of `calm`.
    before: AtomicU64,
    example: Mutex<Vec<u8>>,
}

/// The kind of values that a field must have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ValueKind {
    /// Any text. Every value is usable.
    #[default]
    Text,
    Address,
    /// A non-negative whole number, such as the cost. Announced work is an `Amount`.
    Number,
    Amount,
}

impl ValueKind {
    fn is_readable(self, value: &Value<'_>) -> bool {
        match self {
            ValueKind::Text => true,
            ValueKind::Address => matches!(value, Value::Address(_)),
            ValueKind::Number => read_cost(value).is_some(),
            ValueKind::Amount => announcement(*value).is_some(),
        }
    }
}

impl Watch {
    /// A watch that has not begun. `kinds` gives the kind of value at each place.
    pub(super) fn new(kinds: impl Iterator<Item = ValueKind>) -> Watch {
        let watched = |kind| Watched { kind, ..Watched::default() };
        Watch { fields: kinds.map(watched).collect(), ..Watch::default() }
    }

    /// Begins the watch. The fields in `must_arrive` count as missing until a request carries them, only
    /// faults of the fields in `needed` matter, and `essential` holds the fields that every limit needs.
    pub(super) fn begin(
        &self,
        must_arrive: impl IntoIterator<Item = Place>,
        needed: impl IntoIterator<Item = Place>,
        essential: impl IntoIterator<Item = Place>,
    ) {
        let (missing, needed, essential) = (bits(must_arrive), bits(needed), bits(essential));
        self.missing.store(missing, Relaxed);
        self.needed.store(needed, Relaxed);
        self.essential.store(essential, Relaxed);
        self.watched.fetch_or(missing, AcqRel);
    }

    pub(super) fn is_missing(&self, place: Place) -> bool {
        self.missing.load(Relaxed) & 1 << place != 0
    }

    /// How many requests had an unusable value in the field, and how many had no value.
    pub(super) fn counts(&self, place: Place) -> (u64, u64) {
        let Watched { unreadable, absent, .. } = &self.fields[place];
        (unreadable.load(Relaxed), absent.load(Relaxed))
    }

    /// The beginning of the last unreadable value.
    pub(super) fn example(&self, place: Place) -> Vec<u8> {
        self.fields[place].example.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The fields whose faults matter.
    pub(super) fn needed(&self) -> impl Iterator<Item = Place> {
        places(self.needed.load(Relaxed))
    }

    /// Starts watching a field, because one of its values cannot be used.
    #[cold]
    pub(super) fn suspect(&self, place: Place) {
        self.suspect_all(1 << place);
    }

    /// Starts watching the fields that every limit needs, because a request may lack one of them.
    #[cold]
    pub(super) fn suspect_essential(&self) {
        self.suspect_all(self.essential.load(Relaxed));
    }

    fn suspect_all(&self, fields: u64) {
        let fields = fields & self.needed.load(Relaxed);
        if self.suspects.load(Relaxed) & fields != fields {
            self.suspects.fetch_or(fields, AcqRel);
            self.watched.fetch_or(fields, AcqRel);
        }
    }

    /// Stops watching fields without a fault since the last call, except missing ones. To be called every second.
    pub(super) fn calm(&self) {
        let calm = |&place: &Place| {
            let (unreadable, absent) = self.counts(place);
            self.fields[place].before.swap(unreadable + absent, Relaxed) == unreadable + absent
        };
        let calm = bits(places(self.suspects.load(Relaxed)).filter(calm));
        if calm != 0 {
            self.suspects.fetch_and(!calm, AcqRel);
            self.rest(calm & !self.missing.load(Relaxed));
        }
    }

    /// Stops watching these fields, except for any that have become suspects in the meantime.
    fn rest(&self, fields: u64) {
        self.watched.fetch_and(!fields, AcqRel);
        let suspects = self.suspects.load(Acquire) & fields;
        if suspects != 0 {
            self.watched.fetch_or(suspects, AcqRel);
        }
    }

    /// Notes the fields that requests carry, and their faults.
    #[inline]
    pub(super) fn note<'v, 'a: 'v>(&self, requests: impl Iterator<Item = Values<'v, 'a>>) {
        // Usually no field is watched. Then this word is only read, so every core keeps a copy in its cache.
        let watched = self.watched.load(Relaxed);
        if watched != 0 {
            self.examine(watched, requests);
        }
    }

    #[cold]
    fn examine<'v, 'a: 'v>(&self, watched: u64, requests: impl Iterator<Item = Values<'v, 'a>>) {
        let (needed, essential) = (self.needed.load(Relaxed), self.essential.load(Relaxed));
        let mut carried = 0;
        for values in requests {
            for place in places(watched) {
                let (field, is) = (&self.fields[place], |of: u64| of & 1 << place != 0);
                match values.get(place) {
                    None if is(essential) => _ = field.absent.fetch_add(1, Relaxed),
                    None => {}
                    Some(value) => {
                        carried |= 1 << place;
                        if is(needed) && !field.kind.is_readable(value) {
                            field.unreadable.fetch_add(1, Relaxed);
                            field.keep(value);
                        }
                    }
                }
            }
        }
        let arrived = carried & self.missing.load(Relaxed);
        if arrived != 0 {
            self.missing.fetch_and(!arrived, Relaxed);
        }
        let in_order = carried & !self.suspects.load(Acquire);
        if in_order != 0 {
            self.rest(in_order);
        }
    }
}

impl Watched {
    /// Keeps the beginning of a value as the example, unless another thread is using the example at that moment.
    fn keep(&self, value: &Value<'_>) {
        let mut example = match self.example.try_lock() {
            Ok(example) => example,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let mut text = Text::default();
        let text = text.of(value);
        example.clear();
        example.extend_from_slice(&text[..text.len().min(EXAMPLE_BYTES)]);
    }
}

fn bits(places: impl IntoIterator<Item = Place>) -> u64 {
    places.into_iter().fold(0, |all, place| all | 1 << place)
}

fn places(mut bits: u64) -> impl Iterator<Item = Place> {
    std::iter::from_fn(move || {
        let place = bits.trailing_zeros();
        bits &= bits.wrapping_sub(1);
        (place < u64::BITS).then_some(place as Place)
    })
}
