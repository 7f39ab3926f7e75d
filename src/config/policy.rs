//! `[policy]` of a config file: where the maps are, the types and the lookups.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::config::values::within;
use slowlane_core::policy::{Layout, LayoutError, Lookup, Method};

#[derive(Debug, Default, Deserialize)]
#[serde(try_from = "WrittenPolicy")]
pub(super) struct Policy {
    pub(super) dir: Option<PathBuf>,
    pub(super) key_secret_file: Option<PathBuf>,
    pub(super) layout: Layout,
}

impl Serialize for Policy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        WrittenPolicy::from(self).serialize(serializer)
    }
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct WrittenPolicy {
    dir: Option<PathBuf>,
    key_secret_file: Option<PathBuf>,
    #[serde(deserialize_with = "ipv4_prefix")]
    ipv4_prefix: Option<u8>,
    #[serde(deserialize_with = "ipv6_prefix")]
    ipv6_prefix: Option<u8>,
    types: BTreeMap<Kind, Names>,
    ipv4_prefixes: BTreeMap<Kind, Bits<32>>,
    ipv6_prefixes: BTreeMap<Kind, Bits<128>>,
    lookups: Option<Vec<WrittenLookup>>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct WrittenLookup {
    fields: Names,
    map: PathBuf,
    #[serde(rename = "match", deserialize_with = "method", serialize_with = "method_name")]
    method: Method,
}

impl TryFrom<WrittenPolicy> for Policy {
    type Error = LayoutError;

    fn try_from(written: WrittenPolicy) -> Result<Policy, LayoutError> {
        let WrittenPolicy { dir, key_secret_file, ipv4_prefix, ipv6_prefix, types, lookups, .. } = written;
        let WrittenPolicy { ipv4_prefixes, ipv6_prefixes, .. } = written;
        let mut layout = Layout::default();
        let ipv4_prefix = ipv4_prefix.unwrap_or(layout.ipv4_prefix());
        let ipv6_prefix = ipv6_prefix.unwrap_or(layout.ipv6_prefix());
        layout = layout.with_prefixes(ipv4_prefix, ipv6_prefix)?;
        for (Kind(kind), Names(fields)) in types {
            layout = layout.with_type(kind, fields)?;
        }
        if let Some(lookups) = lookups {
            let lookup =
                |WrittenLookup { fields: Names(fields), map: file, method }| Lookup { fields, file, method };
            layout = layout.with_lookups(lookups.into_iter().map(lookup).collect())?;
        }
        for kind in ipv4_prefixes.keys().chain(ipv6_prefixes.keys()) {
            let ipv4 = ipv4_prefixes.get(kind).map(|Bits(bits)| *bits);
            let ipv6 = ipv6_prefixes.get(kind).map(|Bits(bits)| *bits);
            layout = layout.with_type_prefixes(kind.0, ipv4, ipv6)?;
        }
        Ok(Policy { dir, key_secret_file, layout })
    }
}

impl From<&Policy> for WrittenPolicy {
    fn from(policy: &Policy) -> WrittenPolicy {
        let layout = &policy.layout;
        let fields = |kind| Names(layout.type_fields(kind).to_vec());
        let types = (1..=9).filter(|&kind| !layout.type_fields(kind).is_empty());
        let own = |kind| (Kind(kind), layout.own_prefixes(kind));
        let lookup = |lookup: &Lookup| WrittenLookup {
            fields: Names(lookup.fields.clone()),
            map: lookup.file.clone(),
            method: lookup.method,
        };
        WrittenPolicy {
            dir: policy.dir.clone(),
            key_secret_file: policy.key_secret_file.clone(),
            ipv4_prefix: Some(layout.ipv4_prefix()),
            ipv6_prefix: Some(layout.ipv6_prefix()),
            types: types.map(|kind| (Kind(kind), fields(kind))).collect(),
            ipv4_prefixes: (1..=9)
                .map(own)
                .filter_map(|(kind, (bits, _))| Some((kind, Bits(bits?))))
                .collect(),
            ipv6_prefixes: (1..=9)
                .map(own)
                .filter_map(|(kind, (_, bits))| Some((kind, Bits(bits?))))
                .collect(),
            lookups: Some(layout.lookups().iter().map(lookup).collect()),
        }
    }
}

/// The digit of a type. TOML keys are text; checking them here gives the error a line number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
struct Kind(u8);

impl From<Kind> for String {
    fn from(Kind(kind): Kind) -> String {
        kind.to_string()
    }
}

impl TryFrom<String> for Kind {
    type Error = String;

    fn try_from(text: String) -> Result<Kind, String> {
        let expected = "expected a type, 1 to 9; type 0 is one bucket for all and has no fields";
        match text.parse() {
            Ok(kind @ 1..=9) => Ok(Kind(kind)),
            _ => Err(format!("{text:?}: {expected}")),
        }
    }
}

/// The leading bits of an address of so many.
#[derive(Clone, Copy, Debug, Serialize)]
struct Bits<const MAX: i64>(u8);

impl<'de, const MAX: i64> Deserialize<'de> for Bits<MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bits<MAX>, D::Error> {
        Ok(Bits(within::<0, MAX, _, _>(deserializer)?))
    }
}

/// The names of fields, at least one.
#[derive(Debug, Deserialize, Serialize)]
#[serde(try_from = "Vec<String>")]
struct Names(Vec<String>);

impl TryFrom<Vec<String>> for Names {
    type Error = LayoutError;

    fn try_from(names: Vec<String>) -> Result<Names, LayoutError> {
        Layout::check_names(&names).map(|()| Names(names))
    }
}

fn method<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Method, D::Error> {
    let name = String::deserialize(deserializer)?;
    let names = Method::ALL.map(Method::name).join(", ");
    Method::named(&name).ok_or_else(|| D::Error::custom(format!("{name:?}: expected one of {names}")))
}

fn method_name<S: Serializer>(method: &Method, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(method.name())
}

fn ipv4_prefix<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u8>, D::Error> {
    within::<0, 32, _, _>(deserializer).map(Some)
}

fn ipv6_prefix<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u8>, D::Error> {
    within::<0, 128, _, _>(deserializer).map(Some)
}
