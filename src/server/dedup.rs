//! Recognises repeated requests: after an internal redirect, nginx queries again with the same request id.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;

use slowlane_core::base::{Key, KeySecret, Reply, Timestamp, Verdict};
use slowlane_core::table::{BoundedMap, Expiring};

/// How long an answer is remembered after its delay has ended.
const MEMORY: Duration = Duration::from_secs(1);

/// The maximum number of repeats of an answer: nginx redirects a request at most ten times. If nginx is misconfigured,
/// clients may choose the id, and this maximum limits their gain.
const DEDUP_MAX: u8 = 10;

/// The maximum number of remembered answers. They take 15 MiB, and 8 MiB more if each has a ticket. Answers beyond this
/// number are not remembered, so their redirected requests count twice.
const ANSWERS_MAX: usize = 100_000;

/// A hash of the parts of a query on which its decision depends.
///
/// The hash uses the secret of the keys, so no client can find two queries with the same fingerprint. The secret, and
/// so the fingerprint, stays the same after an upgrade.
pub(crate) type Fingerprint = Key;

/// A reply, and the end of its delay.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DueReply {
    reply: Reply,
    due: Timestamp,
    dedup: u8,
}

const _: () = assert!(size_of::<(Fingerprint, DueReply)>() <= 56, "each question writes one");

impl Expiring for DueReply {
    fn is_over(&self, now: Timestamp) -> bool {
        self.due + MEMORY <= now
    }
}

/// By the fingerprint of the query, the answers whose delay has not ended, or has ended within the last second.
#[derive(Debug)]
pub(crate) struct DedupCache {
    hasher: SipHasher13,
    answers: BoundedMap<DueReply>,
}

impl DedupCache {
    pub(super) fn new(secret: KeySecret) -> DedupCache {
        DedupCache { hasher: secret.hasher(), answers: BoundedMap::new(ANSWERS_MAX) }
    }

    /// The fingerprint of a query. `lines` are the parts on which its decision depends, in order; none contains a line
    /// break. `room` is a buffer for these parts.
    pub(super) fn fingerprint<'a>(
        &self,
        lines: impl Iterator<Item = &'a [u8]>,
        room: &mut Vec<u8>,
    ) -> Fingerprint {
        room.clear();
        for line in lines {
            room.extend_from_slice(line);
            room.push(b'\n');
        }
        // The parts are hashed in one call, because a hasher takes several times as long for small parts.
        Key::from_bits(self.hasher.hash(room))
    }

    /// The answer to a repeated query: the rest of the delay, or a denial. `None` if it is new, or repeated too often.
    pub(super) fn recall(&self, fingerprint: Fingerprint, now: Timestamp) -> Option<Reply> {
        let mut place = self.answers.at(fingerprint);
        let answer = place.get().filter(|answer| !answer.is_over(now) && answer.dedup < DEDUP_MAX)?;
        answer.dedup += 1;
        let mut reply = answer.reply.clone();
        if reply.verdict.is_let_through() {
            reply.verdict = Verdict::after(answer.due.since(now));
        }
        Some(reply)
    }

    /// Remembers a final reply, whose delay ends at `due`; returns false if there is no room.
    pub(super) fn remember(
        &self,
        fingerprint: Fingerprint,
        reply: &Reply,
        due: Timestamp,
        now: Timestamp,
    ) -> bool {
        self.answers.at(fingerprint).put(DueReply { reply: reply.clone(), due, dedup: 0 }, now)
    }

    /// Drops expired answers.
    pub(crate) fn sweep(&self, now: Timestamp) {
        self.answers.sweep(now);
    }

    /// All answers that have not expired, one shard at a time.
    pub(crate) fn remembered(&self, now: Timestamp) -> impl Iterator<Item = Vec<(Fingerprint, DueReply)>> {
        self.answers
            .pick(move |fingerprint, answer| (!answer.is_over(now)).then(|| (fingerprint, answer.clone())))
    }

    /// Takes over the answers of an earlier process, as far as there is room.
    pub(crate) fn put_back(&self, answers: Vec<(Fingerprint, DueReply)>, now: Timestamp) {
        for (fingerprint, answer) in answers {
            self.answers.at(fingerprint).put(answer, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slowlane_core::base::{Counted, SloId, Ticket};

    fn reply(verdict: Verdict) -> Reply {
        Reply { verdict, slo: SloId::DEFAULT, remaining: 0, ticket: None }
    }

    /// Some answers, a moment, and a question.
    fn scene() -> (DedupCache, Timestamp, Fingerprint) {
        let dedup = DedupCache::new(KeySecret::KNOWN);
        let fingerprint = dedup.fingerprint([&b"id"[..]].into_iter(), &mut Vec::new());
        (dedup, Timestamp::from_millis(10_000), fingerprint)
    }

    #[test]
    fn a_redirect_waits_only_for_what_is_left() {
        let (dedup, start, fingerprint) = scene();
        let ms = Duration::from_millis;
        assert_eq!(dedup.recall(fingerprint, start), None);
        assert!(dedup.remember(fingerprint, &reply(Verdict::Delay(ms(300))), start + ms(300), start));
        let recall = |after| dedup.recall(fingerprint, start + ms(after)).map(|reply| reply.verdict);
        assert_eq!(recall(100), Some(Verdict::Delay(ms(200))));
        assert_eq!(recall(300), Some(Verdict::Pass));
        assert_eq!(recall(1_299), Some(Verdict::Pass));
        assert_eq!(recall(1_300), None, "a second after its answer it is a new request");
    }

    #[test]
    fn a_refusal_is_repeated() {
        let (dedup, start, fingerprint) = scene();
        let deny = reply(Verdict::Deny { retry_after_s: 3 });
        assert!(dedup.remember(fingerprint, &deny, start, start));
        assert_eq!(dedup.recall(fingerprint, start), Some(deny));
        assert_eq!(
            dedup.recall(dedup.fingerprint([&b"other"[..]].into_iter(), &mut Vec::new()), start),
            None
        );
    }

    #[test]
    fn an_answer_is_repeated_as_often_as_nginx_redirects() {
        let (dedup, start, fingerprint) = scene();
        for _ in 0..2 {
            assert!(dedup.remember(fingerprint, &reply(Verdict::Pass), start, start));
            let recalled = (0..20).filter(|_| dedup.recall(fingerprint, start).is_some());
            assert_eq!(recalled.count(), 10);
        }
    }

    #[test]
    fn a_sign_needs_each_byte_in_its_line_and_the_secret() {
        let (dedup, other) =
            (DedupCache::new(KeySecret::KNOWN), DedupCache::new(KeySecret::from_bytes([1; 16])));
        let long = "a".repeat(512);
        for same in [["id", "a", "bc"], ["id", &long, "bc"], [&long, "a", "bc"]] {
            let fingerprint = |dedup: &DedupCache, lines: &[&str]| {
                dedup.fingerprint(lines.iter().map(|line| line.as_bytes()), &mut Vec::new())
            };
            let ([first, second, third], whole) = (same, fingerprint(&dedup, &same));
            assert_eq!(fingerprint(&dedup, &same), whole);
            let moved = format!("{second}b");
            for others in
                [&[first, &moved, "c"][..], &[first, third, second], &["d", second, third], &[first, second]]
            {
                assert_ne!(fingerprint(&dedup, others), whole, "{others:?}");
            }
            assert_ne!(fingerprint(&other, &same), whole);
        }
    }

    #[test]
    fn the_next_process_repeats_them_too() {
        let (dedup, start, fingerprint) = scene();
        let (over, ms) =
            (dedup.fingerprint([&b"over"[..]].into_iter(), &mut Vec::new()), Duration::from_millis);
        let counted = Counted { slo: SloId::DEFAULT, key: Key::from_bits(7), serial: 9, cost: 1 };
        let ticket = Some(Box::new(Ticket::new(start, [counted])));
        let delayed = Reply { ticket, ..reply(Verdict::Delay(ms(300))) };
        assert!(dedup.remember(over, &reply(Verdict::Pass), start, start));
        let later = start + ms(1_000);
        assert!(dedup.remember(fingerprint, &delayed, later + ms(300), later));

        let next = DedupCache::new(KeySecret::KNOWN);
        for answers in dedup.remembered(later) {
            let bytes = postcard::to_extend(&answers, Vec::new()).unwrap();
            next.put_back(postcard::from_bytes(&bytes).unwrap(), later);
        }
        assert_eq!(next.recall(fingerprint, later), dedup.recall(fingerprint, later));
        assert_eq!(next.recall(fingerprint, later + ms(100)).unwrap().verdict, Verdict::Delay(ms(200)));
        let kept = next.remembered(start).flatten().count();
        assert_eq!(kept, 1, "the other one is over");
    }

    #[test]
    fn a_flood_of_ids_is_bounded() {
        let (dedup, start, _) = scene();
        let remember = |id: u32, now| {
            let fingerprint = dedup.fingerprint([&id.to_le_bytes()[..]].into_iter(), &mut Vec::new());
            dedup.remember(fingerprint, &reply(Verdict::Pass), now, now)
        };
        let kept = (0u32..400_000).filter(|&id| remember(id, start));
        assert_eq!(kept.count(), ANSWERS_MAX);
        let next = DedupCache::new(KeySecret::KNOWN);
        // Twice as many as it has room for.
        for turn in 0..2 {
            for mut answers in dedup.remembered(start) {
                answers
                    .iter_mut()
                    .for_each(|(fingerprint, _)| *fingerprint = Key::from_bits(fingerprint.bits() ^ turn));
                next.put_back(answers, start);
            }
        }
        assert_eq!(next.remembered(start).flatten().count(), ANSWERS_MAX);
        dedup.sweep(start + Duration::from_secs(2));
        assert!(remember(400_000, start + Duration::from_secs(2)));
    }
}
