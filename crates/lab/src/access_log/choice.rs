//! The choice of a log's format.

use crate::access_log::date::Calendar;
use crate::access_log::format::{Dialect, Format};
use crate::access_log::line::Steps;
use crate::access_log::plan::{Fault, Plan};
use crate::access_log::record::Record;
use crate::access_log::slots::SLOTS_MAX;

/// How many lines are read to recognise the format.
const LOOKED_AT: usize = 200;

/// The formats that a log may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Any known format.
    Any,
    /// Any known format of one proxy.
    Of(Dialect),
    This(Format),
}

impl Choice {
    /// The format of a log that begins like this; None where no known format fits.
    pub(super) fn format(&self, head: &[u8]) -> Option<Format> {
        match self {
            Choice::This(format) => Some(format.clone()),
            Choice::Any => recognised(head, |_| true),
            Choice::Of(dialect) => recognised(head, |format| format.dialect() == *dialect),
        }
    }
}

/// A known format and the two ways to try it on a line.
struct Candidate {
    whole: Steps,
    plan: Plan,
}

impl Candidate {
    fn new(format: Format) -> Candidate {
        let whole = Steps::new(&format, |_| None);
        let plan = Plan::new(format, &[], &|_| false).expect("a known format has a time");
        Candidate { whole, plan }
    }

    /// The line fits as a whole.
    fn fits(&self, line: &[u8]) -> bool {
        self.whole.take_apart_of_syslog(line, true, &mut false, &mut [None; SLOTS_MAX]).is_ok()
    }

    /// The line fits as far as the wanted items reach.
    fn reads(&self, line: &[u8]) -> bool {
        let read = self.plan.read(line, &mut Calendar::default(), &mut false, &mut Record::default());
        matches!(read, Ok(()) | Err(Fault::NoRequest))
    }
}

/// The format that fits most of the first lines as a whole; if none does, the one that fits most of them as far as
/// its wanted items reach.
fn recognised(head: &[u8], is_allowed: impl Fn(&Format) -> bool) -> Option<Format> {
    let lines = || head.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).take(LOOKED_AT);
    let candidates: Vec<_> = Format::known().into_iter().filter(is_allowed).map(Candidate::new).collect();
    let best = |is_of_it: &dyn Fn(&Candidate, &[u8]) -> bool| {
        let count = |candidate| lines().filter(|line| is_of_it(candidate, line)).count();
        let counts = candidates.iter().map(|candidate| (count(candidate), candidate));
        // The first of equals wins.
        let (count, best) = counts.rev().max_by_key(|(count, _)| *count)?;
        (count > 0).then(|| best.plan.format.clone())
    };
    best(&|candidate, line| candidate.fits(line) && candidate.reads(line)).or_else(|| best(&Candidate::reads))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access_log::examples::{EXAMPLES, HTTPLOG};

    fn name(text: &str) -> Option<String> {
        recognised(text.as_bytes(), |_| true).map(|format| format.name().to_owned())
    }

    #[test]
    fn each_known_format_is_recognised() {
        for (want, line) in EXAMPLES {
            assert_eq!(name(line).as_deref(), Some(*want), "{line}");
        }
        let prefixed = format!("Feb  6 12:14:14 localhost haproxy[14389]: {HTTPLOG}\n");
        for text in [prefixed, format!("{HTTPLOG} and more of its own")] {
            assert_eq!(name(&text).as_deref(), Some("haproxy httplog"), "{text}");
        }
        for text in ["", "\n\n", "hello\nworld\n", "\0\x01\x02"] {
            assert_eq!(name(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_few_lines_of_another_format_do_not_matter() {
        assert_eq!(name(&format!("garbage\n{HTTPLOG}\n\n{HTTPLOG}\n")).as_deref(), Some("haproxy httplog"));
    }
}
