//! A request as a law sees it.

use crate::base::{Sample, Timestamp};

/// The moment of a request, its cost and its source.
///
/// ```
/// use slowlane_core::{law::Arrival, base::Timestamp};
/// let now = Timestamp::from_millis(1);
/// assert_eq!(Arrival::at(now).cost, 1);
/// let export = Arrival { cost: 20, ..Arrival::at(now) };
/// # assert_eq!(export.now, now);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    pub now: Timestamp,
    pub sample: Sample,
    /// The number of requests it counts as. At cost 0 it passes and leaves no trace, unless the rate is 0.
    pub cost: u32,
    /// Its source among those that share the bucket: a hash of the field that the option `share` names.
    pub sharer: u64,
    /// The answer can be held, and its moment may move meanwhile.
    pub may_hold: bool,
}

impl Arrival {
    /// A request of cost 1, with a draw in the middle: jitter changes nothing.
    pub const fn at(now: Timestamp) -> Arrival {
        Arrival { now, sample: Sample::MIDDLE, cost: 1, sharer: 0, may_hold: false }
    }
}
