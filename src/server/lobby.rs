//! The limited places for connections of clients that have not authenticated yet.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::oneshot::{self, Receiver, Sender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The limited places for connections of clients that have not authenticated yet. If all places are taken, the oldest
/// connection is closed. So a client that authenticates at once gets in, however many other clients connect and stay.
#[derive(Debug)]
pub(crate) struct Lobby {
    most: usize,
    waiting: Mutex<Guests>,
    /// Counts the guests that were closed to make room.
    gone: Counter,
}

/// The guests in order of arrival. Dropping a sender closes its guest.
#[derive(Debug, Default)]
struct Guests {
    next: u64,
    guests: BTreeMap<u64, Sender<()>>,
}

/// A place in the lobby, until it is dropped.
#[derive(Debug)]
pub(crate) struct LobbyPlace {
    lobby: Arc<Lobby>,
    number: u64,
}

impl Lobby {
    pub(crate) fn new(most: usize, gone: Counter) -> Arc<Lobby> {
        Arc::new(Lobby { most, waiting: Mutex::default(), gone })
    }

    /// Adds a connection. Returns its place, and a receiver that ends when the connection must make room.
    pub(super) fn enter(self: &Arc<Self>) -> (LobbyPlace, Receiver<()>) {
        let (stay, go) = oneshot::channel();
        let mut waiting = self.waiting.lock();
        if waiting.guests.len() >= self.most && waiting.guests.pop_first().is_some() {
            self.gone.inc();
        }
        let number = waiting.next;
        waiting.next += 1;
        waiting.guests.insert(number, stay);
        drop(waiting);
        (LobbyPlace { lobby: self.clone(), number }, go)
    }
}

impl LobbyPlace {
    /// Leaves the lobby. The connection may stay while the returned sender is held; `None` if it must close.
    fn leave(&self) -> Option<Sender<()>> {
        self.lobby.waiting.lock().guests.remove(&self.number)
    }
}

impl Drop for LobbyPlace {
    fn drop(&mut self) {
        self.leave();
    }
}

/// A connection that is in the lobby, or has left it after authentication.
#[derive(Debug)]
pub(crate) struct Guest {
    place: LobbyPlace,
    /// The places of the authenticated clients.
    known: Arc<Semaphore>,
    past: Option<(Sender<()>, OwnedSemaphorePermit)>,
}

impl Guest {
    pub(super) fn new(place: LobbyPlace, known: Arc<Semaphore>) -> Guest {
        Guest { place, known, past: None }
    }

    /// Leaves the lobby after authentication. Returns false if all places of authenticated clients are taken, or if the
    /// connection must close.
    pub(crate) fn is_known(&mut self) -> bool {
        if self.past.is_none()
            && let Ok(permit) = self.known.clone().try_acquire_owned()
        {
            self.past = self.place.leave().map(|stay| (stay, permit));
        }
        self.past.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot::error::TryRecvError;

    #[test]
    fn the_oldest_goes_and_those_that_are_known_stay() {
        let (lobby, known) = (Lobby::new(2, Counter::default()), Arc::new(Semaphore::new(2)));
        let enter = || {
            let (place, go) = lobby.enter();
            (Guest::new(place, known.clone()), go)
        };
        let mut guests: Vec<_> = (0..4).map(|_| enter()).collect();
        let mut has_to_go = |guest: usize| guests[guest].1.try_recv() == Err(TryRecvError::Closed);
        assert_eq!([0, 1, 2, 3].map(&mut has_to_go), [true, true, false, false]);
        assert!(!guests[0].0.is_known(), "it has gone");
        assert!(guests[2].0.is_known() && guests[2].0.is_known());
        guests.extend((0..2).map(|_| enter()));
        let mut has_to_go = |guest: usize| guests[guest].1.try_recv() == Err(TryRecvError::Closed);
        assert_eq!([2, 3, 4, 5].map(&mut has_to_go), [false, true, false, false]);
        assert!(guests[4].0.is_known() && !guests[5].0.is_known(), "two places for those that are known");
        guests.clear();
        assert_eq!(
            (lobby.waiting.lock().guests.len(), known.available_permits(), lobby.gone.get()),
            (0, 2, 3)
        );
    }

    /// An unfinished handshake, for example, that is done at last.
    #[test]
    fn one_that_leaves_makes_room() {
        let lobby = Lobby::new(2, Counter::default());
        let [mut first, second] = std::array::from_fn(|_| lobby.enter());
        let mut third = lobby.enter();
        drop(second);
        let mut fourth = lobby.enter();
        assert_eq!(first.1.try_recv(), Err(TryRecvError::Closed));
        for guest in [&mut third, &mut fourth] {
            assert_eq!(guest.1.try_recv(), Err(TryRecvError::Empty));
        }
        drop((first, third, fourth));
        assert_eq!(lobby.waiting.lock().guests.len(), 0);
    }
}
