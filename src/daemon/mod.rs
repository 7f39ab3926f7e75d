//! The daemon, from start to shutdown.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it starts the runtime, its threads and its timers"
)]

mod edited;
mod listeners;
mod parts;
mod rounds;
mod run;
mod serving;
mod signals;

pub(crate) use run::run;
#[cfg(feature = "lab")]
pub(crate) use serving::Serving;
#[cfg(feature = "lab")]
pub(crate) use serving::start;
