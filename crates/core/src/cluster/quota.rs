//! The numbers of a quota that nodes share: so many requests in a window.

use std::time::Duration;

use crate::base::units::Period;

/// The numbers of a quota that nodes share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuotaPlan {
    /// Requests of all nodes together, in one window.
    pub limit: f64,
    pub window_s: f64,
    /// How often a node talks to the store.
    pub period: Duration,
    pub round_trip_s: f64,
    pub nodes: u32,
    /// The window before counts, too, by the part of it that is left.
    pub is_sliding: bool,
    /// Windows are the periods of the calendar, and `window_s` is the longest of them.
    pub calendar: Option<Period>,
}

impl QuotaPlan {
    pub(super) fn period_s(&self) -> f64 {
        self.period.as_secs_f64()
    }
}
