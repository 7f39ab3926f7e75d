//! The state of an SPOP connection, for the process that takes it over.

use serde::{Deserialize, Serialize};

use crate::proxy::haproxy;
use slowlane_core::base::time::Timestamp;

/// What an SPOP connection has agreed, and what is still to be done on it. The default is a new connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpopState {
    /// None: HAProxy has not said hello yet.
    pub(super) agreed: Option<Agreed>,
    /// The beginning of a frame.
    pub(super) unread: Vec<u8>,
    /// Answers that the socket has not taken yet. They may begin within a frame.
    pub(super) unwritten: Vec<u8>,
    /// Held answers, each with the moment at which it is due.
    pub(super) held: Vec<(Timestamp, haproxy::Id)>,
    /// The moment since which a frame, or the HELLO, is incomplete.
    pub(super) unfinished_since: Option<Timestamp>,
}

/// The result of the handshake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Agreed {
    pub(super) frame_bytes_max: u32,
    pub(super) engine_id: Option<Box<str>>,
}
