//! Counts by key, in bounded memory.

use std::cmp::Reverse;
use std::collections::HashMap;

use crate::replay::ReplayCounts;
use slowlane_core::base::{Key, Network, Request, SloId, Value, Verdict, shown};
use slowlane_core::policy::{Batch, Policy, Text};

/// The maximum number of keys at a time. Beyond this number, the less important half of the keys is dropped.
pub(crate) const KEYS_MAX: usize = 1 << 17;

/// Counts of the verdicts on the requests of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRow {
    pub slo: SloId,
    pub key: Key,
    /// The key's fields and values, in a form that is safe to show, such as `source=192.0.2.7 website=shop.example`.
    pub name: Box<str>,
    pub counts: ReplayCounts,
    /// How many of the same requests the other policy delayed, and how many of them it denied.
    pub other_delayed: u64,
    pub other_denied: u64,
    /// The number of requests on which the two policies gave different kinds of verdict: pass, delay or deny.
    pub changed: u64,
}

impl KeyRow {
    pub(super) fn is_throttled(&self) -> bool {
        self.counts.delayed + self.counts.denied > 0
    }

    /// The importance of the key. The most important keys are shown if there are too many to show all.
    fn weight(&self) -> (u64, u64, u64) {
        (self.changed, self.counts.delayed + self.counts.denied, self.counts.requests)
    }
}

/// The rows, by key.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// The hasher has a secret, because the clients in the log chose the keys' values.
    rows: HashMap<(SloId, Key), KeyRow>,
    /// The number of dropped rows, and the largest number of requests in any dropped row.
    pub(super) forgotten: u64,
    pub(super) forgotten_requests_max: u64,
}

impl Keys {
    /// Counts a verdict for a key, together with the other policy's verdict. `name` is called only for a new row.
    pub(super) fn count(
        &mut self,
        slo: SloId,
        key: Key,
        verdict: Verdict,
        other: Option<Verdict>,
        name: impl FnOnce() -> Box<str>,
    ) {
        if self.rows.len() >= KEYS_MAX && !self.rows.contains_key(&(slo, key)) {
            forget_half(&mut self.rows, KeyRow::weight, |row| {
                self.forgotten += 1;
                self.forgotten_requests_max = self.forgotten_requests_max.max(row.counts.requests);
            });
        }
        let new = || KeyRow {
            slo,
            key,
            name: name(),
            counts: ReplayCounts::default(),
            other_delayed: 0,
            other_denied: 0,
            changed: 0,
        };
        let row = self.rows.entry((slo, key)).or_insert_with(new);
        row.counts.count(verdict);
        if let Some(other) = other {
            row.other_delayed += u64::from(matches!(other, Verdict::Delay(_)));
            row.other_denied += u64::from(!other.is_let_through());
            row.changed += u64::from(other.name() != verdict.name());
        }
    }

    /// The number of keys with at least one request delayed or denied.
    pub(super) fn throttled(&self) -> usize {
        self.rows.values().filter(|row| row.is_throttled()).count()
    }

    pub(super) fn has_changed(&self) -> bool {
        self.rows.values().any(|row| row.changed > 0)
    }

    /// The first `count` rows to show, sorted by the number of requests with different verdicts, then of delayed or
    /// denied requests, then of all requests, and then by key.
    pub(super) fn top(&self, count: usize, is_shown: impl Fn(&KeyRow) -> bool) -> Vec<KeyRow> {
        let mut rows: Vec<&KeyRow> = self.rows.values().filter(|row| is_shown(row)).collect();
        rows.sort_unstable_by_key(|row| (Reverse(row.weight()), row.slo, row.key));
        rows.into_iter().take(count).cloned().collect()
    }
}

/// Removes the less important half of the rows, and calls `forget` with each. Rows at the median are also removed: in a
/// flood, most rows are alike.
pub(crate) fn forget_half<K, V, W: Copy + Ord>(
    rows: &mut HashMap<K, V>,
    weight: impl Fn(&V) -> W,
    mut forget: impl FnMut(&V),
) {
    let mut weights: Vec<W> = rows.values().map(&weight).collect();
    let middle = weights.len() / 2;
    let (_, &mut median, _) = weights.select_nth_unstable(middle);
    rows.retain(|_, row| {
        let stays = weight(row) > median;
        if !stays {
            forget(row);
        }
        stays
    });
}

/// The fields of a request that make up its key, with their values in a form that is safe to show.
pub(crate) fn name(policy: &Policy, slo: SloId, request: &Request<'_>) -> Box<str> {
    let mut name = String::new();
    let mut given = 0;
    let mut batch = Batch::of(policy);
    batch.push(request);
    batch.facts(0, slo, |fact| {
        if !fact.in_key {
            return;
        }
        given += 1;
        if !name.is_empty() {
            name.push(' ');
        }
        name += &word(fact.name.as_bytes());
        name.push('=');
        match fact.value {
            Value::Address(address) => {
                name += &Network::of(address, fact.prefix.unwrap_or(u8::MAX)).to_string()
            }
            value => name += &word(Text::default().of(&value)),
        }
    });
    if given < policy.key_fields(slo).count() {
        name += if given > 0 { " (other fields absent)" } else { "(absent)" };
    } else if given == 0 {
        name += "(all)";
    }
    name.into()
}

/// The text of a field that the policy uses, as looked up in a map. Empty if the request does not have the field.
pub(crate) fn text(policy: &Policy, slo: SloId, request: &Request<'_>, field: &str) -> Box<[u8]> {
    let mut found = Box::default();
    let mut batch = Batch::of(policy);
    batch.push(request);
    batch.facts(0, slo, |fact| {
        if fact.name == field {
            found = Text::default().of(&fact.value).into();
        }
    });
    found
}

/// The maximum length of a displayed value, in bytes. Longer values are cut.
const SHOWN_BYTES_MAX: usize = 100;

/// A value as displayed. Spaces are escaped, so that one value never looks like two values.
fn word(value: &[u8]) -> String {
    let (begin, dots) = match value.split_at_checked(SHOWN_BYTES_MAX) {
        Some((begin, [_, ..])) => (begin, "..."),
        _ => (value, ""),
    };
    shown(begin).replace(' ', "\\u{20}") + dots
}

#[cfg(test)]
mod tests {
    use super::*;

    const DENY: Verdict = Verdict::Deny { retry_after_s: 1 };

    fn count(keys: &mut Keys, number: u64, verdict: Verdict) {
        let key = Key::from_bits(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        keys.count(SloId::DEFAULT, key, verdict, None, || number.to_string().into());
    }

    #[test]
    fn keys_denied_most_survive_a_flood() {
        let mut keys = Keys::default();
        for number in 0..10 {
            for _ in 0..=number {
                count(&mut keys, number, DENY);
            }
        }
        for number in 10..3 * KEYS_MAX as u64 {
            count(&mut keys, number, Verdict::Pass);
        }
        assert!(keys.rows.len() <= KEYS_MAX && keys.forgotten > 0);
        let top = keys.top(3, |_| true);
        let names: Vec<_> = top.iter().map(|row| (&*row.name, row.counts.denied)).collect();
        assert_eq!(names, [("9", 10), ("8", 9), ("7", 8)]);
        assert_eq!(keys.forgotten_requests_max, 1);
    }

    #[test]
    fn the_other_policy_is_counted_too() {
        let mut keys = Keys::default();
        for other in [DENY, Verdict::Pass] {
            keys.count(SloId::DEFAULT, Key::from_bits(1), DENY, Some(other), || "x".into());
        }
        let row = &keys.top(1, |_| true)[0];
        assert_eq!((row.counts.requests, row.counts.denied, row.other_denied, row.changed), (2, 2, 1, 1));
    }
}
