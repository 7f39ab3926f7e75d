//! A limit on requests in a period: the arithmetic of the window laws.

use std::time::Duration;

use crate::base::{Period, Quota, Rate, date::Calendar};
use crate::law::formula::{compared, option};
use crate::law::{Objective, OptionError, Options, Scale};

/// The shortest window. A shorter window would mostly be empty, and a proxy's own timers would make it inexact.
const WINDOW_MIN: Duration = Duration::from_millis(10);

/// The length of the longest month.
const MONTH_MAX: Duration = Duration::from_secs(31 * 86_400);

/// At most `limit` requests in a window. Nodes that share the window count together.
///
/// ```
/// use slowlane_core::law::{Law, Objective, Options};
/// let objective = Objective { burst: 0, rate: "1000/h".parse().unwrap() };
/// let law = Law::new("fixed-window", objective, Options::default()).unwrap();
/// let window = law.shared_window().unwrap();
/// assert_eq!((window.limit, window.longest().as_secs(), window.is_sliding), (1_000, 3_600, false));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// `N = rate * window`. The burst has no effect.
    pub limit: u32,
    pub(super) window_ns: u64,
    /// Whether the previous window also counts.
    pub is_sliding: bool,
    /// If set, windows are the periods of this calendar.
    pub calendar: Option<Calendar>,
    /// Whether the window counts work, so that charges may be returned.
    pub is_work: bool,
}

impl Window {
    /// A window that neither slides nor follows the calendar.
    pub(super) const fn new(limit: u32, window_ns: u64) -> Window {
        Window { limit, window_ns, is_sliding: false, calendar: None, is_work: false }
    }

    /// `window` defaults to the period of the rate: `100/m` is a hundred requests in a minute.
    ///
    /// # Errors
    /// The window is too short, or at this rate `N` is below 1 or above [`LIMIT_MAX`](Window::LIMIT_MAX).
    pub(super) fn from_options(objective: Objective, options: &mut Options) -> Result<Window, OptionError> {
        let rate = objective.rate;
        let window = options.duration_of("window", WINDOW_MIN)?.unwrap_or(rate.period());
        match u32::try_from(rate.requests_in(window)) {
            Ok(0) => {
                let reason = "holds less than one request: use a longer window".into();
                Err(OptionError::Rate { name: "window", given: window, rate, reason })
            }
            Ok(limit @ ..=Window::LIMIT_MAX) => Ok(Window::new(limit, window.as_nanos() as u64)),
            _ => Err(Window::too_long(window, rate, Window::LIMIT_MAX, "")),
        }
    }

    /// The error for a window that holds more than `limit_max` requests at this rate. `or` names another remedy.
    pub(super) fn too_long(window: Duration, rate: Rate, limit_max: u32, or: &str) -> OptionError {
        let reason = format!("holds more than {limit_max} requests: use a shorter window{or}");
        OptionError::Rate { name: "window", given: window, rate, reason }
    }

    /// The largest limit. Up to this limit, the counts of two windows can be added without overflow.
    const LIMIT_MAX: u32 = 1 << 30;

    /// The limit in an explanation: `N 100 (100/m in 1m)`
    pub(super) fn explained(&self, scale: &Scale) -> String {
        format!("N {} ({} in {})", scale.count(self.limit), scale.rate, option(self.window_ns))
    }

    /// The comparison in an explanation: `count 3 + cost 1 = 4 <= N 100 (100/m in 1m)`
    pub(super) fn compared(&self, scale: &Scale, text: &str, cost: u32, sum: f64, is_within: bool) -> String {
        let [cost, sum] = [cost.into(), sum].map(|count| scale.count(count));
        format!("{text} + cost {cost} = {sum} {} {}", compared(is_within), self.explained(scale))
    }

    /// The window of one of `nodes` nodes: an equal part of the limit, but at least one request.
    pub(super) fn split(&self, nodes: u32) -> Window {
        Window { limit: (self.limit / nodes.max(1)).max(1), ..*self }
    }

    pub(super) fn duration(&self) -> Duration {
        Duration::from_nanos(self.window_ns)
    }

    /// The length of the longest window: calendar months differ in length.
    pub fn longest(&self) -> Duration {
        if self.calendar.is_some_and(|calendar| calendar.period == Period::Month) {
            MONTH_MAX
        } else {
            self.duration()
        }
    }

    pub(super) fn quota(&self) -> Quota {
        Quota::of_window(self.limit, self.duration())
    }

    /// The limit in words: `1000 in 60 s`, `5000 in 1 d`, or `1000 in each month (UTC)`.
    pub(super) fn describe(&self) -> String {
        match (self.calendar, self.quota()) {
            (None, Quota::Window { requests, window_s }) => match window_s {
                days if days.is_multiple_of(86_400) => format!("{requests} in {} d", days / 86_400),
                hours if hours.is_multiple_of(3_600) => format!("{requests} in {} h", hours / 3_600),
                seconds => format!("{requests} in {seconds} s"),
            },
            _ => self.describe_as(&self.limit.to_string()),
        }
    }

    /// Like `describe`, but with a limit that is given as text and may have a different unit.
    pub(crate) fn describe_as(&self, limit: &str) -> String {
        let each = match self.calendar.map(|calendar| calendar.period) {
            Some(several @ Period::Seconds(_)) => {
                return format!("{limit} in each {several} since 1970 (UTC)");
            }
            None => return format!("{limit} in {}", option(self.window_ns)),
            Some(Period::Second) => "second",
            Some(Period::Minute) => "minute",
            Some(Period::Hour) => "hour",
            Some(Period::Day) => "day",
            Some(Period::Month) => "month",
        };
        format!("{limit} in each {each} (UTC)")
    }
}
