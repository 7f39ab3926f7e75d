//! The metrics of TLS. A slowlane without it has none of them.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::observe::metrics::{measure, metric};

type OfListener = [(&'static str, &'static str); 1];
type OfFailure = [(&'static str, &'static str); 2];
type Moment = Gauge<f64, AtomicU64>;

/// The reason that a handshake failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It was not finished in time.
    Timeout,
    /// Too many others were unfinished, and it was the oldest.
    Crowded,
    /// The connection ended.
    Closed,
    /// No TLS, or broken TLS.
    Garbage,
    /// No common version, algorithm or protocol.
    Incompatible,
    /// The client shows no certificate.
    NoCertificate,
    /// The client's certificate is not good.
    Certificate,
    /// The client refuses.
    Refused,
    Other,
}

impl Reason {
    pub const fn name(self) -> &'static str {
        match self {
            Reason::Timeout => "timeout",
            Reason::Crowded => "crowded",
            Reason::Closed => "closed",
            Reason::Garbage => "garbage",
            Reason::Incompatible => "incompatible",
            Reason::NoCertificate => "no_certificate",
            Reason::Certificate => "certificate",
            Reason::Refused => "refused",
            Reason::Other => "other",
        }
    }
}

/// The metrics of all listeners with TLS.
#[derive(Clone, Debug, Default)]
pub struct TlsMetrics {
    handshakes: Family<OfListener, Counter>,
    failures: Family<OfFailure, Counter>,
    loaded: Family<OfListener, Moment>,
    expires: Family<OfListener, Moment>,
    refused: Family<OfListener, Gauge>,
}

/// The handles of one listener.
#[derive(Clone, Debug)]
pub struct ListenerTlsMetrics {
    listener: &'static str,
    /// Handshakes that succeeded.
    pub handshakes: Counter,
    failures: Family<OfFailure, Counter>,
    loaded: Moment,
    expires: Moment,
    refused: Gauge,
}

impl TlsMetrics {
    pub(super) fn register(registry: &mut Registry) -> TlsMetrics {
        let at = registry.sub_registry_with_prefix("tls");
        let loaded = "When the certificate in force was loaded, in Unix time";
        let expires = "When the certificate in force expires, in Unix time";
        let refused =
            "1 while the certificate files cannot be used and the previous certificate stays in force";
        TlsMetrics {
            handshakes: metric(at, "handshakes", "TLS handshakes that succeeded, by listener"),
            failures: metric(at, "handshake_failures", "TLS handshakes that failed, by listener and reason"),
            loaded: measure(at, "loaded_timestamp", loaded, Unit::Seconds),
            expires: measure(at, "expiry_timestamp", expires, Unit::Seconds),
            refused: metric(at, "refused", refused),
        }
    }

    pub fn of(&self, listener: &'static str) -> ListenerTlsMetrics {
        let label = [("listener", listener)];
        ListenerTlsMetrics {
            listener,
            handshakes: self.handshakes.get_or_create_owned(&label),
            failures: self.failures.clone(),
            loaded: self.loaded.get_or_create_owned(&label),
            expires: self.expires.get_or_create_owned(&label),
            refused: self.refused.get_or_create_owned(&label),
        }
    }
}

impl ListenerTlsMetrics {
    /// Counts a handshake that failed.
    pub fn failed(&self, reason: Reason) {
        self.failures.get_or_create(&[("listener", self.listener), ("reason", reason.name())]).inc();
    }

    /// Notes that files were read at a time of the wall clock, with a certificate that is valid until `expires`.
    pub fn loaded(&self, wall: Duration, expires: Option<Duration>) {
        self.loaded.set(wall.as_secs_f64());
        self.expires.set(expires.unwrap_or_default().as_secs_f64());
        self.refused.set(0);
    }

    /// Notes that files cannot be used.
    pub fn refused(&self) {
        self.refused.set(1);
    }
}
