//! An SLO type, defined by the fields of its keys, with its map and its policies.

use std::collections::HashMap;
use std::path::Path;
use std::str::FromStr;

use serde::Serialize;

use crate::advise::AdviseError;
use slowlane_core::base::shown;
use slowlane_core::policy::{Layout, Lookup, Method, Policy, expression_of};

/// The numbers of types that an operator may declare.
const OWN_TYPES: std::ops::RangeInclusive<u16> = 6..=999;

/// The fields that make up a key: `source`, `website`, `source+website`, or your own field in place of `website`.
///
/// ```
/// use slowlane_lab::advise::By;
/// assert!(["source", "owner", "source+api_key"].iter().all(|text| text.parse::<By>().is_ok()));
/// assert!(["", "website+owner", "source+"].iter().all(|text| text.parse::<By>().is_err()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct By(String);

/// The lines to paste for an SLO of one type.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ProposedLines {
    /// The line of `slo.map`.
    pub slo_line: String,
    /// The name of the map.
    pub map: String,
    pub map_lines: String,
    /// The config lines that a user-defined type or a map of expressions needs. Empty if neither is used.
    pub config: String,
}

impl FromStr for By {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<By, &'static str> {
        let field = text.strip_prefix("source+").unwrap_or(text);
        if field.is_empty() || field.contains('+') {
            return Err("expected a field, or source and a field, like website or source+website");
        }
        Ok(By(text.to_owned()))
    }
}

impl By {
    pub(super) fn usual() -> Vec<By> {
        ["source", "website", "owner"].map(|field| By(field.to_owned())).to_vec()
    }

    pub(super) fn name(&self) -> &str {
        &self.0
    }

    pub(super) fn fields(&self) -> impl Iterator<Item = &str> {
        self.0.split('+')
    }

    /// The field whose map names the SLO. Clients must not choose their buckets, so the map lists every value, except
    /// addresses.
    pub(super) fn looked_up(&self) -> &str {
        match self.name() {
            "network" => "source",
            name => name.strip_prefix("source+").unwrap_or(name),
        }
    }

    /// Whether the lines of the type's map contain addresses and networks.
    pub(super) fn is_by_address(&self) -> bool {
        self.looked_up() == "source"
    }

    /// The keys of the map lines that match these values, and the method by which they match.
    fn keys(&self, values: &[String]) -> (Method, Vec<String>) {
        match self.is_by_address() || values.iter().all(|value| is_plain(value)) {
            true => (Method::Str, values.to_vec()),
            false => (Method::Reg, values.iter().map(|value| expression(value)).collect()),
        }
    }

    /// The numbers of these types: fixed for built-in types, and assigned for types that the operator has to declare. A
    /// map has one SLO for each value, so each type needs its own map.
    pub(super) fn digits(types: &[By]) -> Result<Vec<u16>, AdviseError> {
        let (mut own, mut maps) = (OWN_TYPES, HashMap::new());
        let mut digit = |by: &By| {
            if let Some(other) = maps.insert(by.looked_up().to_owned(), by.0.clone()) {
                return Err(AdviseError::SameMap(other, by.0.clone()));
            }
            Ok(match by.name() {
                "owner" => 1,
                "website" => 2,
                "source" => 3,
                "source+owner" => 4,
                "source+website" => 5,
                _ => own.next().expect("a command line has fewer types"),
            })
        };
        types.iter().map(&mut digit).collect()
    }

    /// The name of the map. A map of expressions has a different name from the field's built-in map.
    fn map(&self, method: Method) -> String {
        let field = self.looked_up();
        if method == Method::Reg { format!("{field}-reg.map") } else { format!("{field}.map") }
    }

    /// The lines of the map: one line for each of these keys or, if there are no keys, lines for every address.
    fn map_lines(id: u32, keys: &[String]) -> String {
        match keys {
            [] => format!("0.0.0.0/0 {id}\n::/0 {id}\n"),
            keys => keys.iter().map(|key| format!("{key} {id}\n")).collect(),
        }
    }

    /// The config lines that declare a user-defined type, and a map that is not built in.
    fn config(&self, digit: u16, method: Method) -> String {
        let (field, fields) = (self.looked_up(), self.fields().collect::<Vec<_>>());
        let is_own = OWN_TYPES.contains(&digit);
        let mut lines = String::new();
        if is_own {
            lines += &format!("[policy.types]\n{digit} = {fields:?}\n\n");
        }
        if is_own && !self.is_by_address() || method == Method::Reg {
            lines += &format!(
                "# These lookups replace the built-in lookups: add the built-in lookups that you \
                 use.\n[[policy.lookups]]\nfields = [{field:?}]\nmap = {:?}\nmatch = {:?}\n",
                self.map(method),
                method.name()
            );
        }
        lines
    }

    /// The lines for these values or, without values, for every address, and a policy to which the SLO is applied.
    pub(super) fn proposed(
        &self,
        digit: u16,
        objective: &str,
        values: &[String],
    ) -> Result<(ProposedLines, Policy), AdviseError> {
        let id = By::id(digit);
        let (method, keys) = self.keys(values);
        let (slo, map_lines) = (format!("{id} {objective}"), By::map_lines(id, &keys));
        let policy = self.policy(digit, &slo, method, &map_lines)?;
        let (slo_line, config) = (format!("{slo} dry_run=yes"), self.config(digit, method));
        Ok((ProposedLines { slo_line, map: self.map(method), map_lines, config }, policy))
    }

    /// A policy in which every request with the fields of the type falls under the type's SLO.
    pub(super) fn policy_of_all(&self, digit: u16) -> Result<Policy, AdviseError> {
        let id = By::id(digit);
        // Any value that is not empty.
        let keys: &[String] = if self.is_by_address() { &[] } else { &[".".to_owned()] };
        self.policy(digit, &format!("{id} burst=1 rate=1/s"), Method::Reg, &By::map_lines(id, keys))
    }

    /// The id of the SLO of a type.
    pub(super) fn id(digit: u16) -> u32 {
        u32::from(digit) * 1_000 + 1
    }

    /// A policy with one SLO of the type, for requests that a line of its map matches. Other requests are unlimited.
    fn policy(&self, digit: u16, slo: &str, method: Method, lines: &str) -> Result<Policy, AdviseError> {
        let (field, fields) = (self.looked_up().to_owned(), self.fields().map(str::to_owned).collect());
        let method = if self.is_by_address() { Method::Ip } else { method };
        let lookup =
            Lookup { file: format!("{field}.map").into(), fields: vec![field], method, is_added: false };
        let layout = Layout::default().with_type(digit, fields)?.with_lookups(vec![lookup])?;
        let slo_map = format!("0 rate=unlimited\n{slo}\n");
        let read = |path: &Path| Ok(if path == Path::new("slo.map") { &*slo_map } else { lines }.into());
        Ok(Policy::parse(Path::new(""), &layout, read)?)
    }
}

/// Whether a map line can contain the value unchanged, with no blanks and nothing that a check would warn about.
fn is_plain(value: &str) -> bool {
    !value.contains([' ', '#', '*', '\\', '"', '\'']) && shown(value) == value
}

/// A longer value is matched by its beginning, because the automaton of an expression has a maximum size.
const EXPRESSION_LETTERS_MAX: usize = 200;

/// The regular expression for one value, written without blanks.
fn expression(value: &str) -> String {
    match value.char_indices().nth(EXPRESSION_LETTERS_MAX) {
        Some((end, _)) => format!("^{}", expression_of(&value[..end])),
        None => format!("^{}$", expression_of(value)),
    }
}
