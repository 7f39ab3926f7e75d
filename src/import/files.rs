//! Turns rules into the files of a policy, which the policy reader accepts without a warning.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem::take;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use serde::Serialize;

use slowlane_core::base::shown;
use slowlane_core::policy::{Layout, Lookup, Method, Policy};

use crate::import::rule::{Condition, FileLine, ImportFindings, Limit, Match, Rule, covers};

/// A file to save: its name in the policy directory, or `slowlane.toml`, and its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ForeignFile {
    pub name: String,
    pub text: String,
}

/// The maximum number of SLOs for one request.
const CHAIN_MAX: usize = 3;

/// The comment at the top of a config that is generated from rules.
const RESTART: &str = "# Restart slowlane to put these lines in force. Regenerate the proxy's files with \
                       --config, so that the proxy sends the new fields.\n";

/// The types that a policy may add.
const OWN_TYPES: std::ops::RangeInclusive<u16> = 6..=999;

/// The files for the rules. Rules that the policy reader refuses or warns about become omissions.
pub(super) fn of_rules(found: &mut ImportFindings) -> Vec<ForeignFile> {
    let mut rules = take(&mut found.rules);
    let limited: Vec<_> =
        rules.iter().filter(|rule| !rule.limits.is_empty()).map(|rule| rule.scope.clone()).collect();
    // A rule without limits is an exception from a wider rule. It is dropped if no wider rule has limits, or if another
    // rule limits the same requests: a server for HTTP redirects the requests that the server for HTTPS limits.
    rules.retain(|rule| {
        let is_inside = || limited.iter().any(|outer| covers(outer, &rule.scope));
        !rule.limits.is_empty() || !limited.contains(&rule.scope) && is_inside()
    });
    let rules = [exceptions(&rules, found), rules].concat();
    let names = found.names.clone();
    let checked = |rules: &[Rule]| PolicyDraft::of(rules, &names)?.checked();
    let (mut kept, mut files) = (Vec::new(), Vec::new());
    match checked(&rules) {
        Ok(all) => (kept, files) = (rules, all),
        // At least one rule is refused, so each rule is tried together with the accepted rules before it.
        Err(_) => {
            for rule in rules {
                kept.push(rule);
                match checked(&kept) {
                    Ok(all) => files = all,
                    Err(reason) => {
                        let rule = kept.pop().expect("it was pushed");
                        rule.limits.iter().for_each(|limit| found.omit(limit.line, &limit.quoted, &reason));
                    }
                }
            }
        }
    }
    if kept.iter().all(|rule| rule.limits.is_empty()) {
        files.clear();
    }
    files
}

/// The networks to which rules do not apply, as rules without limits. Lookups by network come first, so an exception
/// applies to all limits of its requests or to none.
fn exceptions(rules: &[Rule], found: &mut ImportFindings) -> Vec<Rule> {
    let mut limited: Vec<&Rule> = rules.iter().filter(|rule| !rule.networks.is_empty()).collect();
    limited.sort_by_key(|rule| rule.scope.len());
    let mut exceptions: Vec<Rule> = Vec::new();
    for rule in limited {
        for network in &rule.networks {
            let is = ("source".to_owned(), Match::Network(network.clone()));
            let scope: Vec<Condition> = rule.scope.iter().cloned().chain([is]).collect();
            if exceptions.iter().any(|wider| covers(&wider.scope, &scope)) {
                continue;
            }
            let inner =
                rules.iter().filter(|other| covers(&rule.scope, &other.scope) && !other.limits.is_empty());
            if inner.clone().all(|other| other.networks.contains(network)) && ScopeKeys::of(&scope).is_ok() {
                exceptions.push(Rule { line: rule.line, scope, ..Rule::default() });
            } else {
                found.omit(
                    rule.line,
                    network,
                    "slowlane cannot exempt a network from only some limits, or only below a path",
                );
            }
        }
    }
    exceptions
}

/// A map and its lines, each with a key and an id.
#[derive(Clone)]
pub(super) struct Map {
    pub(super) lookup: Lookup,
    rank: Rank,
    pub(super) lines: Vec<(String, u32)>,
}

/// The order of lookups: lookups by network first, then from the most specific lookup to the one for every request.
pub(super) type Rank = (bool, bool, Reverse<usize>, bool, Reverse<usize>, u8, usize);

/// A policy that is being built.
#[derive(Clone)]
pub(super) struct PolicyDraft {
    /// The names of the original's files.
    names: Rc<[String]>,
    /// The comment at the top of the config.
    restart: &'static str,
    /// The counter of each type, and the fields of its key.
    pub(super) types: BTreeMap<u16, (String, Vec<String>)>,
    /// The ids of SLOs, by their type and options.
    ids: BTreeMap<(u16, String), u32>,
    slos: String,
    pub(super) maps: Vec<Map>,
}

impl PolicyDraft {
    pub(super) fn new(names: &Rc<[String]>, restart: &'static str) -> PolicyDraft {
        let (types, ids, slos, maps) = Default::default();
        PolicyDraft { names: names.clone(), restart, types, ids, slos, maps }
    }

    /// The files, if the policy reader accepts them without a warning.
    pub(super) fn checked(&self) -> Result<Vec<ForeignFile>, String> {
        let (layout, files) = (self.layout()?, self.files());
        let read = |path: &Path| {
            let file = files.iter().find(|file| Path::new(&file.name) == path);
            file.map(|file| file.text.clone().into_bytes()).ok_or_else(|| io::ErrorKind::NotFound.into())
        };
        let policy = Policy::examine(Path::new(""), &layout, read)
            .map_err(|errors| errors.listed()[0].kind.to_string())?;
        match policy.warnings().listed().first() {
            None => Ok(files),
            Some(warning) => Err(warning.kind.to_string()),
        }
    }

    fn of(rules: &[Rule], names: &Rc<[String]>) -> Result<PolicyDraft, String> {
        let mut plan = PolicyDraft::new(names, RESTART);
        let mut scopes: BTreeMap<Vec<&Condition>, FileLine> = BTreeMap::new();
        let places = rules.iter().map(|rule| ScopeKeys::of(&rule.scope)).collect::<Result<Vec<_>, _>>()?;
        // A network precedes a website only if the map of networks is separate from the map for all requests.
        let is_apart = places.iter().any(|place| !place.is_for_all && !place.is_network_alone);
        let is_split = is_apart && places.iter().any(|place| place.is_network_alone);
        for (rule, mut place) in rules.iter().zip(places) {
            let mut scope: Vec<&Condition> = rule.scope.iter().collect();
            scope.sort();
            if let Some(line) = scopes.insert(scope, rule.line) {
                return Err(format!("{} already covers the same requests", line.shown(names)));
            }
            if place.is_for_all {
                place.name = if is_split { "source-all" } else { "source" }.to_owned();
            }
            plan.add(rule, &place)?;
        }
        plan.maps.sort_by_key(|map| map.rank);
        Ok(plan)
    }

    /// Adds a rule, with an SLO for each limit. Each SLO except the last names the next SLO's map in `also=`.
    fn add(&mut self, rule: &Rule, place: &ScopeKeys) -> Result<(), String> {
        if rule.limits.len() > CHAIN_MAX {
            return Err(format!("a request can have at most {CHAIN_MAX} SLOs"));
        }
        let map = |plan: &mut PolicyDraft, position, id| {
            let lines = place.keys.iter().map(|key| (key.clone(), id));
            plan.map(place.lookup(position), place.rank(position), lines);
        };
        if rule.limits.is_empty() {
            map(self, 0, 0);
        }
        for (position, limit) in rule.limits.iter().enumerate() {
            let is_last = position + 1 == rule.limits.len();
            let also = if is_last { String::new() } else { format!(" also={}", place.stem(position + 1)) };
            let id = self.slo(limit, limit.options.clone() + &also)?;
            map(self, position, id);
        }
        Ok(())
    }

    /// Adds a limit, and its lines to the map of a lookup with `also = true`. Lines with `false` lead to no SLO.
    pub(super) fn added(
        &mut self,
        limit: &Limit,
        lookup: &Lookup,
        lines: &[(String, bool)],
    ) -> Result<(), String> {
        let (mut alone, mut all) = (PolicyDraft::new(&self.names, self.restart), self.clone());
        for policy in [&mut alone, &mut all] {
            let id = policy.slo(limit, limit.options.clone())?;
            let lines = lines.iter().map(|(key, is_limited)| (key.clone(), if *is_limited { id } else { 0 }));
            policy.map(lookup.clone(), Rank::default(), lines);
        }
        alone.checked()?;
        all.layout()?;
        *self = all;
        Ok(())
    }

    /// The type of a limit: the built-in type for its key or, if there is none or another counter uses it, a new type.
    pub(super) fn type_of(&mut self, counter: &str, key: &[String]) -> Result<u16, String> {
        let mut key = key.to_vec();
        key.sort();
        if let Some(field) = key.iter().find(|field| !is_field(field)) {
            return Err(format!("{field:?} cannot be the name of a field"));
        }
        let counter = (counter.to_owned(), key.clone());
        if let Some((&kind, _)) = self.types.iter().find(|(_, of)| **of == counter) {
            return Ok(kind);
        }
        let built_in = ["", "owner", "website", "source", "owner+source", "source+website"];
        let built_in = built_in.iter().position(|fields| *fields == key.join("+")).map(|kind| kind as u16);
        let own = OWN_TYPES.filter(|_| !key.is_empty());
        let free = built_in.into_iter().chain(own).find(|kind| !self.types.contains_key(kind));
        let kind = free.ok_or("no type is free: the types 6 to 999 are in use")?;
        self.types.insert(kind, counter);
        Ok(kind)
    }

    /// The id of the SLO with these options for a limit. A new SLO is added to the policy.
    pub(super) fn slo(&mut self, limit: &Limit, options: String) -> Result<u32, String> {
        let kind = self.type_of(&limit.counter, &limit.key)?;
        if let Some(&id) = self.ids.get(&(kind, options.clone())) {
            return Ok(id);
        }
        let count = self.ids.range((kind, String::new())..(kind + 1, String::new())).count() as u32;
        if count == 999 {
            return Err(format!("no SLO id is free: type {kind} already has 999 SLOs"));
        }
        let id = u32::from(kind) * 1_000 + count + 1;
        self.slos += &format!("# {}: {}\n{id} {options}\n", limit.line.shown(&self.names), limit.quoted);
        self.ids.insert((kind, options), id);
        Ok(id)
    }

    /// Adds lines to the map of a lookup.
    pub(super) fn map(&mut self, lookup: Lookup, rank: Rank, lines: impl IntoIterator<Item = (String, u32)>) {
        match self.maps.iter_mut().find(|map| map.lookup.file == lookup.file) {
            Some(map) => {
                map.rank = map.rank.max(rank);
                map.lines.extend(lines);
            }
            None => self.maps.push(Map { lookup, rank, lines: lines.into_iter().collect() }),
        }
    }

    /// The lookups of the maps. `None` if the default lookups, in their order, are enough.
    fn lookups(&self) -> Option<Vec<Lookup>> {
        let own: Vec<Lookup> = self.maps.iter().map(|map| map.lookup.clone()).collect();
        let default = Layout::default();
        let mut left = default.lookups().iter();
        let is_default = own.iter().all(|lookup| left.any(|other| other == lookup));
        (!is_default).then_some(own)
    }

    fn layout(&self) -> Result<Layout, String> {
        let mut layout = Layout::default();
        for (&kind, (_, fields)) in self.types.range(OWN_TYPES) {
            layout = layout.with_type(kind, fields.clone()).map_err(|error| error.to_string())?;
        }
        match self.lookups() {
            Some(lookups) => layout.with_lookups(lookups).map_err(|error| error.to_string()),
            None => Ok(layout),
        }
    }

    /// The files, which the policy reader has not checked.
    pub(super) fn files(&self) -> Vec<ForeignFile> {
        let mut files = vec![ForeignFile {
            name: "slo.map".to_owned(),
            text: format!("0 rate=unlimited\n{}", self.slos),
        }];
        files.extend(self.maps.iter().map(|map| {
            // In a lookup with `also = true`, only -1 adds no SLO.
            let id = |id: u32| if map.lookup.is_added && id == 0 { "-1".to_owned() } else { id.to_string() };
            let lines = map.lines.iter().map(|&(ref key, of)| format!("{key} {}\n", id(of)));
            ForeignFile { name: map.lookup.file.display().to_string(), text: lines.collect() }
        }));
        files.push(ForeignFile { name: "slowlane.toml".to_owned(), text: self.toml() });
        files.retain(|file| !file.text.is_empty());
        files
    }

    /// The part of the config that the maps need.
    fn toml(&self) -> String {
        let mut toml = String::new();
        for (kind, (_, fields)) in self.types.range(OWN_TYPES) {
            let head = if toml.is_empty() { "[policy.types]\n" } else { "" };
            toml += &format!("{head}{kind} = {fields:?}\n");
        }
        for Lookup { fields, file, method, is_added } in self.lookups().unwrap_or_default() {
            let (file, method) = (file.display(), method.name());
            toml += &format!(
                "\n[[policy.lookups]]\nfields = {fields:?}\nmap = \"{file}\"\nmatch = \"{method}\"\n"
            );
            toml += if is_added { "also = true\n" } else { "" };
        }
        if toml.is_empty() { toml } else { self.restart.to_owned() + &toml }
    }
}

/// The lookup of a scope, and the keys of the scope in its map.
struct ScopeKeys {
    fields: Vec<String>,
    method: Method,
    keys: Vec<String>,
    /// The name of the first map, without `.map`.
    name: String,
    exacts: usize,
    is_for_all: bool,
    is_network_alone: bool,
}

impl ScopeKeys {
    fn of(scope: &[Condition]) -> Result<ScopeKeys, String> {
        // Every request has a source and a website, so `Any` does not restrict them.
        let is_given =
            |(field, is): &&Condition| *is != Match::Any || !["source", "website"].contains(&field.as_str());
        let is_alone = scope.len() < 2;
        let mut scope: Vec<&Condition> =
            scope.iter().filter(|condition| is_alone || is_given(condition)).collect();
        scope.sort_by_key(|(_, is)| is.rank());
        let count = |rank: u8| scope.iter().filter(|(_, is)| is.rank() == rank).count();
        let [networks, exacts, prefixes, anys] = [0, 1, 2, 3].map(count);
        let fields: Vec<String> = scope.iter().map(|(field, _)| field.clone()).collect();
        let is_twice = fields.iter().collect::<BTreeSet<_>>().len() < fields.len();
        if is_twice || prefixes > 1 || networks > 0 && prefixes + anys > 0 {
            return Err("one map cannot match all of these conditions".to_owned());
        }
        if let Some(field) = fields.iter().find(|field| !is_field(field)) {
            return Err(format!("{field:?} cannot be the name of a field"));
        }
        let values: Vec<&str> = scope.iter().filter_map(|(_, is)| is.value()).collect();
        if let Some(value) = values.iter().find(|value| !is_key(value)) {
            return Err(format!("{value:?} cannot be part of a key in a map"));
        }
        let is_for_all = values.is_empty() && (fields.is_empty() || fields == ["source"]);
        let key = values.join("+");
        let (method, ending, keys) = match () {
            _ if is_for_all => (Method::Ip, "", vec!["0.0.0.0/0".to_owned(), "::/0".to_owned()]),
            _ if networks > 0 => (Method::Ip, "", vec![key]),
            _ if prefixes + anys == 0 => (Method::Str, "", vec![key]),
            _ if values.is_empty() => (Method::Reg, "-any", vec![".".to_owned()]),
            _ if prefixes == 0 => (Method::Beg, "-prefix", vec![key + "+"]),
            _ => (Method::Beg, "-prefix", vec![key]),
        };
        let is_network_alone = networks > 0 && exacts == 0;
        let name = fields.join("+") + ending;
        let fields = if is_for_all { vec!["source".to_owned()] } else { fields };
        Ok(ScopeKeys { fields, method, keys, name, exacts, is_for_all, is_network_alone })
    }

    /// The name, without `.map`, of the map for the SLO at this position in a chain.
    fn stem(&self, position: usize) -> String {
        if position == 0 { self.name.clone() } else { format!("{}-{}", self.name, position + 1) }
    }

    fn lookup(&self, position: usize) -> Lookup {
        let file = PathBuf::from(self.stem(position) + ".map");
        Lookup { fields: self.fields.clone(), file, method: self.method, is_added: false }
    }

    fn rank(&self, position: usize) -> Rank {
        let has = |name: &str| self.fields.iter().any(|field| field == name);
        let is_network = self.method == Method::Ip && !self.is_for_all;
        let (exacts, fields) = (Reverse(self.exacts), Reverse(self.fields.len()));
        (self.is_for_all, !is_network, exacts, !has("website"), fields, self.method as u8, position)
    }
}

/// Whether a name can be a field in the config and a part of the name of a map.
pub(super) fn is_field(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (1..=64).contains(&name.len()) && name.bytes().all(is_plain) && !name.starts_with(['-', '.'])
}

/// Whether a value can be a part of a key: a blank would end the key, `#` begin a comment, and `+` divide the key.
pub(super) fn is_key(value: &str) -> bool {
    let is_plain =
        |letter: char| !letter.is_whitespace() && !['+', char::REPLACEMENT_CHARACTER].contains(&letter);
    (1..=1_000).contains(&value.len())
        && value.chars().all(is_plain)
        && !value.starts_with('#')
        && shown(value) == value
}
