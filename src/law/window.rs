//! So many requests in so much time: what the laws of the window family have in common.

use std::time::Duration;

use crate::base::quota::Quota;
use crate::base::units::Rate;
use crate::law::formula::option;
use crate::law::{Objective, OptionError, Options};

/// Shorter than this a window is mostly empty, and a proxy's own timers blur it.
const WINDOW_MIN: Duration = Duration::from_millis(10);

/// A number of requests, and the time that they are counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// `N = rate * window`; the burst plays no part.
    pub(super) limit: u32,
    pub(super) window_ns: u64,
}

impl Window {
    /// `window` defaults to the period of the rate: `100/m` is a hundred in a minute.
    pub(super) fn from_options(objective: Objective, options: &mut Options) -> Result<Window, OptionError> {
        let window = options.duration("window")?.unwrap_or(objective.rate.period());
        Window::new(objective.rate, window)
    }

    /// # Errors
    /// A window that is too short, or in which the rate allows less than one request or more than can be counted.
    pub(super) fn new(rate: Rate, window: Duration) -> Result<Window, OptionError> {
        if window < WINDOW_MIN {
            return Err(OptionError::TooShort { name: "window", given: window, min: WINDOW_MIN });
        }
        match u32::try_from(rate.requests_in(window)) {
            Ok(0) => Err(OptionError::WindowEmpty { window, rate }),
            Ok(limit @ ..=Window::LIMIT_MAX) => Ok(Window { limit, window_ns: window.as_nanos() as u64 }),
            _ => Err(OptionError::Window { window, rate, limit_max: Window::LIMIT_MAX, or: "" }),
        }
    }

    /// So that counts of two windows can be added.
    pub(super) const LIMIT_MAX: u32 = 1 << 30;

    /// `N 100 (100/m in 1m)`
    pub(super) fn explained(&self, rate: Rate) -> String {
        format!("N {} ({rate} in {})", self.limit, option(self.window_ns))
    }

    pub(super) fn duration(&self) -> Duration {
        Duration::from_nanos(self.window_ns)
    }

    pub(super) fn quota(&self) -> Quota {
        Quota::of_window(self.limit, self.duration())
    }
}
