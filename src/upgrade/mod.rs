//! The upgrade: a running slowlane hands everything over to a new one.
//!
//! ```text
//!  old: Handover                                        new: OldProcess
//!  starts the program, a socket as its standard input
//!  Listener…, Offer ─────────────────────────────▶   reads config and policy, binds what is new
//!  ◀─────────────────────────────────────── Built
//!  State: all rows, then those written meanwhile, ─▶  puts them back
//!  in rounds, while it goes on deciding
//!  ◀──────────────────────────────────── Restored
//!  stops deciding; connections stop where they are
//!  Changes: the rows written meanwhile, blocks ────▶  puts them back
//!  Connection…; Answers…; Yours ───────────────────▶
//!  ◀─────────────────────────────────────── Taken    serves
//!  Main; TakenBack…, until its last hold is over ──▶
//! ```
//! Until `Taken`, the old process can continue as if nothing had happened: it still has every socket and its whole
//! state.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "an upgrade starts a process and talks to it over a socket"
)]

mod channel;
mod handover;
mod old_process;

pub(crate) use handover::{Handover, Program};
pub(crate) use old_process::OldProcess;
