//! The section `[grpc]`: Envoy's services.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::config::values::{allow, within};
use crate::config::{HANDSHAKE_MAX, Listen, Report, Tls};
use crate::proxy::envoy::Origins;
use slowlane_core::base::{Address, Network};

/// The keys of the section.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Grpc {
    pub(super) listen: Vec<Address>,
    #[serde(deserialize_with = "allow")]
    allow: Vec<Network>,
    /// Each may keep 32 MB in memory.
    #[serde(deserialize_with = "within::<1, 100_000, _, _>")]
    connections_max: usize,
    fields: BTreeMap<String, String>,
    pub(super) tls: Tls,
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
