//! The replay: what a policy would have said of the requests in an access log.
//!
//! ```text
//!  access_log ─Record─▶ order ─▶ run ─Request─▶ Throttle::decide ─Decision─▶ tally, keys, series
//!                                            ▲                                       ▼
//!                              virtual time, seeded dice                          Outcome
//! ```
//! The throttle is the one that serves, and is asked what a proxy would have asked it, at the moment at which
//! the log says that the request came: so the verdicts are those that it would have given, to the last
//! digit. What it cannot know is what clients would have done otherwise had they been delayed.

mod ends;
mod export;
mod keys;
mod name;
mod order;
mod outcome;
mod plot;
mod report;
mod run;
mod series;
mod tally;

pub use export::{csv, json};
pub use keys::KeyRow;
pub use outcome::{Note, Outcome, Side};
pub use plot::plot;
pub use report::report;
pub use run::{Input, Settings, Subject, replay};
pub use series::{Bin, Series};
pub use tally::Figures;
