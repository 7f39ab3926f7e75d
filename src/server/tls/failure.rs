//! Why a handshake failed, for metrics and the log.

use std::io;

use tokio_rustls::rustls::Error;

use slowlane_core::base::shown;

/// The longest text of an error: parts of it may come from the peer.
const TEXT_BYTES_MAX: usize = 200;

/// The reason for a failed handshake, for the metric, and a description that is safe to display.
pub(super) fn failure(error: &io::Error) -> (&'static str, String) {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    let mut text = shown(error.to_string());
    if let Some((end, _)) = text.char_indices().nth(TEXT_BYTES_MAX) {
        text.truncate(end);
    }
    (inner.map_or("closed", reason), text)
}

fn reason(error: &Error) -> &'static str {
    match error {
        Error::NoCertificatesPresented => "no_certificate",
        Error::InvalidCertificate(_) => "certificate",
        Error::AlertReceived(_) => "refused",
        Error::PeerIncompatible(_) | Error::NoApplicationProtocol => "incompatible",
        Error::InvalidMessage(_)
        | Error::InappropriateMessage { .. }
        | Error::InappropriateHandshakeMessage { .. }
        | Error::PeerSentOversizedRecord
        | Error::PeerMisbehaved(_)
        | Error::DecryptError => "garbage",
        _ => "other",
    }
}
