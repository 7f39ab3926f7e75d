//! A conformance suite for SPOE agents: a case is bytes to send and a judgement of the bytes that come back.
//!
//! ```text
//!  suite      exchanges: what HAProxy's side sends, and the cases that an exchange decides
//!    │
//!  play       over sockets, an exchange becomes a transcript for each connection
//!    │
//!  judges     a transcript becomes a pass, or the reason for a failure
//! ```

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

pub(crate) use play::examine;
pub(crate) use setting::{ARGUMENTS_MAX, Argument, Setting};
pub(crate) use suite::list;
