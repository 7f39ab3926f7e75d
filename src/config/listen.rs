//! The listeners of one protocol, with the networks that may connect and their TLS.

use std::path::PathBuf;
use std::time::Duration;

use crate::config::error::ConfigError;
use crate::config::file::Tls;
use crate::server::tls;
use slowlane_core::base::address::Address;
use slowlane_core::base::network::Network;

/// The longest TLS handshake of listeners without a shorter timeout of their own. A proxy needs two round trips.
pub(super) const HANDSHAKE_MAX: Duration = Duration::from_secs(5);

/// The listeners of one protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listen {
    pub name: &'static str,
    /// The section of the config.
    pub section: &'static str,
    pub addresses: Vec<Address>,
    pub connections_max: usize,
    /// The networks that may connect over TCP. Empty: all.
    pub allow: Vec<Network>,
    /// The TLS of the TCP addresses.
    pub tls: Option<tls::Files>,
    pub handshake_max: Duration,
}

impl Listen {
    /// The listener as TLS has to know it.
    pub(crate) fn secured(&self) -> tls::Listener {
        let protocols: &[&[u8]] = if matches!(self.section, "http" | "admin") { &[b"http/1.1"] } else { &[] };
        let Listen { section, handshake_max, connections_max, .. } = *self;
        tls::Listener { section, protocols, handshake_max, connections_max }
    }

    /// The section of its TLS in the config.
    pub(super) fn tls_section(&self) -> String {
        format!("{}.tls", self.section)
    }
}

/// Reports addresses that two listeners have: the kernel would give each connection to either of them, or to one alone.
pub(super) fn report_collisions<'l>(
    listens: impl Iterator<Item = &'l Listen>,
    report: &mut dyn FnMut(&str, &str, ConfigError),
) {
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

/// The files of a listener's TLS. `report` gets a mistake with its section and key.
pub(super) fn tls_files(
    section: &'static str,
    written: Tls,
    report: &mut dyn FnMut(&str, &str, ConfigError),
) -> Option<tls::Files> {
    let Tls { cert, key, client_ca } = written;
    let (has, lacks) = match (cert, key, client_ca) {
        (Some(cert), Some(key), client_ca) => return Some(tls::Files { cert, key, client_ca }),
        (None, None, None) => return None,
        (Some(_), None, _) => ("cert", "key"),
        (None, Some(_), _) => ("key", "cert"),
        (None, None, Some(_)) => ("client_ca", "cert"),
    };
    let section = format!("{section}.tls");
    report(&section.clone(), has, ConfigError::HalfTls { section, has, lacks });
    None
}

/// The certificate and the key of a node, which go together.
pub(super) fn node_files(
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    report: &mut dyn FnMut(&str, &str, ConfigError),
) -> Option<(PathBuf, PathBuf)> {
    let (has, lacks) = match (cert, key) {
        (Some(cert), Some(key)) => return Some((cert, key)),
        (None, None) => return None,
        (Some(_), None) => ("cert", "key"),
        (None, Some(_)) => ("key", "cert"),
    };
    report("cluster", has, ConfigError::HalfTls { section: "cluster".into(), has, lacks });
    None
}
