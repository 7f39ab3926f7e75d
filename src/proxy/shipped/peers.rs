//! The rules and tables by which HAProxy enforces pushed limits itself.
//!
//! ```text
//! slowlane_pace.., a table of HAProxy's own    gpt(0) the clock of a key; gpc(0) admitted, gpc(1) refused requests
//! slowlane_limits.., a table of slowlane's     gpt(0) slot, gpt(1) tau or a mark, gpt(2) max, gpt(3) the common clock
//!
//! the keys of a request, in order: the first with a limit or a mark decides, and is tracked as sc0
//!                                  the others before it that have no entry yet are tracked, so that slowlane learns of them
//! ```

use std::collections::BTreeSet;

use crate::proxy::shipped::sample::sample;
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
    /// In the order of the lookup. None for the single bucket of all requests.
    pub fields: Vec<String>,
    /// The leading bits of a source in the key, for IPv4 and IPv6.
    pub prefixes: (u8, u8),
}

impl Paced {
    /// The key of the shipped files: only the source.
    pub fn source() -> Paced {
        Paced { fields: vec![SOURCE.to_owned()], prefixes: (32, 64) }
    }

    /// The name of its table `pace` or `limits`.
    pub fn table(&self, what: &str) -> String {
        match self.fields.as_slice() {
            [] => format!("slowlane_{what}_{ALL}"),
            [source] if source == SOURCE => format!("slowlane_{what}"),
            fields => format!("slowlane_{what}_{}", fields.join(".")),
        }
    }

    /// Whether HAProxy can have its tables: a name with other characters is not a valid table name.
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
            fields => format!("var({KEY}{})", suffix(&fields.join("."))),
        }
    }

    /// The network of a source.
    fn mask(&self) -> String {
        let (ipv4, ipv6) = self.prefixes;
        format!("ipmask({ipv4},{ipv6})")
    }

    fn has(&self, field: &str) -> bool {
        self.fields.iter().any(|name| name == field)
    }

    /// The variables of the parts, except the last, that may contain the separator: `a|b` and `c` would equal `a` and
    /// `b|c`.
    fn splits(&self) -> impl Iterator<Item = String> {
        let parts = self.fields.split_last().map_or(&[][..], |(_, parts)| parts);
        let is_free = |name: &&String| !matches!(name.as_str(), SOURCE | WEBSITE | METHOD);
        parts.iter().filter(is_free).map(|name| variable(name))
    }

    /// Whether clients can make it longer than a table's keys.
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
/// The prefix of variables with a part of a key.
const KEY: &str = "txn.key.";
/// The separator between the parts of a key.
const JOINT: char = '|';
/// The maximum size of a key in the tables, in bytes.
const KEY_BYTES: usize = 128;
/// The number of counters that every HAProxy has: a request can have this many keys.
const COUNTERS: usize = 3;

/// The variable with a field. The operator's own rule sets the owner.
fn variable(field: &str) -> String {
    if field == OWNER { "txn.owner".to_owned() } else { format!("{KEY}{}", suffix(field)) }
}

fn suffix(name: &str) -> String {
    name.replace('-', "_")
}

/// The expression that sets the variable of a field. None for `source` and `owner`, and for a name that no table can
/// have.
fn expression(field: &str) -> Option<String> {
    match field {
        WEBSITE => Some("req.fhdr(host),host_only,lower,rtrim(.)".to_owned()),
        METHOD => Some(METHOD.to_owned()),
        name => sample(name),
    }
}

/// The parts of the file that depend on the keys, the most specific key first:
/// - from the keys of a request to its limit,
/// - the rules that read the common clock, and tau,
/// - the rule that calculates how much later a request may be,
/// - the rule that counts an admitted request, and those that count it under keys without a limit,
/// - the tables.
pub(super) fn parts(keys: &[Paced]) -> [String; 5] {
    let (keys, impossible): (Vec<&Paced>, Vec<&Paced>) = keys.iter().partition(|key| key.is_possible());
    let tables = keys.iter().map(|key| tables(key)).collect();
    [rules(&keys, &impossible), clock(&keys), left(&keys), counts(keys.len()), tables]
}

/// The number of counters that HAProxy needs for these keys, if it exceeds the default of `tune.stick-counters`.
pub(super) fn counters(keys: &[Paced]) -> Option<usize> {
    Some(keys.iter().filter(|key| key.is_possible()).count()).filter(|keys| *keys > COUNTERS)
}

fn rules(keys: &[&Paced], impossible: &[&Paced]) -> String {
    let mut text = String::new();
    if keys.len() > 1 {
        text += "    acl slowlane_decided sc0_tracked\n";
    }
    text += &fields(keys);
    let mut prefixes = None;
    for (place, key) in keys.iter().enumerate() {
        let names = if key.fields.is_empty() { ALL.to_owned() } else { key.fields.join(", ") };
        text += &format!("\n    # {names}\n");
        let is_joined = key.fields.len() > 1;
        if is_joined && key.has(SOURCE) && prefixes.replace(key.prefixes) != Some(key.prefixes) {
            text += &format!("    http-request set-var({KEY}{SOURCE}) src,{}\n", key.mask());
        }
        text += &joined(key);
        text += &limit(key, place, keys.len());
    }
    for key in impossible {
        let names = shown(key.fields.join("+"));
        text += &format!("    # The policy looks up {names}: no table can have its name.\n");
    }
    text + &odd(keys)
}

/// The rules that set the fields, each once. The source is set for each key that contains it: their prefixes may
/// differ.
fn fields(keys: &[&Paced]) -> String {
    let mut text = String::new();
    let mut names: Vec<&String> = Vec::new();
    for name in keys.iter().flat_map(|key| &key.fields) {
        if let Some(expression) = expression(name).filter(|_| !names.contains(&name)) {
            text += &format!("    http-request set-var({}) {expression}\n", variable(name));
            if name == METHOD {
                text += &format!(
                    "    # Up to 3.0, a variable has OPTIONS for a method that HAProxy has no number for.\n    \
                     http-request set-var({}) str(PATCH) if {{ method PATCH }}\n",
                    variable(name)
                );
            }
            names.push(name);
        }
    }
    text
}

/// The rule that joins several fields. A request without one of them does not have the key.
fn joined(key: &Paced) -> String {
    let [first, rest @ ..] = key.fields.as_slice() else { return String::new() };
    if rest.is_empty() {
        return String::new();
    }
    let name = suffix(&key.fields.join("."));
    let rest: String = rest.iter().map(|field| format!(",concat({JOINT},{})", variable(field))).collect();
    let all = key.fields.iter().filter(|field| *field != SOURCE);
    let all: String = all.map(|field| format!(" {{ var({}) -m found }}", variable(field))).collect();
    format!("    http-request set-var({KEY}{name}) var({}){rest} if{all}\n", variable(first))
}

/// The rules that read the limit of a key, and track it.
fn limit(key: &Paced, place: usize, keys: usize) -> String {
    let (pace, limits, key) = (key.table("pace"), key.table("limits"), key.key());
    let is_last = place + 1 == keys;
    let (unless, and) =
        if place == 0 { ("", "") } else { (" unless slowlane_decided", " !slowlane_decided") };
    let read = |name: &str, number: u8, when: &str| {
        format!("    http-request set-var(txn.limit.{name}) {key},table_gpt({number},{limits}){when}\n")
    };
    let mut text = read("slot", 0, unless);
    if keys > 1 {
        let limited = format!(" if slowlane_limited{and}");
        text += &(read("tau", 1, unless) + &read("max", 2, &limited) + &read("x", 3, &limited));
    }
    // A counter tracks only the first key that it is given.
    if is_last {
        text += &format!("    http-request track-sc0 {key} table {pace}\n");
    } else {
        text += &format!(
            "    http-request track-sc0 {key} table {pace} if slowlane_limited || slowlane_marked\n"
        );
        let counter = place + 1;
        text += &format!(
            "    http-request track-sc{counter} {key} table {pace} if !slowlane_decided !{{ {key},in_table({limits}) }}\n"
        );
    }
    text
}

/// The rules for keys that the tables cannot hold, or that have many spellings.
fn odd(keys: &[&Paced]) -> String {
    let mut acls = String::new();
    if keys.iter().any(|key| key.has(WEBSITE)) {
        acls += &format!("    acl slowlane_odd var({KEY}{WEBSITE}) -m reg [^a-z0-9._-]|^[.]|[.][.]\n");
    }
    for key in keys.iter().filter(|key| key.is_long()) {
        acls += &format!("    acl slowlane_odd {} -m len ge {KEY_BYTES}\n", key.key());
    }
    // Each field once, even if several keys contain it.
    let splits: BTreeSet<String> = keys.iter().flat_map(|key| key.splits()).collect();
    for variable in splits {
        acls += &format!("    acl slowlane_odd var({variable}) -m sub {JOINT}\n");
    }
    if acls.is_empty() {
        return acls;
    }
    format!(
        "\n    # Always ask slowlane about a website that is not a plain name, and about keys that the tables cannot hold.\n\
         {acls}    http-request set-var(txn.limit.slot) int(0) if slowlane_odd\n    \
         http-request set-var(txn.limit.tau) int(2) if slowlane_odd\n"
    )
}

/// With a single table of limits, its columns are read where they are needed; with several, where the key is known.
fn column(keys: &[&Paced], number: u8, variable: &str) -> String {
    match keys {
        [key] => format!("{},table_gpt({number},{})", key.key(), key.table("limits")),
        _ => format!("var(txn.limit.{variable})"),
    }
}

fn clock(keys: &[&Paced]) -> String {
    let (tau, x) = (column(keys, 1, "tau"), column(keys, 3, "x"));
    let mut text = format!(
        "    http-request set-var(txn.pace.a) {tau} if {{ var(txn.pace.before) -m found }}\n    \
         http-request set-var(txn.pace.a,ifgt) var(txn.pace.before)\n    \
         http-request set-var(txn.pace.a,iflt) {x},sub(txn.pace.then),and(4294967295),sub(2147483648)\n"
    );
    if keys.len() == 1 {
        text += &format!(
            "    # If the clock is not ahead, the request is not late, whatever tau is.\n    \
             http-request set-var(txn.limit.tau,ifnotexists) {tau} unless {{ var(txn.limit.slot) -m int gt 1 }} {{ var(txn.pace.a) -m int 0 }}\n"
        );
    }
    text
}

fn left(keys: &[&Paced]) -> String {
    let max = column(keys, 2, "max");
    format!(
        "    http-request set-var(txn.pace.left) {max},sub(txn.limit.tau),sub(txn.pace.late) if slowlane_late\n"
    )
}

fn counts(keys: usize) -> String {
    let mut text = "    http-request sc-inc-gpc(0,0) unless slowlane_asks !slowlane_limited\n".to_owned();
    for counter in 1..keys {
        text += &format!("    http-request sc-inc-gpc(0,{counter}) if !slowlane_limited !slowlane_marked\n");
    }
    text
}

fn tables(key: &Paced) -> String {
    let table = |what, rest| {
        format!(
            "backend {} from slowlane\n    stick-table type string len {KEY_BYTES} size 100k {rest} peers slowlane\n",
            key.table(what)
        )
    };
    table("pace", "expire 60s store gpt(1),gpc(2)") + &table("limits", "expire 10s store gpt(4)")
}
