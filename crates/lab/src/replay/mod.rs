//! The replay: the verdicts that a policy gives on the requests in access logs.
//!
//! ```text
//!  access_log ─LogRecord─▶ requests ─▶ run ─Request─▶ Throttle::decide ─Decision─▶ tally, keys, series
//!                                                  ▲                                       ▼
//!                                    virtual time, a seeded rng                          Outcome
//! ```
//! The throttle is the production code. It gets each request as a proxy would send it, at the time in the log, so its
//! verdicts are the live ones, bit for bit, except for random draws and `protect`. A replay cannot know how clients
//! would have reacted to a delay.

mod export;
mod keys;
mod protected;
mod report;
mod requests;
mod run;
mod series;
mod tally;

pub use export::json;
pub use keys::KeyRow;
pub(crate) use keys::{KEYS_MAX, forget_half, name, text};
pub use protected::ProtectedLog;
pub use report::report;
pub use requests::Input;
pub(crate) use requests::Requests;
pub use run::{Outcome, ReplaySettings, Side, Subject, replay};
pub use series::{Bin, Series};
pub use tally::{ReplayCounts, ReplayTally, WorkDone};
