//! The listeners of one protocol: their addresses, their TLS settings, and the networks that may connect.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::{ConfigError, Report};
use crate::server::tls;
use slowlane_core::base::{Address, Network};

/// The TLS settings of a listener. Without a certificate, the listener has no TLS.
#[derive(Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(expecting = "a TLS section with cert, key and client_ca", deny_unknown_fields)]
pub(crate) struct Tls {
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
    pub client_ca: Option<PathBuf>,
}

/// The time limit for TLS handshakes, which take two round trips. SPOP has its own limit, and HTTP's may be shorter.
pub(super) const HANDSHAKE_MAX: Duration = Duration::from_secs(5);

/// The listeners of one protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listen {
    pub name: &'static str,
    /// The section of the config file.
    pub section: &'static str,
    pub addresses: Vec<Address>,
    pub connections_max: usize,
    /// The networks that may connect over TCP. An empty list allows all networks.
    pub allow: Vec<Network>,
    /// The TLS settings of the TCP addresses.
    pub tls: Option<tls::TlsFiles>,
    pub handshake_max: Duration,
}

impl Listen {
    /// Reports a missing TLS file that another TLS file requires.
    pub(super) fn new(
        section: &'static str,
        addresses: &[Address],
        allow: &[Network],
        Tls { cert, key, client_ca }: &Tls,
        connections_max: usize,
        report: Report<'_>,
    ) -> Listen {
        let name = match section {
            "spop" => "SPOP",
            "http" => "HTTP check",
            "grpc" => "gRPC",
            section => section,
        };
        let tls_section = format!("{section}.tls");
        let tls = match (cert, key, client_ca) {
            (None, None, Some(_)) => {
                half(&tls_section, "client_ca", "cert", report);
                None
            }
            (cert, key, client_ca) => pair(&tls_section, cert, key, report)
                .map(|(cert, key)| tls::TlsFiles { cert, key, client_ca: client_ca.clone() }),
        };
        let (addresses, allow, handshake_max) = (addresses.to_vec(), allow.to_vec(), HANDSHAKE_MAX);
        Listen { name, section, addresses, connections_max, allow, tls, handshake_max }
    }

    /// The settings for this listener's TLS.
    pub(crate) fn secured(&self) -> tls::Listener {
        let protocols: &[&[u8]] = match self.section {
            "http" | "admin" => &[b"http/1.1"],
            "grpc" => &[b"h2"],
            _ => &[],
        };
        let Listen { section, handshake_max, connections_max, .. } = *self;
        tls::Listener { section, protocols, handshake_max, connections_max }
    }

    /// The config file's section for this listener's TLS settings.
    pub(super) fn tls_section(&self) -> String {
        format!("{}.tls", self.section)
    }
}

/// Reports addresses that two listeners share, because the kernel would distribute connections between the two, or give
/// them all to one.
pub(super) fn report_collisions<'l>(listens: impl Iterator<Item = &'l Listen>, report: Report<'_>) {
    let mut before: Vec<(&'static str, &Address)> = Vec::new();
    for (section, address) in
        listens.flat_map(|listen| listen.addresses.iter().map(|address| (listen.section, address)))
    {
        if let Some(&(other, _)) = before.iter().find(|(other, at)| *other != section && at.collides(address))
        {
            report(section, "listen", ConfigError::SamePort { section, address: address.to_string(), other });
        }
        before.push((section, address));
    }
}

/// A certificate and its key. If only one of them is named, reports the other as missing.
pub(super) fn pair(
    section: &str,
    cert: &Option<PathBuf>,
    key: &Option<PathBuf>,
    report: Report<'_>,
) -> Option<(PathBuf, PathBuf)> {
    match (cert, key) {
        (Some(_), None) => half(section, "cert", "key", report),
        (None, Some(_)) => half(section, "key", "cert", report),
        _ => {}
    }
    cert.clone().zip(key.clone())
}

fn half(section: &str, has: &'static str, lacks: &'static str, report: Report<'_>) {
    report(section, has, ConfigError::HalfTls { section: section.to_owned(), has, lacks });
}
