//! Row filters in the syntax of HAProxy's `show table`: `data.gpc0_rate gt 10`.

use std::cmp::Ordering::{self, Equal, Greater, Less};

use thiserror::Error;

use slowlane_core::base::Timestamp;
use slowlane_core::table::{Entry, FreqCtr};

/// The maximum number of conditions, as in HAProxy.
pub const FILTER_MAX: usize = 4;

/// A column with a name.
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

/// Errors of a column name, in HAProxy's wording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ColumnError {
    #[error("Unknown data type")]
    Unknown,
    #[error("Data type not stored in this table")]
    NotStored,
}

impl Column {
    /// # Errors
    /// No column of HAProxy has the name, or this table does not have it.
    pub fn named(name: &str) -> Result<Column, ColumnError> {
        match COLUMNS.iter().find(|(known, _)| *known == name) {
            Some(&(_, column)) => Ok(column),
            None if FOREIGN.split(' ').any(|known| known == name) => Err(ColumnError::NotStored),
            None => Err(ColumnError::Unknown),
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

    /// Sets a column. A rate is set as in HAProxy: it holds for one second and fades in the next.
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

/// A comparison operator: the orderings for which it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operator(&'static [Ordering]);

const OPERATORS: [(&str, &[Ordering]); 6] = [
    ("eq", &[Equal]),
    ("ne", &[Less, Greater]),
    ("le", &[Less, Equal]),
    ("ge", &[Greater, Equal]),
    ("lt", &[Less]),
    ("gt", &[Greater]),
];

impl Operator {
    pub fn named(name: &str) -> Option<Operator> {
        let (_, orderings) = OPERATORS.iter().find(|(known, _)| *known == name)?;
        Some(Operator(orderings))
    }

    fn holds(self, one: i64, other: i64) -> bool {
        self.0.contains(&one.cmp(&other))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    pub column: Column,
    pub operator: Operator,
    pub value: i64,
}

/// Conditions, all of which a row must meet.
///
/// ```
/// use slowlane::observe::status::{Column, Condition, Filter, Operator};
/// use slowlane_core::{base::Timestamp, table::Entry};
/// let operator = |name| Operator::named(name).unwrap();
/// let condition = |name, value| Condition { column: Column::Gpt0, operator: operator(name), value };
/// let filter: Filter = [condition("gt", 1_000), condition("le", 2_500)].into_iter().collect();
/// let passes = |gpt0| filter.passes(&Entry { gpt0, ..Entry::default() }, Timestamp::from_millis(1));
/// assert_eq!([1_000, 1_001, 2_500, 2_501].map(passes), [false, true, true, false]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter(Vec<Condition>);

impl Filter {
    pub fn passes(&self, entry: &Entry, now: Timestamp) -> bool {
        let holds = |condition: &Condition| {
            condition.operator.holds(condition.column.read(entry, now).into(), condition.value)
        };
        self.0.iter().all(holds)
    }
}

impl FromIterator<Condition> for Filter {
    fn from_iter<I: IntoIterator<Item = Condition>>(conditions: I) -> Filter {
        Filter(conditions.into_iter().collect())
    }
}
