//! The keys whose pushed limits HAProxy enforces itself, with a rule and two tables for each key.
//!
//! ```text
//! slowlane_pace.., a table of HAProxy's own    gpt(0) the clock of a key; gpc(0) admitted, gpc(1) refused requests
//! slowlane_limits.., a table of slowlane's     gpt(0) slot, gpt(1) tau or a mark, gpt(2) max, gpt(3) the common clock
//!
//! the keys of a request, in order: the first with a limit or a mark decides, and is tracked as sc0
//!                                  the others before it that have no entry yet are tracked, so that slowlane learns of them
//! ```

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::proxy::shipped::sample::{self, sample};
use slowlane_core::base::shown;

/// A key whose limit HAProxy enforces: the fields of a lookup.
///
/// ```
/// use slowlane::proxy::shipped::haproxy::Paced;
/// let name = |fields: &[&str]| Paced { fields: fields.iter().map(|&field| field.into()).collect(), prefixes: (32, 64) }.table("pace");
/// assert_eq!(name(&["source"]), "slowlane_pace");
/// assert_eq!(name(&["source", "website"]), "slowlane_pace_source.website");
/// assert_eq!(name(&[]), "slowlane_pace_all");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paced {
    /// The fields in the order of the lookup. Empty for the single bucket of all requests.
    pub fields: Vec<String>,
    /// The number of leading bits of a source that are in the key, for IPv4 and IPv6.
    pub prefixes: (u8, u8),
}

impl Paced {
    /// The key of the shipped files: only the source.
    pub fn source() -> Paced {
        Paced { fields: vec![SOURCE.to_owned()], prefixes: (32, 64) }
    }

    /// The name of one of the key's tables: `what` is `pace` or `limits`.
    pub fn table(&self, what: &str) -> String {
        match self.fields.as_slice() {
            [] => format!("slowlane_{what}_{ALL}"),
            [source] if source == SOURCE => format!("slowlane_{what}"),
            fields => format!("slowlane_{what}_{}", fields.join(".")),
        }
    }

    /// Whether HAProxy can have the tables of this key. The field `all` alone would use the tables of all requests. A
    /// name may contain ASCII letters, digits, `-`, `_` and `.`, but must not differ from a usual field only in case.
    fn is_possible(&self) -> bool {
        let is_known = |name: &String| expression(name).is_some() || name == SOURCE || name == OWNER;
        self.fields.iter().all(is_known) && self.fields != [ALL]
    }

    /// HAProxy's expression for the key.
    fn key(&self) -> String {
        match self.fields.as_slice() {
            [] => format!("str({ALL})"),
            [source] if source == SOURCE => format!("src,{}", self.mask()),
            [field] => format!("var({})", variable(field)),
            _ => format!("var({})", self.joined()),
        }
    }

    /// The variable for a key of several fields, which a rule joins with `|`.
    fn joined(&self) -> String {
        format!("{KEY}{}", sample::variable(&self.fields.join(".")))
    }

    /// The converter that reduces a source to its network.
    fn mask(&self) -> String {
        let (ipv4, ipv6) = self.prefixes;
        format!("ipmask({ipv4},{ipv6})")
    }

    fn has(&self, field: &str) -> bool {
        self.fields.iter().any(|name| name == field)
    }

    /// The variables of the parts, except the last, that may contain the separator, because `a|b` and `c` would
    /// otherwise give the same key as `a` and `b|c`.
    fn splits(&self) -> impl Iterator<Item = String> {
        let parts = self.fields.split_last().map_or(&[][..], |(_, parts)| parts);
        let is_free = |name: &&String| !matches!(name.as_str(), SOURCE | WEBSITE | METHOD);
        parts.iter().filter(is_free).map(|name| variable(name))
    }

    /// Whether clients can make the key longer than a table's keys can be.
    fn is_long(&self) -> bool {
        self.fields.iter().any(|name| !matches!(name.as_str(), SOURCE | METHOD))
    }
}

const SOURCE: &str = "source";
const WEBSITE: &str = "website";
const OWNER: &str = "owner";
const METHOD: &str = "method";
/// The key and the name of the single bucket of all requests.
const ALL: &str = "all";
/// The prefix of variables that hold a part of a key.
const KEY: &str = "txn.key.";
/// HAProxy's default number of stick counters, and so the number of keys that a request can have.
const COUNTERS: usize = 3;

/// The variable that holds a field. The operator's own rule sets the owner.
fn variable(field: &str) -> String {
    if field == OWNER { "txn.owner".to_owned() } else { format!("{KEY}{}", sample::variable(field)) }
}

/// The expression that sets the variable of a field. `None` for `source` and `owner`, and for a name that no table can
/// have.
fn expression(field: &str) -> Option<String> {
    match field {
        WEBSITE => Some("req.fhdr(host),host_only,lower,rtrim(.)".to_owned()),
        METHOD => Some(METHOD.to_owned()),
        name => sample(name),
    }
}

/// The values for the rules and tables of these keys, the most specific key first. A table holds keys of up to 128 bytes.
pub(super) fn values(keys: &[Paced]) -> Value {
    let (keys, impossible): (Vec<&Paced>, Vec<&Paced>) = keys.iter().partition(|key| key.is_possible());
    let column = |number: u8, variable: &str| match keys[..] {
        [key] => format!("{},table_gpt({number},{})", key.key(), key.table("limits")),
        _ => format!("var(txn.limit.{variable})"),
    };
    let mut prefixes = None;
    let rules = keys.iter().enumerate().map(|(place, key)| {
        let is_joined = key.fields.len() > 1;
        // The source is set again whenever a key's prefixes differ from those of the previous key with several fields.
        let is_anew = is_joined && key.has(SOURCE) && prefixes.replace(key.prefixes) != Some(key.prefixes);
        let variables: Vec<String> = key.fields.iter().map(|field| variable(field)).collect();
        // A request that lacks one of the fields does not have the key.
        let needed = key.fields.iter().filter(|field| *field != SOURCE).map(|field| variable(field));
        json!({
            "names": if key.fields.is_empty() { ALL.to_owned() } else { key.fields.join(", ") },
            "source": is_anew.then(|| format!("src,{}", key.mask())),
            "joined": is_joined.then(|| key.joined()),
            "first": variables.first(),
            "rest": variables.get(1..),
            "needed": needed.collect::<Vec<_>>(),
            "key": key.key(),
            "pace": key.table("pace"),
            "limits": key.table("limits"),
            "is_later": place > 0,
            "counter": (place + 1 < keys.len()).then_some(place + 1),
        })
    });
    let has_website = keys.iter().any(|key| key.has(WEBSITE));
    let long: Vec<String> = keys.iter().filter(|key| key.is_long()).map(|key| key.key()).collect();
    // Each field once, even if several keys contain it.
    let split: BTreeSet<String> = keys.iter().flat_map(|key| key.splits()).collect();
    json!({
        "parts": parts(&keys),
        "keys": rules.collect::<Vec<_>>(),
        "many": keys.len() > 1,
        "is_one": keys.len() == 1,
        "impossible": impossible.iter().map(|key| shown(key.fields.join("+"))).collect::<Vec<_>>(),
        "is_odd": has_website || !long.is_empty() || !split.is_empty(),
        "has_website": has_website,
        "long": long,
        "split": split,
        "tau": column(1, "tau"),
        "max": column(2, "max"),
        "x": column(3, "x"),
        "counters": (1..keys.len()).collect::<Vec<_>>(),
        "needed_counters": Some(keys.len()).filter(|keys| *keys > COUNTERS),
    })
}

/// The number of counters that HAProxy needs for these keys, if that exceeds the default of `tune.stick-counters`.
pub(super) fn counters(keys: &[Paced]) -> Option<usize> {
    Some(keys.iter().filter(|key| key.is_possible()).count()).filter(|keys| *keys > COUNTERS)
}

/// The variables of the fields, each once.
fn parts(keys: &[&Paced]) -> Vec<Value> {
    let mut names: Vec<&String> = Vec::new();
    let mut parts = Vec::new();
    for name in keys.iter().flat_map(|key| &key.fields) {
        if let Some(expression) = expression(name).filter(|_| !names.contains(&name)) {
            let (variable, is_method) = (variable(name), name == METHOD);
            parts.push(json!({ "variable": variable, "expression": expression, "is_method": is_method }));
            names.push(name);
        }
    }
    parts
}
