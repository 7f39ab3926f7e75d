//! One log: its format, its requests and its unreadable lines.

use std::cmp::Reverse;
use std::io::Read;

use serde::Serialize;
use slowlane_core::base::shown;

use crate::access_log::{Choice, Lines, LogPlan, LogRecord, Mapping, Measure, ParseError, PlanError};

/// The maximum number of line numbers that are kept for each fault.
pub const NUMBERS_MAX: usize = 5;

/// The maximum number of kinds of fault that are counted separately. All further kinds of fault are counted with the
/// last of these kinds.
const KINDS_MAX: usize = 64;

/// A log that is being read.
pub(crate) struct Log {
    pub(crate) name: String,
    number: u32,
    pub(crate) lines: Lines<'static>,
    /// None if no known format fits its lines.
    pub(crate) plan: Option<LogPlan>,
    requests: u64,
    errors: Vec<(ParseError, Faulty)>,
    is_empty: bool,
    last_ns: u64,
    /// The time that the log has reached. It never goes back, and a single line far ahead does not move it.
    pub(crate) come_to_ns: u64,
    clock: LogClock,
    told: Option<String>,
}

/// A clock that shows local time, which repeats one hour when summer time ends.
#[derive(Debug, Default)]
struct LogClock {
    /// The time added to all times since the clock went back.
    added_ns: u64,
    /// The number of consecutive lines that are `BACK_NS` to an hour behind the log's time, and the end of the last
    /// request.
    behind: (u8, u64),
    /// Where the clock went back: the time that the log had reached, and the number of the line.
    back: Option<(u64, u64)>,
}

const HOUR_NS: u64 = 3_600 * 1_000_000_000;

/// A line that is behind by less than this does not mean that the clock went back: proxies log requests when they are
/// answered, so a line may be a little behind.
const BACK_NS: u64 = HOUR_NS / 4;

/// This many consecutive lines that are behind, each no earlier than the line before, mean that the clock went back. A
/// single such line may come from a long request.
const BEHIND: u8 = 3;

impl LogClock {
    /// Detects that the clock went back, and corrects later times. `come_to_ns` is the time that the log has reached.
    fn set(&mut self, record: &mut LogRecord, come_to_ns: u64, line: u64) {
        record.at_ns = record.at_ns.saturating_add(self.added_ns);
        let end_ns = record.at_ns.saturating_add(record.took_ns.unwrap_or(0));
        let is_behind = (BACK_NS..=HOUR_NS).contains(&come_to_ns.saturating_sub(end_ns));
        self.behind = match self.behind {
            (count, last_ns) if is_behind && (count == 0 || end_ns >= last_ns) => (count + 1, end_ns),
            _ => (u8::from(is_behind), end_ns),
        };
        if self.behind.0 == BEHIND {
            self.added_ns += HOUR_NS;
            record.at_ns = record.at_ns.saturating_add(HOUR_NS);
            self.back = Some((come_to_ns, line));
            self.behind = (0, 0);
        }
    }
}

/// The number of lines with a fault, and the numbers of the first few of these lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Faulty {
    /// The text of the fault. Empty until the whole log has been read.
    pub why: String,
    #[serde(rename = "lines")]
    pub count: u64,
    #[serde(rename = "first")]
    pub numbers: Vec<u64>,
    /// Whether the lines could be read but are not requests.
    #[serde(skip)]
    pub is_read: bool,
}

/// The result of reading a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogOutcome {
    pub name: String,
    /// None if no known format fits.
    pub format: Option<String>,
    /// A message about the recognised format, for the operator.
    #[serde(skip)]
    pub told: Option<String>,
    #[serde(skip)]
    pub is_empty: bool,
    pub lines: u64,
    pub requests: u64,
    /// Why lines are not requests, most frequent reason first.
    #[serde(rename = "not_replayed")]
    pub errors: Vec<Faulty>,
    /// The reason why the log could not be read to its end.
    pub broken: Option<String>,
}

impl LogOutcome {
    /// The number of lines that could not be read or had no usable client.
    pub fn unusable(&self) -> u64 {
        if self.format.is_none() {
            return self.lines;
        }
        self.errors.iter().filter(|faulty| !faulty.is_read).map(|faulty| faulty.count).sum()
    }
}

impl Log {
    /// Opens a log and recognises its format. `wanted` tells whether a policy uses a field, `measures` is given if a
    /// policy counts work, and `number` is stored in each record.
    pub(crate) fn open(
        name: String,
        input: Box<dyn Read>,
        choice: &Choice,
        mappings: &[Mapping],
        wanted: &dyn Fn(&str) -> bool,
        measures: Option<&[Measure]>,
        number: u32,
    ) -> Result<Log, PlanError> {
        let lines = Lines::new(input);
        let head = lines.head();
        let (is_empty, (kind, told)) = (head.is_empty(), choice.made(head, mappings));
        let plan = match kind {
            Some((format, wraps)) => {
                let mut plan = LogPlan::new(format, mappings, wanted)?;
                plan.wraps = wraps;
                Some(if let Some(given) = measures { plan.with_measures(given)? } else { plan })
            }
            None => None,
        };
        Ok(Log {
            name,
            number,
            lines,
            plan,
            requests: 0,
            errors: Vec::new(),
            is_empty,
            last_ns: 0,
            come_to_ns: 0,
            clock: LogClock::default(),
            told,
        })
    }

    /// Where the log's clock went back by an hour: the time that the log had reached, and the number of the line.
    pub(crate) fn went_back(&self) -> Option<(u64, u64)> {
        self.clock.back
    }

    /// Adopts the change to another log's clock if that clock went back before this log began.
    pub(crate) fn follow(&mut self, other: (u64, u64)) {
        let is_local = self.plan.as_ref().is_some_and(|plan| !plan.times.has_zone());
        if is_local && self.requests <= 2 && self.last_ns >= other.0 && self.clock.added_ns == 0 {
            self.clock.added_ns = HOUR_NS;
        }
    }

    /// Reads up to the next request. Returns false if there are no more requests.
    pub(crate) fn next(&mut self, record: &mut LogRecord) -> bool {
        let Some(plan) = &mut self.plan else {
            // The lines must be read so that they can be counted as unusable.
            while self.lines.next().is_some() {}
            return false;
        };
        while let Some((number, line)) = self.lines.next() {
            let read = match line {
                Some(b"") => continue,
                Some(line) => plan.read(line, false, record),
                None => Err(ParseError::TooLong),
            };
            match read {
                Err(ParseError::NoProxyLine) => {}
                Ok(()) => {
                    record.log = self.number;
                    self.requests += 1;
                    if !plan.times.has_zone() {
                        self.clock.set(record, self.come_to_ns, number);
                    }
                    // A single line that is far ahead of the line before does not move the clock.
                    self.come_to_ns = self.come_to_ns.max(record.at_ns.min(self.last_ns));
                    self.last_ns = record.at_ns;
                    return true;
                }
                Err(error) => count(&mut self.errors, error, number),
            }
        }
        false
    }

    /// The time of the log's last request or, if later, the time that the log has reached.
    pub(crate) fn ends_ns(&self) -> u64 {
        self.come_to_ns.max(self.last_ns)
    }

    pub(crate) fn outcome(&self) -> LogOutcome {
        let plan = self.plan.as_ref();
        let why = |error| plan.map_or(String::new(), |plan| shown(plan.explain(error)));
        let faulty = |(error, faulty): &(ParseError, Faulty)| {
            let is_read = *error == ParseError::NoRequest;
            Faulty { why: why(*error), is_read, ..faulty.clone() }
        };
        let mut errors: Vec<Faulty> = self.errors.iter().map(faulty).collect();
        errors.sort_by_key(|faulty| Reverse(faulty.count));
        LogOutcome {
            name: self.name.clone(),
            format: plan.map(|plan| shown(plan.format.name.clone() + &plan.wraps.describe())),
            told: self.told.as_ref().map(shown),
            is_empty: self.is_empty,
            lines: self.lines.number(),
            requests: self.requests,
            errors,
            broken: self.lines.broken().map(str::to_owned),
        }
    }
}

/// Counts a fault of the line with this number.
fn count(errors: &mut Vec<(ParseError, Faulty)>, error: ParseError, number: u64) {
    let place = errors.iter().position(|(known, _)| *known == error).unwrap_or(errors.len());
    if place == errors.len() && place < KINDS_MAX {
        errors.push((error, Faulty::default()));
    }
    let faulty = &mut errors[place.min(KINDS_MAX - 1)].1;
    faulty.count += 1;
    if faulty.numbers.len() < NUMBERS_MAX {
        faulty.numbers.push(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access_log::format::Format;

    #[test]
    fn control_characters_of_a_format_are_escaped() {
        let format = Format::parse("%ci \u{7f}%Ts\u{7f}").unwrap();
        let input: Box<dyn Read> = Box::new(&b"192.0.2.1 7"[..]);
        let mut log = Log::open("log".into(), input, &Choice::This(format), &[], &|_| true, None, 0).unwrap();
        assert!(!log.next(&mut LogRecord::default()));
        let LogOutcome { format, errors, .. } = log.outcome();
        assert_eq!(format.unwrap(), "%ci \\u{7f}%Ts\\u{7f}");
        assert!(!errors[0].why.contains('\u{7f}'), "{errors:?}");
    }
}
