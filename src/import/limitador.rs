//! Imports the limits of Kuadrant's limitador: each limit becomes an SLO with a type of its own, which a lookup adds to
//! the other SLOs of a descriptor.
//!
//! ```text
//! - namespace: shop                                        the field domain
//!   max_value: 10
//!   seconds: 60                                            6001 burst=0 rate=10/m law=fixed-window
//!   conditions: ["descriptors[0].method == 'GET'"]         fields = ["domain", "method", "user"], also = true:
//!   variables: ["descriptors[0].user"]                     shop+GET+ 6001
//! ```
//! Every limit that matches counts. Limits that exclude each other by a value share a lookup.

use std::collections::{BTreeMap, BTreeSet};

use crate::import::cel::{ANYTHING, Test, condition, key};
use crate::import::envoy::{RESTART, STORE, UNCOUNTED, is_own_field, name_option};
use crate::import::files::{ForeignFile, PolicyDraft, is_key};
use crate::import::rule::{ADDRESSES, FileLine, ImportFindings, Limit, quoted, windows};
use crate::import::yaml::{YamlNode, each_document};
use crate::import::{ImportError, RULES_MAX};
use slowlane_core::base::Period;
use slowlane_core::policy::{Lookup, Method, expression_of};

const READ: [&str; 7] = ["id", "namespace", "max_value", "seconds", "name", "conditions", "variables"];

const NAMES_ALIKE: &str =
    "A host is compared without its port and in lower case, and a path without its query string.";

const EACH: &str = "slowlane judges each descriptor of a request separately, so limits on descriptors[0] \
                    apply to every descriptor. An entry with an empty value counts as missing.";

const HITS: &str = "slowlane counts a request with more than one hit in the windows of its limits even if it \
                    refuses the request; limitador does not.";

const PLUS: &str =
    "If another value of a request contains a +, a condition with != always holds for the request.";

/// Converts the limits of all documents, and of the files in ConfigMaps.
pub(super) fn read(all: &[YamlNode], found: &mut ImportFindings) -> Result<Vec<ForeignFile>, ImportError> {
    [STORE, EACH, HITS].into_iter().for_each(|difference| found.differs(difference));
    let (policy, asked, known) = (PolicyDraft::new(&found.names, RESTART), Vec::new(), BTreeSet::new());
    let mut limits = AddedLimits { policy, asked, known, found };
    each_document(all, "max_value:", &mut |document| {
        let custom = document.get("spec").get("limits").items();
        document.items().iter().chain(custom).try_for_each(|limit| limits.limit(limit))
    })?;
    let files = if limits.asked.is_empty() { Ok(Vec::new()) } else { limits.policy.checked() };
    Ok(files.unwrap_or_else(|reason| {
        limits.found.omit(FileLine::default(), "all limits together", reason);
        Vec::new()
    }))
}

/// The limits so far, and the lookups that add them.
struct AddedLimits<'f> {
    policy: PolicyDraft,
    /// For each lookup, the exact values that each of its limits requires, by field.
    asked: Vec<Vec<BTreeMap<String, String>>>,
    known: BTreeSet<(String, String, Vec<String>, Vec<String>)>,
    found: &'f mut ImportFindings,
}

/// The values of a field to which a limit applies: the values that pass the test, except the excluded values.
#[derive(Clone, Debug, Default)]
struct FieldScope {
    wanted: Option<Test>,
    excluded: Vec<String>,
}

/// The values to which a limit applies, by field.
type Scope = BTreeMap<String, FieldScope>;

impl AddedLimits<'_> {
    fn limit(&mut self, node: &YamlNode) -> Result<(), ImportError> {
        if self.known.len() >= RULES_MAX {
            return Err(ImportError::TooMany);
        }
        let text = |name: &str| node.get(name).text();
        let list = |name: &str| {
            let mut list: Vec<String> =
                node.get(name).items().iter().map(|item| item.text().to_owned()).collect();
            list.sort();
            list
        };
        let (conditions, variables) = (list("conditions"), list("variables"));
        let shown = format!("{} {} in {} s", text("namespace"), text("max_value"), text("seconds"));
        for (name, other) in node.entries().iter().filter(|(name, _)| !READ.contains(&name.as_str())) {
            self.found.omit(other.line, &format!("{shown}: {name}"), "unknown key: limitador ignores it");
        }
        let known = (text("namespace").to_owned(), text("seconds").to_owned(), conditions, variables);
        if self.known.contains(&known) {
            self.found.omit(
                node.line,
                &shown,
                "this repeats an earlier limit: limitador counts only one of the two",
            );
            return Ok(());
        }
        let added = self.options(node).and_then(|options| {
            let (_, _, conditions, variables) = &known;
            let (scope, key) = self.scope(text("namespace"), conditions, variables)?;
            let counter = self.known.len().to_string();
            let quoted = quoted(&[shown.as_str(), &conditions.join(" && "), &variables.join(", ")].join(" "));
            let limit = Limit { counter, key, options, line: node.line, quoted };
            self.add(&limit, &scope)
        });
        if let Err(reason) = added {
            self.found.omit(node.line, &shown, reason);
        }
        self.known.insert(known);
        Ok(())
    }

    fn options(&self, node: &YamlNode) -> Result<String, String> {
        let period = Period::named(&format!("{}s", node.get("seconds").text()));
        let count = node.get("max_value").text().parse::<u32>().ok();
        let (count, period) =
            count.zip(period).ok_or("expected a max_value below 2^32, and seconds of at most 366 days")?;
        let options = windows(count, period, "", &name_option(node.get("name").text()));
        Ok(options.ok_or(UNCOUNTED)?)
    }

    /// The scope of a limit, and the fields of its key.
    fn scope(
        &mut self,
        namespace: &str,
        conditions: &[String],
        variables: &[String],
    ) -> Result<(Scope, Vec<String>), String> {
        let namespace = FieldScope { wanted: Some(Test::Equal(namespace.to_owned())), excluded: Vec::new() };
        let mut scope = Scope::from([("domain".to_owned(), namespace)]);
        let mut fields = vec!["domain".to_owned()];
        for text in conditions {
            let tests = condition(text).ok_or_else(|| format!("cannot read the condition {text:?}"))?;
            for (key, test) in tests {
                let of = scope.entry(self.field(&key)?).or_default();
                match test {
                    Test::Unequal(value) => of.excluded.push(value),
                    Test::Any => {}
                    test if of.wanted.replace(test.clone()).is_some_and(|other| other != test) => {
                        return Err(format!("two conditions on {key:?}: one map cannot match both"));
                    }
                    _ => {}
                }
            }
        }
        for text in variables {
            let key = key(text).ok_or_else(|| format!("cannot read the variable {text:?}"))?;
            fields.push(self.field(&key)?);
            scope.entry(fields[fields.len() - 1].clone()).or_default();
        }
        Ok((scope, fields))
    }

    /// The field that has the value of a descriptor's key.
    fn field(&mut self, key: &str) -> Result<String, String> {
        let field = match key {
            "remote_address" => {
                self.found.differs(ADDRESSES);
                "source"
            }
            "host" | "path" => {
                self.found.differs(NAMES_ALIKE);
                if key == "host" { "website" } else { "path" }
            }
            key if !is_own_field(key) => {
                return Err(format!("{key:?} cannot be the name of a field"));
            }
            key => key,
        };
        Ok(field.to_owned())
    }

    /// Adds a limit to a lookup whose limits all require a different value of some field, or else to a new lookup.
    fn add(&mut self, limit: &Limit, scope: &Scope) -> Result<(), String> {
        let (fields, method, lines) = lines(scope);
        if method == Method::Reg && lines.len() > 1 {
            self.found.differs(PLUS);
        }
        let equal = |(field, of): (&String, &FieldScope)| Some((field.clone(), of.equal()?.to_owned()));
        let asked: BTreeMap<String, String> = scope.iter().filter_map(equal).collect();
        let excludes = |other: &BTreeMap<String, String>| {
            asked.iter().any(|(field, value)| other.get(field).is_some_and(|other| other != value))
        };
        let is_alike = |lookup: &Lookup| lookup.fields == fields && lookup.method == method;
        let mut all = self.policy.maps.iter().zip(&self.asked);
        let place = all.position(|(map, asked)| is_alike(&map.lookup) && asked.iter().all(excludes));
        let place = place.unwrap_or(self.asked.len());
        let file = format!("limits-{}.map", place + 1).into();
        let lookup = Lookup { fields, file, method, is_added: true };
        self.policy.added(limit, &lookup, &lines)?;
        if place == self.asked.len() {
            self.asked.push(Vec::new());
        }
        self.asked[place].push(asked);
        Ok(())
    }
}

impl FieldScope {
    fn equal(&self) -> Option<&str> {
        if let Some(Test::Equal(value)) = &self.wanted { Some(value) } else { None }
    }

    /// A regular expression for the wanted values.
    fn expression(&self) -> String {
        match &self.wanted {
            Some(Test::Equal(value)) => expression_of(value),
            Some(Test::Pattern(text)) => text.clone(),
            _ => ANYTHING.to_owned(),
        }
    }
}

/// The fields of a scope, the match method of its map, and the keys of the map's lines. Keys with `false` lead to no
/// limit.
fn lines(scope: &Scope) -> (Vec<String>, Method, Vec<(String, bool)>) {
    let mut all: Vec<(&String, &FieldScope)> = scope.iter().collect();
    // The fields with an exact value come first, because a prefix begins with their values.
    all.sort_by_key(|(field, of)| (*field != "domain", of.equal().is_none()));
    let fields = all.iter().map(|(field, _)| (*field).clone()).collect();
    let values: Vec<&str> =
        all.iter().filter_map(|(_, of)| of.equal()).filter(|value| is_key(value)).collect();
    let is_plain = |(at, (_, of)): (usize, &(&String, &FieldScope))| {
        of.excluded.is_empty() && (at < values.len() || of.wanted.is_none())
    };
    if all.iter().enumerate().all(is_plain) {
        let (method, end) = if values.len() == all.len() { (Method::Str, "") } else { (Method::Beg, "+") };
        return (fields, method, vec![(values.join("+") + end, true)]);
    }
    let joined = |parts: Vec<String>| format!("^{}$", parts.join("\\+"));
    let mut lines = Vec::new();
    for (field, scope) in &all {
        for excluded in &scope.excluded {
            let part = |(other, of): &(&String, &FieldScope)| match of.equal() {
                _ if other == field => expression_of(excluded),
                Some(value) => expression_of(value),
                None => "[^+]*".to_owned(),
            };
            lines.push((joined(all.iter().map(part).collect()), false));
        }
    }
    lines.push((joined(all.iter().map(|(_, of)| of.expression()).collect()), true));
    (fields, Method::Reg, lines)
}
