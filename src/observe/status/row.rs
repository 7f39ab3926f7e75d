//! Rows of the table in the format of HAProxy's `show table`.

use std::fmt;

use serde::Serialize;

use slowlane_core::base::{Key, Timestamp};
use slowlane_core::table::{Found, PERIOD_MS, Table};
use slowlane_core::throttle::Throttle;

/// The name of the only table.
pub const TABLE: &str = "slowlane";

/// The line above the rows.
///
/// ```
/// use std::time::Duration;
/// use slowlane::observe::status::header;
/// use slowlane_core::table::{Sizing, Table};
/// let table = Table::new(Sizing { entries_max: 100, expire: Duration::from_secs(30) });
/// assert_eq!(header(&table), "# table: slowlane, type: binary, size:100, used:0\n");
/// ```
pub fn header(table: &Table) -> String {
    let (size, used) = (table.entries_max(), table.usage().entries);
    format!("# table: {TABLE}, type: binary, size:{size}, used:{used}\n")
}

/// An entry in the format of HAProxy 3.0 and 3.2. Version 2.6 has no `shard`.
///
/// ```
/// use std::time::Duration;
/// use slowlane::observe::status::StatusRow;
/// use slowlane_core::{base::{Key, Timestamp}, table::{Entry, Found}};
/// let entry = Entry { gpt0: 2_500, http_req_cnt: 7, ..Entry::default() };
/// let (key, left) = (Key::from_bits(255), Duration::from_secs(29));
/// let found = Found { key, entry, left, place: 0x1_0000_000d };
/// let row = StatusRow { found, now: Timestamp::from_millis(90_000) };
/// assert_eq!(row.to_string(), "0x10000000d: key=00000000000000FF use=0 exp=29000 shard=0 gpt0=2500 \
///                              gpc0_rate(1000)=0 http_req_cnt=7 gpc1_rate(1000)=0");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct StatusRow {
    pub found: Found,
    /// The moment for which the rates are shown.
    pub now: Timestamp,
}

impl StatusRow {
    /// The row of a key, if the table has the key.
    pub fn of(throttle: &Throttle, key: Key, now: Timestamp) -> Option<StatusRow> {
        throttle.table().row(key, now).map(|found| StatusRow { found, now })
    }
}

impl fmt::Display for StatusRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Found { key, place, .. }, columns) = (&self.found, Columns::of(&self.found, self.now));
        write!(f, "{place:#x}: key={key} use=0 exp={} shard=0 {columns}", columns.exp)
    }
}

/// The columns of an entry.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Columns {
    /// Milliseconds until the entry expires.
    pub exp: u64,
    pub gpt0: u32,
    pub gpc0_rate: u32,
    pub http_req_cnt: u32,
    pub gpc1_rate: u32,
}

impl Columns {
    pub(super) fn of(Found { entry, left, .. }: &Found, now: Timestamp) -> Columns {
        let now_ms = now.ticks_ms();
        Columns {
            exp: left.as_millis() as u64,
            gpt0: entry.gpt0,
            gpc0_rate: entry.gpc0_rate.read(now_ms),
            http_req_cnt: entry.http_req_cnt,
            gpc1_rate: entry.gpc1_rate.read(now_ms),
        }
    }
}

/// The columns that HAProxy also has, in the order of its data types.
impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gpt0={} gpc0_rate({PERIOD_MS})={}", self.gpt0, self.gpc0_rate)?;
        write!(f, " http_req_cnt={} gpc1_rate({PERIOD_MS})={}", self.http_req_cnt, self.gpc1_rate)
    }
}
