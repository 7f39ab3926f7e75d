//! The registry of the laws, which finds every law by its name.

use std::mem::discriminant;
use std::ops::Deref;
use std::time::Duration;

use crate::base::{Rate, Sharing, Timestamp, date::WallShift};
use crate::law::adaptive::Adaptive;
use crate::law::concurrency::Concurrency;
use crate::law::fair::Fair;
use crate::law::fixed::Fixed;
use crate::law::fixed_window::FixedWindow;
use crate::law::sketch::Sketch;
use crate::law::sliding_buckets::SlidingBuckets;
use crate::law::sliding_log::SlidingLog;
use crate::law::sliding_window::SlidingWindow;
use crate::law::{
    Arrival, AuxState, Gcra, Judgement, Objective, OptionError, Options, Protection, Rule, Scale, Window,
};
use crate::table::Entry;

/// Makes the [`Law`] enum, with its names, its constructor and `of_each!`, from lines of the form
/// `name => Variant(Type::constructor)`.
macro_rules! registry {
    // `$dollar` is a dollar sign for the inner macro.
    ($dollar:tt $($name:literal => $Law:ident($Type:ident::$make:ident),)+) => {
        /// A law with its numbers filled in for one SLO.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum Law {
            $($Law($Type),)+
            /// Any law at a rate of 0.
            Closed(Fixed),
            /// No law at all, at an unlimited rate.
            Open(Fixed),
            /// The only law without a rate.
            Protect(Protection),
        }

        impl Law {
            /// The names that `law=` accepts besides `protect`, in the order in which help and errors list them.
            pub const NAMES: &'static [&'static str] = &[$($name),+];

            pub const fn name(&self) -> &'static str {
                match self {
                    $(Law::$Law(_) => $name,)+
                    Law::Closed(fixed) | Law::Open(fixed) => fixed.name,
                    Law::Protect(_) => Law::PROTECT,
                }
            }

            /// The law of a rate that is neither 0 nor unlimited.
            fn open(name: &str, objective: Objective, options: &mut Options) -> Result<Law, OptionError> {
                match name {
                    $($name => $Type::$make(objective, options).map(Law::$Law),)+
                    _ => Err(OptionError::law(name, Law::NAMES)),
                }
            }
        }

        /// Expands to a `match` that calls a method of the rule inside a law, so that the call is static.
        macro_rules! of_each {
            ($dollar law:expr, $dollar rule:ident => $dollar call:expr) => {
                match $dollar law {
                    $(Law::$Law($dollar rule) => $dollar call,)+
                    Law::Closed($dollar rule) | Law::Open($dollar rule) => $dollar call,
                    Law::Protect($dollar rule) => $dollar call,
                }
            };
        }
    };
}

registry! { $
    "adaptive" => Adaptive(Adaptive::from_options),
    "pace" => Pace(Gcra::pace),
    "fair" => Fair(Fair::from_options),
    "token-bucket" => TokenBucket(Gcra::tokens),
    // An alias of `token-bucket`. Its own variant preserves its state tag, so that the keys in older snapshots and on
    // other nodes stay valid.
    "leaky-bucket" => LeakyBucket(Gcra::tokens),
    "fixed-window" => FixedWindow(FixedWindow::from_options),
    "sliding-window" => SlidingWindow(SlidingWindow::from_options),
    "sliding-buckets" => SlidingBuckets(SlidingBuckets::from_options),
    "sliding-log" => SlidingLog(SlidingLog::from_options),
    "concurrency" => Concurrency(Concurrency::from_options),
    "sketch" => Sketch(Sketch::from_options),
}

/// Gives access to those methods of a law that are called less often than `judge`.
impl Deref for Law {
    type Target = dyn Rule;

    fn deref(&self) -> &Self::Target {
        of_each!(self, rule => rule)
    }
}

impl Law {
    /// The law of an SLO that names none.
    pub const DEFAULT_NAME: &'static str = "pace";

    /// The law that needs no rate.
    pub const PROTECT: &'static str = "protect";

    /// `protect`, with its options.
    ///
    /// # Errors
    /// The options include one that `protect` does not have, or a bad value.
    pub fn protect(options: Options) -> Result<Law, OptionError> {
        let mut options = options.for_law();
        let protection = Protection::from_options(&mut options)?;
        options.finish(Law::PROTECT).map(|()| Law::Protect(protection))
    }

    /// The options of `protect`. None for any other law.
    pub fn protection(&self) -> Option<&Protection> {
        if let Law::Protect(protection) = self { Some(protection) } else { None }
    }

    /// Makes the windows of a calendar quota follow the wall clock.
    pub(crate) fn follow(&mut self, wall: WallShift) {
        if let Law::FixedWindow(FixedWindow { window: Window { calendar: Some(calendar), .. } }) = self {
            calendar.shift = wall;
        }
    }

    /// The law called `name`, with its options. At an unlimited rate, the law is always [`UNLIMITED`](Law::UNLIMITED).
    ///
    /// ```
    /// use slowlane_core::law::{Law, Objective, Options};
    /// let objective = Objective { burst: 100, rate: "50/s".parse().unwrap() };
    /// let law = Law::new("pace", objective, Options::new([("max_delay", "2s")])).unwrap();
    /// assert_eq!(law.name(), "pace");
    /// assert!(Law::new("pace", objective, Options::new([("jitter", "0.1")])).is_err());
    /// ```
    ///
    /// # Errors
    /// The name is unknown, or the options include one that the law does not have, or a bad value.
    pub fn new(name: &str, objective: Objective, options: Options) -> Result<Law, OptionError> {
        if objective.rate.is_unlimited() {
            return Ok(Law::UNLIMITED);
        }
        let mut options = options.for_law();
        let known = Law::NAMES.iter().find(|known| **known == name);
        let name = *known.ok_or_else(|| OptionError::law(name, Law::NAMES))?;
        let is_closed = objective.rate.is_zero();
        // The options cannot be checked at a rate of 0, so they are checked at another rate.
        let rate = if is_closed { Rate::ONE_PER_SECOND } else { objective.rate };
        let law = Law::open(name, Objective { rate, ..objective }, &mut options);
        match law.and_then(|law| options.finish(name).map(|()| law)) {
            Ok(_) if is_closed => Ok(Law::Closed(Fixed::closed(name))),
            Err(error) if is_closed && error.is_of_rate() => Ok(Law::Closed(Fixed::closed(name))),
            law => law,
        }
    }

    /// The law of `rate=unlimited`: it counts and admits every request.
    pub const UNLIMITED: Law = Law::Open(Fixed::OPEN);

    /// Judges one request, and writes the result to the entry and the auxiliary state.
    ///
    /// A law that needs auxiliary state but gets none falls back to a simpler law.
    pub fn judge(&self, entry: &mut Entry, aux: Option<&mut AuxState>, arrival: &Arrival) -> Judgement {
        if arrival.cost == 0 && !self.is_closed() {
            return Judgement::uncounted();
        }
        of_each!(self, rule => rule.judge(entry, aux, arrival))
    }

    /// The judgement that [`judge`](Law::judge) would give. Like `judge`, this method writes to the entry, but this
    /// method adds no admission to the auxiliary state.
    pub fn foresee(&self, entry: &mut Entry, aux: Option<&mut AuxState>, arrival: &Arrival) -> Judgement {
        if arrival.cost == 0 && !self.is_closed() {
            return Judgement::uncounted();
        }
        of_each!(self, rule => rule.foresee(entry, aux, arrival))
    }

    /// The law's formula with the numbers of this request.
    ///
    /// ```
    /// use slowlane_core::{law::{Arrival, Law, Objective, Options, Scale}, table::Entry, base::Timestamp};
    ///
    /// let objective = Objective { burst: 2, rate: "50/s".parse().unwrap() };
    /// let law = Law::new("pace", objective, Options::default()).unwrap();
    /// let (mut entry, arrival) = (Entry::default(), Arrival::at(Timestamp::from_millis(9_000)));
    /// let scale = Scale::of(objective.rate);
    /// assert_eq!(law.explain(&scale, &entry, None, &arrival), "used 0 + cost 1 <= burst 2");
    /// for _ in 0..3 {
    ///     law.judge(&mut entry, None, &arrival);
    /// }
    /// assert_eq!(
    ///     law.explain(&scale, &entry, None, &arrival),
    ///     "used 3 + cost 1 - burst 2 = 2 over; delay = 2 / 50/s = 40 ms <= max_delay 5s"
    /// );
    /// ```
    pub fn explain(&self, scale: &Scale, entry: &Entry, aux: Option<&AuxState>, arrival: &Arrival) -> String {
        if arrival.cost == 0 && !self.is_closed() {
            return "cost 0: the request passes and is not counted".into();
        }
        of_each!(self, rule => rule.explain(scale, entry, aux, arrival))
    }

    /// The law of one of `nodes` nodes that split the rate evenly. The burst stays whole. A law that nodes cannot share
    /// is not changed.
    pub fn split(mut self, nodes: u32) -> Law {
        match &mut self {
            Law::Pace(gcra) | Law::TokenBucket(gcra) | Law::LeakyBucket(gcra) => *gcra = gcra.split(nodes),
            Law::FixedWindow(FixedWindow { window }) | Law::SlidingWindow(SlidingWindow { window }) => {
                *window = window.split(nodes);
            }
            _ => {}
        }
        self
    }

    /// The [memory](Law::memory) of the law when `nodes` nodes split its rate.
    pub fn memory_split(&self, nodes: u32) -> Duration {
        match self.gcra() {
            // Copying the whole law would take as long as the rest of this calculation.
            Some(gcra) => gcra.split(nodes).memory(),
            None => self.split(nodes).memory(),
        }
    }

    /// Whether the law refuses even the first request of a key.
    pub(crate) fn refuses_first(&self) -> bool {
        let first = Arrival::at(Timestamp::from_millis(1 << 40));
        !self.judge(&mut Entry::default(), None, &first).verdict.is_let_through()
    }

    /// Gives `pace`, `token-bucket` and `leaky-bucket` room for [debt](Gcra::add_debt). Other laws cannot go into debt.
    pub fn owe(&mut self) {
        if let Law::Pace(gcra) | Law::TokenBucket(gcra) | Law::LeakyBucket(gcra) = self {
            *gcra = gcra.owing();
        }
    }

    /// Makes the law count work: a bucket then has room for costs that turn out larger than was reserved.
    pub(crate) fn owe_work(&mut self) {
        match self {
            Law::Pace(gcra) | Law::TokenBucket(gcra) | Law::LeakyBucket(gcra) => *gcra = gcra.owing_work(),
            Law::FixedWindow(FixedWindow { window }) | Law::SlidingWindow(SlidingWindow { window }) => {
                window.is_work = true;
            }
            _ => {}
        }
    }

    /// The numbers of a law that keeps a theoretical arrival time, which nodes can share. None for any other law.
    pub fn gcra(&self) -> Option<&Gcra> {
        match self {
            Law::Pace(gcra) | Law::TokenBucket(gcra) | Law::LeakyBucket(gcra) => Some(gcra),
            _ => None,
        }
    }

    /// Whether the charge for an admitted request can be corrected once the request has ended.
    pub(crate) fn settles(&self) -> bool {
        self.gcra().is_some() || self.shared_window().is_some()
    }

    /// Distinguishes the states that laws keep in an entry, because a law must not read another law's state. The tag is
    /// part of the key, so an edit that changes the tag gives every key a fresh entry. It is the FNV-1a hash of the
    /// law's name and its [state shape](Rule::state_shape).
    ///
    /// ```
    /// use slowlane_core::law::{Law, Objective, Options};
    /// let tag = |law, rate: &str| {
    ///     let objective = Objective { burst: 9, rate: rate.parse().unwrap() };
    ///     Law::new(law, objective, Options::default()).unwrap().state_tag()
    /// };
    /// assert_ne!(tag("pace", "9/s"), tag("fair", "9/s"));
    /// assert_eq!(tag("pace", "9/s"), tag("pace", "1/h"));
    /// assert_ne!(tag("sliding-window", "9/s"), tag("sliding-window", "9/h"));
    /// ```
    pub fn state_tag(&self) -> u32 {
        let bytes = self.name().bytes().chain(self.state_shape().to_le_bytes());
        bytes.fold(0x811C_9DC5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
    }

    /// How long an entry must be kept after a write. The table keeps every entry for at least `expire`, which is enough
    /// for `adaptive`.
    pub fn memory(&self) -> Duration {
        of_each!(self, rule => rule.memory())
    }

    /// The window that nodes can count together. None if the law has no such window.
    pub fn shared_window(&self) -> Option<&Window> {
        match self {
            Law::FixedWindow(law) => Some(&law.window),
            Law::SlidingWindow(law) => Some(&law.window),
            _ => None,
        }
    }

    /// The numbers of a law that counts in a sketch, and needs no row. None if the law needs a row.
    pub fn sketched(&self) -> Option<&Sketch> {
        match self {
            Law::Sketch(sketch) => Some(sketch),
            Law::Closed(closed) if closed.name == Sketch::NAME => Some(&Sketch::CLOSED),
            _ => None,
        }
    }

    /// The ways in which nodes can share the law, starting with the default.
    ///
    /// ```
    /// use slowlane_core::base::Sharing;
    /// use slowlane_core::law::{Law, Objective, Options};
    /// let objective = Objective { burst: 100, rate: "50/s".parse().unwrap() };
    /// let sharings = |name| Law::new(name, objective, Options::default()).unwrap().sharings();
    /// assert_eq!(sharings("pace"), [Sharing::Rate, Sharing::Split, Sharing::Local]);
    /// assert_eq!(sharings("fair"), [Sharing::Local]);
    /// ```
    pub fn sharings(&self) -> &'static [Sharing] {
        match (self.gcra(), self.shared_window()) {
            (Some(_), _) => &[Sharing::Rate, Sharing::Split, Sharing::Local],
            // Nodes that count together number their windows by multiples of one length, but months differ in length.
            (_, Some(window)) if window.calendar.is_some() => {
                &[Sharing::Lease, Sharing::Split, Sharing::Local]
            }
            // A lease belongs to a window with a fixed end.
            (_, Some(window)) if window.is_sliding => &[Sharing::Count, Sharing::Split, Sharing::Local],
            (_, Some(_)) => &[Sharing::Count, Sharing::Lease, Sharing::Split, Sharing::Local],
            _ => &[Sharing::Local],
        }
    }

    /// Whether the law needs memory besides the entry.
    pub fn has_aux(&self) -> bool {
        of_each!(self, rule => rule.aux().is_some())
    }

    /// Whether the law can use this auxiliary state. After an edit has changed the law of an SLO, an entry may still
    /// have the old law's state.
    pub fn owns(&self, aux: &AuxState) -> bool {
        of_each!(self, rule => rule.aux()).is_some_and(|own| discriminant(&own) == discriminant(aux))
    }

    /// The maximum memory of the auxiliary state after one more request of this cost.
    pub fn aux_bytes_after(&self, aux: &AuxState, cost: u32) -> usize {
        of_each!(self, rule => rule.aux_bytes_after(aux, cost))
    }

    pub(crate) const fn is_closed(&self) -> bool {
        matches!(self, Law::Closed(_))
    }
}
