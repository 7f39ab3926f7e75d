//! The verdicts that a line expects.

use std::fmt;

use crate::policy_test::amounts::{amount, written};
use slowlane_core::base::kind::Kind;
use slowlane_core::base::verdict::Verdict;

/// The verdicts of the requests of one line, in any order. No verdict fits two of the items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The number of requests: the sum of the items.
    pub(super) asked: u32,
    pub(super) items: Vec<Item>,
}

/// A number of verdicts of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) count: u32,
    pub(super) kind: Kind,
    /// The least and the most: milliseconds of a delay, seconds of a refusal. None: any.
    pub(super) range: Option<(u64, u64)>,
}

impl Item {
    fn fits(&self, verdict: Verdict) -> bool {
        let amount = amount(verdict);
        self.kind == verdict.kind() && self.range.is_none_or(|(from, to)| (from..=to).contains(&amount))
    }

    /// Whether a verdict could fit both.
    pub(super) fn overlaps(&self, other: &Item) -> bool {
        let apart = |(from, to): (u64, u64), (other_from, other_to)| to < other_from || other_to < from;
        let are_apart = self.range.zip(other.range).is_some_and(|(one, other)| apart(one, other));
        self.kind == other.kind && !are_apart
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, Item { count, kind, range }) in self.items.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{}", written(self.asked, *count, *kind, *range))?;
        }
        Ok(())
    }
}

/// The most different amounts of one kind that are told one by one.
const AMOUNTS_MAX: usize = 4;

/// The verdicts that came, beside those that were expected.
pub(super) struct Tally<'e> {
    expected: &'e Expected,
    /// The verdicts that fit each item.
    fitting: Vec<u32>,
    kinds: [Seen; Kind::ALL.len()],
}

/// The verdicts of one kind.
#[derive(Clone, Debug, Default)]
struct Seen {
    count: u32,
    range: (u64, u64),
    /// The first amounts, each with its number of verdicts.
    amounts: Vec<(u64, u32)>,
    /// The verdicts with none of these amounts.
    others: u32,
}

impl<'e> Tally<'e> {
    pub(super) fn new(expected: &'e Expected) -> Tally<'e> {
        Tally { expected, fitting: vec![0; expected.items.len()], kinds: Default::default() }
    }

    pub(super) fn count(&mut self, verdict: Verdict) {
        if let Some(place) = self.expected.items.iter().position(|item| item.fits(verdict)) {
            self.fitting[place] += 1;
        }
        self.kinds[verdict.kind().index()].count(amount(verdict));
    }

    /// Whether exactly the expected verdicts came.
    pub(super) fn holds(&self) -> bool {
        self.expected.items.iter().zip(&self.fitting).all(|(item, fitting)| item.count == *fitting)
    }

    /// The verdicts that came, in the words of the file.
    pub(super) fn told(&self) -> String {
        let asked = self.expected.asked;
        let told = Kind::ALL.into_iter().zip(&self.kinds).flat_map(|(kind, seen)| seen.told(asked, kind));
        told.collect::<Vec<_>>().join(", ")
    }
}

impl Seen {
    fn count(&mut self, amount: u64) {
        let (from, to) = if self.count == 0 { (amount, amount) } else { self.range };
        self.range = (from.min(amount), to.max(amount));
        self.count += 1;
        match self.amounts.iter().position(|&(known, _)| known == amount) {
            Some(place) => self.amounts[place].1 += 1,
            None if self.amounts.len() < AMOUNTS_MAX => self.amounts.push((amount, 1)),
            None => self.others += 1,
        }
    }

    fn told(&self, asked: u32, kind: Kind) -> Vec<String> {
        if self.others > 0 {
            return vec![written(asked, self.count, kind, Some(self.range))];
        }
        let each = self.amounts.iter();
        each.map(|&(amount, count)| written(asked, count, kind, Some((amount, amount)))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const fn item(count: u32, kind: Kind, range: Option<(u64, u64)>) -> Item {
        Item { count, kind, range }
    }

    fn delay(ms: u64) -> Verdict {
        Verdict::Delay(Duration::from_millis(ms))
    }

    #[test]
    fn each_verdict_counts_for_its_item() {
        let items = vec![item(1, Kind::Pass, None), item(2, Kind::Delay, Some((20, 40)))];
        let expected = Expected { asked: 3, items };
        assert_eq!(expected.to_string(), "1 pass, 2 delay 20ms..40ms");
        for (delays, holds, told) in [
            ([20, 40], true, "1 pass, 1 delay 20ms, 1 delay 40ms"),
            ([20, 41], false, "1 pass, 1 delay 20ms, 1 delay 41ms"),
            ([7, 7], false, "1 pass, 2 delay 7ms"),
        ] {
            let mut tally = Tally::new(&expected);
            delays.iter().for_each(|&ms| tally.count(delay(ms)));
            assert!(!tally.holds(), "one verdict is missing");
            tally.count(Verdict::Pass);
            assert_eq!((tally.holds(), tally.told().as_str()), (holds, told));
        }
    }

    #[test]
    fn many_amounts_are_told_as_a_range() {
        let expected = Expected { asked: 9, items: vec![item(9, Kind::Deny, None)] };
        let mut tally = Tally::new(&expected);
        for ms in [40, 30, 20, 10, 50] {
            tally.count(delay(ms));
        }
        for retry_after_s in [90, 90, 90, 61] {
            tally.count(Verdict::Deny { retry_after_s });
        }
        assert_eq!(tally.told(), "5 delay 10ms..50ms, 3 deny 90s, 1 deny 61s");
        assert!(!tally.holds());
    }

    #[test]
    fn items_are_apart_in_kind_or_in_range() {
        let any = item(1, Kind::Delay, None);
        let [low, high] = [(1, 20), (21, 40)].map(|range| item(1, Kind::Delay, Some(range)));
        let deny = item(1, Kind::Deny, Some((1, 20)));
        assert!(any.overlaps(&low) && any.overlaps(&any) && low.overlaps(&low));
        assert!(!low.overlaps(&high) && !high.overlaps(&low) && !low.overlaps(&deny));
    }
}
