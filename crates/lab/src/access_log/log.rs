//! One log: its format, its requests and its faulty lines.

use std::cmp::Reverse;
use std::io::Read;

use crate::access_log::choice::Choice;
use crate::access_log::date::Calendar;
use crate::access_log::faulty::{Faults, Faulty};
use crate::access_log::lines::Lines;
use crate::access_log::mapping::Mapping;
use crate::access_log::plan::{Fault, Plan, PlanError};
use crate::access_log::put_back::PutBack;
use crate::access_log::record::Record;
use slowlane_core::base::shown::shown;

/// A log that is being read.
pub(crate) struct Log {
    name: String,
    number: u32,
    lines: Lines<Box<dyn Read>>,
    /// None: no known format fits its lines.
    plan: Option<Plan>,
    calendar: Calendar,
    is_prefixed: bool,
    requests: u64,
    faults: Faults,
    is_empty: bool,
    last_ns: u64,
    come_to_ns: u64,
    put_back: PutBack,
}

/// The result of reading a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOutcome {
    pub name: String,
    /// None: no known format fits.
    pub format: Option<String>,
    pub is_empty: bool,
    pub lines: u64,
    pub requests: u64,
    /// Why lines are not requests, the most frequent reason first.
    pub faults: Vec<(String, Faulty)>,
    /// Why it could not be read to its end.
    pub broken: Option<String>,
}

impl Log {
    /// Recognises the format. `wanted` tells whether a policy uses a field; `number` is put into each record.
    pub(crate) fn open(
        name: String,
        input: Box<dyn Read>,
        choice: &Choice,
        mappings: &[Mapping],
        wanted: &dyn Fn(&str) -> bool,
        number: u32,
    ) -> Result<Log, PlanError> {
        let mut lines = Lines::new(input);
        let is_empty = lines.peek().is_empty();
        let format = choice.format(lines.peek());
        Ok(Log {
            name,
            number,
            lines,
            plan: format.map(|format| Plan::new(format, mappings, wanted)).transpose()?,
            calendar: Calendar::default(),
            is_prefixed: false,
            requests: 0,
            faults: Faults::default(),
            is_empty,
            last_ns: 0,
            come_to_ns: 0,
            put_back: PutBack::default(),
        })
    }

    /// Reads on to the next request. False: there is none.
    pub(crate) fn next(&mut self, record: &mut Record) -> bool {
        let Some(plan) = &self.plan else { return false };
        while let Some((number, line)) = self.lines.next() {
            let read = match line {
                Some(b"") => continue,
                Some(line) => plan.read(line, &mut self.calendar, &mut self.is_prefixed, record),
                None => Err(Fault::TooLong),
            };
            match read {
                Ok(()) => {
                    record.log = self.number;
                    self.requests += 1;
                    // A single line that is far ahead of the one before it does not move the clock.
                    self.come_to_ns = self.come_to_ns.max(record.at_ns.min(self.last_ns));
                    self.last_ns = record.at_ns;
                    self.put_back.see(number, self.come_to_ns.saturating_sub(record.at_ns));
                    return true;
                }
                Err(fault) => self.faults.count(fault, number),
            }
        }
        false
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The time that the log has reached. It never goes back.
    pub(crate) fn come_to_ns(&self) -> u64 {
        self.come_to_ns
    }

    /// The time of its last request, or the time that it has reached, if that is later.
    pub(crate) fn ends_ns(&self) -> u64 {
        self.come_to_ns.max(self.last_ns)
    }

    /// The line from which on the clock is an hour behind, in a log without time zones.
    pub(crate) fn put_back(&self) -> Option<u64> {
        self.put_back.found().filter(|_| !self.has_zone())
    }

    /// The number of lines read.
    pub(crate) fn lines(&self) -> u64 {
        self.lines.number()
    }

    /// Whether a format was found.
    pub(crate) fn has_format(&self) -> bool {
        self.plan.is_some()
    }

    /// The names of the fields in its records, without the source.
    pub(crate) fn field_names(&self) -> &[String] {
        self.plan.as_ref().map_or(&[], |plan| &plan.names)
    }

    /// Whether its lines carry a field.
    pub(crate) fn has_field(&self, field: &str) -> bool {
        self.plan.as_ref().is_some_and(|plan| plan.has(field))
    }

    /// Whether it has the website only in request lines with an absolute URI.
    pub(crate) fn has_website_by_chance(&self) -> bool {
        self.plan.as_ref().is_some_and(Plan::has_website_by_chance)
    }

    /// Whether its times have a zone.
    pub(crate) fn has_zone(&self) -> bool {
        self.plan.as_ref().is_none_or(|plan| plan.time.has_zone())
    }

    /// Whether it tells how long each request took.
    pub(crate) fn tells_how_long(&self) -> bool {
        self.plan.as_ref().is_some_and(|plan| plan.time.tells_how_long())
    }

    pub(crate) fn outcome(&self) -> LogOutcome {
        let plan = self.plan.as_ref();
        let told = |fault: Fault| plan.map_or(String::new(), |plan| shown(plan.tell(fault)));
        let kinds = self.faults.kinds().iter();
        let mut faults: Vec<_> = kinds.map(|(fault, faulty)| (told(*fault), faulty.clone())).collect();
        faults.sort_by_key(|(_, faulty)| Reverse(faulty.count));
        LogOutcome {
            name: self.name.clone(),
            format: plan.map(|plan| shown(plan.format.name())),
            is_empty: self.is_empty,
            lines: self.lines.number(),
            requests: self.requests,
            faults,
            broken: self.lines.broken().map(str::to_owned),
        }
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
        let mut log = Log::open("log".into(), input, &Choice::This(format), &[], &|_| true, 0).unwrap();
        assert!(!log.next(&mut Record::default()));
        let LogOutcome { format, faults, .. } = log.outcome();
        assert_eq!(format.unwrap(), "%ci \\u{7f}%Ts\\u{7f}");
        assert!(!faults[0].0.contains('\u{7f}'), "{faults:?}");
    }
}
