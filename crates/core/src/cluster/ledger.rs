//! The store's side: the record of each key, each with an end.

use std::collections::HashMap;
use std::time::Duration;

use crate::base::key::Key;
use crate::base::time::Timestamp;
use crate::cluster::count::{CountPosting, CountRecord};
use crate::cluster::held::{Answer, Words};
use crate::cluster::lease::{LeasePosting, LeaseRecord};
use crate::cluster::record::{RatePosting, Record};

/// What the store reads of a message about a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Posting {
    Rate(RatePosting),
    Count(CountPosting),
    Lease(LeasePosting),
}

impl Posting {
    /// The life of the record.
    fn kept_s(&self) -> f64 {
        match self {
            Posting::Rate(posting) => posting.kept_s,
            Posting::Count(posting) => posting.kept_s,
            Posting::Lease(posting) => posting.kept_s,
        }
    }
}

impl Words {
    /// What the store reads of them.
    pub fn posting(&self) -> Posting {
        match self {
            Words::Rate(plan, message) => Posting::Rate(message.posting(plan)),
            Words::Count(plan, message) => Posting::Count(message.posting(plan)),
            Words::Lease(plan, message) => Posting::Lease(message.posting(plan)),
        }
    }
}

/// The records of keys. Bounded: without room, the record of a new key is made for one message only. Nodes teach the
/// store what they know in each message, so they then share what the last one of them knew.
#[derive(Debug)]
pub struct Ledger {
    records: HashMap<Key, Kept>,
    records_max: usize,
    refused: u64,
}

#[derive(Debug)]
struct Kept {
    record: AnyRecord,
    ends: Timestamp,
}

/// The record of a key, by the mode of its SLO.
#[derive(Debug)]
enum AnyRecord {
    Rate(Record),
    Count(CountRecord),
    Lease(LeaseRecord),
}

impl Ledger {
    pub fn new(records_max: usize) -> Ledger {
        Ledger { records: HashMap::new(), records_max, refused: 0 }
    }

    /// Takes up a message about a key, and answers it.
    pub fn post(&mut self, key: Key, posting: &Posting, now: Timestamp) -> Answer {
        let now_s = now.as_nanos() as f64 / 1e9;
        let ends = now + Duration::try_from_secs_f64(posting.kept_s()).unwrap_or_default();
        let known = self.records.get_mut(&key).filter(|kept| now < kept.ends);
        if let Some(Kept { record, ends: known_ends }) = known {
            *known_ends = ends;
            if let Some(answer) = record.merge(posting, now_s) {
                return answer;
            }
        }
        // A key without a record, or an edit that has changed the mode of its SLO.
        let (record, answer) = AnyRecord::begin(posting, now_s);
        if self.records.len() < self.records_max || self.records.contains_key(&key) {
            self.records.insert(key, Kept { record, ends });
        } else {
            self.refused += 1;
        }
        answer
    }

    /// Forgets the records that are at their end.
    pub fn sweep(&mut self, now: Timestamp) {
        self.records.retain(|_, kept| now < kept.ends);
        if self.records.len() < self.records.capacity() / 4 {
            self.records.shrink_to_fit();
        }
    }

    /// How many keys have a record.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Messages about a key for whose record there was no room.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

impl AnyRecord {
    /// Begins a record with its first message.
    fn begin(posting: &Posting, now_s: f64) -> (AnyRecord, Answer) {
        match posting {
            Posting::Rate(posting) => {
                let mut record = Record::new(now_s);
                let reply = record.merge(posting, now_s);
                (AnyRecord::Rate(record), Answer::Rate(reply))
            }
            Posting::Count(posting) => {
                let mut record = CountRecord::default();
                let reply = record.merge(posting, now_s);
                (AnyRecord::Count(record), Answer::Count(reply))
            }
            Posting::Lease(posting) => {
                let mut record = LeaseRecord::new(now_s);
                let reply = record.merge(posting, now_s);
                (AnyRecord::Lease(record), Answer::Lease(reply))
            }
        }
    }

    /// None: the record is of another mode.
    fn merge(&mut self, posting: &Posting, now_s: f64) -> Option<Answer> {
        Some(match (self, posting) {
            (AnyRecord::Rate(record), Posting::Rate(posting)) => Answer::Rate(record.merge(posting, now_s)),
            (AnyRecord::Count(record), Posting::Count(posting)) => {
                Answer::Count(record.merge(posting, now_s))
            }
            (AnyRecord::Lease(record), Posting::Lease(posting)) => {
                Answer::Lease(record.merge(posting, now_s))
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_nanos(1_000_000_000_000);

    fn posting(charge_s: f64, taught_s: Option<f64>) -> Posting {
        Posting::Rate(RatePosting {
            charge_s,
            asked: 1.0,
            asked_lately: 1.0,
            taught_s,
            known_age_s: 0.0,
            returns: false,
            burst_s: 1.0,
            cap_s: 5.0,
            memory_s: 1.0,
            kept_s: 36.0,
        })
    }

    fn ahead_s(answer: Answer) -> f64 {
        match answer {
            Answer::Rate(reply) => (reply.ahead_s * 1e3).round() / 1e3,
            answer => panic!("{answer:?} is no answer to a rate"),
        }
    }

    #[test]
    fn a_record_lasts_until_its_end_and_no_longer() {
        let (mut ledger, key) = (Ledger::new(10), Key::from_bits(7));
        assert_eq!(ahead_s(ledger.post(key, &posting(3.0, None), START)), 2.0);
        let later = START + Duration::from_millis(500);
        assert_eq!(ahead_s(ledger.post(key, &posting(1.0, None), later)), 2.5);
        ledger.sweep(later + Duration::from_secs(35));
        assert_eq!(ledger.len(), 1);
        let end = later + Duration::from_secs(36);
        assert_eq!(ahead_s(ledger.post(key, &posting(0.0, None), end)), -1.0, "a full burst");
        ledger.sweep(end + Duration::from_secs(36));
        assert_eq!(ledger.len(), 0);
    }

    #[test]
    fn a_full_ledger_answers_by_what_a_node_teaches() {
        let mut ledger = Ledger::new(1);
        ledger.post(Key::from_bits(1), &posting(1.0, None), START);
        for _ in 0..2 {
            let answer = ledger.post(Key::from_bits(2), &posting(1.0, Some(2.0)), START);
            assert_eq!(ahead_s(answer), 3.0);
        }
        assert_eq!((ledger.len(), ledger.refused()), (1, 2));
    }

    #[test]
    fn a_record_of_another_mode_is_replaced() {
        let (mut ledger, key) = (Ledger::new(1), Key::from_bits(7));
        ledger.post(key, &posting(1.0, None), START);
        let count = CountPosting { charge: 3.0, taught: None, limit: 10.0, window_s: 1.0, kept_s: 32.0 };
        assert!(
            matches!(ledger.post(key, &Posting::Count(count), START), Answer::Count(reply) if reply.current == 3.0)
        );
        assert_eq!((ledger.len(), ledger.refused()), (1, 0));
    }
}
