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

mod card;
mod exchange;
mod frames;
mod judges;
mod play;
mod setting;
mod suite;
mod transcript;

use exchange::{Exchange, Exchanges, Judged, Turn};
use frames::LENGTH_BYTES;
use setting::Needs;
use transcript::{End, Transcript, Until};

pub use card::{Card, list};
pub use play::{Agent, examine};
pub use setting::{ARGUMENTS_MAX, Argument, Setting};
