//! The type of an SLO by the fields of its keys, with its map and its policies.

use std::collections::HashMap;
use std::path::Path;
use std::str::FromStr;

use crate::advise::AdviseError;
use slowlane_core::base::shown;
use slowlane_core::policy::{Layout, Lookup, Method, Policy, expression_of};

/// The types that an operator may declare.
const OWN_TYPES: std::ops::RangeInclusive<u16> = 6..=999;

/// The fields that make up a key: `source`, `website`, `source+website`, or a field of your own in place of `website`.
///
/// ```
/// use slowlane_lab::advise::By;
/// assert!(["source", "owner", "source+api_key"].iter().all(|text| text.parse::<By>().is_ok()));
/// assert!(["", "website+owner", "source+"].iter().all(|text| text.parse::<By>().is_err()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct By(String);

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

    /// The field whose map names the SLO. Clients must not choose their buckets, so only a source may be taken as it
    /// comes.
    pub(super) fn looked_up(&self) -> &str {
        match self.name() {
            "network" => "source",
            name => name.strip_prefix("source+").unwrap_or(name),
        }
    }

    /// Whether the lines of its map are addresses and networks.
    pub(super) fn is_by_address(&self) -> bool {
        self.looked_up() == "source"
    }

    /// The keys of the lines for these values, and how they match.
    pub(super) fn keys(&self, values: &[String]) -> (Method, Vec<String>) {
        match self.is_by_address() || values.iter().all(|value| is_plain(value)) {
            true => (Method::Str, values.to_vec()),
            false => (Method::Reg, values.iter().map(|value| expression(value)).collect()),
        }
    }

    /// The numbers of some types: of the built-in ones, and of those that the operator has to declare. A map
    /// has one SLO for a value, so each type needs its own map.
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
                _ => own.next().expect("a command line has fewer"),
            })
        };
        types.iter().map(&mut digit).collect()
    }

    /// The name of the map. A map of expressions is another one than the built-in map of the field.
    pub(super) fn map(&self, method: Method) -> String {
        let field = self.looked_up();
        if method == Method::Reg { format!("{field}-reg.map") } else { format!("{field}.map") }
    }

    /// The lines of the map: every address, or these values.
    pub(super) fn lines(&self, id: u32, values: &[String]) -> String {
        match self.is_by_address() {
            true => format!("0.0.0.0/0 {id}\n::/0 {id}\n"),
            false => values.iter().map(|value| format!("{value} {id}\n")).collect(),
        }
    }

    /// The lines that declare a type of your own, and a map that is not built in.
    pub(super) fn config(&self, digit: u16, method: Method) -> String {
        let (field, fields) = (self.looked_up(), self.fields().collect::<Vec<_>>());
        let is_own = OWN_TYPES.contains(&digit);
        let mut lines = String::new();
        if is_own {
            lines += &format!("[policy.types]\n{digit} = {fields:?}\n\n");
        }
        if is_own && !self.is_by_address() || method == Method::Reg {
            lines += &format!(
                "# Lookups replace the built-in ones: repeat here those that you use.\n[[policy.lookups]]\nfields = \
                 [{field:?}]\nmap = {:?}\nmatch = {:?}\n",
                self.map(method),
                method.name()
            );
        }
        lines
    }

    /// A policy with one SLO of the type, for the requests that a line matches.
    pub(super) fn policy(
        &self,
        digit: u16,
        slo: &str,
        method: Method,
        lines: &str,
    ) -> Result<Policy, AdviseError> {
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

/// Whether a line can have the value as it is: without blanks, and without what a check would warn of.
fn is_plain(value: &str) -> bool {
    !value.contains([' ', '#', '*', '\\', '"', '\'']) && shown(value) == value
}

/// Longer values are matched by their beginning: the automaton of an expression is bounded.
const EXPRESSION_LETTERS_MAX: usize = 200;

/// The expression of one value, without blanks.
fn expression(value: &str) -> String {
    match value.char_indices().nth(EXPRESSION_LETTERS_MAX) {
        Some((end, _)) => format!("^{}", expression_of(&value[..end])),
        None => format!("^{}$", expression_of(value)),
    }
}
