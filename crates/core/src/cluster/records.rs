//! The store's records. Each key has one record, and each record has an expiry.

use std::collections::HashMap;
use std::time::Duration;

use crate::base::{Key, Timestamp};
use crate::cluster::share::KeptRecord;
use crate::cluster::{Answer, Arguments, CountRecord, Grant, Hint, LeaseRecord, Message, Record, Reply};
use crate::table::{BoundedMap, Expiring};

/// The records of keys. Their number is bounded: without room, the record of a new key lasts for only one message.
/// Nodes restore their state in each message, so they then share the state of the last node.
#[derive(Debug)]
pub struct Records {
    records: BoundedMap<Lasting>,
    /// The last grant for each key to each node. A node is identified by its run.
    grants: HashMap<(Key, u64), Granted>,
}

/// How long a grant is remembered. A node repeats its message as soon as it has reconnected, or not at all.
const GRANT_KEPT: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Granted {
    number: u64,
    grant: Grant,
    at: Timestamp,
}

#[derive(Debug)]
struct Lasting {
    record: KeptRecord,
    ends: Timestamp,
}

impl Expiring for Lasting {
    fn is_over(&self, now: Timestamp) -> bool {
        now >= self.ends
    }
}

impl Records {
    pub fn new(records_max: usize) -> Records {
        Records { records: BoundedMap::new(records_max), grants: HashMap::new() }
    }

    /// Applies a node's report about a key, and answers it. A report that comes twice gets the same grant both times.
    pub fn post(&mut self, key: Key, arguments: &Arguments, now: Timestamp) -> Answer {
        let Arguments::Rate(message @ Message { wants: Some(wants), .. }) = arguments else {
            return self.apply(key, arguments, now);
        };
        let granted = self
            .grants
            .get(&(key, wants.run))
            .filter(|granted| granted.number == wants.number && granted.grant.fits(wants));
        let repeated = granted.map(|granted| granted.grant.later(now.since(granted.at).as_secs_f64()));
        if let Some(grant) = repeated {
            let mut answer = self.apply(key, &Arguments::Rate(message.repeated()), now);
            if let Answer::Rate(reply) = &mut answer {
                reply.grant = Some(grant);
            }
            return answer;
        }
        let answer = self.apply(key, arguments, now);
        if let Answer::Rate(Reply { grant: Some(grant), .. }) = &answer
            && self.grants.len() < self.records.room()
        {
            let granted = Granted { number: wants.number, grant: grant.clone(), at: now };
            self.grants.insert((key, wants.run), granted);
        }
        answer
    }

    fn apply(&self, key: Key, arguments: &Arguments, now: Timestamp) -> Answer {
        let now_s = now.as_nanos() as f64 / 1e9;
        let ends = now + Duration::try_from_secs_f64(arguments.kept_s()).unwrap_or_default();
        let mut place = self.records.at(key);
        if let Some(known) = place.get().filter(|known| now < known.ends)
            && let Some(answer) = known.record.merge(arguments, now_s)
        {
            known.ends = ends;
            return answer;
        }
        // The key has no record, its record has expired, or an edit has changed the mode of its SLO.
        let mut record = KeptRecord::new(arguments, now_s);
        let answer = record.merge(arguments, now_s).expect("a new record has the mode of its arguments");
        place.put(Lasting { record, ends }, now);
        answer
    }

    /// The state of a key that nodes share in the `rate` mode. None if the key has no such record.
    pub fn hint(&self, key: Key, now: Timestamp) -> Option<Hint> {
        match &self.records.at(key).get().filter(|known| now < known.ends)?.record {
            KeptRecord::Rate(record) => Some(record.hint(now.as_nanos() as f64 / 1e9)),
            KeptRecord::Count(_) | KeptRecord::Lease(_) => None,
        }
    }

    /// Drops expired records and old grants.
    pub fn sweep(&mut self, now: Timestamp) {
        self.records.sweep(now);
        self.grants.retain(|_, granted| now.since(granted.at) < GRANT_KEPT);
    }

    /// The number of keys with a record.
    pub fn count(&self) -> usize {
        self.records.taken()
    }

    /// The number of messages about keys whose records found no room.
    pub fn refused(&self) -> u64 {
        self.records.refused()
    }
}

impl Arguments {
    /// The lifetime of the record.
    fn kept_s(&self) -> f64 {
        match self {
            Arguments::Rate(message) => message.kept_s,
            Arguments::Count(message) => message.kept_s,
            Arguments::Lease(message) => message.kept_s,
        }
    }
}

impl KeptRecord {
    fn new(arguments: &Arguments, now_s: f64) -> KeptRecord {
        match arguments {
            Arguments::Rate(_) => KeptRecord::Rate(Record::new(now_s)),
            Arguments::Count(_) => KeptRecord::Count(CountRecord::default()),
            Arguments::Lease(_) => KeptRecord::Lease(LeaseRecord::new(now_s)),
        }
    }

    /// Applies a node's report. None if the record belongs to a different mode.
    fn merge(&mut self, arguments: &Arguments, now_s: f64) -> Option<Answer> {
        Some(match (self, arguments) {
            (KeptRecord::Rate(record), Arguments::Rate(message)) => {
                Answer::Rate(record.merge(message, now_s))
            }
            (KeptRecord::Count(record), Arguments::Count(message)) => {
                Answer::Count(record.merge(message, now_s))
            }
            (KeptRecord::Lease(record), Arguments::Lease(message)) => {
                Answer::Lease(record.merge(message, now_s))
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::cluster::{CountMessage, Message};

    const START: Timestamp = Timestamp::from_nanos(1_000_000_000_000);

    /// At 1/s, with a burst of one request.
    pub(in crate::cluster) fn message() -> Message {
        Message { slot_s: 1.0, burst_s: 1.0, cap_s: 5.0, memory_s: 1.0, kept_s: 36.0, ..Message::default() }
    }

    fn arguments(charge: f64, restore_s: Option<f64>) -> Arguments {
        Arguments::Rate(Message { charge, asked: 1.0, asked_lately: 1.0, restore_s, ..message() })
    }

    fn ahead_s(answer: Answer) -> f64 {
        match answer {
            Answer::Rate(reply) => (reply.ahead_s * 1e3).round() / 1e3,
            answer => panic!("{answer:?} is not an answer about a rate"),
        }
    }

    #[test]
    fn a_record_lasts_until_its_end_and_no_longer() {
        let (mut records, key) = (Records::new(10), Key::from_bits(7));
        assert_eq!(ahead_s(records.post(key, &arguments(3.0, None), START)), 2.0);
        let later = START + Duration::from_millis(500);
        assert_eq!(ahead_s(records.post(key, &arguments(1.0, None), later)), 2.5);
        records.sweep(later + Duration::from_secs(35));
        assert_eq!(records.count(), 1);
        let end = later + Duration::from_secs(36);
        assert_eq!(ahead_s(records.post(key, &arguments(0.0, None), end)), -1.0, "a full burst");
        records.sweep(end + Duration::from_secs(36));
        assert_eq!(records.count(), 0);
    }

    #[test]
    fn a_full_ledger_answers_by_what_a_node_teaches() {
        let mut records = Records::new(1);
        records.post(Key::from_bits(1), &arguments(1.0, None), START);
        for _ in 0..2 {
            let answer = records.post(Key::from_bits(2), &arguments(1.0, Some(2.0)), START);
            assert_eq!(ahead_s(answer), 3.0);
        }
        assert_eq!((records.count(), records.refused()), (1, 2));
    }

    #[test]
    fn a_record_of_another_mode_is_replaced() {
        let (mut records, key) = (Records::new(1), Key::from_bits(7));
        records.post(key, &arguments(1.0, None), START);
        let (charge, limit, window_s, kept_s) = (3.0, 10.0, 1.0, 32.0);
        let count = CountMessage { charge, limit, window_s, kept_s, ..CountMessage::default() };
        assert!(
            matches!(records.post(key, &Arguments::Count(count), START), Answer::Count(reply) if reply.current == 3.0)
        );
        assert_eq!((records.count(), records.refused()), (1, 0));
    }

    #[test]
    fn a_record_begins_anew_at_the_moment_of_its_end() {
        for (after, age_s) in [(Duration::from_millis(35_500), 35.5), (Duration::from_secs(36), 0.0)] {
            let (mut records, key) = (Records::new(1), Key::from_bits(7));
            records.post(key, &arguments(1.0, None), START);
            let answer = records.post(key, &arguments(1.0, None), START + after);
            assert!(matches!(&answer, Answer::Rate(reply) if reply.age_s == age_s), "{answer:?}");
        }
    }
}
