//! The settings of a cluster that are the same for all of its SLOs.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The settings of a cluster that are the same for all of its SLOs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How often a node talks to the store about a key.
    pub period: Duration,
    /// Without an answer for this long, the store counts as silent.
    pub silent_after: Duration,
    pub on_silence: OnSilence,
    /// The maximum number of keys that a node shares at a time.
    pub keys_max: usize,
    /// The number of nodes until the store has reported it.
    pub nodes: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            period: Duration::from_millis(100),
            silent_after: Duration::from_millis(500),
            on_silence: OnSilence::Share,
            keys_max: 50_000,
            nodes: 1,
        }
    }
}

/// The behaviour of a node while the store is silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnSilence {
    /// Its share of the last seconds, or an equal one.
    Share,
    /// The full rate.
    Open,
    /// None: every request is refused.
    Closed,
}

impl OnSilence {
    /// The behaviour in words, for the log.
    pub const fn response(self) -> &'static str {
        match self {
            OnSilence::Share => "takes its share of the last seconds",
            OnSilence::Open => "takes the full rate",
            OnSilence::Closed => "refuses every request of a shared key",
        }
    }
}
