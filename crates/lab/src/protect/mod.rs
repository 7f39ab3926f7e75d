//! A model of an overloaded application in virtual time, without protection and with `law=protect`.
//!
//! ```text
//! ProtectLoad ─▶ World: clients ─▶ Protect::arrive ─▶ workers ─▶ Protect::end ─▶ Runs ─▶ report
//! ```
//! The decisions come from the production code, [`Protect`](slowlane_core::law::protect::Protect). All randomness comes
//! from the seed. The pauses of clients are exponentially distributed, and the last bit of each depends on the
//! machine's math library.

mod load;
mod report;
mod runs;
mod world;

use runs::Runs;

pub use load::ProtectLoad;
pub use report::{Played, json_protected, report_protected};

#[cfg(test)]
mod tests;
