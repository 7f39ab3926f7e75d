//! The section `[grpc]`: Envoy's services.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::config::values::{allow, checked, fit, within};
use crate::config::{HANDSHAKE_MAX, Listen, Report, Tls};
use crate::proxy::envoy::Origins;
use slowlane_core::base::{Address, Network};

/// The keys of the section.
#[derive(Debug, Deserialize, Serialize)]
#[serde(expecting = "the section [grpc]", deny_unknown_fields)]
pub(super) struct Grpc {
    pub(super) listen: Vec<Address>,
    #[serde(deserialize_with = "allow")]
    allow: Vec<Network>,
    /// Each may keep 128 MB in memory.
    #[serde(deserialize_with = "within::<1, 100_000, _, _>")]
    connections_max: usize,
    #[serde(deserialize_with = "fields")]
    fields: BTreeMap<String, String>,
    pub(super) tls: Tls,
}

/// Envoy sends the names of headers in lower case. A key that fills two fields would fill only one in a descriptor.
fn fields<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    const ORIGIN: &str = "a key or a header in lower case, each once, like \"x-api-key\"";
    checked(deserializer, |fields: &BTreeMap<String, String>| {
        let is_once = |origin: &String| fields.values().filter(|other| *other == origin).count() == 1;
        let is_fit = |origin: &String| {
            !origin.is_empty() && !origin.bytes().any(|byte| byte.is_ascii_uppercase()) && is_once(origin)
        };
        fields.values().try_for_each(|origin| fit(origin, is_fit(origin), ORIGIN))
    })
}

/// The settings of the gRPC listener.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct GrpcConfig {
    /// Without an address, no gRPC is served.
    pub listen: Listen,
    pub origins: Origins,
}

impl GrpcConfig {
    pub(super) fn new(written: Grpc, report: Report<'_>) -> GrpcConfig {
        let Grpc { listen, allow, connections_max, fields, tls } = written;
        let listen = Listen::new("grpc", listen, allow, tls, connections_max, HANDSHAKE_MAX, report);
        GrpcConfig { listen, origins: Origins(fields.into_iter().collect()) }
    }
}
