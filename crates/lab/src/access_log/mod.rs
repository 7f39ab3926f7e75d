//! Reading access logs: lines of HAProxy or nginx become requests.
//!
//! ```text
//!  bytes ─lines─▶ Line ─line─▶ slots ─plan─▶ Record
//!  gzip           by its format       by field, with its time
//!
//!  "%ci [%tr] …" ─directive, haproxy_format or nginx_format─▶ Format ─choice─▶ Plan
//! ```
//! Nothing here knows a policy or a throttle. A line that cannot be read is a counted fault, never an error.

mod before;
mod choice;
mod date;
mod directive;
mod enclosed;
mod escape;
#[cfg(test)]
mod examples;
mod faulty;
mod format;
mod format_error;
mod haproxy_format;
mod known;
mod line;
mod lines;
mod log;
mod mapping;
mod nginx_format;
mod origin;
mod piece;
mod plan;
mod put_back;
mod record;
mod slots;
mod syslog;
mod time_plan;

pub use choice::Choice;
pub use faulty::{Faulty, NUMBERS_MAX};
pub use format::{Dialect, Format};
pub use format_error::FormatError;
pub use lines::{LINE_BYTES_MAX, Lines};
pub(crate) use log::Log;
pub use log::LogOutcome;
pub use mapping::{Mapping, MappingError};
pub use piece::Item;
pub use plan::PlanError;
pub(crate) use record::Record;
#[cfg(test)]
pub(crate) use record::{KEPT_BYTES_MAX, VALUE_BYTES_MAX};
