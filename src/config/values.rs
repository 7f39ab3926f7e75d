//! The values of a config file: their notation and their ranges.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::time::Duration;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serializer};

use crate::server::Hosts;
use crate::sync::StoreUrl;
use slowlane_core::base::{Kind as VerdictKind, Network, units};

/// A value that passes a test, or else the test's error, which says what is expected.
pub(super) fn checked<'de, T: Deserialize<'de>, E: Display, D: Deserializer<'de>>(
    deserializer: D,
    test: impl FnOnce(&T) -> Result<(), E>,
) -> Result<T, D::Error> {
    let value = T::deserialize(deserializer)?;
    test(&value).map(|()| value).map_err(D::Error::custom)
}

/// Returns an error that quotes the text if the text is not fit.
pub(super) fn fit(text: &str, is_fit: bool, expected: &str) -> Result<(), String> {
    if is_fit { Ok(()) } else { Err(format!("{text:?}: expected {expected}")) }
}

/// A duration above zero, because no duration in the config may be zero.
pub(super) fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = deserializer.deserialize_str(TextVisitor("a duration, like \"60s\""))?;
    match units::duration(&text) {
        Ok(Duration::ZERO) => {
            Err(D::Error::custom(format!("{text:?}: expected a duration longer than 0, like 5s")))
        }
        Ok(duration) => Ok(duration),
        Err(error) => Err(D::Error::custom(format!("{text:?}: {error}"))),
    }
}

/// A duration within a range.
pub(super) fn duration_within<'de, const MIN_MS: u64, const MAX_MS: u64, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Duration, D::Error> {
    let duration = duration(deserializer)?;
    let [min, max] = [MIN_MS, MAX_MS].map(Duration::from_millis);
    let expected = || format!("expected {} to {}", units::written(min), units::written(max));
    if (min..=max).contains(&duration) { Ok(duration) } else { Err(D::Error::custom(expected())) }
}

/// The inverse of [`duration`].
pub(super) fn written<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&units::written(*duration))
}

pub(super) fn store<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<StoreUrl>, D::Error> {
    let text = String::deserialize(deserializer)?;
    // The text may contain a password.
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

/// The name under which the other nodes show this node to their operators.
pub(super) fn node<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let is_fit = |name: &String| (1..=64).contains(&name.len()) && !name.chars().any(char::is_control);
    let test = |name: &String| fit(name, is_fit(name), "a name of 1 to 64 bytes, like lb1");
    checked(deserializer, test).map(Some)
}

/// The prefix of every key in the store.
pub(super) fn prefix<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let is_letter = |byte: u8| byte.is_ascii_graphic() && byte != b'{';
    checked(deserializer, |text: &String| {
        let is_fit = text.len() <= 64 && text.bytes().all(is_letter);
        fit(text, is_fit, "at most 64 visible ASCII characters other than {, like slowlane:")
    })
}

/// A duration of at most 24 days, as in HAProxy: rates use a 32-bit millisecond clock, and half of its range represents
/// the past.
pub(super) fn expire<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let expire = duration(deserializer)?;
    if expire > EXPIRE_MAX { Err(D::Error::custom("expected at most 24d")) } else { Ok(expire) }
}

const EXPIRE_MAX: Duration = Duration::from_secs(24 * 86_400);

/// The key or header that fills each field. Envoy sends the names of headers in lower case. A key or header may be
/// named only once, because it can fill only one field.
pub(super) fn descriptors<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    const ORIGIN: &str = "a lower-case key or header that no other field uses, like \"x-api-key\"";
    checked(deserializer, |fields: &BTreeMap<String, String>| {
        let is_once = |origin: &String| fields.values().filter(|other| *other == origin).count() == 1;
        let is_fit = |origin: &String| {
            !origin.is_empty() && !origin.bytes().any(|byte| byte.is_ascii_uppercase()) && is_once(origin)
        };
        fields.values().try_for_each(|origin| fit(origin, is_fit(origin), ORIGIN))
    })
}

/// A list of at most a thousand networks, because every new connection is compared with each of them.
pub(super) fn allow<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Network>, D::Error> {
    checked(deserializer, |networks: &Vec<Network>| match networks.len() {
        0..=1_000 => Ok(()),
        _ => Err("expected at most 1000 networks"),
    })
}

pub(super) fn hosts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    checked(deserializer, |hosts: &Vec<String>| Hosts::new(hosts).map(drop))
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
    checked(deserializer, |sample: &f64| match *sample > 0.0 && *sample <= 1.0 {
        true => Ok(()),
        false => Err(format!("{sample}: expected a fraction greater than 0 and at most 1")),
    })
}

pub(super) fn verdicts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<VerdictKind>, D::Error> {
    checked(deserializer, |verdicts: &Vec<VerdictKind>| match verdicts[..] {
        [] => Err("expected one or more of \"pass\", \"delay\", \"deny\""),
        _ => Ok(()),
    })
}

/// Reads a string. The error for any other value names the expected kind of string.
struct TextVisitor(&'static str);

impl Visitor<'_> for TextVisitor {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }
}

/// A whole number within a range.
pub(super) fn within<'de, const MIN: i64, const MAX: i64, N: TryFrom<i64>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<N, D::Error> {
    let number = deserializer.deserialize_i64(Within { min: MIN, max: MAX })?;
    Ok(N::try_from(number).ok().expect("the range fits the type"))
}

/// Reads a whole number. The error for any other value names the range.
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
