//! The laws: how an entry, an SLO and a moment become a verdict.

mod adaptive;
mod options;
mod pace;

use std::time::Duration;

pub use adaptive::Adaptive;
pub use options::{OptionError, Options};
pub use pace::Pace;

use crate::draw::Draw;
use crate::table::Entry;
use crate::time::Timestamp;
use crate::units::Rate;
use crate::verdict::Verdict;

/// What a customer is promised: `burst` requests at once, and `rate` from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Objective {
    pub burst: u32,
    pub rate: Rate,
}

/// A law with its numbers filled in for one SLO. Judging is a pure function of the arguments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Law {
    Adaptive(Adaptive),
    Pace(Pace),
}

impl Law {
    /// The law of an SLO that names none.
    pub const DEFAULT_NAME: &'static str = "pace";

    /// The names that `law=` takes.
    pub const NAMES: &'static [&'static str] = &["adaptive", "pace"];

    /// The law that goes by `name`, with the options that it knows; others are an error.
    ///
    /// ```
    /// use slowlane::law::{Law, Objective, Options};
    /// let objective = Objective { burst: 100, rate: "50/s".parse().unwrap() };
    /// let law = Law::new("pace", objective, Options::new([("max_delay", "2s")])).unwrap();
    /// assert_eq!(law.name(), "pace");
    /// assert!(Law::new("pace", objective, Options::new([("jitter", "0.1")])).is_err());
    /// ```
    pub fn new(name: &str, objective: Objective, mut options: Options) -> Result<Law, OptionError> {
        let law = match name {
            "adaptive" => Law::Adaptive(Adaptive::from_options(objective, &mut options)?),
            "pace" => Law::Pace(Pace::from_options(objective, &mut options)?),
            _ => return Err(OptionError::law(name)),
        };
        options.finish()?;
        Ok(law)
    }

    pub const fn name(&self) -> &'static str {
        match self {
            Law::Adaptive(_) => "adaptive",
            Law::Pace(_) => "pace",
        }
    }

    /// Judges one request and writes it into its entry.
    pub fn judge(&self, entry: &mut Entry, now: Timestamp, draw: Draw) -> Verdict {
        match self {
            Law::Adaptive(adaptive) => adaptive.judge(entry, now, draw),
            Law::Pace(pace) => pace.judge(entry, now),
        }
    }

    /// Takes back a request that was let through and whose client left before its turn.
    pub fn take_back(&self, entry: &mut Entry) {
        match self {
            Law::Adaptive(_) => {}
            Law::Pace(pace) => pace.take_back(entry),
        }
    }

    /// How long an entry must be kept after a write so that forgetting it changes no verdict.
    pub fn memory(&self) -> Duration {
        match self {
            Law::Adaptive(_) => Duration::ZERO,
            Law::Pace(pace) => pace.memory(),
        }
    }
}
