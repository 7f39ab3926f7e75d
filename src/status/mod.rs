//! What the daemon knows, as an operator reads it.

mod filter;
mod row;
mod why;

pub use filter::{Column, ColumnError, Condition, FILTER_MAX, Filter, Operator};
pub use row::{Row, TABLE, header};
pub use why::Why;
