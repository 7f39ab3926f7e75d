//! The options of `protect` in an SLO line. Each application has a state of its own.

use std::time::Duration;

use crate::base::{Quota, UNCOUNTED, Verdict};
use crate::law::formula::time;
use crate::law::protect::ProtectSettings;
use crate::law::{Arrival, AuxState, Judgement, Objective, OptionError, Options, Rule, Scale};
use crate::table::Entry;

/// The states of applications are looked at this often, so no wait is longer by more.
pub const TICK: Duration = Duration::from_millis(100);

const DELAY_MAX_DEFAULT: Duration = Duration::from_secs(5);

const SLOW_DOWN_DEFAULT: f64 = 1.7;

/// `protect` for one SLO. The row of an application counts requests and nothing else: whether one waits is decided by a
/// [`Protect`](crate::law::protect::Protect).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Protection {
    slow_down: f64,
    delay_max: Duration,
}

impl Protection {
    pub(super) fn from_options(options: &mut Options) -> Result<Protection, OptionError> {
        Ok(Protection {
            slow_down: options.number("slowdown", 1.1..=10.0)?.unwrap_or(SLOW_DOWN_DEFAULT),
            delay_max: options.duration_of("max_delay", TICK * 2)?.unwrap_or(DELAY_MAX_DEFAULT),
        })
    }

    pub fn settings(&self) -> ProtectSettings {
        let (slow_down, delay_max) = (self.slow_down, self.delay_max - TICK);
        ProtectSettings { slow_down, delay_max, ..ProtectSettings::default() }
    }
}

impl Rule for Protection {
    fn judge(&self, entry: &mut Entry, _: Option<&mut AuxState>, arrival: &Arrival) -> Judgement {
        entry.ask(arrival.cost, arrival.now);
        entry.let_through(arrival.cost, arrival.now);
        Judgement::new(Verdict::Pass, UNCOUNTED)
    }

    fn explain(&self, _: &Scale, _: &Entry, _: Option<&AuxState>, _: &Arrival) -> String {
        "this application has received no request lately, so this one passes".into()
    }

    fn counts_ends(&self) -> bool {
        true
    }

    fn max_delay(&self) -> Option<Duration> {
        Some(self.delay_max)
    }

    fn quota(&self, _: Objective) -> Option<Quota> {
        None
    }

    fn describe(&self, _: Objective) -> String {
        format!(
            "as many at a time as the application serves, max_delay {}",
            time(self.delay_max.as_nanos() as u64)
        )
    }
}
