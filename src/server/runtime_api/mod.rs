//! HAProxy's Runtime API, as far as its words have a meaning here: lines of text in, answers in pieces out.
//!
//! ```text
//! show table slowlane data.gpc0_rate gt 10; show map
//!        │ words: `;` parts commands, a backslash takes the next letter as it is
//!        ▼
//!    Command ─▶ Answer ─ more, more, … ─▶ text, some kilobytes at a time
//! ```
//! The words and the answers are those of HAProxy 3.2, taken from a running one. No socket and no clock is here, and no
//! answer is ever whole in memory: the table may have millions of rows.

mod answer;
mod command;
mod help;
mod words;

pub use answer::{Answer, Info, PIECE_BYTES};
pub use command::{Command, Prompt};
pub use words::{Words, commands};
