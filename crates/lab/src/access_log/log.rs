//! One log: its format, its requests and its faulty lines.

use std::cmp::Reverse;
use std::io::Read;

use serde::Serialize;
use slowlane_core::base::shown;

use crate::access_log::{Choice, Lines, Mapping, Measure, ParseError, Plan, PlanError, Record};

/// The number of line numbers that are kept for each fault.
pub const NUMBERS_MAX: usize = 5;

/// Kinds of fault that are counted separately: as many as items can be missing from a line. The rest count as the last.
const KINDS_MAX: usize = 64;

/// A log that is being read.
pub(crate) struct Log {
    pub(crate) name: String,
    number: u32,
    pub(crate) lines: Lines<'static>,
    /// None: no known format fits its lines.
    pub(crate) plan: Option<Plan>,
    requests: u64,
    errors: Vec<(ParseError, Faulty)>,
    is_empty: bool,
    last_ns: u64,
    /// The latest time in the log so far. It never goes back.
    pub(crate) come_to_ns: u64,
}

/// The number of lines with the fault, and the numbers of the first few.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Faulty {
    /// The text of the fault. Empty until the whole log is read.
    pub why: String,
    #[serde(rename = "lines")]
    pub count: u64,
    #[serde(rename = "first")]
    pub numbers: Vec<u64>,
    /// The line could be read, but is no request.
    #[serde(skip)]
    pub is_read: bool,
}

/// The result of reading a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogOutcome {
    pub name: String,
    /// None: no known format fits.
    pub format: Option<String>,
    #[serde(skip)]
    pub is_empty: bool,
    pub lines: u64,
    pub requests: u64,
    /// Why lines are not requests, the most frequent reason first.
    #[serde(rename = "not_replayed")]
    pub errors: Vec<Faulty>,
    /// The reason why it could not be read to its end.
    pub broken: Option<String>,
}

impl LogOutcome {
    /// The lines that could not be read, or have no usable client.
    pub fn unusable(&self) -> u64 {
        if self.format.is_none() {
            return self.lines;
        }
        self.errors.iter().filter(|faulty| !faulty.is_read).map(|faulty| faulty.count).sum()
    }
}

impl Log {
    /// Recognises the format. `wanted` returns whether a policy uses a field; `measures`: a policy counts work; `number`
    /// is put into each record.
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
        let (is_empty, format) = (head.is_empty(), choice.format(head));
        let plan = format.map(|format| Plan::new(format, mappings, wanted)).transpose()?;
        let plan = match (plan, measures) {
            (Some(plan), Some(given)) => Some(plan.with_measures(given)?),
            (plan, _) => plan,
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
        })
    }

    /// Reads up to the next request. False: there is none.
    pub(crate) fn next(&mut self, record: &mut Record) -> bool {
        let Some(plan) = &mut self.plan else {
            // Its lines are counted among those that could not be read.
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
                Ok(()) => {
                    record.log = self.number;
                    self.requests += 1;
                    // A single line that is far ahead of the previous one does not move the clock.
                    self.come_to_ns = self.come_to_ns.max(record.at_ns.min(self.last_ns));
                    self.last_ns = record.at_ns;
                    return true;
                }
                Err(error) => count(&mut self.errors, error, number),
            }
        }
        false
    }

    /// The time of its last request, or the latest time so far, if that is later.
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
            format: plan.map(|plan| shown(&plan.format.name)),
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
        assert!(!log.next(&mut Record::default()));
        let LogOutcome { format, errors, .. } = log.outcome();
        assert_eq!(format.unwrap(), "%ci \\u{7f}%Ts\\u{7f}");
        assert!(!errors[0].why.contains('\u{7f}'), "{errors:?}");
    }
}
