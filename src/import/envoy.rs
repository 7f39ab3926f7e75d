//! Imports the rules of Envoy's rate limit service: each rule becomes a line in a map of descriptors, so that a
//! descriptor falls under the same rule as in that service.
//!
//! ```text
//! domain: messaging                                        the text of a descriptor
//! descriptors:
//! - key: message_type                                      message_type=marketing,to_number=2061234567
//!   value: marketing
//!   descriptors:
//!   - key: to_number                                       a line of descriptor-reg.map
//!     rate_limit: {unit: day, requests_per_unit: 5}        ^messaging\+message_type=marketing,to_number=[^,]*$ 6001
//! ```
//! At each level, the service takes the rule with the exact value, else the first rule whose wildcards match, else the
//! rule without a value. It never tries another rule. So the lines come in this order, and a line with 0 stops the
//! search if the rule that matches a descriptor has no limit for it.

use std::collections::BTreeSet;

use crate::import::files::{ForeignFile, PolicyDraft, Rank, is_field};
use crate::import::rule::{FileLine, ImportFindings, Limit, quoted, windows};
use crate::import::yaml::{YamlNode, each_document};
use crate::import::{ImportError, RULES_MAX};
use crate::proxy::envoy::{UNITS, escaped};
use slowlane_core::base::{Period, is_same_name};
use slowlane_core::policy::{LIST_LINES_MAX, Lookup, Method, expression_of};

/// Keys that affect no verdict, each with a note on the effect that is lost.
const OTHERS: [(&str, &str); 3] = [
    (
        "detailed_metric",
        "slowlane has no metric per value; `slowlane top` and the decision log show the keys",
    ),
    (
        "value_to_metric",
        "slowlane has no metric per value; `slowlane top` and the decision log show the keys",
    ),
    ("metadata", "slowlane's answer names the SLO and the key, but not the rule's metadata"),
];

/// The end of a reason, if the original program would not accept the file either.
const REFUSES: &str = "Envoy's rate limit service refuses such a file";

pub(super) const UNCOUNTED: &str =
    "this limit allows more requests than slowlane can count, so it would never take effect";

/// The keys that are imported from a rule.
const READ: &str = "key value rate_limit descriptors shadow_mode quota_mode share_threshold unit unit_multiplier \
    requests_per_unit unlimited name replaces";

pub(super) const RESTART: &str =
    "# Restart slowlane to put these lines in force. [grpc] listen is the address that Envoy queries.\n";

/// The two maps of descriptors and their match methods: for rules whose values are all exact, and for all other rules.
const MAPS: [(&str, Method); 2] = [("descriptor.map", Method::Str), ("descriptor-reg.map", Method::Reg)];

pub(super) const STORE: &str = "Each slowlane keeps its counts in its own memory instead of Redis. To share \
                                the counts among several slowlanes, set [cluster] store.";

/// The fields of the key for rules that share no threshold: the domain and the whole descriptor.
const BY_DESCRIPTOR: [&str; 2] = ["domain", "descriptor"];

/// The maximum number of rules in all files. Many rules can share one SLO, so there may be more rules than a type has
/// ids. This many lines fit in the maps, and are imported within a second.
const TREE_RULES_MAX: usize = 10 * RULES_MAX;

/// The maximum number of fields in all types together. A request has room for more fields.
const FIELDS_OF_TYPES_MAX: usize = 26;

/// Keys of descriptors whose values slowlane converts, or whose names are those of other fields.
const CONVERTED: &str =
    "remote_address host path domain descriptor source website base network cost announced";

/// Converts the rules of all documents, and of the files in ConfigMaps.
pub(super) fn read(all: &[YamlNode], found: &mut ImportFindings) -> Result<Vec<ForeignFile>, ImportError> {
    let fields = BY_DESCRIPTOR.map(str::to_owned);
    let mut policy = PolicyDraft::new(&found.names, RESTART);
    policy.type_of("", &fields).expect("the first type is free");
    for (file, method) in MAPS {
        let lookup = Lookup { fields: fields.to_vec(), file: file.into(), method, is_added: false };
        policy.map(lookup, Rank::default(), []);
    }
    found.differs(STORE);
    let mut tree = DescriptorTree { policy, rules: 0, limits: 0, found };
    each_document(all, "descriptors:", &mut |document| tree.domain(document))?;
    Ok(if tree.limits == 0 { Vec::new() } else { tree.policy.files() })
}

/// A level of the tree: a key, and the value that a rule requires for it. If that value is empty, any value matches.
#[derive(Clone, Copy)]
struct Level<'n> {
    key: &'n str,
    /// The value, in which `*` stands for any text.
    value: &'n str,
    is_shared: bool,
}

impl<'n> Level<'n> {
    fn of(descriptor: &'n YamlNode) -> Level<'n> {
        let text = |name| descriptor.get(name).text();
        Level { key: text("key"), value: text("value"), is_shared: text("share_threshold") == "true" }
    }

    /// The rank of the rule, which the service tries in ascending order: exact values, then wildcards, then no value.
    fn rank(&self) -> u8 {
        if self.value.is_empty() { 2 } else { self.value.contains('*').into() }
    }

    fn expression(&self) -> String {
        let value = if self.value.is_empty() { "*" } else { self.value };
        let parts: Vec<String> = value.split('*').map(literal).collect();
        format!("{}={}", literal(self.key), parts.join("[^,]*"))
    }
}

/// The part of a regular expression that matches this text inside the text of a descriptor.
fn literal(text: &str) -> String {
    expression_of(&escaped(text.as_bytes()).to_string())
}

/// Whether the value of a key becomes, unchanged, a field with the name of the key.
pub(super) fn is_own_field(key: &str) -> bool {
    is_field(key) && !CONVERTED.split(' ').any(|other| other == key)
}

/// The option `name=` of a limit; empty if the limit has no name.
pub(super) fn name_option(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!(" name={}", escaped(name.as_bytes())) }
}

/// The path to a rule in the tree: its domain, and the levels below it.
#[derive(Clone)]
struct RulePath<'n> {
    domain: &'n str,
    levels: Vec<Level<'n>>,
}

impl<'n> RulePath<'n> {
    fn with(&self, level: Level<'n>) -> RulePath<'n> {
        RulePath { domain: self.domain, levels: [self.levels.as_slice(), &[level]].concat() }
    }

    /// The domain and the text of the descriptor that matches the rule. `None` unless all values of the rule are exact.
    fn text(&self) -> Option<String> {
        let part = |Level { key, value, .. }: &Level<'_>| {
            format!("{}={}", escaped(key.as_bytes()), escaped(value.as_bytes()))
        };
        let parts: Vec<String> = self.levels.iter().map(part).collect();
        let is_given = self.levels.iter().all(|level| level.rank() == 0);
        is_given.then(|| format!("{}+{}", self.domain, parts.join(",")))
    }

    /// A regular expression for the text of the descriptors that match the rule, with `end` after the last value.
    fn expression(&self, end: &str) -> String {
        let parts: Vec<String> = self.levels.iter().map(Level::expression).collect();
        format!("^{}\\+{}{end}", literal(self.domain), parts.join(","))
    }

    fn shown(&self) -> String {
        let part = |level: &Level<'_>| match level.value {
            "" => format!(" {}", level.key),
            value => format!(" {}={value}", level.key),
        };
        let parts: Vec<String> = self.levels.iter().map(part).collect();
        format!("{}:{}", self.domain, parts.join(","))
    }

    /// The fields of the key of a rule that shares a threshold: the domain, and the varying values that are not shared.
    /// `None` if one of these values is not a field of its own.
    fn fields(&self) -> Option<Vec<String>> {
        let varying = self.levels.iter().filter(|level| !level.is_shared && level.rank() > 0);
        let is_field = |level: &Level<'_>| {
            let is_same = |other: &&Level<'_>| is_same_name(other.key.as_bytes(), level.key.as_bytes());
            self.levels.iter().filter(is_same).count() == 1 && is_own_field(level.key)
        };
        let are_fields = varying.clone().all(is_field);
        let fields = ["domain"].into_iter().chain(varying.map(|level| level.key));
        are_fields.then(|| fields.map(str::to_owned).collect())
    }
}

/// The policy so far, and how many rules and limits it has.
struct DescriptorTree<'f> {
    policy: PolicyDraft,
    rules: usize,
    limits: usize,
    found: &'f mut ImportFindings,
}

impl DescriptorTree<'_> {
    fn domain(&mut self, node: &YamlNode) -> Result<(), ImportError> {
        if node.get("descriptors").is_none() {
            return Ok(());
        }
        let domain = node.get("domain").text();
        if domain.is_empty() || domain.contains('+') || escaped(domain.as_bytes()).to_string() != domain {
            let reason =
                "expected a domain without spaces, of letters, digits and punctuation other than + , = % #";
            self.found.omit(node.line, domain, reason);
            return Ok(());
        }
        self.descriptors(node, &RulePath { domain, levels: Vec::new() })
    }

    /// Adds the rules of all descriptors below a node. The YAML reader's limit on depth bounds the recursion.
    fn descriptors<'n>(&mut self, node: &'n YamlNode, above: &RulePath<'n>) -> Result<(), ImportError> {
        let descriptors = node.get("descriptors").items().iter();
        let mut levels: Vec<(&YamlNode, Level<'_>)> =
            descriptors.map(|descriptor| (descriptor, Level::of(descriptor))).collect();
        levels.sort_by_key(|(_, level)| level.rank());
        for (place, &(descriptor, level)) in levels.iter().enumerate() {
            self.rules += 1;
            if self.rules > TREE_RULES_MAX {
                return Err(ImportError::TooMany);
            }
            let is_same = |(_, of): &(_, Level<'_>)| of.key == level.key && of.value == level.value;
            if level.key.is_empty() || levels[..place].iter().any(is_same) {
                let (text, reason) =
                    (format!("{} {}", above.shown(), level.key), "the key is missing or repeated");
                self.found.omit(descriptor.line, &text, format!("{reason}: {REFUSES}"));
                continue;
            }
            let path = above.with(level);
            let id = self.rule(descriptor, &path);
            let answers = id.is_some();
            if let Some(id) = id {
                self.line(&path, id, descriptor.line);
            }
            self.descriptors(descriptor, &path)?;
            let takes_over = |(later, of): &(&YamlNode, Level<'_>)| {
                let is_other = of.rank() > 0 && of.key == level.key;
                is_other && (!answers || !later.get("descriptors").is_none())
            };
            if levels[place + 1..].iter().any(takes_over) {
                self.expression(&path, "(,|$)", 0, descriptor.line);
            }
        }
        Ok(())
    }

    /// The id in the line of a rule; 0 if the rule has no limit. `None` if the rule needs no line, because only
    /// descriptors below it have limits, or if it cannot be imported.
    fn rule(&mut self, descriptor: &YamlNode, path: &RulePath<'_>) -> Option<u32> {
        let (line, limit) = (descriptor.line, descriptor.get("rate_limit"));
        self.omit(descriptor, path);
        if limit.is_none() {
            return descriptor.get("descriptors").is_none().then_some(0);
        }
        let shared = self.shared_options(descriptor, path);
        if limit.get("unlimited").text() == "true" {
            return self.unlimited(limit, shared, path);
        }
        let multiplier =
            if limit.get("unit_multiplier").is_none() { "1" } else { limit.get("unit_multiplier").text() };
        let (unit, count) = (limit.get("unit").text(), limit.get("requests_per_unit").text());
        let text = format!("{} {count} per {unit}", path.shown());
        let known = UNITS.iter().find(|(name, ..)| unit.eq_ignore_ascii_case(name));
        let period = known.zip(multiplier.parse::<u32>().ok()).and_then(|((_, period, _), times)| {
            Period::named(&format!("{}s", period.seconds().saturating_mul(times.into())))
        });
        let (Some(period), Ok(count)) = (period, count.parse::<u32>()) else {
            let units = "a whole number per second, minute, hour, day, week, month or year, in a period of \
                         at most 366 days";
            self.found.omit(line, &text, format!("expected {units}"));
            return None;
        };
        let Some(options) = windows(count, period, " reset=calendar", &shared) else {
            self.found.omit(line, &text, UNCOUNTED);
            return Some(0);
        };
        let is_shared = path.levels.iter().any(|level| level.is_shared);
        let key = if is_shared { self.key_of(path, &text, line) } else { None };
        let (counter, key) = match key {
            Some(key) => (self.limits.to_string(), key),
            None => (String::new(), BY_DESCRIPTOR.map(str::to_owned).to_vec()),
        };
        self.slo(Limit { counter, key, options, line, quoted: quoted(&text) })
    }

    /// The fields of the key of a shared threshold. `None` if the whole descriptor must be the key.
    fn key_of(&mut self, path: &RulePath<'_>, text: &str, line: FileLine) -> Option<Vec<String>> {
        let fields = path.fields();
        let known = self.policy.types.values().flat_map(|(_, fields)| fields);
        let all: BTreeSet<&String> = known.chain(fields.iter().flatten()).collect();
        if fields.is_none() || all.len() > FIELDS_OF_TYPES_MAX {
            let reason = "share_threshold is combined with a value that varies and has no field of its own, so each \
                          whole descriptor has its own bucket";
            self.found.omit(line, text, reason);
            return None;
        }
        fields
    }

    /// The options that a rule can have with a limit or with `unlimited`.
    fn shared_options(&mut self, descriptor: &YamlNode, path: &RulePath<'_>) -> String {
        let limit = descriptor.get("rate_limit");
        let is = |name: &str| descriptor.get(name).text() == "true";
        let mut options = String::new();
        options += if is("shadow_mode") { " dry_run=yes" } else { "" };
        options += if is("quota_mode") { " quota=yes" } else { "" };
        let name = limit.get("name").text();
        options += &name_option(name);
        let replaced = limit.get("replaces");
        let is_refused = |of: &&str| of.is_empty() || *of == name;
        let names = replaced.items().iter().map(|item| item.get("name").text());
        let (refused, names): (Vec<&str>, Vec<&str>) = names.partition(is_refused);
        if !refused.is_empty() {
            let text = format!("{} replaces", path.shown());
            self.found.omit(replaced.line, &text, format!("an entry names its own rule or none: {REFUSES}"));
        }
        if !names.is_empty() {
            let names: Vec<String> = names.iter().map(|name| escaped(name.as_bytes()).to_string()).collect();
            options += &format!(" replaces={}", names.join(","));
        }
        options
    }

    /// The SLO of an unlimited rule, which all such rules with the same options share. Descriptors without a rule have
    /// SLO 0.
    fn unlimited(&mut self, limit: &YamlNode, shared: String, path: &RulePath<'_>) -> Option<u32> {
        if !limit.get("unit").is_none() {
            let reason = format!("`unlimited` is combined with `unit`: {REFUSES}");
            self.found.omit(limit.line, &path.shown(), reason);
        }
        let (counter, options) = (format!("unlimited{shared}"), format!("rate=unlimited{shared}"));
        let quoted = format!("{}: no limit", quoted(&path.shown()));
        self.slo(Limit { counter, key: vec!["domain".to_owned()], options, line: limit.line, quoted })
    }

    fn omit(&mut self, descriptor: &YamlNode, path: &RulePath<'_>) {
        let keys = || descriptor.entries().iter().chain(descriptor.get("rate_limit").entries());
        for (name, node) in keys() {
            let text = format!("{} {name}", path.shown());
            match OTHERS.iter().find(|(other, _)| other == name) {
                Some((_, changes)) => self.found.omit(node.line, &text, changes),
                None if READ.split(' ').any(|read| read == name) => {}
                None => self.found.omit(node.line, &text, format!("unknown key: {REFUSES}")),
            }
        }
    }

    /// The SLO of a rule, which all rules with the same options and counter share.
    fn slo(&mut self, limit: Limit) -> Option<u32> {
        self.limits += 1;
        let id = self.policy.slo(&limit, limit.options.clone());
        id.map_err(|reason| self.found.omit(limit.line, &limit.quoted, reason)).ok()
    }

    fn line(&mut self, path: &RulePath<'_>, id: u32, line: FileLine) {
        match path.text() {
            Some(text) => self.policy.maps[0].lines.push((text, id)),
            None => self.expression(path, "$", id, line),
        }
    }

    fn expression(&mut self, path: &RulePath<'_>, end: &str, id: u32, line: FileLine) {
        let lines = &mut self.policy.maps[1].lines;
        if lines.len() == LIST_LINES_MAX {
            let reason = format!("at most {LIST_LINES_MAX} rules may have a wildcard or no value");
            return self.found.omit(line, &path.shown(), reason);
        }
        lines.push((path.expression(end), id));
    }
}
