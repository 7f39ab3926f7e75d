//! The laws. Each law turns an entry, an SLO and a moment into a verdict.
//!
//! A law holds no state: it changes only the entry that it is given, and the auxiliary state if there is one. Each
//! algorithm has its own file, which opens with the formula, the units and the source. A new law needs such a file with
//! one `impl Rule`, a `mod` line here, and a line in `registry.rs`.
//!
//! The files build on each other in one direction:
//!
//! ```text
//!  registry    every law by name                    <- the module's callers
//!  fair, sliding_log, sketch                        laws with a simpler stand-in
//!  assured                                          the rate that an SLO gets whatever the SLOs above it decide
//!  adaptive, gcra, fixed_window, … fixed            the laws
//!  rule        the methods of every law
//!  protection  the options of `protect`
//!  protect     as many requests at once as an application can serve: state per application, not per entry
//!  aux_state   memory beside the entry              made of calendar, open_tickets
//!  window                                           arithmetic that laws share
//!  judgement, options, formula                      the input of a law, and its answer
//! ```

mod adaptive;
mod assured;
mod aux_state;
mod calendar;
mod concurrency;
mod fair;
mod fixed;
mod fixed_window;
mod formula;
mod gcra;
mod judgement;
mod open_tickets;
mod options;
pub mod protect;
mod protection;
mod registry;
mod rule;
mod sketch;
mod sliding_buckets;
mod sliding_log;
mod sliding_window;
mod window;

pub use assured::Assured;
pub use aux_state::AuxState;
pub use formula::Scale;
pub(crate) use formula::number;
pub use gcra::Gcra;
pub use judgement::{Admission, Arrival, Judgement, Objective, Used};
pub(crate) use open_tickets::OpenTickets;
pub use open_tickets::Reservations;
pub use options::{OptionError, Options};
pub use protection::{Protection, TICK};
pub use registry::Law;
pub use rule::Rule;
pub use sketch::Sketch;
pub use window::Window;
