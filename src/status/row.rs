//! An entry as HAProxy's `show table` prints one.

use std::fmt;
use std::time::Duration;

use crate::key::Key;
use crate::table::{Entry, PERIOD_MS};
use crate::throttle::Throttle;
use crate::time::Timestamp;

/// An entry as `show table` prints it, but for the pointer in front.
///
/// ```
/// use std::time::Duration;
/// use slowlane::{key::Key, status::Row, table::Entry, time::Timestamp};
/// let entry = Entry { gpt0: 2_500, http_req_cnt: 7, ..Entry::default() };
/// let (key, left) = (Key::from_bits(255), Duration::from_secs(29));
/// let row = Row { key, entry, left, now: Timestamp::from_millis(90_000) };
/// assert_eq!(row.to_string(), "key=00000000000000FF use=0 exp=29000 gpt0=2500 gpc0_rate(1000)=0 \
///                              http_req_cnt=7 gpc1_rate(1000)=0");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub key: Key,
    pub entry: Entry,
    /// Until it expires.
    pub left: Duration,
    /// When the rates are read.
    pub now: Timestamp,
}

impl Row {
    /// The row of a key, if the table has one.
    pub fn of(throttle: &Throttle, key: Key, now: Timestamp) -> Option<Row> {
        let (entry, left) = throttle.table().get(key, now)?;
        Some(Row { key, entry, left, now })
    }
}

/// Columns in the order of HAProxy's data types.
impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let now_ms = self.now.ticks_ms();
        write!(f, "key={} use=0 exp={} gpt0={}", self.key, self.left.as_millis(), self.entry.gpt0)?;
        write!(f, " gpc0_rate({PERIOD_MS})={}", self.entry.gpc0_rate.read(now_ms))?;
        write!(f, " http_req_cnt={}", self.entry.http_req_cnt)?;
        write!(f, " gpc1_rate({PERIOD_MS})={}", self.entry.gpc1_rate.read(now_ms))
    }
}
