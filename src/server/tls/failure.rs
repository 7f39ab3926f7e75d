//! Why a handshake failed, for metrics and the log.

use std::io;

use tokio_rustls::rustls::Error;

use crate::observe::groups::Reason;
use slowlane_core::base::shown;

/// The longest text of an error: parts of it may come from the peer.
const TEXT_BYTES_MAX: usize = 200;

/// The reason for a failed handshake, and a description that is safe to display.
pub(super) fn failure(error: &io::Error) -> (Reason, String) {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    let mut text = shown(error.to_string());
    if let Some((end, _)) = text.char_indices().nth(TEXT_BYTES_MAX) {
        text.truncate(end);
    }
    (inner.map_or(Reason::Closed, reason), text)
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
