//! The laws: how an entry, an SLO and a moment become a verdict.
//!
//! A law is a pure function: it changes the entry that it is given, and its annex where it has one, and nothing
//! else. Each has a file, which opens with its formula, its units and its source.

mod adaptive;
mod annex;
mod arrival;
mod bucket;
mod calendar;
mod closed;
mod concurrency;
mod fair;
mod fixed_window;
mod formula;
mod leaky_bucket;
mod options;
mod pace;
mod sliding_buckets;
mod sliding_log;
mod sliding_window;
mod token_bucket;
mod warm_up;
mod window;

use std::time::Duration;

pub use adaptive::Adaptive;
pub use annex::Annex;
pub use arrival::{Arrival, Judgement};
pub use calendar::Calendar;
pub use closed::Closed;
pub use concurrency::Concurrency;
pub use fair::Fair;
pub use fixed_window::FixedWindow;
pub use leaky_bucket::LeakyBucket;
pub use options::{OptionError, Options};
pub use pace::Pace;
pub use sliding_buckets::SlidingBuckets;
pub use sliding_log::{Log, SlidingLog};
pub use sliding_window::SlidingWindow;
pub use token_bucket::TokenBucket;
pub use warm_up::WarmUp;

use crate::base::quota::Quota;
use crate::base::time::Timestamp;
use crate::base::units::Rate;
use crate::base::verdict::Verdict;
use crate::table::Entry;

/// What a customer is promised: `burst` requests at once, and `rate` from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Objective {
    pub burst: u32,
    /// Of a rate of 0 every law denies every request.
    pub rate: Rate,
}

/// A law with its numbers filled in for one SLO. Judging is a pure function of the arguments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Law {
    Adaptive(Adaptive),
    Closed(Closed),
    Concurrency(Concurrency),
    Fair(Fair),
    FixedWindow(FixedWindow),
    LeakyBucket(LeakyBucket),
    Pace(Pace),
    SlidingBuckets(SlidingBuckets),
    SlidingLog(SlidingLog),
    SlidingWindow(SlidingWindow),
    TokenBucket(TokenBucket),
    WarmUp(WarmUp),
}

impl Law {
    /// The law of an SLO that names none.
    pub const DEFAULT_NAME: &'static str = "pace";

    /// The names that `law=` takes.
    pub const NAMES: &'static [&'static str] = &[
        "adaptive",
        "pace",
        "fair",
        "token-bucket",
        "leaky-bucket",
        "fixed-window",
        "sliding-window",
        "sliding-buckets",
        "sliding-log",
        "warm-up",
        "concurrency",
    ];

    /// The law that goes by `name`, with the options that it knows; others are an error.
    ///
    /// ```
    /// use slowlane::law::{Law, Objective, Options};
    /// let objective = Objective { burst: 100, rate: "50/s".parse().unwrap() };
    /// let law = Law::new("pace", objective, Options::new([("max_delay", "2s")])).unwrap();
    /// assert_eq!(law.name(), "pace");
    /// assert!(Law::new("pace", objective, Options::new([("jitter", "0.1")])).is_err());
    /// ```
    pub fn new(name: &str, objective: Objective, options: Options) -> Result<Law, OptionError> {
        let name = Law::NAMES.iter().find(|known| **known == name).ok_or_else(|| OptionError::law(name))?;
        let (is_closed, objective) = Closed::or_open(objective);
        match Law::open(name, objective, options) {
            Ok(_) if is_closed => Ok(Law::Closed(Closed::instead_of(name))),
            Err(error) if is_closed && error.is_of_rate() => Ok(Law::Closed(Closed::instead_of(name))),
            law => law,
        }
    }

    /// The law of a rate that is not 0.
    fn open(name: &'static str, objective: Objective, mut options: Options) -> Result<Law, OptionError> {
        let options_of = &mut options;
        let law = match name {
            "adaptive" => Law::Adaptive(Adaptive::from_options(objective, options_of)?),
            "concurrency" => Law::Concurrency(Concurrency::from_options(objective, options_of)?),
            "fair" => Law::Fair(Fair::from_options(objective, options_of)?),
            "fixed-window" => Law::FixedWindow(FixedWindow::from_options(objective, options_of)?),
            "leaky-bucket" => Law::LeakyBucket(LeakyBucket::new(objective)),
            "pace" => Law::Pace(Pace::from_options(objective, options_of)?),
            "sliding-buckets" => Law::SlidingBuckets(SlidingBuckets::from_options(objective, options_of)?),
            "sliding-log" => Law::SlidingLog(SlidingLog::from_options(objective, options_of)?),
            "sliding-window" => Law::SlidingWindow(SlidingWindow::from_options(objective, options_of)?),
            "token-bucket" => Law::TokenBucket(TokenBucket::new(objective)),
            "warm-up" => Law::WarmUp(WarmUp::from_options(objective, options_of)?),
            _ => return Err(OptionError::law(name)),
        };
        options.finish(name)?;
        Ok(law)
    }

    pub const fn name(&self) -> &'static str {
        match self {
            Law::Adaptive(_) => "adaptive",
            Law::Closed(closed) => closed.name(),
            Law::Concurrency(_) => "concurrency",
            Law::Fair(_) => "fair",
            Law::FixedWindow(_) => "fixed-window",
            Law::LeakyBucket(_) => "leaky-bucket",
            Law::Pace(_) => "pace",
            Law::SlidingBuckets(_) => "sliding-buckets",
            Law::SlidingLog(_) => "sliding-log",
            Law::SlidingWindow(_) => "sliding-window",
            Law::TokenBucket(_) => "token-bucket",
            Law::WarmUp(_) => "warm-up",
        }
    }

    /// The longest that it delays for; more than any number of seconds where it has no limit. None: it never delays.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use slowlane::law::{Law, Objective, Options};
    /// # let objective = Objective { burst: 100, rate: "50/s".parse().unwrap() };
    /// let max_delay = |name| Law::new(name, objective, Options::default()).unwrap().max_delay();
    /// assert_eq!(max_delay("pace"), Some(Duration::from_secs(5)));
    /// assert_eq!((max_delay("adaptive"), max_delay("token-bucket")), (Some(Duration::MAX), None));
    /// ```
    pub const fn max_delay(&self) -> Option<Duration> {
        match self {
            Law::Adaptive(adaptive) => Some(adaptive.max_delay),
            Law::Fair(fair) => Some(Duration::from_nanos(fair.pace.max_delay_ns)),
            Law::Pace(pace) => Some(Duration::from_nanos(pace.max_delay_ns)),
            Law::WarmUp(warm_up) => Some(Duration::from_nanos(warm_up.max_delay_ns)),
            Law::Closed(_)
            | Law::Concurrency(_)
            | Law::FixedWindow(_)
            | Law::LeakyBucket(_)
            | Law::SlidingBuckets(_)
            | Law::SlidingLog(_)
            | Law::SlidingWindow(_)
            | Law::TokenBucket(_) => None,
        }
    }

    /// Judges one request and writes it into its entry, and into its annex if the law has one; without an annex
    /// such a law falls back to a simpler one.
    pub fn judge(&self, entry: &mut Entry, annex: Option<&mut Annex>, arrival: &Arrival) -> Judgement {
        if arrival.cost == 0 && !matches!(self, Law::Closed(_)) {
            return Judgement::new(Verdict::Pass, u32::MAX);
        }
        match self {
            Law::Adaptive(adaptive) => adaptive.judge(entry, arrival),
            Law::Closed(closed) => closed.judge(entry, arrival),
            Law::Concurrency(concurrency) => concurrency.judge(entry, arrival),
            Law::Fair(fair) => fair.judge(entry, calendar(annex), arrival),
            Law::FixedWindow(fixed_window) => fixed_window.judge(entry, arrival),
            Law::LeakyBucket(leaky_bucket) => leaky_bucket.judge(entry, arrival),
            Law::Pace(pace) => pace.judge(entry, arrival),
            Law::SlidingBuckets(sliding_buckets) => sliding_buckets.judge(entry, arrival),
            Law::SlidingLog(sliding_log) => sliding_log.judge(entry, log(annex), arrival),
            Law::SlidingWindow(sliding_window) => sliding_window.judge(entry, arrival),
            Law::TokenBucket(token_bucket) => token_bucket.judge(entry, arrival),
            Law::WarmUp(warm_up) => warm_up.judge(entry, arrival),
        }
    }

    /// What [`judge`](Law::judge) would say. It writes into the entry, which may be a copy; but of what it lets
    /// through the annex does not know.
    pub fn foresee(&self, entry: &mut Entry, annex: Option<&mut Annex>, arrival: &Arrival) -> Judgement {
        match self {
            Law::Fair(fair) if arrival.cost > 0 => fair.foresee(entry, calendar(annex), arrival),
            Law::SlidingLog(sliding_log) if arrival.cost > 0 => {
                sliding_log.foresee(entry, log(annex), arrival)
            }
            _ => self.judge(entry, annex, arrival),
        }
    }

    /// The law's formula with the numbers in it, as they would be for this request.
    ///
    /// ```
    /// use slowlane::{law::{Arrival, Law, Objective, Options}, table::Entry, base::time::Timestamp};
    ///
    /// let objective = Objective { burst: 2, rate: "50/s".parse().unwrap() };
    /// let law = Law::new("pace", objective, Options::default()).unwrap();
    /// let (mut entry, arrival) = (Entry::default(), Arrival::at(Timestamp::from_millis(9_000)));
    /// assert_eq!(law.explain(&objective, &entry, None, &arrival), "used 0 + cost 1 <= burst 2");
    /// for _ in 0..3 {
    ///     law.judge(&mut entry, None, &arrival);
    /// }
    /// assert_eq!(
    ///     law.explain(&objective, &entry, None, &arrival),
    ///     "used 3 + cost 1 - burst 2 = 2 over; delay = 2 / 50/s = 40 ms <= max_delay 5s"
    /// );
    /// ```
    pub fn explain(
        &self,
        objective: &Objective,
        entry: &Entry,
        annex: Option<&Annex>,
        arrival: &Arrival,
    ) -> String {
        if arrival.cost == 0 && !matches!(self, Law::Closed(_)) {
            return "cost 0: passes, and is not counted".into();
        }
        match self {
            Law::Adaptive(adaptive) => adaptive.explain(entry, arrival),
            Law::Closed(closed) => closed.explain(),
            Law::Concurrency(concurrency) => concurrency.explain(entry, arrival),
            Law::Fair(fair) => match annex {
                Some(Annex::Calendar(calendar)) => fair.explain(objective, entry, calendar, arrival),
                _ => format!(
                    "no room to remember who waits, so as pace: {}",
                    fair.stand_in(objective, entry, arrival)
                ),
            },
            Law::FixedWindow(fixed_window) => fixed_window.explain(objective, entry, arrival),
            Law::LeakyBucket(leaky_bucket) => leaky_bucket.explain(objective, entry, arrival),
            Law::Pace(pace) => pace.explain(objective, entry, arrival),
            Law::SlidingBuckets(sliding_buckets) => sliding_buckets.explain(objective, entry, arrival),
            Law::SlidingLog(sliding_log) => match annex {
                Some(Annex::Log(log)) => sliding_log.explain(objective, entry, log, arrival),
                _ => format!(
                    "no room for a log, so as sliding-window: {}",
                    sliding_log.stand_in(objective, entry, arrival)
                ),
            },
            Law::SlidingWindow(sliding_window) => sliding_window.explain(objective, entry, arrival),
            Law::TokenBucket(token_bucket) => token_bucket.explain(objective, entry, arrival),
            Law::WarmUp(warm_up) => warm_up.explain(entry, arrival),
        }
    }

    /// Takes back a request that was let through: its client left before its turn, which was to come at `due`. What
    /// was to leave at once was due when it came. `adaptive` has no way back.
    pub fn take_back(
        &self,
        entry: &mut Entry,
        annex: Option<&mut Annex>,
        cost: u32,
        now: Timestamp,
        due: Timestamp,
    ) {
        match self {
            Law::Adaptive(_) | Law::Closed(_) => {}
            Law::Concurrency(concurrency) => concurrency.end(entry, cost, due, now),
            Law::Fair(fair) => fair.take_back(entry, calendar(annex), cost, now, due),
            Law::FixedWindow(fixed_window) => fixed_window.take_back(entry, cost, due),
            Law::LeakyBucket(leaky_bucket) => leaky_bucket.take_back(entry, cost),
            Law::Pace(pace) => pace.take_back(entry, cost),
            Law::SlidingBuckets(sliding_buckets) => sliding_buckets.take_back(&mut entry.state, cost, due),
            Law::SlidingLog(sliding_log) => sliding_log.take_back(entry, log(annex), cost, due),
            Law::SlidingWindow(sliding_window) => sliding_window.take_back(&mut entry.state, cost, due),
            Law::TokenBucket(token_bucket) => token_bucket.take_back(entry, cost),
            Law::WarmUp(warm_up) => warm_up.take_back(entry, cost),
        }
    }

    /// What a client of an SLO with this law may be told that it is allowed.
    pub fn quota(&self, objective: Objective) -> Quota {
        match self {
            Law::Adaptive(_)
            | Law::Closed(_)
            | Law::Fair(_)
            | Law::LeakyBucket(_)
            | Law::Pace(_)
            | Law::TokenBucket(_)
            | Law::WarmUp(_) => Quota::of_bucket(objective.burst, objective.rate),
            Law::Concurrency(concurrency) => Quota::Concurrent { requests: concurrency.max().into() },
            Law::FixedWindow(FixedWindow { window })
            | Law::SlidingLog(SlidingLog { stand_in: SlidingWindow { window } })
            | Law::SlidingWindow(SlidingWindow { window }) => window.quota(),
            Law::SlidingBuckets(sliding_buckets) => sliding_buckets.quota(),
        }
    }

    /// What is promised, in the words of the law: a window law has no use for the burst, `concurrency` none for the rate.
    ///
    /// ```
    /// use slowlane::law::{Law, Objective, Options};
    /// let promise = |law, burst, rate: &str| {
    ///     let objective = Objective { burst, rate: rate.parse().unwrap() };
    ///     Law::new(law, objective, Options::default()).unwrap().promise(objective)
    /// };
    /// assert_eq!(promise("pace", 100, "50/s"), "50/s, burst 100");
    /// assert_eq!(promise("sliding-log", 0, "1000/m"), "1000 in 60 s");
    /// assert_eq!(promise("fixed-window", 0, "5000/d"), "5000 in 1 d");
    /// assert_eq!(promise("concurrency", 5, "1/s"), "5 at a time");
    /// assert_eq!(promise("pace", 100, "0/s"), "nothing");
    /// ```
    pub fn promise(&self, objective: Objective) -> String {
        let Objective { burst, rate } = objective;
        match (self, self.quota(objective)) {
            (Law::Closed(_), _) => "nothing".into(),
            (_, Quota::Concurrent { requests }) => format!("{requests} at a time"),
            (
                Law::FixedWindow(_) | Law::SlidingBuckets(_) | Law::SlidingLog(_) | Law::SlidingWindow(_),
                Quota::Window { requests, window_s },
            ) => match window_s {
                days if days.is_multiple_of(86_400) => format!("{requests} in {} d", days / 86_400),
                hours if hours.is_multiple_of(3_600) => format!("{requests} in {} h", hours / 3_600),
                seconds => format!("{requests} in {seconds} s"),
            },
            _ => format!("{rate}, burst {burst}"),
        }
    }

    /// Whether the law wants to know when a request ends.
    pub const fn counts_ends(&self) -> bool {
        matches!(self, Law::Concurrency(_))
    }

    /// A request that was let through at `begun` has ended.
    pub fn end(&self, entry: &mut Entry, cost: u32, begun: Timestamp, now: Timestamp) {
        if let Law::Concurrency(concurrency) = self {
            concurrency.end(entry, cost, begun, now);
        }
    }

    /// How long an entry must be kept after a write so that forgetting it changes no verdict.
    pub fn memory(&self) -> Duration {
        match self {
            Law::Adaptive(_) | Law::Closed(_) => Duration::ZERO,
            Law::Concurrency(concurrency) => concurrency.memory(),
            Law::Fair(fair) => fair.memory(),
            Law::FixedWindow(fixed_window) => fixed_window.memory(),
            Law::LeakyBucket(leaky_bucket) => leaky_bucket.memory(),
            Law::Pace(pace) => pace.memory(),
            Law::SlidingBuckets(sliding_buckets) => sliding_buckets.memory(),
            Law::SlidingLog(sliding_log) => sliding_log.memory(),
            Law::SlidingWindow(sliding_window) => sliding_window.memory(),
            Law::TokenBucket(token_bucket) => token_bucket.memory(),
            Law::WarmUp(warm_up) => warm_up.memory(),
        }
    }

    /// Whether it remembers more than a row has room for.
    pub const fn has_annex(&self) -> bool {
        matches!(self, Law::Fair(_) | Law::SlidingLog(_))
    }

    /// An empty annex, if the law has one.
    pub fn annex(&self) -> Option<Annex> {
        match self {
            Law::Fair(_) => Some(Annex::Calendar(Calendar::default())),
            Law::SlidingLog(_) => Some(Annex::Log(Log::default())),
            _ => None,
        }
    }

    /// Whether an annex is one of this law: an entry may have had another one before.
    pub fn owns(&self, annex: &Annex) -> bool {
        matches!((self, annex), (Law::Fair(_), Annex::Calendar(_)) | (Law::SlidingLog(_), Annex::Log(_)))
    }

    /// The memory that the annex may take up after one more request of this cost.
    pub fn annex_bytes_after(&self, annex: &Annex, cost: u32) -> usize {
        match (self, annex) {
            (Law::Fair(fair), _) => fair.bytes().max(annex.bytes()),
            (Law::SlidingLog(sliding_log), Annex::Log(log)) => sliding_log.bytes_after(log, cost),
            _ => annex.bytes(),
        }
    }
}

fn calendar(annex: Option<&mut Annex>) -> Option<&mut Calendar> {
    match annex {
        Some(Annex::Calendar(calendar)) => Some(calendar),
        _ => None,
    }
}

fn log(annex: Option<&mut Annex>) -> Option<&mut Log> {
    match annex {
        Some(Annex::Log(log)) => Some(log),
        _ => None,
    }
}
