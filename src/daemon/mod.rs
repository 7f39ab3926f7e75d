//! The daemon, from start to shutdown.

mod listeners;
mod rounds;
mod run;
mod serving;

pub(crate) use run::{asked_to_end, run};
#[cfg(feature = "lab")]
pub(crate) use serving::{Serving, start};
