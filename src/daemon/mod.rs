//! The daemon, from start to shutdown.

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
pub(crate) use signals::asked_to_end;
