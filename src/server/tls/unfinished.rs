//! The handshakes that are not finished: at most so many, and the oldest gives way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot::{self, Receiver, Sender};

/// The unfinished handshakes of an entrance.
///
/// A proxy finishes its handshake within two round trips, a client that only occupies places does not. So the oldest
/// one gives way, and not the newest.
#[derive(Debug)]
pub(super) struct Unfinished {
    most: usize,
    begun: Mutex<Begun>,
}

#[derive(Debug, Default)]
struct Begun {
    number: u64,
    /// By age. Dropping one ends its handshake.
    places: BTreeMap<u64, Sender<()>>,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    number: u64,
    of: Arc<Unfinished>,
    end: Receiver<()>,
}

impl Unfinished {
    pub(super) fn new(most: usize) -> Arc<Unfinished> {
        Arc::new(Unfinished { most, begun: Mutex::default() })
    }

    /// A place for one more. Without a free one, the oldest loses its own.
    pub(super) fn place(self: &Arc<Self>) -> Place {
        let (sender, end) = oneshot::channel();
        let mut begun = self.begun();
        if begun.places.len() >= self.most {
            begun.places.pop_first();
        }
        begun.number += 1;
        let number = begun.number;
        begun.places.insert(number, sender);
        drop(begun);
        Place { number, of: self.clone(), end }
    }

    fn begun(&self) -> MutexGuard<'_, Begun> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Returns once the place is lost.
    pub(super) async fn lost(&mut self) {
        let _ = (&mut self.end).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.of.begun().places.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn is_lost(place: &mut Place) -> bool {
        place.lost().now_or_never().is_some()
    }

    #[test]
    fn the_oldest_of_too_many_gives_way() {
        let unfinished = Unfinished::new(2);
        let [mut first, mut second] = std::array::from_fn(|_| unfinished.place());
        assert!(!is_lost(&mut first) && !is_lost(&mut second));
        let mut third = unfinished.place();
        assert!(is_lost(&mut first) && !is_lost(&mut second) && !is_lost(&mut third));
        // A finished one makes room.
        drop(second);
        let mut fourth = unfinished.place();
        assert!(!is_lost(&mut third) && !is_lost(&mut fourth));
        drop((first, third, fourth));
        assert_eq!(unfinished.begun().places.len(), 0);
    }
}
