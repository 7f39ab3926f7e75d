//! The replay: what a policy would have said of the requests in an access log.
//!
//! ```text
//!  bytes ─lines─▶ Line ─log─▶ format ─plan─▶ Record ─order─▶ run ─Request─▶ Throttle::decide ─Decision─▶ tally, keys, series
//!  gzip    lines           line, date, escape                         ▲                                       ▼
//!                                                       virtual time, seeded dice                          Outcome
//! ```
//! The throttle is the one that serves, and is asked what a proxy would have asked it, at the moment at which
//! the log says that the request came: so the verdicts are those that it would have given, to the last
//! digit. What it cannot know is what clients would have done otherwise had they been delayed.

mod date;
mod ends;
mod escape;
mod export;
mod format;
mod keys;
mod line;
mod lines;
mod log;
mod mapping;
mod name;
mod order;
mod origin;
mod outcome;
mod plan;
mod plot;
mod record;
mod report;
mod run;
mod series;
mod tally;
mod time_plan;

pub use export::{csv, json};
pub use format::{Dialect, Format, FormatError, Item};
pub use keys::KeyRow;
pub use lines::{LINE_BYTES_MAX, Lines};
pub use log::{Choice, Faulty, LogOutcome, NUMBERS_MAX};
pub use mapping::{Mapping, MappingError};
pub use outcome::{Note, Outcome, Side};
pub use plan::PlanError;
pub use plot::plot;
pub use report::report;
pub use run::{Input, Settings, Subject, replay};
pub use series::{Bin, Series};
pub use tally::Figures;
