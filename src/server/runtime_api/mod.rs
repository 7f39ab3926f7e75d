//! HAProxy's Runtime API, the commands that apply here: lines of text in, answers in pieces out.
//!
//! ```text
//! show table slowlane data.gpc0_rate gt 10; show map
//!        │ words: `;` separates commands, a backslash quotes the next letter
//!        ▼
//!    Command ─▶ Answer ─ more, more, … ─▶ text, a few kilobytes at a time
//! ```
//! Commands and answers match a running HAProxy 3.2. There is no socket and no clock here, and no answer is ever whole
//! in memory: the table may have millions of rows.

mod answer;
mod command;
mod help;
mod words;

pub use answer::{Answer, Info, PIECE_BYTES};
pub use command::{Command, Prompt};
pub use words::{Words, commands};
