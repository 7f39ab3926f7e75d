//! One log: its format, its requests, and what of it was none.

use std::io::Read;
use std::ops::Range;
use std::sync::Arc;

use crate::base::shown::shown;
use crate::tools::replay::date::Calendar;
use crate::tools::replay::format::{Dialect, Format};
use crate::tools::replay::line::{SLOTS_MAX, Steps};
use crate::tools::replay::lines::Lines;
use crate::tools::replay::mapping::Mapping;
use crate::tools::replay::plan::{Fault, Plan, PlanError};
use crate::tools::replay::record::Record;

/// How many lines are looked at to find out their format.
const LOOKED_AT: usize = 200;

/// The line numbers that are told of each fault.
pub const NUMBERS_MAX: usize = 5;

/// More kinds of fault are not told apart: as many as items of a format can be missing.
const KINDS_MAX: usize = 64;

/// Which formats a log may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Any that is known.
    Any,
    /// Any that is known of one program.
    Of(Dialect),
    This(Format),
}

/// A log that is being read.
pub(super) struct Log {
    pub(super) name: String,
    lines: Lines<Box<dyn Read>>,
    /// None: its lines are of no format that is known.
    pub(super) plan: Option<Arc<Plan>>,
    plan_number: u32,
    calendar: Calendar,
    is_prefixed: bool,
    requests: u64,
    faults: Vec<(Fault, Faulty)>,
    is_empty: bool,
    last_ns: u64,
    come_to_ns: u64,
    put_back: PutBack,
}

/// Finds the line from which on a clock is an hour behind.
#[derive(Debug, Default)]
struct PutBack {
    /// How many lines one after the other were, and the first of them.
    lines: u64,
    first: u64,
    found: Option<u64>,
}

/// How many lines must be behind: a connection that has lasted for an hour is one, and is not alone.
const PUT_BACK_LINES: u64 = 20;

const AN_HOUR_NS: Range<u64> = 50 * 60_000_000_000..61 * 60_000_000_000;

impl PutBack {
    fn see(&mut self, number: u64, behind_ns: u64) {
        if !AN_HOUR_NS.contains(&behind_ns) {
            self.lines = 0;
            return;
        }
        if self.lines == 0 {
            self.first = number;
        }
        self.lines += 1;
        if self.lines == PUT_BACK_LINES {
            self.found.get_or_insert(self.first);
        }
    }
}

/// How many lines had a fault, and the numbers of the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faulty {
    pub count: u64,
    pub numbers: Vec<u64>,
}

/// What came of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOutcome {
    pub name: String,
    /// None: no format that is known.
    pub format: Option<String>,
    pub is_empty: bool,
    pub lines: u64,
    pub requests: u64,
    /// Why lines were none, the most frequent reason first.
    pub faults: Vec<(String, Faulty)>,
    /// Why it could not be read to its end.
    pub broken: Option<String>,
}

impl Log {
    /// Finds out its format.
    pub(super) fn open(
        name: String,
        input: Box<dyn Read>,
        choice: &Choice,
        mappings: &[Mapping],
        wanted: &dyn Fn(&str) -> bool,
        plan_number: u32,
    ) -> Result<Log, PlanError> {
        let mut lines = Lines::new(input);
        let is_empty = lines.peek().is_empty();
        let format = match choice {
            Choice::This(format) => Some(format.clone()),
            Choice::Any => recognised(lines.peek(), |_| true),
            Choice::Of(dialect) => recognised(lines.peek(), |format| format.dialect() == *dialect),
        };
        let plan = format.map(|format| Plan::new(format, mappings, wanted)).transpose()?.map(Arc::new);
        Ok(Log {
            name,
            lines,
            plan,
            plan_number,
            calendar: Calendar::default(),
            is_prefixed: false,
            requests: 0,
            faults: Vec::new(),
            is_empty,
            last_ns: 0,
            come_to_ns: 0,
            put_back: PutBack::default(),
        })
    }

    /// Reads on to the next request. False: there is none.
    pub(super) fn next(&mut self, record: &mut Record) -> bool {
        let Some(plan) = self.plan.as_deref() else { return false };
        while let Some((number, line)) = self.lines.next() {
            let read = match line {
                Some(b"") => continue,
                Some(line) => plan.read(line, &mut self.calendar, &mut self.is_prefixed, record),
                None => Err(Fault::TooLong),
            };
            match read {
                Ok(()) => {
                    record.plan = self.plan_number;
                    self.requests += 1;
                    // One line alone that is far ahead of the one before it says nothing.
                    self.come_to_ns = self.come_to_ns.max(record.at_ns.min(self.last_ns));
                    self.last_ns = record.at_ns;
                    self.put_back.see(number, self.come_to_ns.saturating_sub(record.at_ns));
                    return true;
                }
                Err(fault) => note(&mut self.faults, fault, number),
            }
        }
        false
    }

    /// The time that it has come to, which never goes back.
    pub(super) fn come_to_ns(&self) -> u64 {
        self.come_to_ns
    }

    /// When its last request came, or one that came later and was not alone.
    pub(super) fn ends_ns(&self) -> u64 {
        self.come_to_ns.max(self.last_ns)
    }

    /// The line from which on its clock is an hour behind, if nothing in it says of which zone it is.
    pub(super) fn put_back(&self) -> Option<u64> {
        let tells_zone = self.plan.as_deref().is_none_or(|plan| plan.time.has_zone());
        self.put_back.found.filter(|_| !tells_zone)
    }

    pub(super) fn lines(&self) -> u64 {
        self.lines.number()
    }

    pub(super) fn outcome(&self) -> LogOutcome {
        let plan = self.plan.as_deref();
        let mut faults: Vec<(String, Faulty)> = self
            .faults
            .iter()
            .map(|(fault, faulty)| {
                (plan.map_or(String::new(), |plan| shown(plan.tell(*fault))), faulty.clone())
            })
            .collect();
        faults.sort_by_key(|(_, faulty)| std::cmp::Reverse(faulty.count));
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

/// Counts a fault of this line.
fn note(faults: &mut Vec<(Fault, Faulty)>, fault: Fault, number: u64) {
    let place = match faults.iter().position(|(known, _)| *known == fault) {
        Some(place) => place,
        None if faults.len() < KINDS_MAX => {
            faults.push((fault, Faulty::default()));
            faults.len() - 1
        }
        None => faults.len() - 1,
    };
    let faulty = &mut faults[place].1;
    faulty.count += 1;
    if faulty.numbers.len() < NUMBERS_MAX {
        faulty.numbers.push(number);
    }
}

/// The format that most of the first lines have: to their ends, or if none has them so, as far as they are read.
fn recognised(head: &[u8], is_allowed: impl Fn(&Format) -> bool) -> Option<Format> {
    let lines = || head.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).take(LOOKED_AT);
    let known: Vec<Format> = Format::known().into_iter().filter(is_allowed).collect();
    let best = |count: &dyn Fn(&Format) -> usize| {
        let counts = known.iter().map(|format| (count(format), format));
        // Of equals the first.
        let best = counts.rev().max_by_key(|(count, _)| *count)?;
        (best.0 > 0).then(|| best.1.clone())
    };
    let of_whole_lines = |format: &Format| {
        let steps = Steps::new(format, |_| None);
        let is_of_it =
            |line: &&[u8]| steps.take_apart_of_syslog(line, true, &mut false, &mut [None; SLOTS_MAX]).is_ok();
        lines().filter(is_of_it).filter(|line| is_read(format, line)).count()
    };
    best(&of_whole_lines).or_else(|| best(&|format| lines().filter(|line| is_read(format, line)).count()))
}

fn is_read(format: &Format, line: &[u8]) -> bool {
    let plan = Plan::new(format.clone(), &[], &|_| false).expect("a known format has a time");
    let read = plan.read(line, &mut Calendar::default(), &mut false, &mut Record::default());
    matches!(read, Ok(()) | Err(Fault::NoRequest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Option<String> {
        recognised(text.as_bytes(), |_| true).map(|format| format.name().to_owned())
    }

    const HTTPLOG: &str = "192.0.2.7:4711 [06/Feb/2009:12:14:14.655] in~ b/s1 0/0/1/7/8 200 89 - - ---- 1/1/0/0/0 0/0 {a|b} \"GET /a HTTP/1.1\"";

    #[test]
    fn each_known_format_is_recognised() {
        let prefixed = format!("Feb  6 12:14:14 localhost haproxy[14389]: {HTTPLOG}\n");
        for (text, want) in [
            (HTTPLOG, "haproxy httplog"),
            (prefixed.as_str(), "haproxy httplog"),
            (
                &format!("{HTTPLOG} 0/0000000000000000/0/0/0 shop.example/TLSv1.3/TLS_AES_256_GCM_SHA384"),
                "haproxy httpslog",
            ),
            (&format!("{HTTPLOG} and more of his own"), "haproxy httplog"),
            (
                "::1 - - [06/Feb/2009:12:14:14 +0000] \"GET / HTTP/1.1\" 200 89 \"\" \"\" 4711 655 \"in~\" \"b\" \"s1\" 0 0 1 7 8 ---- 1 1 0 0 0 0 0 \"\" \"\"",
                "haproxy httplog clf",
            ),
            (
                "::1 - bob [06/Feb/2009:12:14:14 +0000] \"GET / HTTP/1.1\" 200 89 \"-\" \"curl \\x22\"",
                "nginx combined",
            ),
            (
                "::1 [06/Feb/2009:12:14:14 +0000] \"GET / HTTP/1.1\" 200 89 0.001s host=a slowlane=pass id=00",
                "nginx, slowlane's",
            ),
            (
                "::1:80 [06/Feb/2009:12:14:14.655] in b/s 0/0/0/0/0 200 89 ---- website=a%20b \"GET / HTTP/1.1\" slowlane=pass/0/0/- owner=-",
                "haproxy, slowlane's",
            ),
            (
                "::1:80 [06/Feb/2009:12:14:14.655] in b/s 0/0/0/0/0 200 89 ---- \"GET / HTTP/1.1\" slowlane=pass/0/0/-",
                "haproxy, slowlane's without the website",
            ),
        ] {
            assert_eq!(name(text).as_deref(), Some(want), "{text}");
        }
        for text in ["", "\n\n", "hello\nworld\n", "\0\x01\x02"] {
            assert_eq!(name(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_few_lines_of_others_do_not_matter() {
        assert_eq!(name(&format!("garbage\n{HTTPLOG}\n\n{HTTPLOG}\n")).as_deref(), Some("haproxy httplog"));
    }

    #[test]
    fn a_format_with_a_control_character_is_told_without_it() {
        let format = Format::parse("%ci \u{7f}%Ts\u{7f}").unwrap();
        let input: Box<dyn Read> = Box::new(&b"192.0.2.1 7"[..]);
        let mut log = Log::open("log".into(), input, &Choice::This(format), &[], &|_| true, 0).unwrap();
        assert!(!log.next(&mut Record::default()));
        let LogOutcome { format, faults, .. } = log.outcome();
        assert_eq!(format.unwrap(), "%ci \\u{7f}%Ts\\u{7f}");
        assert!(!faults[0].0.contains('\u{7f}'), "{faults:?}");
    }
}
