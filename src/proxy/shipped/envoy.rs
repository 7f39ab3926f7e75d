//! The files shipped for Envoy: complete configurations, with the delay in a header or by a hold.

use std::net::IpAddr;
use std::time::Duration;

use clap::ValueEnum;
use thiserror::Error;

use crate::proxy::shipped::tls::Tls;
use crate::proxy::shipped::words::{WordError, fill, word};
use slowlane_core::base::{Address, reachable, shown};

const HEADER: &str = include_str!("../../../examples/envoy-ratelimit/envoy.yaml");
const HOLD: &str = include_str!("../../../examples/envoy/envoy.yaml");

/// The method to delay a request, as `slowlane config envoy --delivery` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Delivery {
    /// Envoy waits, as its rate limit service says in a header
    Header,
    /// slowlane waits, and answers ext_authz late
    Hold,
}

/// The operator's own values in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places<'a> {
    pub delivery: Delivery,
    /// The address of slowlane: its gRPC listener, or its HTTP check for a hold.
    pub agent: &'a Address,
    /// The address that Envoy listens on.
    pub listen: &'a str,
    /// The address of the application.
    pub app: &'a str,
    /// The TLS settings for slowlane. None: no TLS.
    pub tls: Option<Tls<'a>>,
    /// Whether to send quotas to clients.
    pub ratelimit: bool,
    /// The longest delay of the policy.
    pub delay_max: Duration,
    /// The fields that the policy uses.
    pub fields: &'a [String],
}

pub const LISTEN: &str = "0.0.0.0:8080";
pub const APP: &str = "127.0.0.1:8000";
/// The usual address of the gRPC listener.
pub const GRPC: &str = "127.0.0.1:9005";

/// The longest delay that the shipped files allow.
const DELAY_SHIPPED: Duration = Duration::from_secs(11);

/// The configuration cannot be printed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unprintable {
    #[error("{0:?}: expected an address and a port, like {LISTEN}")]
    Port(String),
    #[error("--ratelimit: Envoy cannot pass it on with --delivery hold: expected --delivery header")]
    NoRateLimit,
    #[error(transparent)]
    Word(#[from] WordError),
}

/// The text of the file.
///
/// # Errors
/// A word cannot be written into it, or an address has no port.
pub fn text(places: &Places<'_>) -> Result<String, Unprintable> {
    let Places { delivery, agent, listen, app, tls, ratelimit, delay_max, fields } = *places;
    if ratelimit && delivery == Delivery::Hold {
        return Err(Unprintable::NoRateLimit);
    }
    let (text, port) = match delivery {
        Delivery::Header => (HEADER, 9005),
        Delivery::Hold => (HOLD, 9001),
    };
    let (agent, by_name) = match agent {
        Address::Unix(path) => (format!("pipe: {{ path: {} }}", scalar(&path.display().to_string())?), ""),
        Address::Tcp(address) => socket(&reachable(address))?,
    };
    let own = format!("socket_address: {{ address: 127.0.0.1, port_value: {port} }}");
    let ((bind, _), (application, app_by_name)) = (socket(listen)?, socket(app)?);
    let connect = format!("connect_timeout: 5s{by_name}{}", tls_lines(tls)?);
    let connect_app = format!("connect_timeout: 1s{app_by_name}");
    let wait_s = delay_max.max(DELAY_SHIPPED).as_secs() + 1;
    let timeout = format!("timeout: {wait_s}s }}");
    let (unsent, asks) = (unsent(fields, delivery), if ratelimit { ASKS_RATELIMIT } else { "" });
    let more = format!("{METHOD}{asks}{unsent}");
    let before = format!("{unsent}{EXT_AUTHZ}");
    let places = [
        (own.as_str(), agent.as_str()),
        ("socket_address: { address: 0.0.0.0, port_value: 8080 }", &bind),
        ("socket_address: { address: 127.0.0.1, port_value: 8000 }", &application),
        ("connect_timeout: 5s", &connect),
        ("connect_timeout: 1s", &connect_app),
        ("timeout: 12s }", &timeout),
        (METHOD, &more),
        (EXT_AUTHZ, &before),
    ];
    Ok(fill(text, &places))
}

/// A host and a port as an address of Envoy, and the line that a cluster needs if the host is a name.
fn socket(address: &str) -> Result<(String, &'static str), Unprintable> {
    let (host, port) = address.rsplit_once(':').unwrap_or(("0.0.0.0", address));
    let port: u16 = port.parse().map_err(|_| Unprintable::Port(address.to_owned()))?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let by_name = if host.parse::<IpAddr>().is_ok() { "" } else { "\n      type: STRICT_DNS" };
    Ok((format!("socket_address: {{ address: {}, port_value: {port} }}", scalar(host)?), by_name))
}

/// A word as a scalar of YAML, in quotes if it has marks that mean something there.
fn scalar(text: &str) -> Result<String, WordError> {
    let is_plain = word(text)?.chars().all(|c| c.is_ascii_alphanumeric() || "./_-".contains(c));
    Ok(if is_plain { text.to_owned() } else { format!("\"{text}\"") })
}

/// The last of the usual fields.
const METHOD: &str = "                        - actions: [{ request_headers: { header_name: \":method\", descriptor_key: method } }]\n";

/// The descriptor that asks for the headers with the quota.
const ASKS_RATELIMIT: &str = "                        - actions: [{ generic_key: { descriptor_key: ratelimit, descriptor_value: \"on\" } }]\n";

/// The filter before which fields are set for a hold.
const EXT_AUTHZ: &str = "                  - name: envoy.filters.http.ext_authz\n";

/// The fields that the shipped files send.
const SENT: [&str; 3] = ["source", "website", "method"];

/// Comments that name the fields of the policy that nothing sends yet. A client must not choose its owner.
fn unsent(fields: &[String], delivery: Delivery) -> String {
    let (indent, remedy) = match delivery {
        Delivery::Header => ("                        ", "add a descriptor with this key"),
        Delivery::Hold => {
            ("                  ", "set a header X-Slowlane- with this name in the filter above")
        }
    };
    let unsent = fields.iter().filter(|name| !SENT.iter().any(|sent| sent.eq_ignore_ascii_case(name)));
    unsent.map(|name| format!("{indent}# The policy uses the field {}: {remedy}.\n", shown(name))).collect()
}

/// The lines for TLS in the cluster of slowlane.
fn tls_lines(tls: Option<Tls<'_>>) -> Result<String, WordError> {
    let Some(Tls { name, has_certificate }) = tls else { return Ok(String::new()) };
    let name = scalar(name)?;
    let own = match has_certificate {
        false => "",
        true => {
            "\n            tls_certificates: [{ certificate_chain: { filename: /etc/slowlane/tls/envoy.pem }, private_key: { filename: /etc/slowlane/tls/envoy.key } }]"
        }
    };
    Ok(format!(
        "\n      transport_socket:\n        name: envoy.transport_sockets.tls\n        typed_config:\n          \
         \"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext\n          \
         sni: {name}\n          common_tls_context:{own}\n            validation_context:\n              \
         trusted_ca: {{ filename: /etc/slowlane/tls/ca.pem }}\n              \
         match_typed_subject_alt_names: [{{ san_type: DNS, matcher: {{ exact: {name} }} }}]"
    ))
}
