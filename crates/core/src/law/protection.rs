//! The options that an SLO line gives to `protect`. Each application has its own state.

use std::time::Duration;

use crate::base::{Quota, UNCOUNTED, Verdict};
use crate::law::formula::time;
use crate::law::protect::ProtectSettings;
use crate::law::{Arrival, AuxState, Judgement, Objective, OptionError, Options, Rule, Scale};
use crate::table::Entry;

/// The interval at which applications are checked. A request waits at most one interval longer than its longest delay.
pub const TICK: Duration = Duration::from_millis(100);

/// `protect` for one SLO. The table row of an application only counts requests; a
/// [`Protect`](crate::law::protect::Protect) decides which of them wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Protection {
    /// In these settings, the longest delay is the `max_delay` option minus one [`TICK`].
    pub settings: ProtectSettings,
}

impl Protection {
    pub(super) fn from_options(options: &mut Options) -> Result<Protection, OptionError> {
        let default = ProtectSettings::default();
        let slow_down = options.number("slowdown", 1.1..=10.0)?.unwrap_or(default.slow_down);
        let delay_max = options.duration_of("max_delay", TICK * 2)?.unwrap_or(default.delay_max);
        Ok(Protection { settings: ProtectSettings { slow_down, delay_max: delay_max - TICK, ..default } })
    }

    fn delay_max(&self) -> Duration {
        self.settings.delay_max + TICK
    }
}

impl Rule for Protection {
    fn judge(&self, entry: &mut Entry, _: Option<&mut AuxState>, arrival: &Arrival) -> Judgement {
        entry.ask(arrival.cost, arrival.now);
        entry.let_through(arrival.cost, arrival.now);
        Judgement::new(Verdict::Pass, UNCOUNTED)
    }

    fn explain(&self, _: &Scale, _: &Entry, _: Option<&AuxState>, _: &Arrival) -> String {
        "the application has received no requests recently, so this request passes".into()
    }

    fn counts_ends(&self) -> bool {
        true
    }

    fn max_delay(&self) -> Option<Duration> {
        Some(self.delay_max())
    }

    fn quota(&self, _: Objective) -> Option<Quota> {
        None
    }

    fn describe(&self, _: Objective) -> String {
        format!(
            "as many at a time as the application can serve, max_delay {}",
            time(self.delay_max().as_nanos() as u64)
        )
    }
}
