//! The fields that no request has carried yet.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::policy::{PLACES_MAX, Place, Values};

/// The needed fields that no request has carried yet, one bit for each index.
#[derive(Debug, Default)]
pub(super) struct Missing(AtomicU64);

const _: () = assert!(PLACES_MAX <= u64::BITS as usize, "a bit for each place");

impl Missing {
    pub(super) fn of(places: impl IntoIterator<Item = Place>) -> Missing {
        Missing(AtomicU64::new(places.into_iter().fold(0, |all, place| all | 1 << place)))
    }

    pub(super) fn has(&self, place: Place) -> bool {
        self.0.load(Relaxed) & 1 << place != 0
    }

    /// Notes the fields that requests carry.
    #[inline]
    pub(super) fn note<'v, 'a: 'v>(&self, requests: impl Iterator<Item = Values<'v, 'a>>) {
        // Usually none is missing. Then this word is only read, and every core has a copy in its cache.
        let missing = self.0.load(Relaxed);
        if missing != 0 {
            let carried = requests.fold(0, |carried, values| carried | values.carried(missing & !carried));
            if carried != 0 {
                self.0.fetch_and(!carried, Relaxed);
            }
        }
    }
}

impl Values<'_, '_> {
    /// The indexes that have a value, among those given.
    fn carried(self, mut among: u64) -> u64 {
        let mut carried = 0;
        while among != 0 {
            let place = among.trailing_zeros();
            carried |= u64::from(self.0[place as usize].is_some()) << place;
            among &= among - 1;
        }
        carried
    }
}
