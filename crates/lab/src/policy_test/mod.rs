//! Policy tests: requests in virtual time, and the verdicts that are expected on them.
//!
//! ```text
//! # The crawler is slowed down to 30 a minute.
//! source=192.0.2.66 website=shop.example -> 3002
//!     10 at once -> 10 pass
//!     11th       -> delay 2s
//!     after 1m
//!     20 in 20s  -> 19 pass, 1 delay 1s
//!
//!  text ─tokens─▶ statement ─▶ Suite ─run─Request─▶ Throttle::decide ─Decision─▶ Tally ─▶ Outcome
//! ```
//! The throttle is the production code, with empty counts for each case. The steps determine the time, and the random
//! numbers are always the middle of their range, so a file always has the same outcome. An admitted request
//! proceeds after its delay, and is in flight until a step says `done`.

mod cases;
mod parse;
mod report;
mod run;
mod statement;

pub use cases::{Action, CaseError, CaseErrors, Expected, Slos, Suite, TestCase, TestFields, TestStep};
pub use parse::FILE_BYTES_MAX;
pub use report::{FileOutcome, json, report};
pub use run::{BEGINS, CaseOutcome, Failure, Outcome, TestSettings, run};
