//! The files shipped for Envoy: complete configurations, with the delay in a header or by a hold.

use std::net::IpAddr;
use std::time::Duration;

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::proxy::shipped::sample::PAGE;
use crate::proxy::shipped::template::fill;
use crate::proxy::shipped::{Places, ProxyTls, Unprintable, word};
use slowlane_core::base::{Address, reachable, shown};

const HEADER: &str = include_str!("../../../examples/envoy-ratelimit/envoy.yaml");
const HOLD: &str = include_str!("../../../examples/envoy/envoy.yaml");
const TEMPLATE: &str = include_str!("envoy.mustache");

/// How to delay a request, as `slowlane config envoy --delivery` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EnvoyDelivery {
    /// Envoy waits for the time in a header that its rate limit service adds
    Header,
    /// slowlane waits, and answers ext_authz late
    Hold,
}

pub const LISTEN: &str = "0.0.0.0:8080";
/// The usual address of the gRPC listener.
pub const GRPC: &str = "127.0.0.1:9005";

/// The longest delay that the shipped files allow.
const DELAY_SHIPPED: Duration = Duration::from_secs(11);

/// The text of the file. Envoy reports the ends of requests to the gRPC listener at `ends`, with the TLS settings
/// `ends_tls`.
///
/// # Errors
/// A word cannot be written to the file, an address has no port, or a hold cannot send the quotas that `places` wants.
pub fn text(
    delivery: EnvoyDelivery,
    places: &Places<'_>,
    (ends, ends_tls): (&Address, Option<ProxyTls<'_>>),
) -> Result<String, Unprintable> {
    if places.ratelimit && delivery == EnvoyDelivery::Hold {
        return Err(Unprintable::NoRateLimit);
    }
    let (text, agent) = match delivery {
        EnvoyDelivery::Header => (HEADER, GRPC),
        EnvoyDelivery::Hold => (HOLD, "127.0.0.1:9001"),
    };
    // With a hold, Envoy appends the client's path to its check.
    let is_appended = |name: &String| delivery == EnvoyDelivery::Hold && name == PAGE;
    let fields: Vec<String> = places.fields.iter().filter(|name| !is_appended(name)).cloned().collect();
    let (asked, reader) = text.split_at(text.find(ENDS).unwrap_or(text.len()));
    let ends = Places { agent: ends, tls: ends_tls, ..*places };
    Ok(filled(asked, agent, &Places { fields: &fields, ..*places })? + &filled(reader, GRPC, &ends)?)
}

/// Fills the values into a part of a shipped file, in which slowlane has the address `agent`.
fn filled(shipped: &str, agent: &str, places: &Places<'_>) -> Result<String, Unprintable> {
    let agent = agent.parse().expect("it is an address");
    Ok(fill(shipped, TEMPLATE, &[values(&Places::shipped(&agent, LISTEN))?], &[values(places)?]))
}

/// The line that begins the last cluster of the file in which Envoy queries slowlane over HTTP.
const ENDS: &str = "    - name: slowlane-ends\n";

/// The values for the template.
fn values(places: &Places<'_>) -> Result<Value, Unprintable> {
    let (agent, agent_by_name) = match places.agent {
        Address::Unix(path) => (format!("pipe: {{ path: {} }}", scalar(&path.display().to_string())?), false),
        Address::Tcp(address) => socket(&reachable(address))?,
    };
    let ((listen, _), (app, app_by_name)) = (socket(places.listen)?, socket(places.app)?);
    let is_sent = |name: &String| SENT.iter().any(|sent| sent.eq_ignore_ascii_case(name));
    Ok(json!({
        "agent": agent,
        "agent_by_name": agent_by_name,
        "listen": listen,
        "app": app,
        "app_by_name": app_by_name,
        "tls_name": places.tls.map(|tls| scalar(tls.name)).transpose()?,
        "has_certificate": places.tls.is_some_and(|tls| tls.has_certificate),
        "timeout_s": places.delay_max.max(DELAY_SHIPPED).as_secs() + 1,
        "ratelimit": places.ratelimit,
        "unsent": places.fields.iter().filter(|name| !is_sent(name)).map(shown).collect::<Vec<_>>(),
    }))
}

/// A host and a port as an Envoy address, and whether the host is a name.
fn socket(address: &str) -> Result<(String, bool), Unprintable> {
    let (host, port) = address.rsplit_once(':').unwrap_or(("0.0.0.0", address));
    let port: u16 = port.parse().map_err(|_| Unprintable::Port(address.to_owned()))?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let socket = format!("socket_address: {{ address: {}, port_value: {port} }}", scalar(host)?);
    Ok((socket, host.parse::<IpAddr>().is_err()))
}

/// A word as a YAML scalar, in quotes if it has characters that may have a special meaning in YAML.
fn scalar(text: &str) -> Result<String, Unprintable> {
    let is_plain = word(text)?.chars().all(|c| c.is_ascii_alphanumeric() || "./_-".contains(c));
    Ok(if is_plain { text.to_owned() } else { format!("\"{text}\"") })
}

/// The fields that the shipped files send.
const SENT: [&str; 3] = ["source", "website", "method"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::shipped::template::parts;

    #[test]
    fn every_place_is_in_a_shipped_file() {
        let agent = GRPC.parse().unwrap();
        for part in parts(TEMPLATE, &[values(&Places::shipped(&agent, LISTEN)).unwrap()]) {
            assert!([HEADER, HOLD].concat().contains(&part), "{part:?}");
        }
    }
}
