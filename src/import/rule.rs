//! The findings of an import: rules that slowlane can express, and lines that it cannot express.

use std::path::Path;
use std::rc::Rc;

use serde::Serialize;

use slowlane_core::base::{Period, SloId, shown};
use slowlane_core::policy::Slo;

use crate::import::{ImportError, RULES_MAX};

/// The maximum number of notes of each kind: omissions, and differences.
const NOTES_MAX: usize = 200;

/// The maximum number of characters quoted from a line.
const QUOTED_CHARS_MAX: usize = 120;

/// The maximum number of characters in a reason, which may quote names and values of the original.
const REASON_CHARS_MAX: usize = 400;

/// The values of a field to which a rule applies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Match {
    /// The source is in this network.
    Network(String),
    Exact(String),
    Prefix(String),
    /// The field is present.
    Any,
}

impl Match {
    /// The rank of a match: lower for more specific values.
    pub(super) fn rank(&self) -> u8 {
        match self {
            Match::Network(_) => 0,
            Match::Exact(_) => 1,
            Match::Prefix(_) => 2,
            Match::Any => 3,
        }
    }

    pub(super) fn value(&self) -> Option<&str> {
        match self {
            Match::Network(value) | Match::Exact(value) | Match::Prefix(value) => Some(value),
            Match::Any => None,
        }
    }
}

/// A field and its required value.
pub(super) type Condition = (String, Match);

/// A limit, as the options of an SLO.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Limit {
    /// The counter in the original configuration. Limits share a bucket if they have the same counter and key.
    pub(super) counter: String,
    /// The fields of the key.
    pub(super) key: Vec<String>,
    /// The options of the SLO, like `burst=5 rate=1/s`.
    pub(super) options: String,
    pub(super) line: FileLine,
    /// The limit as the original states it, shortened.
    pub(super) quoted: String,
}

/// The limits of the requests that meet all conditions in `scope`. A rule without limits is an exception.
#[derive(Clone, Debug, Default)]
pub(super) struct Rule {
    pub(super) line: FileLine,
    pub(super) scope: Vec<Condition>,
    pub(super) limits: Vec<Limit>,
    /// Sources that the limits do not apply to.
    pub(super) networks: Vec<String>,
}

/// A line of the original that is not imported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Omission {
    /// `None` if the original is a single file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    pub line: usize,
    pub text: String,
    pub reason: String,
}

impl Omission {
    /// The place of the line, like `line 5` or `a.cfg:5`.
    pub fn place(&self) -> String {
        shown_place(self.file.as_deref(), self.line)
    }
}

fn shown_place(file: Option<&str>, line: usize) -> String {
    file.map_or_else(|| format!("line {line}"), |file| format!("{file}:{line}"))
}

/// A line of the original: the index of its file, and the number of the line in that file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileLine {
    pub(super) file: usize,
    pub(super) number: usize,
}

impl FileLine {
    pub(super) fn shown(self, files: &[String]) -> String {
        shown_place(files.get(self.file).map(String::as_str), self.number)
    }
}

/// The findings of an import so far.
#[derive(Debug, Default)]
pub(super) struct ImportFindings {
    /// The names of the files. Empty if the original is a single file.
    pub(super) names: Rc<[String]>,
    pub(super) rules: Vec<Rule>,
    /// The points in which the policy differs in meaning from the original.
    pub(super) differences: Vec<String>,
    /// The lines that slowlane cannot express, each with the index of its file. A line is listed once for each reason.
    omissions: Vec<(usize, Omission)>,
}

impl ImportFindings {
    pub(super) fn name_files<'p>(&mut self, paths: impl ExactSizeIterator<Item = &'p Path>) {
        let is_one = paths.len() < 2;
        self.names = paths.filter(|_| !is_one).map(|path| shown(path.display().to_string())).collect();
    }

    pub(super) fn omit(&mut self, FileLine { file, number }: FileLine, text: &str, reason: impl AsRef<str>) {
        let (text, reason) = (quoted(text), cut(reason.as_ref(), REASON_CHARS_MAX));
        let omission = (file, Omission { file: self.names.get(file).cloned(), line: number, text, reason });
        if self.omissions.len() < NOTES_MAX && !self.omissions.contains(&omission) {
            self.omissions.push(omission);
        }
    }

    /// The omissions, sorted by file and line.
    pub(super) fn sorted(mut self) -> Vec<Omission> {
        self.omissions.sort_by_key(|(file, omission)| (*file, omission.line));
        self.omissions.into_iter().map(|(_, omission)| omission).collect()
    }

    pub(super) fn rule(&mut self, rule: Rule) -> Result<(), ImportError> {
        let networks: usize = self.rules.iter().map(|rule| rule.networks.len()).sum();
        if self.rules.len() + networks + rule.networks.len() >= RULES_MAX {
            return Err(ImportError::TooMany);
        }
        self.rules.push(rule);
        Ok(())
    }

    /// Notes a difference, unless it has been noted before.
    pub(super) fn differs(&mut self, text: impl Into<String>) {
        let text = text.into();
        if self.differences.len() < NOTES_MAX && !self.differences.contains(&text) {
            self.differences.push(text);
        }
    }
}

/// A part of the original on one short line without control characters.
pub(super) fn quoted(text: &str) -> String {
    cut(text, QUOTED_CHARS_MAX)
}

fn cut(text: &str, chars_max: usize) -> String {
    let begin: String = text.chars().take(chars_max).collect();
    shown(if begin.len() < text.len() { begin + "…" } else { begin })
}

/// Whether every request that meets the conditions of `inner` also meets the conditions of `outer`.
pub(super) fn covers(outer: &[Condition], inner: &[Condition]) -> bool {
    outer.iter().all(|(field, outer)| inner.iter().any(|(name, inner)| name == field && is_in(inner, outer)))
}

fn is_in(inner: &Match, outer: &Match) -> bool {
    match (inner, outer) {
        (_, Match::Any) => true,
        (Match::Exact(value) | Match::Prefix(value), Match::Prefix(prefix)) => value.starts_with(prefix),
        _ => inner == outer,
    }
}

/// The periods of a rate, the shortest first.
const PERIODS: [Period; 4] = [Period::Second, Period::Minute, Period::Hour, Period::Day];

/// The rate of `count` requests in `window_ms` milliseconds, and whether it is exact.
///
/// For example, 25 requests in 10 s are 150/m.
pub(super) fn rate(count: u64, window_ms: u64) -> (String, bool) {
    let scaled = |period: Period| u128::from(count) * u128::from(period.seconds()) * 1_000;
    let window_ms = u128::from(window_ms.max(1));
    match PERIODS.into_iter().find(|period| scaled(*period).is_multiple_of(window_ms)) {
        Some(period) => (format!("{}/{period}", scaled(period) / window_ms), true),
        None => (format!("{}/d", scaled(Period::Day).div_ceil(window_ms)), false),
    }
}

/// The options that allow `count` requests in each window of a period. `None` if slowlane cannot count that many.
pub(super) fn windows(count: u32, period: Period, reset: &str, others: &str) -> Option<String> {
    let options = match count {
        0 => format!("burst=0 rate=0/{period}{others}"),
        _ => format!("burst=0 rate={count}/{period} law=fixed-window{reset}{others}"),
    };
    Slo::parse(SloId::DEFAULT, &options).is_ok().then_some(options)
}

/// The options that limit the number of concurrent requests to `count`.
pub(super) fn at_a_time(count: u64) -> String {
    format!("burst={count} rate=1/s law=concurrency")
}

pub(super) const ENDS: &str = "Requests in flight are counted only if the proxy reports when each request \
                               ends. slowlane counts requests, not connections.";

pub(super) const ADDRESSES: &str =
    "slowlane counts IPv6 addresses by /64 ([policy] ipv6_prefix); the original program counts each address.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_takes_the_shortest_period_that_makes_it_whole() {
        assert_eq!(rate(20, 10_000), ("2/s".to_owned(), true));
        assert_eq!(rate(25, 10_000), ("150/m".to_owned(), true));
        assert_eq!(rate(1, 86_400_000), ("1/d".to_owned(), true));
        assert_eq!(rate(1, 7_000), ("12343/d".to_owned(), false));
        assert!(rate(u64::MAX, 0).1);
    }

    #[test]
    fn a_scope_covers_those_with_more_conditions() {
        let host = ("website".to_owned(), Match::Exact("a.example".to_owned()));
        let path = |path: &str| ("path".to_owned(), Match::Prefix(path.to_owned()));
        assert!(covers(&[], &[]));
        assert!(covers(&[path("/a")], &[host.clone(), path("/a/b")]));
        assert!(!covers(&[path("/a/b")], &[path("/a")]));
        assert!(!covers(&[host], &[path("/a")]));
    }

    #[test]
    fn what_is_repeated_is_one_short_line() {
        assert_eq!(quoted("a\n3001 x\r\u{85}b"), r"a\n3001 x\r\u{85}b");
        assert_eq!(quoted(&"é".repeat(1_000)).chars().count(), QUOTED_CHARS_MAX + 1);
    }
}
