//! Turns decide whose request is released next: groups and their members take turns by the work that they have used.

use std::collections::BTreeSet;
use std::time::Duration;

use hashbrown::HashTable;

use crate::base::{Key, Timestamp};
use crate::law::protect::credit::VirtualTime;
use crate::law::protect::request::{InFlight, Position, Requests};
use crate::law::protect::slab::{List, NONE, Slab};

/// The root of the tree: the group of all members.
const ROOT: u32 = 0;

/// The key of the member that stands for all newcomers to a group when the group or the whole tree is full.
const REST: Key = Key::from_bits(u64::MAX);

/// A group below the root has at most one in this many of all members, so that one network cannot push out all others.
const GROUP_PART: usize = 16;

/// A member that has been idle for longer than this is forgotten, because a new member then has the same rights.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// The maximum number of idle members that are forgotten at each arrival.
const FORGOTTEN_AT_ONCE: usize = 2;

/// Small requests go before large requests with the same tag: a turn is the tag plus the work divided by this number.
/// With the undivided work, large requests of quiet members would wait behind the small requests of busy members.
const SIZE_PART: i64 = 2;

/// A tree of members: groups, their subgroups, and clients as the leaves. In each group, among the members with waiting
/// requests, the member with the earliest turn is next. A turn is the member's tag plus a part of the work of its next
/// request. The tag moves by the work of each request: by an estimate when the request is released, and by the
/// difference when it ends (start-time fair queueing by work, on a tree: Goyal, Vin and Cheng, 1996).
#[derive(Clone, Debug)]
pub(super) struct Turns {
    members: Slab<Member>,
    numbers: HashTable<u32>,
    /// All members with waiting requests, by group and turn.
    turns: BTreeSet<Turn>,
    /// Members without pending requests, starting with the least recently seen. A group comes after its members.
    idle: List,
    members_max: usize,
}

#[derive(Clone, Debug)]
struct Member {
    key: Key,
    /// `NONE` for the root, which is never forgotten.
    group: u32,
    is_leaf: bool,
    /// The work that the member has been given, in the virtual time of its group.
    tag_ns: i64,
    /// The number of the member's requests that wait or are inside.
    pending: u32,
    /// The work of the member's waiting requests.
    waiting_ns: i64,
    /// The member's turn, while requests wait.
    turn: Option<Turn>,
    /// The waiting requests of a leaf.
    queue: List,
    /// The number of members of a group, and how many of them have pending requests.
    members: u32,
    active: u32,
    virtual_time: VirtualTime,
    seen: Timestamp,
}

/// The place of a member in the order of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    group: u32,
    key_ns: i64,
    /// If two members have the same `key_ns`, the member whose request came first is next.
    serial: u32,
    member: u32,
    work_ns: i64,
}

impl Member {
    fn new(group: u32, key: Key, is_leaf: bool, tag_ns: i64) -> Member {
        Member {
            key,
            group,
            is_leaf,
            tag_ns,
            pending: 0,
            waiting_ns: 0,
            turn: None,
            queue: List::EMPTY,
            members: 0,
            active: 0,
            virtual_time: VirtualTime::default(),
            seen: Timestamp::default(),
        }
    }
}

impl Turns {
    pub(super) fn new(members_max: usize) -> Turns {
        let mut members = Slab::new();
        members.insert(Member::new(NONE, REST, false, 0));
        let (numbers, turns, idle) = (HashTable::new(), BTreeSet::new(), List::EMPTY);
        Turns { members, numbers, turns, idle, members_max: members_max.max(GROUP_PART) }
    }

    /// How many members are known, not counting the root.
    pub(super) fn len(&self) -> usize {
        self.members.len() - 1
    }

    /// Counts a new request. Returns its sender: the last member on its path, which begins with the outermost group.
    pub(super) fn enter(&mut self, path: &[Key], now: Timestamp) -> u32 {
        for _ in 0..FORGOTTEN_AT_ONCE {
            let idle = self.idle.first;
            if idle != NONE && now.since(self.members[idle].seen) > FORGOTTEN {
                self.forget(idle);
            }
        }
        let (&last, groups) = path.split_last().unwrap_or((&REST, &[]));
        let group = groups.iter().fold(ROOT, |group, &key| self.enter_one(group, key, false, now));
        self.enter_one(group, last, true, now)
    }

    /// Stops counting a request of a member.
    pub(super) fn leave(&mut self, leaf: u32) {
        self.rise(leaf, |turns, number, group| {
            let member = &mut turns.members[number];
            member.pending -= 1;
            if member.pending == 0 {
                turns.members[group].active -= 1;
                turns.members.append(&mut turns.idle, number);
            }
        });
    }

    /// Charges a request that passes without waiting.
    pub(super) fn pass(&mut self, leaf: u32, work_ns: i64, now: Timestamp) {
        self.serve(leaf, work_ns, true, now);
    }

    /// Adds a request to the queue of its member.
    pub(super) fn queue(&mut self, leaf: u32, place: u32, requests: &mut Requests) {
        requests.slab.append(&mut self.members[leaf].queue, place);
        self.count_waiting(leaf, requests.slab[place].work_ns);
        self.refresh(leaf, requests);
    }

    /// Removes a waiting request from the queue of its member.
    pub(super) fn unqueue(&mut self, leaf: u32, place: u32, requests: &mut Requests) {
        requests.slab.unlink(&mut self.members[leaf].queue, place);
        self.count_waiting(leaf, -requests.slab[place].work_ns);
        self.refresh(leaf, requests);
    }

    /// Removes the waiting request whose turn it is from its queue, charges its member, and returns its place.
    pub(super) fn next(&mut self, requests: &mut Requests, now: Timestamp) -> Option<u32> {
        let mut turn = self.first(ROOT)?;
        while let Some(inner) = self.first(turn.member) {
            turn = inner;
        }
        let (leaf, place) = (turn.member, self.members[turn.member].queue.first);
        self.serve(leaf, requests.slab[place].work_ns, true, now);
        self.unqueue(leaf, place, requests);
        Some(place)
    }

    /// Removes a waiting request from its queue before its turn, and charges its member.
    pub(super) fn take(&mut self, place: u32, requests: &mut Requests, now: Timestamp) {
        let InFlight { leaf, work_ns, .. } = requests.slab[place];
        self.serve(leaf, work_ns, false, now);
        self.unqueue(leaf, place, requests);
    }

    /// Charges a member for the work beyond the estimate, which may be negative.
    pub(super) fn charge(&mut self, leaf: u32, more_ns: i64, requests: &Requests) {
        self.rise(leaf, |turns, number, _| turns.members[number].tag_ns += more_ns);
        self.refresh(leaf, requests);
    }

    /// Where the turn of a member's next request lies.
    pub(super) fn position(&self, leaf: u32, work_ns: i64) -> Position {
        let (mut number, mut ahead_ns) = (leaf, self.members[leaf].waiting_ns);
        loop {
            let member = &self.members[number];
            let group = &self.members[member.group];
            let at_ns = member.tag_ns + ahead_ns;
            let distance_ns = at_ns - group.virtual_time.now_ns();
            if member.group == ROOT {
                let size_ns = work_ns / SIZE_PART;
                return Position { ahead_ns: distance_ns + size_ns, has_credit: distance_ns + size_ns < 0 };
            }
            // Until the turn of this member, all active members of the group take turns.
            let work_ns = distance_ns.max(0).saturating_mul(i64::from(group.active));
            (number, ahead_ns) = (member.group, work_ns.min(group.waiting_ns));
        }
    }

    /// The outermost groups with waiting requests, each with the number of its requests that wait or are inside.
    pub(super) fn waiting_groups(&self) -> impl Iterator<Item = (Key, u32)> {
        let turns = self.turns.iter().take_while(|turn| turn.group == ROOT);
        turns.map(|turn| (self.members[turn.member].key, self.members[turn.member].pending))
    }

    /// The outermost group of a member.
    pub(super) fn outermost(&self, leaf: u32) -> u32 {
        let mut number = leaf;
        while self.members[number].group != ROOT {
            number = self.members[number].group;
        }
        number
    }

    /// The outermost group whose turn it is.
    pub(super) fn next_group(&self) -> Option<u32> {
        self.first(ROOT).map(|turn| turn.member)
    }

    /// The number of outermost groups with pending requests, and the work that each of them has lately been given.
    pub(super) fn shares(&self) -> (u32, i64) {
        let root = &self.members[ROOT];
        (root.active, root.virtual_time.lately_ns())
    }

    /// Charges a member and its groups for a request that is released, in turn or out of turn.
    fn serve(&mut self, leaf: u32, work_ns: i64, in_turn: bool, now: Timestamp) {
        self.rise(leaf, |turns, number, group| {
            let member = &mut turns.members[number];
            let tag_ns = if in_turn { member.tag_ns } else { i64::MIN };
            member.tag_ns += work_ns;
            member.seen = now;
            let group = &mut turns.members[group];
            group.virtual_time.serve(tag_ns, work_ns, group.active, now);
        });
    }

    fn count_waiting(&mut self, leaf: u32, work_ns: i64) {
        self.rise(leaf, |turns, number, _| turns.members[number].waiting_ns += work_ns);
    }

    /// Updates the turns of a member and of the groups that contain it.
    fn refresh(&mut self, leaf: u32, requests: &Requests) {
        self.rise(leaf, |turns, number, group| {
            let queued = turns.members[number].queue.first;
            let next = match queued {
                NONE => turns.first(number).map(|turn| (turn.work_ns, turn.serial)),
                place => Some((requests.slab[place].work_ns, requests.slab[place].serial)),
            };
            let member = &mut turns.members[number];
            let turn = next.map(|(work_ns, serial)| Turn {
                group,
                key_ns: member.tag_ns + work_ns / SIZE_PART,
                serial,
                member: number,
                work_ns,
            });
            if member.turn != turn {
                let old = std::mem::replace(&mut member.turn, turn);
                old.map(|old| turns.turns.remove(&old));
                turns.turns.extend(turn);
            }
        });
    }

    /// The first turn in a group.
    fn first(&self, group: u32) -> Option<Turn> {
        let least = Turn { group, key_ns: i64::MIN, serial: 0, member: 0, work_ns: i64::MIN };
        self.turns.range(least..).next().filter(|turn| turn.group == group).copied()
    }

    /// Calls `each` with a member and its group, then with that group and the group that contains it, up to the
    /// outermost group.
    fn rise(&mut self, leaf: u32, mut each: impl FnMut(&mut Turns, u32, u32)) {
        let mut number = leaf;
        while number != ROOT {
            let group = self.members[number].group;
            each(self, number, group);
            number = group;
        }
    }

    fn enter_one(&mut self, group: u32, key: Key, is_leaf: bool, now: Timestamp) -> u32 {
        let number = self.find(group, key, is_leaf);
        let virtual_time = self.members[group].virtual_time;
        let member = &mut self.members[number];
        member.seen = now;
        member.pending += 1;
        if member.turn.is_none() {
            member.tag_ns = virtual_time.of_idle(member.tag_ns);
        }
        if member.pending == 1 {
            self.members.unlink(&mut self.idle, number);
            self.members[group].active += 1;
        }
        number
    }

    fn find(&mut self, group: u32, key: Key, is_leaf: bool) -> u32 {
        let members = &self.members;
        let is_it = |&number: &u32| {
            let member = &members[number];
            (member.group, member.key, member.is_leaf) == (group, key, is_leaf)
        };
        match self.numbers.find(hash(group, key), is_it) {
            Some(&number) => number,
            None => self.create(group, key, is_leaf),
        }
    }

    fn create(&mut self, group: u32, key: Key, is_leaf: bool) -> u32 {
        let most = if group == ROOT { self.members_max / 2 } else { self.members_max / GROUP_PART };
        let is_full = self.members[group].members as usize >= most;
        if self.members.len() > self.members_max && !self.idle.is_empty() {
            self.forget(self.idle.first);
        }
        if key != REST && (is_full || self.members.len() > self.members_max) {
            return self.find(group, REST, is_leaf);
        }
        let parent = &mut self.members[group];
        parent.members += 1;
        let member = Member::new(group, key, is_leaf, parent.virtual_time.of_new());
        let number = self.members.insert(member);
        self.members.append(&mut self.idle, number);
        let members = &self.members;
        let hash_of = |&number: &u32| hash(members[number].group, members[number].key);
        self.numbers.insert_unique(hash(group, key), number, hash_of);
        number
    }

    /// Forgets an idle member.
    fn forget(&mut self, number: u32) {
        let (group, key) = (self.members[number].group, self.members[number].key);
        if let Ok(entry) = self.numbers.find_entry(hash(group, key), |&other| other == number) {
            entry.remove();
        }
        self.members[group].members -= 1;
        self.members.unlink(&mut self.idle, number);
        self.members.remove(number);
    }
}

/// Keys are hashes that clients cannot forge, so it is enough to mix in the number of the group.
fn hash(group: u32, key: Key) -> u64 {
    (key.bits() ^ u64::from(group)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::law::protect::request::{InFlight, Stage};

    const MS: i64 = 1_000_000;
    const NOW: Timestamp = Timestamp::from_millis(1_000);

    fn path<const LEVELS: usize>(bits: [u64; LEVELS]) -> [Key; LEVELS] {
        bits.map(Key::from_bits)
    }

    /// Turns, and the requests that wait.
    struct Model {
        turns: Turns,
        requests: Requests,
    }

    impl Model {
        fn new(members_max: usize) -> Model {
            Model { turns: Turns::new(members_max), requests: Requests::new() }
        }

        fn wait(&mut self, path: &[Key], work_ns: i64) -> u32 {
            let leaf = self.turns.enter(path, NOW);
            let (stage, position) = (Stage::Waiting, Position::default());
            let request =
                InFlight { stage, leaf, work_ns, position, class: 0, page: 0, serial: 0, since: NOW };
            let place = self.requests.insert(request).place();
            self.turns.queue(leaf, place, &mut self.requests);
            place
        }

        /// The next turn: its member, and its work.
        fn next(&mut self) -> Option<(Key, i64)> {
            let place = self.turns.next(&mut self.requests, NOW)?;
            let InFlight { leaf, work_ns, .. } = self.requests.slab[place];
            self.turns.leave(leaf);
            self.requests.remove(place);
            Some((self.turns.members[leaf].key, work_ns))
        }
    }

    #[test]
    fn a_member_that_waits_for_one_goes_before_one_that_waits_for_many() {
        let mut model = Model::new(1_000);
        (0..10).for_each(|_| _ = model.wait(&path([1, 1]), 400 * MS));
        assert_eq!(model.next(), Some((Key::from_bits(1), 400 * MS)));
        model.wait(&path([2, 2]), 400 * MS);
        assert_eq!(model.next(), Some((Key::from_bits(2), 400 * MS)));
    }

    #[test]
    fn a_neighbour_is_not_behind_its_group() {
        let mut model = Model::new(1_000);
        for crawler in 0..40 {
            (0..2).for_each(|_| _ = model.wait(&path([1, crawler]), 400 * MS));
        }
        (0..40).for_each(|_| _ = model.next());
        model.wait(&path([1, 99]), 400 * MS);
        let turns: Vec<Key> = (0..2).filter_map(|_| model.next()).map(|(key, _)| key).collect();
        assert!(turns.contains(&Key::from_bits(99)), "{turns:?}");
    }

    #[test]
    fn small_requests_go_first_among_equals() {
        let mut model = Model::new(1_000);
        model.wait(&path([1]), 200 * MS);
        model.wait(&path([2]), 2 * MS);
        assert_eq!(model.next(), Some((Key::from_bits(2), 2 * MS)));
    }

    #[test]
    fn what_a_request_used_beyond_its_estimate_is_charged() {
        let mut model = Model::new(1_000);
        for member in [1, 2] {
            (0..3).for_each(|_| _ = model.wait(&path([member]), 100 * MS));
        }
        assert_eq!(model.next(), Some((Key::from_bits(1), 100 * MS)));
        let leaf = model.turns.find(ROOT, Key::from_bits(1), true);
        model.turns.charge(leaf, 900 * MS, &model.requests);
        let turns: Vec<Key> = (0..3).filter_map(|_| model.next()).map(|(key, _)| key).collect();
        assert_eq!(turns, [Key::from_bits(2); 3]);
    }

    #[test]
    fn a_full_group_shares_one_queue_and_the_rest_its_members() {
        let mut model = Model::new(160);
        for member in 0..100_000 {
            model.wait(&path([1, member]), MS);
        }
        assert!(model.turns.len() <= 12, "{}", model.turns.len());
        model.wait(&path([2, 1]), MS);
        assert_eq!(model.turns.len(), 14, "another network has room");
        assert_eq!((0..100_001).filter_map(|_| model.next()).count(), 100_001);
        for member in 0..100_000 {
            let leaf = model.turns.enter(&path([member, member]), NOW);
            model.turns.leave(leaf);
        }
        assert!(model.turns.len() <= 161, "{}", model.turns.len());
    }

    #[test]
    fn an_idle_member_is_forgotten_after_a_minute() {
        let mut model = Model::new(1_000);
        for member in 0..100 {
            let leaf = model.turns.enter(&path([member, member]), NOW);
            model.turns.leave(leaf);
        }
        assert_eq!(model.turns.len(), 200);
        let later = NOW + FORGOTTEN + Duration::from_secs(1);
        for _ in 0..100 {
            let leaf = model.turns.enter(&path([7, 7]), later);
            model.turns.leave(leaf);
        }
        assert_eq!(model.turns.len(), 2);
    }

    proptest! {
        /// Groups that always wait get equal work, whatever they ask for and however many wait.
        #[test]
        fn equal_groups_get_equal_work(
            groups in prop::collection::vec((1usize..40, 1usize..5, 1i64..300), 2..8),
        ) {
            let mut model = Model::new(10_000);
            for (group, &(waiting, members, work_ms)) in groups.iter().enumerate() {
                for number in 0..waiting {
                    model.wait(&path([group as u64, (100 * group + number % members) as u64]), work_ms * MS);
                }
            }
            let mut given_ns = vec![0; groups.len()];
            while given_ns.iter().sum::<i64>() < 200_000 * MS {
                let (key, work_ns) = model.next().unwrap();
                let group = key.bits() / 100;
                given_ns[group as usize] += work_ns;
                model.wait(&path([group, key.bits()]), work_ns);
            }
            let mean_ns = given_ns.iter().sum::<i64>() / groups.len() as i64;
            for given_ns in given_ns {
                prop_assert!((given_ns - mean_ns).abs() < mean_ns / 10, "{given_ns} of {mean_ns}");
            }
        }
    }
}
