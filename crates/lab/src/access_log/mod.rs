//! Reads access logs: the log lines of proxies become requests.
//!
//! ```text
//!  bytes ─lines─▶ Line ─wraps─▶ Line ─line, json─▶ Values ─plan─▶ LogRecord
//!  gzip, zstd     of syslog, CRI     by its format          by field, with its time
//!
//!  "%ci [%tr] …" ─format─▶ Format ─choice─▶ LogPlan
//! ```
//! Nothing here knows a policy or a throttle. A line that cannot be read is a counted fault, never an error.

mod choice;
mod escape;
mod field;
mod format;
mod json;
mod line;
mod lines;
mod log;
mod measures;
mod plan;
mod record;
#[cfg(test)]
mod tests;
mod times;
mod wraps;

use escape::Escape;
use format::REQUEST_LINES;
use line::ParseError;

pub use choice::Choice;
pub use field::Mapping;
pub use format::{Dialect, Format, FormatError, Item};
pub use lines::{LINE_BYTES_MAX, Lines};
pub(crate) use log::Log;
pub use log::{Faulty, LogOutcome, NUMBERS_MAX};
pub use measures::Measure;
pub(crate) use plan::LogPlan;
pub use plan::PlanError;
pub(crate) use record::{KEPT_BYTES_MAX, LogRecord, VALUE_BYTES_MAX};
