//! The type of an SLO by the fields of its keys, with its map and its policies.

use std::path::Path;
use std::str::FromStr;

use crate::advise::AdviseError;
use slowlane_core::policy::{Layout, Lookup, Method, Policy};

/// The thousands digits of the types that an operator may declare.
const OWN_TYPES: std::ops::RangeInclusive<u8> = 6..=9;

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

    pub(super) fn is(&self, name: &str) -> bool {
        self.0 == name
    }

    pub(super) fn fields(&self) -> impl Iterator<Item = &str> {
        self.0.split('+')
    }

    /// The field whose map names the SLO. Clients must not choose their buckets, so only a source may be taken as it
    /// comes.
    pub(super) fn looked_up(&self) -> &str {
        self.0.strip_prefix("source+").unwrap_or(&self.0)
    }

    /// The thousands digits of some types: of the built-in ones, and from 6 on those that the operator has to declare.
    pub(super) fn digits(types: &[By]) -> Vec<u8> {
        let mut own = 6..;
        let digit = |by: &By| match by.name() {
            "owner" => 1,
            "website" => 2,
            "source" => 3,
            "source+owner" => 4,
            "source+website" => 5,
            _ => own.next().unwrap_or(u8::MAX),
        };
        types.iter().map(digit).collect()
    }

    /// The lines of the map: every address, or these values.
    pub(super) fn lines(&self, id: u16, values: &[String]) -> String {
        match self.is("source") {
            true => format!("0.0.0.0/0 {id}\n::/0 {id}\n"),
            false => values.iter().map(|value| format!("{value} {id}\n")).collect(),
        }
    }

    /// The lines that declare a type of your own and its map.
    pub(super) fn config(&self, digit: u8) -> String {
        if !OWN_TYPES.contains(&digit) {
            return String::new();
        }
        let (field, fields) = (self.looked_up(), self.fields().collect::<Vec<_>>());
        format!(
            "[policy.types]\n{digit} = {fields:?}\n\n# Lookups replace the built-in ones: repeat here those that you use.\n\
             [[policy.lookups]]\nfields = [{field:?}]\nmap = \"{field}.map\"\nmatch = \"str\"\n"
        )
    }

    /// A policy with one SLO of the type, for the requests that a line matches.
    pub(super) fn policy(
        &self,
        digit: u8,
        slo: &str,
        method: Method,
        lines: &str,
    ) -> Result<Policy, AdviseError> {
        let (field, fields) = (self.looked_up().to_owned(), self.fields().map(str::to_owned).collect());
        let method = if self.is("source") { Method::Ip } else { method };
        let lookup = Lookup { file: format!("{field}.map").into(), fields: vec![field], method };
        let layout = Layout::default().with_type(digit, fields)?.with_lookups(vec![lookup])?;
        let slo_map = format!("0 rate=unlimited\n{slo}\n");
        let read = |path: &Path| Ok(if path == Path::new("slo.map") { &*slo_map } else { lines }.into());
        Ok(Policy::parse(Path::new(""), &layout, read)?)
    }
}
