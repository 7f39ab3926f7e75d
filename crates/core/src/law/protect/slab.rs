//! A slab: values in numbered places, linked into lists. No value moves, and each operation takes constant time.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

/// The number that stands for no place.
pub(super) const NONE: u32 = u32::MAX;

/// Values in numbered places. A place stays with its value until the value is removed.
#[derive(Clone, Debug)]
pub(super) struct Slab<T> {
    slots: Vec<Cell<T>>,
    /// The freed places, to be reused in the order in which they were freed.
    free: VecDeque<u32>,
}

#[derive(Clone, Debug)]
struct Cell<T> {
    value: T,
    previous: u32,
    next: u32,
}

/// A list of places in a [`Slab`]. A place is in at most one list.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    pub(super) first: u32,
    last: u32,
}

impl List {
    pub(super) const EMPTY: List = List { first: NONE, last: NONE };

    pub(super) fn is_empty(&self) -> bool {
        self.first == NONE
    }
}

impl<T> Slab<T> {
    pub(super) fn new() -> Slab<T> {
        Slab { slots: Vec::new(), free: VecDeque::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn get(&self, place: u32) -> Option<&T> {
        self.slots.get(place as usize).map(|slot| &slot.value)
    }

    pub(super) fn insert(&mut self, value: T) -> u32 {
        if let Some(place) = self.free.pop_front() {
            self[place] = value;
            return place;
        }
        self.slots.push(Cell { value, previous: NONE, next: NONE });
        (self.slots.len() - 1) as u32
    }

    /// Frees a place that is in no list. The place keeps its value until it is used again.
    pub(super) fn remove(&mut self, place: u32) {
        self.free.push_back(place);
    }

    /// Appends a place that is in no list.
    pub(super) fn append(&mut self, list: &mut List, place: u32) {
        let slot = &mut self.slots[place as usize];
        (slot.previous, slot.next) = (list.last, NONE);
        match list.last {
            NONE => list.first = place,
            last => self.slots[last as usize].next = place,
        }
        list.last = place;
    }

    /// Takes a place out of its list.
    pub(super) fn unlink(&mut self, list: &mut List, place: u32) {
        let Cell { previous, next, .. } = self.slots[place as usize];
        match previous {
            NONE => list.first = next,
            previous => self.slots[previous as usize].next = next,
        }
        match next {
            NONE => list.last = previous,
            next => self.slots[next as usize].previous = previous,
        }
    }
}

/// Panics only for a place that was never given out.
impl<T> Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, place: u32) -> &T {
        &self.slots[place as usize].value
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, place: u32) -> &mut T {
        &mut self.slots[place as usize].value
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A list through a slab behaves as a deque from which any value may leave.
        #[test]
        fn a_list_is_a_deque(steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..200)) {
            let (mut slab, mut list, mut model) = (Slab::new(), List::EMPTY, VecDeque::new());
            for (number, (is_new, which)) in steps.into_iter().enumerate() {
                if is_new || model.is_empty() {
                    let place = slab.insert(number);
                    slab.append(&mut list, place);
                    model.push_back((place, number));
                } else {
                    let (place, _) = model.remove(which.index(model.len())).unwrap();
                    slab.unlink(&mut list, place);
                    slab.remove(place);
                }
                prop_assert_eq!(slab.len(), model.len());
                prop_assert_eq!(list.is_empty(), model.is_empty());
                prop_assert!(slab.slots.len() <= 1 + number);
                let (mut copy, mut rest) = (slab.clone(), list);
                for &(place, number) in &model {
                    prop_assert_eq!((rest.first, copy[place]), (place, number));
                    copy.unlink(&mut rest, place);
                }
            }
        }
    }
}
