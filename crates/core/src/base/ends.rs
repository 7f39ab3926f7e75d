//! When the end of a request must be reported.

use serde::{Deserialize, Serialize};

/// When an SLO learns the end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ends {
    /// Never: it counts the request once.
    Never,
    /// It counts the request until its end.
    InFlight,
    /// It counts work, and the response says how much.
    WithResponse,
    /// It counts work, which is known when the whole response has been sent.
    WithStream,
}

impl Ends {
    /// Whether the SLO counts work.
    #[inline]
    pub const fn is_work(self) -> bool {
        matches!(self, Ends::WithResponse | Ends::WithStream)
    }
}
