//! What holds whatever happens: nobody is lost, no place stays taken, and nobody waits beside a free place.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index;

use crate::base::{Key, Timestamp};
use crate::law::protect::{Arrival, Arrived, Id, Means, Protect, ProtectSettings};

#[derive(Clone, Debug)]
enum Move {
    Arrive { page: u64, network: u64, source: u64 },
    End { which: Index },
    Abandon { which: Index, waits: bool },
    Pass { ms: u64 },
}

fn step() -> impl Strategy<Value = Move> {
    let arrive = |page, network, source| Move::Arrive { page, network, source };
    prop_oneof![
        6 => (0u64..4, 0u64..6, 0u64..8).prop_map(move |(page, network, source)| arrive(page, network, source)),
        1 => (0u64..5_000, 0u64..5_000, 0u64..5_000).prop_map(move |(page, network, source)| arrive(page, network, source)),
        5 => any::<Index>().prop_map(|which| Move::End { which }),
        1 => (any::<Index>(), any::<bool>()).prop_map(|(which, waits)| Move::Abandon { which, waits }),
        4 => (0u64..100).prop_map(|ms| Move::Pass { ms }),
        1 => (100u64..9_000).prop_map(|ms| Move::Pass { ms }),
    ]
}

/// The law, and what its caller knows of it.
struct Model {
    protect: Protect,
    now_ms: u64,
    waiting: BTreeSet<Id>,
    /// Released at this millisecond, not ended. Leases may be over.
    inside: BTreeMap<Id, u64>,
    known: BTreeSet<Id>,
}

const SETTINGS: ProtectSettings =
    ProtectSettings { slow_down: 1.7, delay_max: Duration::from_secs(3), waiting_max: 60, members_max: 64 };

impl Model {
    fn new(settings: ProtectSettings) -> Model {
        let (waiting, inside, known) = (BTreeSet::new(), BTreeMap::new(), BTreeSet::new());
        Model { protect: Protect::new(settings), now_ms: 1_000, waiting, inside, known }
    }

    fn call<R>(&mut self, call: impl FnOnce(&mut Protect, Timestamp, &mut Vec<Id>) -> R) -> R {
        let mut released = Vec::new();
        let result = call(&mut self.protect, Timestamp::from_millis(self.now_ms), &mut released);
        let view = self.protect.view();
        assert!(released.is_empty() || !view.sees_ends || view.inside <= view.limit, "{view:?}");
        for id in released {
            assert!(self.waiting.remove(&id), "only those who wait are released");
            self.inside.insert(id, self.now_ms);
        }
        while let Some(id) = self.protect.overdue(Timestamp::from_millis(self.now_ms)) {
            assert!(self.waiting.remove(&id), "only those who wait are refused");
        }
        result
    }

    fn arrive(&mut self, page: u64, path: &[u64]) -> Arrived {
        let path: Vec<Key> = path.iter().map(|&bits| Key::from_bits(bits)).collect();
        let arrival = Arrival { means: Means::Hold, page: Key::from_bits(page), path: &path };
        let before = self.protect.view();
        let arrived = self.call(|protect, now, released| protect.arrive(now, arrival, released));
        match arrived {
            Arrived::Released(id) => {
                let has_room = before.inside < self.protect.view().limit || !before.sees_ends;
                assert!(has_room || self.inside.len() < self.known.len(), "{before:?}");
                assert!(self.known.insert(id) && self.inside.insert(id, self.now_ms).is_none());
            }
            Arrived::Waits(id, _) => assert!(self.known.insert(id) && self.waiting.insert(id)),
            Arrived::Refused(_) | Arrived::Unheld(..) => {}
        }
        arrived
    }

    fn end(&mut self, id: Id) {
        let released_ms = self.inside.remove(&id).unwrap();
        let is_known = self.call(|protect, now, released| protect.end(id, now, None, released));
        assert!(is_known || self.now_ms - released_ms >= 5_000, "a lease is 5 s or more");
        assert!(!self.call(|protect, now, released| protect.end(id, now, None, released)), "twice");
    }

    fn take(&mut self, step: Move) {
        match step {
            Move::Arrive { page, network, source } => _ = self.arrive(page, &[network, source]),
            Move::End { which } if !self.inside.is_empty() => {
                let id = *self.inside.keys().nth(which.index(self.inside.len())).unwrap();
                self.end(id);
            }
            Move::Abandon { which, waits: true } if !self.waiting.is_empty() => {
                let id = *self.waiting.iter().nth(which.index(self.waiting.len())).unwrap();
                self.waiting.remove(&id);
                assert!(self.call(|protect, now, released| protect.abandon(id, now, released)));
            }
            Move::Abandon { which, waits: false } if !self.inside.is_empty() => {
                let id = *self.inside.keys().nth(which.index(self.inside.len())).unwrap();
                self.inside.remove(&id);
                self.call(|protect, now, released| protect.abandon(id, now, released));
                assert!(!self.call(|protect, now, released| protect.abandon(id, now, released)), "twice");
            }
            Move::Pass { ms } => {
                self.now_ms += ms;
                self.call(|protect, now, released| protect.wake(now, released));
            }
            _ => {}
        }
        self.check();
    }

    fn check(&self) {
        let view = self.protect.view();
        assert_eq!(view.waiting, self.waiting.len(), "nobody is lost");
        assert!(view.inside <= self.inside.len());
        assert!(view.waiting == 0 || view.inside >= view.limit, "nobody waits beside a free place: {view:?}");
        assert!(view.waiting == 0 || view.sees_ends, "without ends, everything passes");
        assert_eq!(self.protect.requests.slab.len(), view.inside + view.waiting);
        assert!(view.waiting <= SETTINGS.waiting_max);
        // Beyond the most, each group has one that the rest shares.
        assert!(view.members <= 2 * SETTINGS.members_max, "{view:?}");
        assert!(self.protect.next_moment().is_some() || view.inside == 0);
    }

    /// Nobody asks any more, and no end comes.
    fn drain(&mut self) {
        while let Some(moment) = self.protect.next_moment() {
            self.now_ms = self.now_ms.max(moment.as_nanos().div_ceil(1_000_000));
            self.call(|protect, now, released| protect.wake(now, released));
            self.check();
        }
        let view = self.protect.view();
        assert_eq!((view.waiting, view.inside), (0, 0), "no place is kept for ever");
    }
}

proptest! {
    #[test]
    fn nobody_is_lost_and_no_place_stays_taken(steps in prop::collection::vec(step(), 1..600)) {
        let mut model = Model::new(SETTINGS);
        // Ends are reported.
        model.arrive(0, &[0, 0]);
        let first = *model.inside.keys().next().unwrap();
        model.end(first);
        steps.into_iter().for_each(|step| model.take(step));
        model.drain();
    }

    #[test]
    fn without_ends_everything_passes(steps in prop::collection::vec(step(), 1..200)) {
        let mut model = Model::new(SETTINGS);
        for step in steps {
            match step {
                Move::End { .. } => {}
                Move::Arrive { page, network, source } => {
                    prop_assert!(matches!(model.arrive(page, &[network, source]), Arrived::Released(_)));
                }
                step => model.take(step),
            }
        }
        prop_assert!(!model.protect.view().sees_ends);
        model.drain();
    }
}

/// The application was overloaded before: each request takes longer than the shortest lease.
#[test]
fn an_end_after_the_lease_shows_that_ends_are_reported() {
    let mut model = Model::new(SETTINGS);
    let page = Key::from_bits(1);
    let arrive = |model: &mut Model| {
        let path = [Key::from_bits(2)];
        model.call(|protect, now, released| {
            protect.arrive(now, Arrival { means: Means::Hold, page, path: &path }, released)
        })
    };
    let first: Vec<Arrived> = (0..100).map(|_| arrive(&mut model)).collect();
    let Arrived::Released(id) = first[0] else { panic!("{:?}", first[0]) };
    model.now_ms += 6_400;
    model.call(|protect, now, released| protect.wake(now, released));
    let is_counted = model.call(|protect, now, released| protect.end(id, now, None, released));
    assert!(!is_counted && model.protect.view().sees_ends);
    let inside = (0..100).filter(|_| matches!(arrive(&mut model), Arrived::Released(_))).count();
    assert_eq!(inside, 16, "from now on, it protects");
}
