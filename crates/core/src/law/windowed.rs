//! The numbers of a law that counts the requests of a window.

use std::time::Duration;

use crate::base::units::Period;
use crate::law::window::Window;

/// The numbers of a law that counts the requests of a window, so that nodes can count together.
///
/// ```
/// use slowlane_core::law::{Law, Objective, Options};
/// let objective = Objective { burst: 0, rate: "1000/h".parse().unwrap() };
/// let windowed = Law::new("fixed-window", objective, Options::default()).unwrap().windowed().unwrap();
/// assert_eq!((windowed.limit, windowed.window.as_secs(), windowed.is_sliding), (1_000, 3_600, false));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windowed {
    /// Requests in one window.
    pub limit: u32,
    pub window: Duration,
    /// The window before counts, too.
    pub is_sliding: bool,
    /// Windows are the periods of the calendar, and `window` is the longest of them.
    pub calendar: Option<Period>,
}

impl Windowed {
    pub(super) fn new(window: &Window, is_sliding: bool) -> Windowed {
        Windowed { limit: window.limit, window: window.duration(), is_sliding, calendar: None }
    }
}
