//! Why a handshake failed, as metrics and the log name it.

use std::io;

use tokio_rustls::rustls::Error;

use crate::observe::groups::Reason;
use slowlane_core::base::shown::shown;

/// A handshake that failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) reason: Reason,
    /// What happened, in words that are safe to show.
    pub(super) text: String,
}

/// The longest text of an error: parts of it may be the peer's words.
const TEXT_BYTES_MAX: usize = 200;

impl Failure {
    pub(super) fn timed_out() -> Failure {
        Failure { reason: Reason::Timeout, text: "it took too long".into() }
    }

    pub(super) fn crowded() -> Failure {
        Failure {
            reason: Reason::Crowded,
            text: "too many others are unfinished, and this is the oldest".into(),
        }
    }

    pub(super) fn of(error: &io::Error) -> Failure {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
        let mut text = shown(error.to_string());
        if let Some((end, _)) = text.char_indices().nth(TEXT_BYTES_MAX) {
            text.truncate(end);
        }
        Failure { reason: inner.map_or(Reason::Closed, reason), text }
    }
}

fn reason(error: &Error) -> Reason {
    match error {
        Error::NoCertificatesPresented => Reason::NoCertificate,
        Error::InvalidCertificate(_) => Reason::Certificate,
        Error::AlertReceived(_) => Reason::Refused,
        Error::PeerIncompatible(_) | Error::NoApplicationProtocol => Reason::Incompatible,
        Error::InvalidMessage(_)
        | Error::InappropriateMessage { .. }
        | Error::InappropriateHandshakeMessage { .. }
        | Error::PeerSentOversizedRecord
        | Error::PeerMisbehaved(_)
        | Error::DecryptError => Reason::Garbage,
        _ => Reason::Other,
    }
}
