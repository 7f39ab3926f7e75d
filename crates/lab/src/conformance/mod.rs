//! A conformance suite for SPOE agents: bytes to send, and judgements of the bytes that come back.
//!
//! ```text
//!  suite      exchanges: what HAProxy's side sends, and the cases that an exchange decides
//!    │
//!  play       the one file with sockets: an exchange becomes a transcript for each connection
//!    │
//!  judges     a transcript becomes a pass, or the reason for a failure
//!    │
//!  card       the outcome of every case, as a table or as JSON
//! ```

pub mod argument;
pub mod card;
mod case;
mod frames;
mod judges;
mod outcome;
pub mod play;
pub mod setting;
mod suite;
mod transcript;
