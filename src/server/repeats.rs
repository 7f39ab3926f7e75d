//! Repeated requests: after an internal redirect, nginx asks again with the same request id.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use xxhash_rust::xxh64::xxh64;

use crate::base::time::Timestamp;
use crate::base::verdict::{Decision, Verdict};

/// The time for which an answer is remembered after its delay.
const MEMORY: Duration = Duration::from_secs(1);

/// The most ids in one shard; all shards take 24 MiB. Further ids are not remembered, so their redirected requests
/// count twice.
const IDS_MAX: usize = 7_168;

const SHARDS: usize = 16;

/// An answer, and the end of its delay.
#[derive(Clone, Copy, Debug)]
struct Answer {
    decision: Decision,
    due: Timestamp,
}

impl Answer {
    fn forgotten_at(&self) -> Timestamp {
        self.due + MEMORY
    }
}

/// The answers of the last second, by request id.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    answers: HashMap<u64, Answer>,
    swept_at: Timestamp,
}

impl Repeats {
    /// The answer to a repeated request: the rest of its delay, or the same denial.
    pub(super) fn recall(&self, id: &[u8], now: Timestamp) -> Option<Decision> {
        let hash = xxh64(id, 0);
        let answer = *self.shard(hash).lock().unwrap_or_else(PoisonError::into_inner).answers.get(&hash)?;
        if answer.forgotten_at() <= now {
            return None;
        }
        let mut decision = answer.decision;
        if decision.is_let_through() {
            decision.verdict = Verdict::after(answer.due.since(now));
        }
        Some(decision)
    }

    /// Remembers a decision; false if there is no room.
    pub(super) fn remember(&self, id: &[u8], decision: Decision, now: Timestamp) -> bool {
        let wait = decision.verdict.wait();
        let hash = xxh64(id, 0);
        let mut shard = self.shard(hash).lock().unwrap_or_else(PoisonError::into_inner);
        shard.sweep(now);
        let room = shard.answers.len() < IDS_MAX;
        if room {
            shard.answers.insert(hash, Answer { decision, due: now + wait });
        }
        room
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        &self.shards[(hash >> 60) as usize]
    }
}

impl Shard {
    /// Removes expired answers, at most once a second.
    fn sweep(&mut self, now: Timestamp) {
        if now.since(self.swept_at) >= MEMORY {
            self.answers.retain(|_, answer| answer.forgotten_at() > now);
            self.swept_at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::key::Key;
    use crate::base::slo_id::SloId;
    use crate::base::verdict::Judged;

    fn decision(verdict: Verdict) -> Decision {
        let (slo, key) = (SloId::DEFAULT, Key::from_bits(1));
        let judged = Judged { slo, key, verdict, remaining: 0, is_dry_run: false, counts_end: false };
        Decision::of(&[judged], 1, Timestamp::from_millis(10_000))
    }

    #[test]
    fn a_redirect_waits_only_for_what_is_left() {
        let (repeats, start) = (Repeats::default(), Timestamp::from_millis(10_000));
        let ms = Duration::from_millis;
        assert_eq!(repeats.recall(b"id", start), None);
        assert!(repeats.remember(b"id", decision(Verdict::Delay(ms(300))), start));
        let recall = |after| repeats.recall(b"id", start + ms(after)).map(|decision| decision.verdict);
        assert_eq!(recall(100), Some(Verdict::Delay(ms(200))));
        assert_eq!(recall(300), Some(Verdict::Pass));
        assert_eq!(recall(1_299), Some(Verdict::Pass));
        assert_eq!(recall(1_300), None, "a second after its answer it is a new request");
    }

    #[test]
    fn a_refusal_is_repeated() {
        let (repeats, start) = (Repeats::default(), Timestamp::from_millis(10_000));
        let deny = decision(Verdict::Deny { retry_after_s: 3 });
        assert!(repeats.remember(b"id", deny, start));
        assert_eq!(repeats.recall(b"id", start), Some(deny));
        assert_eq!(repeats.recall(b"other", start), None);
    }

    #[test]
    fn a_flood_of_ids_is_bounded() {
        let (repeats, start) = (Repeats::default(), Timestamp::from_millis(10_000));
        let kept =
            (0u32..400_000).filter(|id| repeats.remember(&id.to_le_bytes(), decision(Verdict::Pass), start));
        assert_eq!(kept.count(), SHARDS * IDS_MAX);
        let later = start + Duration::from_secs(2);
        assert!(repeats.remember(b"later", decision(Verdict::Pass), later));
    }
}
