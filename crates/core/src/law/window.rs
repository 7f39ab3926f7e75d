//! A limit of requests in a time: the arithmetic of the window laws.

use std::time::Duration;

use crate::base::quota::Quota;
use crate::base::units::Rate;
use crate::law::formula::{allowance, option};
use crate::law::objective::Objective;
use crate::law::options::{OptionError, Options};

/// A shorter window is empty most of the time, and a proxy's own timers blur it.
const WINDOW_MIN: Duration = Duration::from_millis(10);

/// At most `limit` requests in `window_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// `N = rate * window`. The burst plays no part.
    pub(super) limit: u32,
    pub(super) window_ns: u64,
}

impl Window {
    /// `window` defaults to the period of the rate: `100/m` is a hundred in a minute.
    pub(super) fn from_options(objective: Objective, options: &mut Options) -> Result<Window, OptionError> {
        let window = options.duration_of("window", WINDOW_MIN)?.unwrap_or(objective.rate.period());
        Window::new(objective.rate, window)
    }

    /// # Errors
    /// At this rate `N` is below 1 or above [`LIMIT_MAX`](Window::LIMIT_MAX).
    fn new(rate: Rate, window: Duration) -> Result<Window, OptionError> {
        match u32::try_from(rate.requests_in(window)) {
            Ok(0) => {
                let reason = "holds less than one request: make it longer".into();
                Err(OptionError::Rate { name: "window", given: window, rate, reason })
            }
            Ok(limit @ ..=Window::LIMIT_MAX) => Ok(Window { limit, window_ns: window.as_nanos() as u64 }),
            _ => Err(Window::too_long(window, rate, Window::LIMIT_MAX, "")),
        }
    }

    /// At this rate the window holds more than `limit_max` requests; `or` is another remedy.
    pub(super) fn too_long(window: Duration, rate: Rate, limit_max: u32, or: &str) -> OptionError {
        let reason = format!("holds more than {limit_max} requests: make it shorter{or}");
        OptionError::Rate { name: "window", given: window, rate, reason }
    }

    /// Counts of two windows can be added without overflow.
    const LIMIT_MAX: u32 = 1 << 30;

    /// `N 100 (100/m in 1m)`
    pub(super) fn explained(&self, rate: Rate) -> String {
        format!("N {} ({rate} in {})", self.limit, option(self.window_ns))
    }

    /// The window of one of so many nodes: an equal part of the limit, one request at least.
    pub(super) fn split(&self, nodes: u32) -> Window {
        Window { limit: (self.limit / nodes.max(1)).max(1), ..*self }
    }

    pub(super) fn duration(&self) -> Duration {
        Duration::from_nanos(self.window_ns)
    }

    pub(super) fn quota(&self) -> Quota {
        Quota::of_window(self.limit, self.duration())
    }

    /// `1000 in 60 s`
    pub(super) fn describe(&self) -> String {
        allowance(self.quota())
    }
}
