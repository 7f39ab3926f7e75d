//! Envoy's rate limit service: each rule becomes a line of a map of descriptors, so that each descriptor falls under the
//! same rule as there.
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
//! At each level, the service takes the rule with the value, or the first whose wildcards match, or that without a value,
//! and never tries another. So the lines come in this order, and a line with 0 ends a rule that has none for a descriptor.

use std::collections::BTreeSet;

use crate::import::files::{PolicyDraft, is_field};
use crate::import::rule::{FileLine, Limit, Omissions, quoted, windows};
use crate::import::yaml::{YamlNode, each_document};
use crate::import::{ImportError, Program, RULES_MAX, Written};
use crate::proxy::envoy::escaped;
use slowlane_core::base::{Period, is_same_name};
use slowlane_core::policy::{LIST_LINES_MAX, Lookup, Method, expression_of};

/// The units of the service, in seconds.
const UNITS: [(&str, u64); 7] = [
    ("second", 1),
    ("minute", 60),
    ("hour", 3_600),
    ("day", 86_400),
    ("week", 7 * 86_400),
    ("month", 30 * 86_400),
    ("year", 365 * 86_400),
];

/// Keys that change no verdict, and what they would change.
const OTHERS: [(&str, &str); 3] = [
    ("detailed_metric", "no metric for each value: `slowlane top` and the decision log have the keys"),
    ("value_to_metric", "no metric for each value: `slowlane top` and the decision log have the keys"),
    ("metadata", "the answer has no metadata of the rule; it has the SLO and the key"),
];

/// Keys that are read.
const READ: [&str; 13] = [
    "key",
    "value",
    "rate_limit",
    "descriptors",
    "shadow_mode",
    "quota_mode",
    "share_threshold",
    "unit",
    "unit_multiplier",
    "requests_per_unit",
    "unlimited",
    "name",
    "replaces",
];

pub(super) const RESTART: &str =
    "# Restart slowlane for these lines. [grpc] listen is the address that Envoy asks.\n";

/// The maps of descriptors whose values are all given, and of the others, and how they are matched.
const MAPS: [(&str, Method); 2] = [("descriptor.map", Method::Str), ("descriptor-reg.map", Method::Reg)];

pub(super) const STORE: &str = "Counts are in the memory of each slowlane, and no Redis is asked. Several slowlanes share them with [cluster] \
                     store.";

/// The key of rules that share no threshold: the whole descriptor.
const BY_DESCRIPTOR: [&str; 2] = ["domain", "descriptor"];

/// The maximum number of rules in all files. Many rules have one SLO, so there are more of them than ids of a type; this
/// many lines fit the maps, and are imported within a second.
const TREE_RULES_MAX: usize = 10 * RULES_MAX;

/// The maximum number of fields of all types. A request has room for more.
const FIELDS_OF_TYPES_MAX: usize = 26;

/// Keys of descriptors whose values slowlane changes, or that are fields of another kind.
const CONVERTED: [&str; 11] = [
    "remote_address",
    "host",
    "path",
    "domain",
    "descriptor",
    "source",
    "website",
    "base",
    "network",
    "cost",
    "announced",
];

/// Expresses the rules of all documents, and of the files in a ConfigMap.
pub(super) fn read(all: &[YamlNode], files: &[String]) -> Result<Written, ImportError> {
    let mut policy = DescriptorPolicy::default();
    each_document(all, "descriptors:", &mut |document| policy.domain(document, files))?;
    policy.written(files)
}

/// The value that a rule asks for at one level.
#[derive(Clone, PartialEq)]
enum Level {
    Exact(String),
    /// The parts between `*`.
    Wildcard(Vec<String>),
    Any,
}

impl Level {
    fn of(descriptor: &YamlNode) -> Level {
        match descriptor.get("value").text() {
            "" => Level::Any,
            value if value.contains('*') => Level::Wildcard(value.split('*').map(str::to_owned).collect()),
            value => Level::Exact(value.to_owned()),
        }
    }

    /// The order in which the service tries rules.
    fn rank(&self) -> u8 {
        match self {
            Level::Exact(_) => 0,
            Level::Wildcard(_) => 1,
            Level::Any => 2,
        }
    }

    fn expression(&self) -> String {
        match self {
            Level::Exact(value) => literal(value),
            Level::Wildcard(parts) => {
                parts.iter().map(|part| literal(part)).collect::<Vec<_>>().join("[^,]*")
            }
            Level::Any => "[^,]*".to_owned(),
        }
    }
}

/// A text as the part of an expression that matches it in the text of a descriptor.
fn literal(text: &str) -> String {
    expression_of(&escaped(text.as_bytes()).to_string())
}

/// Whether the value of a key is a field of that name, as it is.
pub(super) fn is_own_field(key: &str) -> bool {
    is_field(key) && !CONVERTED.contains(&key)
}

/// The option for the name of a limit, if it has one.
pub(super) fn name_option(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!(" name={}", escaped(name.as_bytes())) }
}

/// The way to a rule, from its domain down: the text of its descriptor if every value is given, and an expression for it.
#[derive(Clone)]
struct RulePath {
    exact: Option<String>,
    expression: String,
    shown: String,
    keys: Vec<String>,
    is_shared: bool,
    /// The keys whose values may differ and share no threshold.
    varying: Vec<String>,
}

impl RulePath {
    fn of(domain: &str) -> RulePath {
        RulePath {
            exact: Some(format!("{domain}+")),
            expression: format!("^{}\\+", literal(domain)),
            shown: format!("{domain}:"),
            keys: Vec::new(),
            is_shared: false,
            varying: Vec::new(),
        }
    }

    fn with(&self, key: &str, level: &Level, is_shared: bool) -> RulePath {
        let comma = if self.expression.ends_with("\\+") { "" } else { "," };
        let key_text = escaped(key.as_bytes());
        let exact = match (&self.exact, level) {
            (Some(text), Level::Exact(value)) => {
                Some(format!("{text}{comma}{key_text}={}", escaped(value.as_bytes())))
            }
            _ => None,
        };
        let shown = match level {
            Level::Exact(value) => format!("{key}={value}"),
            Level::Wildcard(parts) => format!("{key}={}", parts.join("*")),
            Level::Any => key.to_owned(),
        };
        let is_varying = !is_shared && level.rank() > 0;
        let key = key.to_owned();
        RulePath {
            exact,
            expression: format!("{}{comma}{}={}", self.expression, literal(&key), level.expression()),
            shown: format!("{}{comma} {shown}", self.shown),
            keys: [self.keys.as_slice(), std::slice::from_ref(&key)].concat(),
            is_shared: self.is_shared || is_shared,
            varying: self.varying.iter().cloned().chain(is_varying.then_some(key)).collect(),
        }
    }

    /// The fields of the key of a rule that shares a threshold: the values that it does not share. None: they are no fields
    /// of their own.
    fn fields(&self) -> Option<Vec<String>> {
        let is_field = |key: &&String| {
            let is_once =
                self.keys.iter().filter(|other| is_same_name(other.as_bytes(), key.as_bytes())).count() == 1;
            is_once && is_own_field(key)
        };
        let are_fields = self.varying.iter().all(|key| is_field(&key));
        are_fields.then(|| [&["domain".to_owned()], self.varying.as_slice()].concat())
    }
}

/// The policy in the making.
struct DescriptorPolicy {
    policy: PolicyDraft,
    rules: usize,
    limits: usize,
    omissions: Omissions,
}

impl Default for DescriptorPolicy {
    fn default() -> DescriptorPolicy {
        let fields = BY_DESCRIPTOR.map(str::to_owned);
        let lookup = |(file, method): (&str, Method)| Lookup {
            fields: fields.to_vec(),
            file: file.into(),
            method,
            is_added: false,
        };
        let policy = PolicyDraft::with(MAPS.map(lookup), &fields);
        DescriptorPolicy { policy, rules: 0, limits: 0, omissions: Omissions::default() }
    }
}

impl DescriptorPolicy {
    fn domain(&mut self, node: &YamlNode, files: &[String]) -> Result<(), ImportError> {
        if node.get("descriptors").is_none() {
            return Ok(());
        }
        let domain = node.get("domain").text();
        if domain.is_empty() || domain.contains('+') || escaped(domain.as_bytes()).to_string() != domain {
            let reason =
                "expected a domain of letters, digits and signs other than + , = % #, without spaces";
            self.omissions.add(node.line, domain, reason);
            return Ok(());
        }
        self.descriptors(node, &RulePath::of(domain), files)
    }

    /// Adds the rules of descriptors below others. The limit on YAML's depth bounds the tree.
    fn descriptors(
        &mut self,
        node: &YamlNode,
        above: &RulePath,
        files: &[String],
    ) -> Result<(), ImportError> {
        let mut levels: Vec<(&YamlNode, Level)> = node
            .get("descriptors")
            .items()
            .iter()
            .map(|descriptor| (descriptor, Level::of(descriptor)))
            .collect();
        levels.sort_by_key(|(_, level)| level.rank());
        for (place, (descriptor, level)) in levels.iter().enumerate() {
            self.rules += 1;
            if self.rules > TREE_RULES_MAX {
                return Err(ImportError::TooMany);
            }
            let key = descriptor.get("key").text();
            let is_same = |(other, of): &(&YamlNode, Level)| other.get("key").text() == key && of == level;
            if key.is_empty() || levels[..place].iter().any(is_same) {
                let text = format!("{} {key}", above.shown);
                self.omissions.add(
                    descriptor.line,
                    &text,
                    "without a key, or twice: the service refuses the file",
                );
                continue;
            }
            let is_shared = descriptor.get("share_threshold").text() == "true";
            let path = above.with(key, level, is_shared);
            let id = self.rule(descriptor, &path, files);
            let answers = id.is_some();
            if let Some(id) = id {
                self.line(&path, id, descriptor.line);
            }
            self.descriptors(descriptor, &path, files)?;
            let takes_over = |(later, of): &(&YamlNode, Level)| {
                let is_other = of.rank() > 0 && later.get("key").text() == key;
                is_other && (!answers || !later.get("descriptors").is_none())
            };
            if levels[place + 1..].iter().any(takes_over) {
                self.expression(format!("{}(,|$)", path.expression), 0, descriptor.line, &path.shown);
            }
        }
        Ok(())
    }

    /// The answer of the line of a rule. 0: there is no limit. None: only descriptors below it have rules.
    fn rule(&mut self, descriptor: &YamlNode, path: &RulePath, files: &[String]) -> Option<u32> {
        let (line, limit) = (descriptor.line, descriptor.get("rate_limit"));
        self.omit(descriptor, path);
        if limit.is_none() {
            return descriptor.get("descriptors").is_none().then_some(0);
        }
        let shared = self.shared_options(descriptor, path);
        if limit.get("unlimited").text() == "true" {
            return self.unlimited(limit, shared, path, files);
        }
        let multiplier =
            if limit.get("unit_multiplier").is_none() { "1" } else { limit.get("unit_multiplier").text() };
        let (unit, count) = (limit.get("unit").text(), limit.get("requests_per_unit").text());
        let text = format!("{} {count} per {unit}", path.shown);
        let known = UNITS.iter().find(|(name, _)| unit.eq_ignore_ascii_case(name));
        let period = known.zip(multiplier.parse::<u32>().ok()).and_then(|((_, seconds), times)| {
            Period::named(&format!("{}s", seconds.saturating_mul(times.into())))
        });
        let (Some(period), Ok(count)) = (period, count.parse::<u32>()) else {
            let units = "a whole number per second, minute, hour, day, week, month or year, at most 366 days";
            self.omissions.add(line, &text, format!("expected {units}"));
            return None;
        };
        let Some(options) = windows(count, period, " reset=calendar", &shared) else {
            self.omissions.add(line, &text, "more requests than slowlane counts: it is no limit");
            return Some(0);
        };
        let key = if path.is_shared { self.key_of(path, &text, line) } else { None };
        let (counter, key) = match key {
            Some(key) => (self.limits.to_string(), key),
            None => (String::new(), BY_DESCRIPTOR.map(str::to_owned).to_vec()),
        };
        self.slo(Limit { counter, key, options, line, quoted: quoted(&text) }, files)
    }

    /// The fields of the key of a shared threshold.
    fn key_of(&mut self, path: &RulePath, text: &str, line: FileLine) -> Option<Vec<String>> {
        let fields = path.fields();
        let all: BTreeSet<&String> = self.policy.key_fields().chain(fields.iter().flatten()).collect();
        if fields.is_none() || all.len() > FIELDS_OF_TYPES_MAX {
            let reason = "share_threshold beside a value that varies and is no field of its own: each whole \
                          descriptor has its own bucket";
            self.omissions.add(line, text, reason);
            return None;
        }
        fields
    }

    /// The options that a rule has with a limit and without one.
    fn shared_options(&mut self, descriptor: &YamlNode, path: &RulePath) -> String {
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
            let text = format!("{} replaces", path.shown);
            self.omissions.add(
                replaced.line,
                &text,
                "without a name, or its own: the service refuses the file",
            );
        }
        if !names.is_empty() {
            let names: Vec<String> = names.iter().map(|name| escaped(name.as_bytes()).to_string()).collect();
            options += &format!(" replaces={}", names.join(","));
        }
        options
    }

    /// One SLO says of all descriptors with these options that they have no limit. Those without a rule have SLO 0.
    fn unlimited(
        &mut self,
        limit: &YamlNode,
        shared: String,
        path: &RulePath,
        files: &[String],
    ) -> Option<u32> {
        if !limit.get("unit").is_none() {
            self.omissions.add(
                limit.line,
                &path.shown,
                "unlimited with a unit: the service refuses the file",
            );
        }
        let (counter, options) = (format!("unlimited{shared}"), format!("rate=unlimited{shared}"));
        let quoted = format!("{}: no limit", quoted(&path.shown));
        self.slo(Limit { counter, key: vec!["domain".to_owned()], options, line: limit.line, quoted }, files)
    }

    fn omit(&mut self, descriptor: &YamlNode, path: &RulePath) {
        let keys = || descriptor.entries().iter().chain(descriptor.get("rate_limit").entries());
        for (name, node) in keys() {
            let text = format!("{} {name}", path.shown);
            match OTHERS.iter().find(|(other, _)| other == name) {
                Some((_, changes)) => self.omissions.add(node.line, &text, changes),
                None if READ.contains(&name.as_str()) => {}
                None => self.omissions.add(node.line, &text, "unknown: the service refuses the file"),
            }
        }
    }

    /// The SLO of a rule: one for all rules with the same options and counter.
    fn slo(&mut self, limit: Limit, files: &[String]) -> Option<u32> {
        self.limits += 1;
        let id = self.policy.slo(&limit, limit.options.clone(), files);
        id.map_err(|reason| self.omissions.add(limit.line, &limit.quoted, reason)).ok()
    }

    fn line(&mut self, path: &RulePath, id: u32, line: FileLine) {
        match &path.exact {
            Some(text) => self.policy.lines_of(0).push((text.clone(), id)),
            None => self.expression(format!("{}$", path.expression), id, line, &path.shown),
        }
    }

    fn expression(&mut self, text: String, id: u32, line: FileLine, shown: &str) {
        let lines = self.policy.lines_of(1);
        if lines.len() == LIST_LINES_MAX {
            let reason = format!("more than {LIST_LINES_MAX} rules without a value or with a wildcard");
            return self.omissions.add(line, shown, reason);
        }
        lines.push((text, id));
    }

    fn written(self, names: &[String]) -> Result<Written, ImportError> {
        let DescriptorPolicy { policy, limits, omissions, .. } = self;
        let (from, omissions) = (Program::Envoy, omissions.named(names));
        if limits == 0 && omissions.is_empty() {
            return Err(ImportError::NoLimits);
        }
        let (files, differences) = match limits {
            0 => (Vec::new(), Vec::new()),
            _ => (policy.files(RESTART), vec![STORE.to_owned()]),
        };
        Ok(Written { from, files, differences, omissions })
    }
}
