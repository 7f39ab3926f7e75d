//! Row filters in the syntax of HAProxy's `show table`: `data.gpc0_rate gt 10`.

use std::cmp::Ordering::{self, Equal, Greater, Less};

use slowlane_core::base::Timestamp;
use slowlane_core::table::{Entry, FreqCtr};

/// The maximum number of conditions, as in HAProxy.
pub const FILTER_MAX: usize = 4;

/// A column of the table, known by its name in HAProxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    Gpt0,
    Gpc0Rate,
    HttpReqCnt,
    Gpc1Rate,
}

const COLUMNS: [(&str, Column); 4] = [
    ("gpt0", Column::Gpt0),
    ("gpc0_rate", Column::Gpc0Rate),
    ("http_req_cnt", Column::HttpReqCnt),
    ("gpc1_rate", Column::Gpc1Rate),
];

/// Columns of HAProxy that this table does not store.
const FOREIGN: &str = "\
    server_id gpt gpc gpc_rate gpc0 gpc1 conn_cnt conn_rate conn_cur sess_cnt sess_rate http_req_rate \
    http_err_cnt http_err_rate http_fail_cnt http_fail_rate bytes_in_cnt bytes_in_rate bytes_out_cnt \
    bytes_out_rate server_key glitch_cnt glitch_rate";

impl Column {
    /// # Errors
    /// HAProxy has no column with this name, or this table does not store it. The error's text is HAProxy's.
    pub fn named(name: &str) -> Result<Column, &'static str> {
        match COLUMNS.iter().find(|(known, _)| *known == name) {
            Some(&(_, column)) => Ok(column),
            None if FOREIGN.split(' ').any(|known| known == name) => {
                Err("Data type not stored in this table")
            }
            None => Err("Unknown data type"),
        }
    }

    fn read(self, entry: &Entry, now: Timestamp) -> u32 {
        match self {
            Column::Gpt0 => entry.gpt0,
            Column::HttpReqCnt => entry.http_req_cnt,
            Column::Gpc0Rate => entry.gpc0_rate.read(now.ticks_ms()),
            Column::Gpc1Rate => entry.gpc1_rate.read(now.ticks_ms()),
        }
    }

    /// Sets a column. A rate is set as in HAProxy: the rate holds for one second and fades in the next.
    pub fn write(self, entry: &mut Entry, value: u32, now: Timestamp) {
        let rate = FreqCtr { curr_tick: now.ticks_ms() & !1, curr_ctr: value, prev_ctr: 0 };
        match self {
            Column::Gpt0 => entry.gpt0 = value,
            Column::HttpReqCnt => entry.http_req_cnt = value,
            Column::Gpc0Rate => entry.gpc0_rate = rate,
            Column::Gpc1Rate => entry.gpc1_rate = rate,
        }
    }
}

/// HAProxy's operators, with the orderings that each accepts.
const OPERATORS: [(&str, &[Ordering]); 6] = [
    ("eq", &[Equal]),
    ("ne", &[Less, Greater]),
    ("le", &[Less, Equal]),
    ("ge", &[Greater, Equal]),
    ("lt", &[Less]),
    ("gt", &[Greater]),
];

/// The orderings that an operator accepts.
pub fn operator(name: &str) -> Option<&'static [Ordering]> {
    OPERATORS.iter().find(|(known, _)| *known == name).map(|&(_, orderings)| orderings)
}

/// A condition that a row must meet.
///
/// ```
/// use slowlane::observe::status::{Column, Condition, operator};
/// use slowlane_core::{base::Timestamp, table::Entry};
/// let condition = Condition { column: Column::Gpt0, orderings: operator("le").unwrap(), value: 2_500 };
/// let holds = |gpt0| condition.holds(&Entry { gpt0, ..Entry::default() }, Timestamp::from_millis(1));
/// assert_eq!([1_000, 2_500, 2_501].map(holds), [true, true, false]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    pub column: Column,
    pub orderings: &'static [Ordering],
    pub value: i64,
}

impl Condition {
    pub fn holds(&self, entry: &Entry, now: Timestamp) -> bool {
        self.orderings.contains(&i64::from(self.column.read(entry, now)).cmp(&self.value))
    }
}
