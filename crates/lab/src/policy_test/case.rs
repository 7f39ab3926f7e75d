//! The cases of a file: a request, its SLOs, and requests that follow each other in virtual time.

use std::fmt;
use std::time::Duration;

use crate::policy_test::expected::Expected;
use crate::policy_test::fields::Fields;
use slowlane_core::base::slo_id::SloId;
use slowlane_core::base::units;

/// The cases of one file.
///
/// Its text is the same file without comments, one statement on a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suite {
    pub cases: Vec<TestCase>,
}

/// A request, the SLOs that it falls under, and the steps that follow. It begins with empty counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestCase {
    /// Counted from 1.
    pub line: usize,
    pub fields: Fields,
    pub slos: Slos,
    pub steps: Vec<Step>,
}

/// The SLOs that a request falls under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slos {
    /// These, its own first, then those that `also=` names.
    Ids(Vec<SloId>),
    /// Any, and each has `rate=unlimited`.
    Unlimited,
    /// None: it cannot be looked up, and is denied.
    Refused,
}

/// The name of [`Slos::Unlimited`].
pub(super) const UNLIMITED: &str = units::UNLIMITED;

/// The name of [`Slos::Refused`].
pub(super) const REFUSED: &str = "refused";

/// A step of a case, and its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Counted from 1.
    pub line: usize,
    pub action: Action,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Requests, and the verdicts that are expected.
    Ask { arrivals: Arrivals, fields: Fields, expected: Expected },
    /// Time passes.
    After(Duration),
    /// So many requests in flight end, those that left first. None: all that have left.
    Done(Option<u32>),
}

/// When requests arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// So many in one moment.
    AtOnce(u32),
    /// The request of this number in its case.
    Ordinal(u32),
    /// So many at equal distances, the first now.
    Spread(u32, Duration),
}

impl Arrivals {
    pub(super) fn count(self) -> u32 {
        match self {
            Arrivals::AtOnce(count) | Arrivals::Spread(count, _) => count,
            Arrivals::Ordinal(_) => 1,
        }
    }

    /// The time from the first request to the next step.
    pub(super) fn takes(self) -> Duration {
        match self {
            Arrivals::AtOnce(_) | Arrivals::Ordinal(_) => Duration::ZERO,
            Arrivals::Spread(_, time) => time,
        }
    }
}

impl Suite {
    /// The number of requests that its steps make.
    pub fn requests(&self) -> u64 {
        let asked = |step: &Step| match &step.action {
            Action::Ask { arrivals, .. } => u64::from(arrivals.count()),
            Action::After(_) | Action::Done(_) => 0,
        };
        self.cases.iter().flat_map(|case| &case.steps).map(asked).sum()
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for case in &self.cases {
            writeln!(f, "{} -> {}", case.fields, case.slos)?;
            case.steps.iter().try_for_each(|step| writeln!(f, "    {}", step.action))?;
        }
        Ok(())
    }
}

impl fmt::Display for Slos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Slos::Ids(ids) => f.write_str(&ids.iter().map(SloId::to_string).collect::<Vec<_>>().join(", ")),
            Slos::Unlimited => f.write_str(UNLIMITED),
            Slos::Refused => f.write_str(REFUSED),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Ask { expected, .. } => write!(f, "{} -> {expected}", self.asks()),
            Action::After(_) | Action::Done(_) => f.write_str(&self.asks()),
        }
    }
}

impl Action {
    /// The step without its verdicts.
    pub(super) fn asks(&self) -> String {
        match self {
            Action::Ask { arrivals, fields, .. } if fields.is_empty() => arrivals.to_string(),
            Action::Ask { arrivals, fields, .. } => format!("{arrivals} {fields}"),
            Action::After(time) => format!("after {}", units::written(*time)),
            Action::Done(Some(count)) => format!("{count} done"),
            Action::Done(None) => "done".to_owned(),
        }
    }
}

impl fmt::Display for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Arrivals::AtOnce(count) => write!(f, "{count} at once"),
            Arrivals::Ordinal(number) => write!(f, "{number}{}", ordinal_ending(number)),
            Arrivals::Spread(count, time) => write!(f, "{count} in {}", units::written(time)),
        }
    }
}

/// The letters behind the digits of 1st, 2nd, 3rd, 4th, 11th.
fn ordinal_ending(number: u32) -> &'static str {
    match (number % 100, number % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    }
}
