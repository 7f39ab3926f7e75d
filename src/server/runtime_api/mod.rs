//! The commands of HAProxy's Runtime API that apply to slowlane.
//!
//! ```text
//! show table slowlane data.gpc0_rate gt 10; help
//!        │ words: `;` separates commands, a backslash quotes the next letter
//!        ▼
//!    answer ─ more, more, … ─▶ text, a few kilobytes at a time
//! ```
//! Commands and answers match HAProxy 3.2. This module has no socket and no clock. It produces answers in pieces,
//! because the table may have millions of rows.

mod answer;
mod words;

pub use answer::{PIECE_BYTES, RuntimeAnswer, answer};
pub use words::commands;
