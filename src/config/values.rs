//! The values of a config file: their notation and their ranges.

use std::fmt;
use std::time::Duration;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serializer};

use crate::observe::decision_log::Sample;
use crate::server::hosts::Hosts;
use crate::sync::StoreUrl;
use slowlane_core::base::kind::Kind as VerdictKind;
use slowlane_core::base::network::Network;
use slowlane_core::base::units;

/// A duration over zero: all of them are limits.
pub(super) fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    match units::duration(&text) {
        Ok(Duration::ZERO) => Err(D::Error::custom(format!("{text:?}: expected more than 0, like 5s"))),
        Ok(duration) => Ok(duration),
        Err(error) => Err(D::Error::custom(format!("{text:?}: {error}"))),
    }
}

/// The inverse of [`duration`].
pub(super) fn written<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&units::written(*duration))
}

pub(super) fn store<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<StoreUrl>, D::Error> {
    let text = String::deserialize(deserializer)?;
    // The text may have a password.
    text.parse().map(Some).map_err(|error| D::Error::custom(format!("store: {error}")))
}

pub(super) fn written_store<S: Serializer>(
    store: &Option<StoreUrl>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match store {
        Some(store) => serializer.collect_str(store),
        None => serializer.serialize_none(),
    }
}

pub(super) fn is_secret(store: &Option<StoreUrl>) -> bool {
    store.as_ref().is_some_and(StoreUrl::has_password)
}

/// The other nodes show it to their operators.
pub(super) fn node<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let is_fit = (1..=NODE_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
    let expected = format!("{text:?}: expected a name of 1 to {NODE_BYTES_MAX} bytes, like lb1");
    if is_fit { Ok(Some(text)) } else { Err(D::Error::custom(expected)) }
}

const NODE_BYTES_MAX: usize = 64;

pub(super) fn prefix<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    let is_fit =
        text.len() <= PREFIX_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'{');
    let expected =
        format!("{text:?}: expected at most {PREFIX_BYTES_MAX} letters without {{, like slowlane:");
    if is_fit { Ok(text) } else { Err(D::Error::custom(expected)) }
}

/// A prefix is a part of every key in the store.
const PREFIX_BYTES_MAX: usize = 64;

pub(super) fn period<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let period = duration(deserializer)?;
    let is_fit = (Duration::from_millis(10)..=Duration::from_secs(10)).contains(&period);
    if is_fit { Ok(period) } else { Err(D::Error::custom("expected 10ms to 10s")) }
}

pub(super) fn every<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let every = duration(deserializer)?;
    let is_fit = (Duration::from_secs(1)..=Duration::from_secs(3_600)).contains(&every);
    if is_fit { Ok(every) } else { Err(D::Error::custom("expected 1s to 1h")) }
}

/// At most 24 days, as in HAProxy: rates use a 32-bit clock in milliseconds, half of whose range is the past.
pub(super) fn expire<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let expire = duration(deserializer)?;
    if expire > EXPIRE_MAX { Err(D::Error::custom("expected at most 24d")) } else { Ok(expire) }
}

const EXPIRE_MAX: Duration = Duration::from_secs(24 * 86_400);

pub(super) fn allow<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Network>, D::Error> {
    let networks: Vec<Network> = Vec::deserialize(deserializer)?;
    let expected = || D::Error::custom(format!("expected at most {NETWORKS_MAX} networks"));
    if networks.len() > NETWORKS_MAX { Err(expected()) } else { Ok(networks) }
}

/// Every new connection is compared with each.
const NETWORKS_MAX: usize = 1_000;

pub(super) fn hosts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let hosts = Vec::deserialize(deserializer)?;
    Hosts::new(&hosts).map(|_| hosts).map_err(D::Error::custom)
}

/// File permissions in octal, as for `chmod`: three or four digits, at most 0777.
pub(super) fn socket_mode<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let text = String::deserialize(deserializer)?;
    let is_octal = (3..=4).contains(&text.len()) && text.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    let mode = u32::from_str_radix(&text, 8).ok().filter(|mode| is_octal && *mode <= 0o777);
    mode.ok_or_else(|| D::Error::custom(format!("{text:?}: expected a mode like \"0660\"")))
}

pub(super) fn written_mode<S: Serializer>(mode: &u32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{mode:04o}"))
}

pub(super) fn sample<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let sample = f64::deserialize(deserializer)?;
    let expected = || D::Error::custom(format!("{sample}: expected a fraction, more than 0 and at most 1"));
    Sample::new(sample).map(|_| sample).ok_or_else(expected)
}

pub(super) fn verdicts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<VerdictKind>, D::Error> {
    let verdicts = Vec::deserialize(deserializer)?;
    let expected = || D::Error::custom("expected one or more of \"pass\", \"delay\", \"deny\"");
    if verdicts.is_empty() { Err(expected()) } else { Ok(verdicts) }
}

/// A whole number within a range.
pub(super) fn within<'de, const MIN: i64, const MAX: i64, N: TryFrom<i64>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<N, D::Error> {
    let number = deserializer.deserialize_i64(Within { min: MIN, max: MAX })?;
    Ok(N::try_from(number).ok().expect("each type has room for its range"))
}

/// A whole number. The error for anything else names the range.
struct Within {
    min: i64,
    max: i64,
}

impl Visitor<'_> for Within {
    type Value = i64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a number from {} to {}", self.min, self.max)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<i64, E> {
        let is_within = (self.min..=self.max).contains(&number);
        if is_within { Ok(number) } else { Err(E::invalid_value(Unexpected::Signed(number), &self)) }
    }
}
