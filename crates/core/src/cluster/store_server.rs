//! The store of a token server, with the messages of the nodes and the store's answers.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::{Key, Timestamp};
use crate::cluster::{
    Answer, Arguments, Beat, BlockLog, BlockNews, BlockUpdate, HINTS_MAX, Member, Membership, NodeList,
    Presence, Records,
};

/// The maximum number of keys with a record. Together, this many records take about 80 MB.
const RECORDS_MAX: usize = 500_000;

/// How often expired records are dropped.
const SWEEP: Duration = Duration::from_secs(5);

/// A node's pending report about a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyUpdate {
    pub key: Key,
    pub arguments: Arguments,
}

/// A node's message to a store.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Due {
    pub updates: Vec<KeyUpdate>,
    pub beat: Option<Beat>,
    pub blocks: Option<BlockUpdate>,
}

/// The store's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// One answer for each key update, in the same order.
    pub answers: Vec<Answer>,
    pub membership: Option<Membership>,
    pub blocks: Option<BlockNews>,
}

impl Due {
    pub fn is_empty(&self) -> bool {
        self.updates.is_empty() && self.beat.is_none() && self.blocks.is_none()
    }

    /// Whether a store can calculate with the whole message, which may come from an unauthenticated client.
    fn is_within_bounds(&self) -> bool {
        self.updates.iter().all(|update| update.arguments.are_within_bounds())
            && self.beat.as_ref().is_none_or(Beat::is_within_bounds)
    }
}

impl Response {
    /// Whether the answer matches the message, and a node can calculate with its numbers.
    pub fn fits(&self, due: &Due) -> bool {
        let response = self.answers.iter().zip(&due.updates);
        (self.answers.len(), self.membership.is_some(), self.blocks.is_some())
            == (due.updates.len(), due.beat.is_some(), due.blocks.is_some())
            && response.into_iter().all(|(answer, update)| answer.fits(&update.arguments))
            && self.membership.iter().flat_map(|membership| &membership.members).all(Member::is_within_bounds)
    }
}

/// The store of a token server.
#[derive(Debug)]
pub struct StoreServer {
    /// The records of the keys.
    pub records: Records,
    node_list: NodeList,
    block_log: BlockLog,
    swept: Timestamp,
}

impl StoreServer {
    /// The epoch distinguishes the blocks of this run from those of other runs.
    pub fn new(epoch: String) -> StoreServer {
        StoreServer {
            records: Records::new(RECORDS_MAX),
            node_list: NodeList::default(),
            block_log: BlockLog::new(epoch),
            swept: Timestamp::default(),
        }
    }

    /// Answers a node's message. None if any number or string is out of bounds: the whole message is then ignored.
    pub fn exchange(&mut self, due: &Due, presence: Presence, now: Timestamp) -> Option<Response> {
        if !due.is_within_bounds() {
            return None;
        }
        if now.since(self.swept) >= SWEEP {
            self.swept = now;
            self.records.sweep(now);
        }
        let Due { updates, beat, blocks } = due;
        let post = |update: &KeyUpdate| self.records.post(update.key, &update.arguments, now);
        let answers = updates.iter().map(post).collect();
        let mut membership = beat.clone().map(|beat| self.node_list.beat(beat, presence, now));
        if let Some(Membership { crowded, hints, .. }) = &mut membership {
            let known = crowded.iter().filter_map(|&key| Some((key, self.records.hint(key, now)?)));
            let known = known.filter(|(_, hint)| hint.is_within_bounds());
            hints.extend(known.take(HINTS_MAX));
        }
        Some(Response {
            answers,
            membership,
            blocks: blocks.as_ref().map(|blocks| self.block_log.send(blocks, now)),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::Target;
    use crate::cluster::records::tests::message;
    use crate::cluster::{
        Arguments, BlockChange, CountMessage, CountReply, Extent, LeaseMessage, LeaseReply, Member, Message,
        Reply, Wants,
    };

    const START: Timestamp = Timestamp::from_nanos(1_000_000_000_000);

    fn store_server() -> StoreServer {
        StoreServer::new("e".into())
    }

    /// Two seconds of a rate of 1/s.
    fn rate() -> Message {
        Message { charge: 2.0, ..message() }
    }

    fn one_update(arguments: Arguments) -> Due {
        Due { updates: vec![KeyUpdate { key: Key::from_bits(7), arguments }], ..Due::default() }
    }

    fn beat(member: Member, secret: &str) -> Due {
        Due { beat: Some(Beat { member, secret: secret.into(), crowded: vec![] }), ..Due::default() }
    }

    #[test]
    fn tellings_are_answered_in_their_order() {
        let mut store_server = store_server();
        let due = Due {
            updates: [
                one_update(Arguments::Rate(rate())).updates,
                one_update(Arguments::Count(count())).updates,
            ]
            .concat(),
            ..Due::default()
        };
        let response = store_server.exchange(&due, Presence::Node, START).unwrap();
        assert!(response.fits(&due));
        assert!(matches!(
            response.answers[..],
            [Answer::Rate(Reply { ahead_s: 1.0, .. }), Answer::Count(CountReply { current: 3.0, .. })]
        ));
        let other = Response { answers: response.answers.iter().rev().cloned().collect(), ..response };
        assert!(!other.fits(&due) && !Response { answers: vec![], ..other }.fits(&due));
    }

    fn count() -> CountMessage {
        CountMessage { charge: 3.0, limit: 10.0, window_s: 1.0, kept_s: 32.0, ..CountMessage::default() }
    }

    fn lease() -> LeaseMessage {
        LeaseMessage { want: 5.0, limit: 1_000.0, window_s: 60.0, kept_s: 90.0, ..LeaseMessage::default() }
    }

    #[test]
    fn numbers_and_texts_beyond_all_reason_change_nothing() {
        let mut store_server = store_server();
        let secret = "00112233445566778899aabbccddeeff";
        for due in [
            one_update(Arguments::Rate(Message { charge: f64::NAN, ..rate() })),
            one_update(Arguments::Rate(Message { charge: 1e300, ..rate() })),
            one_update(Arguments::Rate(Message { memory_s: 0.0, ..rate() })),
            one_update(Arguments::Rate(Message { restore_s: Some(f64::INFINITY), ..rate() })),
            one_update(Arguments::Count(CountMessage { window_s: 0.0, ..count() })),
            one_update(Arguments::Lease(LeaseMessage { age_s: Some(-1.0), ..lease() })),
            beat(Member::default(), "no secret"),
            beat(Member { name: "x".repeat(1_000), ..Member::default() }, secret),
            beat(Member { name: "a\nb".into(), ..Member::default() }, secret),
        ] {
            let mixed =
                Due { updates: [one_update(Arguments::Rate(rate())).updates, due.updates].concat(), ..due };
            assert_eq!(store_server.exchange(&mixed, Presence::Node, START), None, "{mixed:?}");
        }
        assert_eq!(store_server.records.count(), 0);
        assert!(store_server.exchange(&beat(Member::default(), secret), Presence::Node, START).is_some());
    }

    #[test]
    fn answers_beyond_all_reason_do_not_fit() {
        let (rate, count, lease) =
            (Arguments::Rate(rate()), Arguments::Count(count()), Arguments::Lease(lease()));
        let reply = |ahead_s, demand, age_s| {
            Answer::Rate(Reply { ahead_s, demand, slow_demand: 7.25, age_s, grant: None })
        };
        assert!(reply(-0.02, 3.5, 1.0).fits(&rate));
        for (ahead_s, demand, age_s) in
            [(f64::NAN, 0.0, 0.0), (1e300, 0.0, 0.0), (0.0, -1.0, 0.0), (0.0, 0.0, f64::INFINITY)]
        {
            assert!(!reply(ahead_s, demand, age_s).fits(&rate));
        }
        let reply = |current, over, age_s| Answer::Count(CountReply { current, before: 4.0, over, age_s });
        assert!(reply(3.0, 0.0, 1.0).fits(&count));
        for (current, over, age_s) in
            [(-1.0, 0.0, 0.0), (0.0, 0.0, 1.1), (0.0, 11.0, 0.0), (f64::NAN, 0.0, 0.0)]
        {
            assert!(!reply(current, over, age_s).fits(&count));
        }
        let reply = |granted, given, rest_s| Answer::Lease(LeaseReply { granted, given, rest_s });
        assert!(reply(5.0, 500.0, 60.0).fits(&lease) && !reply(5.0, 500.0, 60.0).fits(&count));
        // More than was wanted, more than there is, later than the window.
        for (granted, given, rest_s) in
            [(6.0, 500.0, 0.0), (5.0, 1_001.0, 0.0), (5.0, 500.0, 60.1), (f64::NAN, 0.0, 0.0)]
        {
            assert!(!reply(granted, given, rest_s).fits(&lease));
        }
    }

    #[test]
    fn a_key_without_room_for_its_record_is_answered_and_counted_as_refused() {
        let mut store_server = StoreServer { records: Records::new(1), ..store_server() };
        for (number, refused) in [(1, 0), (2, 1), (1, 1), (3, 2)] {
            let update = KeyUpdate { key: Key::from_bits(number), arguments: Arguments::Rate(rate()) };
            let due = Due { updates: vec![update], ..Due::default() };
            assert!(store_server.exchange(&due, Presence::Node, START).unwrap().fits(&due));
            assert_eq!((store_server.records.count(), store_server.records.refused()), (1, refused));
        }
    }

    #[test]
    fn blocks_go_from_node_to_node() {
        let mut store_server = store_server();
        let target = Target::parse(b"source=192.0.2.66").unwrap();
        let mut send = |epoch: &str, changes| {
            let blocks = Some(BlockUpdate { epoch: epoch.into(), seq: 0, changes });
            store_server
                .exchange(&Due { blocks, ..Due::default() }, Presence::Node, START)
                .unwrap()
                .blocks
                .unwrap()
        };
        let rest = Some(Duration::from_secs(60));
        let news = send("", vec![BlockChange { target: target.clone(), rest, is_restored: false }]);
        assert_eq!((news.extent, news.epoch.as_str(), news.seq), (Extent::Lost, "e", 1));
        assert_eq!(send("e", vec![]).list, [(target, rest)]);
    }

    fn anything() -> impl Strategy<Value = f64> {
        prop_oneof![Just(0.0), Just(f64::NAN), Just(f64::INFINITY), Just(-1.0), 0.0..1e3f64, any::<f64>()]
    }

    proptest! {
        /// Whatever a node sends, it is refused as a whole or answered with numbers that fit.
        #[test]
        fn any_numbers_are_refused_or_have_an_answer_that_fits(
            numbers in prop::collection::vec((prop::array::uniform9(anything()), any::<bool>(), 0u64..1_000_000), 1..20),
        ) {
            let (mut store_server, mut now) = (store_server(), START);
            for ([a, b, c, d, e, f, g, h, i], flag, ms) in numbers {
                now = now + Duration::from_millis(ms);
                let wants = Wants {
                    run: ms % 2, number: ms % 5, want: ms as u32 % 40, waited_s: b, half_trip_s: c, back: vec![d, e],
                };
                let rate = Message {
                    wants: (ms % 3 > 0).then_some(wants),
                    charge: a, asked: b, asked_lately: c, restore_s: flag.then_some(d), known_age_s: e, returns: flag,
                    slot_s: 1.0, burst_s: f, cap_s: g, memory_s: h, kept_s: i, own: 0.0,
                };
                let restore = CountReply { current: b, before: c, over: d, age_s: e };
                let count = CountMessage {
                    charge: a, restore: flag.then_some(restore), limit: f, window_s: g, kept_s: h,
                };
                let lease = LeaseMessage {
                    want: a, asked: b, restore: flag.then_some((c, d)), limit: e, kept_back: f, window_s: g,
                    age_s: flag.then_some(h), kept_s: i,
                };
                for arguments in [Arguments::Rate(rate), Arguments::Count(count), Arguments::Lease(lease)] {
                    if let Some(response) = store_server.exchange(&one_update(arguments.clone()), Presence::Node, now) {
                        let is_rate = matches!(arguments, Arguments::Rate(_));
                        prop_assert!(!is_rate || response.fits(&one_update(arguments.clone())), "{:?}", response);
                        let numbers = format!("{arguments:?} {response:?}");
                        prop_assert!(!numbers.contains("NaN") && !numbers.contains("inf"), "{}", numbers);
                    }
                }
            }
        }
    }
}
