//! Gates: the state of each application under `protect`, and the turns of its waiting requests.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use crate::base::{Judged, Key, SloId, Timestamp, Turn, Verdict};
use crate::law::TICK;
use crate::law::protect::{Arrival, Arrived, Id, Means, Protect, ProtectSettings, ProtectView};
use crate::policy::Asker;

/// The maximum number of protected applications. Additional applications are not protected.
const GATES_MAX: usize = 1_024;

/// An application without requests is forgotten after this time.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// The maximum number of group names that a gate keeps. Before adding another name, the gate drops all of them.
const NAMES_MAX: usize = 1_024;

/// The maximum number of an application's groups to show to operators.
const GROUPS_SHOWN: usize = 5;

/// A protected application, for operators.
#[derive(Clone, Debug)]
pub struct Protected {
    pub slo: SloId,
    pub key: Key,
    pub view: ProtectView,
    /// Of the groups with waiting requests, the groups with the most requests, largest first.
    pub groups: Vec<Group>,
}

/// A group whose requests wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The field and its value, such as `network 203.0.113.0/24`.
    pub name: String,
    /// The number of the group's requests, waiting or inside.
    pub requests: u32,
}

/// The state that a request would find on arrival.
#[derive(Clone, Debug)]
pub(super) struct Outlook {
    pub(super) view: ProtectView,
    pub(super) wait: Duration,
    /// Of the other groups with waiting requests, the group with the most requests.
    pub(super) behind: Option<Group>,
}

/// All gates, by the keys of their applications.
#[derive(Debug, Default)]
pub(super) struct Gates(RwLock<HashMap<Key, Arc<Mutex<Gate>>>>);

/// The state of one application. Several connections call a gate, each with its own `now`, so `last` may exceed `now`.
#[derive(Debug)]
struct Gate {
    slo: SloId,
    protect: Protect,
    /// The turns of waiting requests, by place. The turn of a released request stays until its place is
    /// reused, because the proxy asks for the turn a moment after the decision.
    turns: Vec<Option<(Id, Arc<Turn>)>>,
    released: Vec<Id>,
    /// The names of groups that have had to wait, by their keys.
    names: HashMap<Key, String>,
    last: Timestamp,
}

impl Gates {
    fn find(&self, key: Key) -> Option<Arc<Mutex<Gate>>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }

    fn find_or_make(&self, key: Key, slo: SloId, settings: ProtectSettings) -> Option<Arc<Mutex<Gate>>> {
        self.find(key).or_else(|| {
            let mut gates = self.0.write().unwrap_or_else(PoisonError::into_inner);
            let has_room = gates.len() < GATES_MAX || gates.contains_key(&key);
            has_room.then(|| gates.entry(key).or_insert_with(|| Gate::new(slo, settings)).clone())
        })
    }

    /// Asks the application to admit a request that all SLOs let through. Returns the request's number for its ticket,
    /// or 0; the protecting SLO's verdict; and whether the request waits. None if too many applications are protected.
    pub(super) fn arrive(
        &self,
        judged: &Judged,
        (settings, means): (ProtectSettings, Means),
        (asker, name): (&Asker, impl FnOnce() -> String),
        now: Timestamp,
    ) -> Option<(Id, Verdict, bool)> {
        let gate = self.find_or_make(judged.key, judged.slo, settings)?;
        let mut gate = lock(&gate);
        gate.protect.set(settings);
        let arrival = Arrival { means, page: asker.page, path: &asker.path };
        let (arrived, now) = gate.call(now, |protect, now, released| protect.arrive(now, arrival, released));
        Some(match arrived {
            Arrived::Released(id) => (id, Verdict::Pass, false),
            Arrived::Unheld(id, wait) => (id, delay(wait), false),
            Arrived::Refused(wait) => {
                (Id::UNCOUNTED, Verdict::Deny { retry_after_s: wait.as_secs().clamp(1, 60) as u32 }, false)
            }
            Arrived::Waits(id, wait) => {
                // The request is released or refused before this time.
                let due = now + settings.delay_max + TICK * 2;
                gate.put_turn(id, Arc::new(Turn::new(due)));
                asker.path.first().inspect(|group| gate.put_name(**group, name));
                (id, delay(wait), true)
            }
        })
    }

    /// The turn of a request that waits, or that waited until a moment ago.
    pub(super) fn turn(&self, key: Key, number: u64) -> Option<Arc<Turn>> {
        let id = Id::from_bits(u32::try_from(number).ok()?);
        let gate = self.find(key)?;
        let gate = lock(&gate);
        let (known, turn) = gate.turns.get(id.place() as usize)?.as_ref()?;
        (*known == id).then(|| turn.clone())
    }

    /// Records that a held request has passed, at its turn or earlier.
    pub(super) fn pass(&self, key: Key, number: u64, now: Timestamp) {
        self.with(key, number, now, |protect, id, now, _| protect.admit(id, now));
    }

    /// Removes a request that was abandoned before its turn, or before its end was reported.
    pub(super) fn leave(&self, key: Key, number: u64, now: Timestamp) {
        self.with(key, number, now, |protect, id, now, released| protect.abandon(id, now, released));
    }

    /// Records the end of a request. Returns false if the end is already known, or the request's lease has expired.
    pub(super) fn end(&self, key: Key, number: u32, now: Timestamp) -> bool {
        self.with(key, number.into(), now, |protect, id, now, released| protect.end(id, now, None, released))
            == Some(true)
    }

    /// Lets time pass in all gates. Call this function once per [`TICK`].
    pub(super) fn wake(&self, now: Timestamp) {
        for (_, gate) in self.all() {
            lock(&gate).call(now, |protect, now, released| protect.wake(now, released));
        }
    }

    /// Forgets applications that have had no requests for a while.
    pub(super) fn sweep(&self, now: Timestamp) {
        let mut gates = self.0.write().unwrap_or_else(PoisonError::into_inner);
        gates.retain(|_, gate| {
            let gate = lock(gate);
            let view = gate.protect.view();
            view.inside + view.waiting > 0 || now.since(gate.last) < FORGOTTEN
        });
    }

    pub(super) fn view(&self, key: Key) -> Option<ProtectView> {
        self.find(key).map(|gate| lock(&gate).protect.view())
    }

    /// The state that a request would find on arrival. The request is not counted.
    pub(super) fn foresee(&self, key: Key, asker: &Asker, now: Timestamp) -> Option<Outlook> {
        let gate = self.find(key)?;
        let mut gate = lock(&gate);
        let now = now.max(gate.last);
        let wait = gate.protect.foresee(now, asker.page, &asker.path);
        let mut groups = gate.protect.waiting_groups().into_iter();
        let other = groups.find(|(group, _)| Some(group) != asker.path.first());
        Some(Outlook { view: gate.protect.view(), wait, behind: other.map(|of| gate.group(of)) })
    }

    /// All protected applications, in the order of their SLOs.
    pub(super) fn views(&self) -> Vec<Protected> {
        let view = |(key, gate): (Key, Arc<Mutex<Gate>>)| {
            let gate = lock(&gate);
            let groups = gate.protect.waiting_groups().into_iter().take(GROUPS_SHOWN);
            Protected {
                slo: gate.slo,
                key,
                view: gate.protect.view(),
                groups: groups.map(|of| gate.group(of)).collect(),
            }
        };
        let mut views: Vec<Protected> = self.all().into_iter().map(view).collect();
        views.sort_by_key(|of| (of.slo, of.key));
        views
    }

    fn all(&self) -> Vec<(Key, Arc<Mutex<Gate>>)> {
        let gates = self.0.read().unwrap_or_else(PoisonError::into_inner);
        gates.iter().map(|(key, gate)| (*key, gate.clone())).collect()
    }

    fn with<R>(
        &self,
        key: Key,
        number: u64,
        now: Timestamp,
        call: impl FnOnce(&mut Protect, Id, Timestamp, &mut Vec<Id>) -> R,
    ) -> Option<R> {
        let id = Id::from_bits(u32::try_from(number).ok().filter(|&number| number != 0)?);
        let gate = self.find(key)?;
        let mut gate = lock(&gate);
        Some(gate.call(now, |protect, now, released| call(protect, id, now, released)).0)
    }
}

impl Gate {
    fn new(slo: SloId, settings: ProtectSettings) -> Arc<Mutex<Gate>> {
        let protect = Protect::new(settings);
        let (turns, released, names) = (Vec::new(), Vec::new(), HashMap::new());
        Arc::new(Mutex::new(Gate { slo, protect, turns, released, names, last: Timestamp::default() }))
    }

    fn put_turn(&mut self, id: Id, turn: Arc<Turn>) {
        let place = id.place() as usize;
        if self.turns.len() <= place {
            self.turns.resize(place + 1, None);
        }
        self.turns[place] = Some((id, turn));
    }

    fn put_name(&mut self, group: Key, name: impl FnOnce() -> String) {
        if self.names.len() >= NAMES_MAX && !self.names.contains_key(&group) {
            self.names.clear();
        }
        self.names.entry(group).or_insert_with(name);
    }

    fn group(&self, (key, requests): (Key, u32)) -> Group {
        let name = self.names.get(&key).cloned();
        Group { name: name.unwrap_or_else(|| "a group".to_owned()), requests }
    }

    /// Calls the law, and notifies requests whose turn has come and requests that have waited for too long.
    /// Also returns the moment of the call, which never goes back.
    fn call<R>(
        &mut self,
        now: Timestamp,
        call: impl FnOnce(&mut Protect, Timestamp, &mut Vec<Id>) -> R,
    ) -> (R, Timestamp) {
        let now = now.max(self.last);
        self.last = now;
        let mut released = std::mem::take(&mut self.released);
        let result = call(&mut self.protect, now, &mut released);
        for id in released.drain(..) {
            self.tell(id, |turn| turn.move_to(now));
        }
        self.released = released;
        while let Some(id) = self.protect.overdue(now) {
            self.tell(id, Turn::refuse);
        }
        (result, now)
    }

    fn tell(&self, id: Id, tell: impl FnOnce(&Turn)) {
        let turn = self.turns.get(id.place() as usize).and_then(Option::as_ref);
        turn.filter(|(known, _)| *known == id).inspect(|(_, turn)| tell(turn));
    }
}

fn lock(gate: &Mutex<Gate>) -> MutexGuard<'_, Gate> {
    gate.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The delay that stands for a wait: at least one millisecond, because proxies get whole milliseconds.
fn delay(wait: Duration) -> Verdict {
    Verdict::Delay(wait.max(Duration::from_millis(1)))
}
