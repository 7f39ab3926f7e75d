//! Conformance suites: one for SPOE agents, and [one](rls) for servers of Envoy's rate limit service.
//!
//! For SPOE agents, a case is bytes to send and a judgement of the bytes that come back:
//!
//! ```text
//!  suite      exchanges: what HAProxy's side sends, and the cases that an exchange decides
//!    │
//!  play       over sockets, an exchange becomes a transcript for each connection
//!    │
//!  judges     a transcript becomes a pass, or the reason for a failure
//!    │
//!  card       the outcome of every case, as a table or as JSON
//! ```

mod card;
mod endpoint;
mod exchange;
mod frames;
mod judges;
mod play;
pub mod rls;
mod setting;
mod suite;
mod transcript;

use exchange::{Exchange, Exchanges, Judged, Turn};
use frames::LENGTH_BYTES;
use setting::Needs;
use transcript::{End, Transcript, Until};

pub use card::Card;
pub use endpoint::Endpoint;
pub use play::examine;
pub use setting::{ARGUMENTS_MAX, Argument, Setting};
pub use suite::list;
