//! The few places for connections whose clients have not shown who they are.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::metrics::counter::Counter;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// The few places for connections whose clients have not shown who they are. Without a free one, the oldest guest goes:
/// however many strangers come and stay, a client that shows itself at once gets in.
#[derive(Debug)]
pub(crate) struct Lobby {
    most: usize,
    guests: Mutex<Guests>,
    /// Guests that had to go.
    gone: Counter,
}

/// The guests by the order of their coming. A dropped sender lets its guest go.
#[derive(Debug, Default)]
struct Guests {
    next: u64,
    waiting: BTreeMap<u64, oneshot::Sender<()>>,
}

/// A connection in the lobby, or past it.
#[derive(Debug)]
pub(crate) struct Guest {
    lobby: Arc<Lobby>,
    number: u64,
    /// The places of the clients that are known.
    places: Arc<Semaphore>,
    past: Option<(oneshot::Sender<()>, OwnedSemaphorePermit)>,
}

impl Lobby {
    pub(crate) fn new(most: usize, gone: Counter) -> Arc<Lobby> {
        Arc::new(Lobby { most, guests: Mutex::default(), gone })
    }

    /// Takes in a connection, and returns with it what ends when it has to go.
    pub(super) fn enter(self: &Arc<Self>, places: Arc<Semaphore>) -> (Guest, oneshot::Receiver<()>) {
        let (stay, go) = oneshot::channel();
        let mut guests = self.lock();
        if guests.waiting.len() >= self.most && guests.waiting.pop_first().is_some() {
            self.gone.inc();
        }
        let number = guests.next;
        guests.next += 1;
        guests.waiting.insert(number, stay);
        drop(guests);
        (Guest { lobby: self.clone(), number, places, past: None }, go)
    }

    fn lock(&self) -> MutexGuard<'_, Guests> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Guest {
    /// Leaves the lobby: its client is known. False if all places of known clients are taken, or if it has to go.
    pub(crate) fn is_known(&mut self) -> bool {
        if self.past.is_none()
            && let Ok(place) = self.places.clone().try_acquire_owned()
        {
            self.past = self.lobby.lock().waiting.remove(&self.number).map(|stay| (stay, place));
        }
        self.past.is_some()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.lobby.lock().waiting.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot::error::TryRecvError;

    #[test]
    fn the_oldest_goes_and_those_that_are_known_stay() {
        let (lobby, places) = (Lobby::new(2, Counter::default()), Arc::new(Semaphore::new(2)));
        let mut guests: Vec<_> = (0..4).map(|_| lobby.enter(places.clone())).collect();
        let mut has_to_go = |guest: usize| guests[guest].1.try_recv() == Err(TryRecvError::Closed);
        assert_eq!([0, 1, 2, 3].map(&mut has_to_go), [true, true, false, false]);
        assert!(!guests[0].0.is_known(), "it has gone");
        assert!(guests[2].0.is_known() && guests[2].0.is_known());
        guests.extend((0..2).map(|_| lobby.enter(places.clone())));
        let mut has_to_go = |guest: usize| guests[guest].1.try_recv() == Err(TryRecvError::Closed);
        assert_eq!([2, 3, 4, 5].map(&mut has_to_go), [false, true, false, false]);
        assert!(guests[4].0.is_known() && !guests[5].0.is_known(), "two places for those that are known");
        guests.clear();
        assert_eq!((lobby.lock().waiting.len(), places.available_permits(), lobby.gone.get()), (0, 2, 3));
    }
}
