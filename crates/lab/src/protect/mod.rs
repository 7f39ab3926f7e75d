//! A modelled application that is overrun, in virtual time: with nothing before it, and with `law=protect`.
//!
//! ```text
//! ProtectLoad ─▶ World: clients ─▶ Protect::arrive ─▶ workers ─▶ Protect::end ─▶ Runs ─▶ report
//! ```
//! It is [`Protect`](slowlane_core::law::protect::Protect) itself that decides, as it is served. All chance comes from
//! the seed. Times of clients are exponential, and their last bit depends on the machine's math library.

mod load;
mod report;
mod runs;
mod world;

use runs::Runs;

pub use load::ProtectLoad;
pub use report::{Played, json_protected, plot_protected, report_protected};

#[cfg(test)]
mod tests;
