//! The section `[peers]`: HAProxys that enforce the limits locally.

use serde::{Deserialize, Deserializer, Serialize};

use crate::config::values::{checked, fit};
use crate::config::{ConfigError, Listen, Report, Tls};
use crate::server::peers::PeersSettings;
use slowlane_core::base::Address;

/// The maximum number of peer connections. Each proxy uses one.
const CONNECTIONS_MAX: usize = 200;

const NAME: &str = "a name of 1 to 64 bytes without spaces, like lb1";

/// The keys of the section.
#[derive(Debug, PartialEq, Deserialize, Serialize)]
#[serde(expecting = "the section [peers]", deny_unknown_fields)]
pub(crate) struct Peers {
    pub listen: Vec<Address>,
    #[serde(deserialize_with = "name")]
    pub name: String,
    #[serde(deserialize_with = "names")]
    pub allow: Vec<String>,
    #[serde(deserialize_with = "dial")]
    pub dial: Vec<String>,
    #[serde(deserialize_with = "names")]
    pub fields: Vec<String>,
    pub tls: Tls,
}

/// The settings for peers: the listener, and the proxies to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PeersConfig {
    pub listen: Listen,
    pub settings: PeersSettings,
}

impl PeersConfig {
    /// `None` if there is no address to listen on or to connect to.
    pub(super) fn new(written: &Peers, report: Report<'_>) -> Option<PeersConfig> {
        let Peers { listen, name, allow, dial, fields, tls } = written;
        let listen = Listen::new("peers", listen, &[], tls, CONNECTIONS_MAX, report);
        let knows_clients = listen.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        if let Some(open) = listen.addresses.iter().find(|address| !address.is_local())
            && !knows_clients
        {
            report("peers", "listen", ConfigError::OpenPeers(open.to_string()));
        }
        let dial: Vec<(String, Address)> = dial.iter().filter_map(|text| dialled(text)).collect();
        if let Some((_, remote)) = dial.iter().find(|(_, address)| !address.is_local()) {
            report("peers", "dial", ConfigError::RemotePeer(remote.to_string()));
        }
        let is_one = !listen.addresses.is_empty() || !dial.is_empty();
        let (name, allow, fields) = (name.clone(), allow.clone(), fields.clone());
        let settings = PeersSettings { name, allow, dial, fields };
        is_one.then_some(PeersConfig { listen, settings })
    }
}

/// A name and an address, like `lb1@127.0.0.1:10000`.
fn dialled(text: &str) -> Option<(String, Address)> {
    let (name, address) = text.split_once('@').filter(|(name, _)| is_name(name))?;
    Some((name.to_owned(), address.parse().ok()?))
}

/// Whether a name is valid in the handshake of the protocol, in which spaces separate words.
fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    checked(deserializer, |name: &String| fit(name, is_name(name), NAME))
}

fn names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    checked(deserializer, |names: &Vec<String>| {
        names.iter().try_for_each(|name| fit(name, is_name(name), NAME))
    })
}

fn dial<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let expected = "a peer's name and address, like lb1@127.0.0.1:10000";
    checked(deserializer, |texts: &Vec<String>| {
        texts.iter().try_for_each(|text| fit(text, dialled(text).is_some(), expected))
    })
}
