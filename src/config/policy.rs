//! `[policy]` of a config file: the directory of the maps, the types and the lookups.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize};

use crate::config::values::within;
use slowlane_core::policy::{Derivation, Layout, LayoutError, Lookup, Method};

#[derive(Debug, PartialEq, Deserialize, Serialize)]
#[serde(try_from = "WrittenPolicy")]
pub(crate) struct Policy {
    #[serde(flatten)]
    pub written: WrittenPolicy,
    #[serde(skip)]
    pub layout: Layout,
}

#[derive(Debug, PartialEq, Deserialize, Serialize)]
#[serde(expecting = "the section [policy]", deny_unknown_fields)]
pub(crate) struct WrittenPolicy {
    pub dir: Option<PathBuf>,
    pub key_secret_file: Option<PathBuf>,
    #[serde(deserialize_with = "within::<0, 32, _, _>")]
    ipv4_prefix: u8,
    #[serde(deserialize_with = "within::<0, 128, _, _>")]
    ipv6_prefix: u8,
    types: BTreeMap<TypeNumber, Names>,
    ipv4_prefixes: BTreeMap<TypeNumber, PrefixBits<32>>,
    ipv6_prefixes: BTreeMap<TypeNumber, PrefixBits<128>>,
    derived: BTreeMap<String, WrittenDerivation>,
    lookups: Vec<WrittenLookup>,
    rank: Vec<String>,
}

#[derive(Debug, PartialEq, Deserialize, Serialize)]
#[serde(expecting = "a section [policy.derived.NAME]", deny_unknown_fields)]
struct WrittenDerivation {
    from: String,
    map: Option<PathBuf>,
    #[serde(rename = "match")]
    method: Option<Method>,
    ipv4_prefix: Option<PrefixBits<32>>,
    ipv6_prefix: Option<PrefixBits<128>>,
}

impl WrittenDerivation {
    fn derivation(&self, name: &str) -> Result<Derivation, LayoutError> {
        let WrittenDerivation { from, map, method, ipv4_prefix, ipv6_prefix } = self;
        match (map, method, ipv4_prefix, ipv6_prefix) {
            (Some(file), &Some(method), None, None) => Ok(Derivation::map(from, file.clone(), method)),
            (None, None, &Some(PrefixBits(ipv4_prefix)), &Some(PrefixBits(ipv6_prefix))) => {
                Ok(Derivation::Network { from: from.clone(), ipv4_prefix, ipv6_prefix })
            }
            _ => Err(LayoutError::Derivation(name.to_owned())),
        }
    }
}

#[derive(Debug, PartialEq, Deserialize, Serialize)]
#[serde(expecting = "a section [[policy.lookups]]", deny_unknown_fields)]
struct WrittenLookup {
    fields: Names,
    map: PathBuf,
    #[serde(rename = "match")]
    method: Method,
    #[serde(default, skip_serializing_if = "is_false")]
    also: bool,
}

fn is_false(given: &bool) -> bool {
    !given
}

impl TryFrom<WrittenPolicy> for Policy {
    type Error = LayoutError;

    fn try_from(written: WrittenPolicy) -> Result<Policy, LayoutError> {
        let WrittenPolicy { types, ipv4_prefixes, ipv6_prefixes, derived, lookups, .. } = &written;
        let mut layout = Layout::default().with_prefixes(written.ipv4_prefix, written.ipv6_prefix)?;
        for (TypeNumber(kind), Names(fields)) in types {
            layout = layout.with_type(*kind, fields.clone())?;
        }
        let lookup = |lookup: &WrittenLookup| Lookup {
            fields: lookup.fields.0.clone(),
            file: lookup.map.clone(),
            method: lookup.method,
            is_added: lookup.also,
        };
        layout = layout.with_lookups(lookups.iter().map(lookup).collect())?;
        for (name, written) in derived {
            layout = layout.with_derived(name, written.derivation(name)?)?;
        }
        for kind in ipv4_prefixes.keys().chain(ipv6_prefixes.keys()) {
            let ipv4 = ipv4_prefixes.get(kind).map(|PrefixBits(bits)| *bits);
            let ipv6 = ipv6_prefixes.get(kind).map(|PrefixBits(bits)| *bits);
            layout = layout.with_type_prefixes(kind.0, ipv4, ipv6)?;
        }
        layout = layout.with_ranked(written.rank.clone())?;
        Ok(Policy { written, layout })
    }
}

/// The number of a type. TOML keys are text; checking them here gives the error a line number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
struct TypeNumber(u16);

impl From<TypeNumber> for String {
    fn from(TypeNumber(kind): TypeNumber) -> String {
        kind.to_string()
    }
}

impl TryFrom<String> for TypeNumber {
    type Error = String;

    fn try_from(text: String) -> Result<TypeNumber, String> {
        let expected =
            "expected a type from 1 to 999; type 0 is one bucket for all requests and has no fields";
        match text.parse() {
            Ok(kind @ 1..=999) => Ok(TypeNumber(kind)),
            _ => Err(format!("{text:?}: {expected}")),
        }
    }
}

/// A number of leading bits of an address, which has `MAX` bits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct PrefixBits<const MAX: i64>(u8);

impl<'de, const MAX: i64> Deserialize<'de> for PrefixBits<MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PrefixBits<MAX>, D::Error> {
        Ok(PrefixBits(within::<0, MAX, _, _>(deserializer)?))
    }
}

/// A list of one or more names of fields.
#[derive(Debug, PartialEq, Deserialize, Serialize)]
#[serde(try_from = "Vec<String>")]
struct Names(Vec<String>);

impl TryFrom<Vec<String>> for Names {
    type Error = LayoutError;

    fn try_from(names: Vec<String>) -> Result<Names, LayoutError> {
        Layout::check_names(&names).map(|()| Names(names))
    }
}
