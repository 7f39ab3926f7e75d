//! Which fields make up the key of a type, and which lookups name the SLO of a request, in which order.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::base::request::FIELDS_MAX;

/// The file of the SLOs.
const SLO_MAP: &str = "slo.map";

/// How the keys of a map are held against a value, by HAProxy's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The key is the value.
    Str,
    /// The key is a network that the address lies in; the longest prefix wins.
    Ip,
    /// The value begins with the key; the longest key wins.
    Beg,
    /// The value ends with the key; the first line wins.
    End,
    /// The key is one or more whole words of the value, between `/`, `?`, `.` and `:`; the first line wins.
    Dom,
    /// The key is a regular expression that matches anywhere in the value; the first line wins.
    Reg,
}

impl Method {
    pub const ALL: [Method; 6] =
        [Method::Str, Method::Ip, Method::Beg, Method::End, Method::Dom, Method::Reg];

    /// ```
    /// use slowlane::policy::Method;
    /// assert_eq!(Method::named("beg"), Some(Method::Beg));
    /// assert_eq!(Method::named("sub"), None);
    /// ```
    pub fn named(name: &str) -> Option<Method> {
        Method::ALL.into_iter().find(|method| method.name() == name)
    }

    pub const fn name(self) -> &'static str {
        match self {
            Method::Str => "str",
            Method::Ip => "ip",
            Method::Beg => "beg",
            Method::End => "end",
            Method::Dom => "dom",
            Method::Reg => "reg",
        }
    }
}

/// A map, and the fields whose values, joined by `+`, are looked up in it.
///
/// With [`Method::Ip`] the first field is matched as an address, and the others exactly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    pub fields: Vec<String>,
    /// Relative to the policy's directory.
    pub file: PathBuf,
    pub method: Method,
}

impl Lookup {
    /// `source+website`: what a line of the map begins with.
    pub fn name(&self) -> String {
        self.fields.join("+")
    }

    fn built_in(fields: &[&str], method: Method) -> Lookup {
        let file = PathBuf::from(format!("{}.map", fields.join("+")));
        Lookup { fields: owned(fields), file, method }
    }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// A layout that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LayoutError {
    #[error("type {0}: expected 1 to 9; type 0 is one bucket for all and has no fields")]
    Type(u8),
    #[error("no fields: name at least one")]
    NoFields,
    #[error("a field without a name")]
    Unnamed,
    #[error("more than {FIELDS_MAX} fields in all, the most that a request carries")]
    TooManyFields,
    #[error("{}: {}", .0.display(), "two lookups cannot share a file, nor have slo.map")]
    File(PathBuf),
    #[error("prefix {prefix}: expected 0 to {max}")]
    Prefix { prefix: u8, max: u8 },
}

/// The types, the lookups, and how much of an address is a customer.
///
/// The default is the six built-in types and their five lookups, the most specific first.
///
/// ```
/// use slowlane::policy::{Layout, Lookup, Method};
///
/// let mut lookups = Layout::default().lookups().to_vec();
/// let fields = vec!["api_key".to_owned()];
/// lookups.insert(0, Lookup { fields: fields.clone(), file: "api_key.map".into(), method: Method::Str });
/// let layout = Layout::default().with_type(6, fields).unwrap().with_lookups(lookups).unwrap();
/// assert_eq!(layout.files("maps".as_ref())[1].to_str(), Some("maps/api_key.map"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    lookups: Vec<Lookup>,
    types: BTreeMap<u8, Vec<String>>,
    ipv4_prefix: u8,
    ipv6_prefix: u8,
}

impl Default for Layout {
    fn default() -> Layout {
        let types: [&[&str]; 6] =
            [&[], &["owner"], &["website"], &["source"], &["source", "owner"], &["source", "website"]];
        Layout {
            lookups: vec![
                Lookup::built_in(&["source", "website"], Method::Ip),
                Lookup::built_in(&["source", "owner"], Method::Ip),
                Lookup::built_in(&["source"], Method::Ip),
                Lookup::built_in(&["website"], Method::Str),
                Lookup::built_in(&["owner"], Method::Str),
            ],
            types: (0..).zip(types.into_iter().map(owned)).collect(),
            ipv4_prefix: 32,
            // What one customer is given: with less of it, one machine is as many sources as it likes.
            ipv6_prefix: 64,
        }
    }
}

impl Layout {
    /// These lookups instead, in this order; the first whose map answers decides.
    pub fn with_lookups(mut self, lookups: Vec<Lookup>) -> Result<Layout, LayoutError> {
        let mut files = BTreeSet::from([Path::new(SLO_MAP)]);
        for lookup in &lookups {
            Layout::check_names(&lookup.fields)?;
            if !files.insert(&lookup.file) {
                return Err(LayoutError::File(lookup.file.clone()));
            }
        }
        self.lookups = lookups;
        self.checked()
    }

    /// A type of its own, 1 to 9, or a built-in one with other fields.
    pub fn with_type(mut self, kind: u8, fields: Vec<String>) -> Result<Layout, LayoutError> {
        if !(1..=9).contains(&kind) {
            return Err(LayoutError::Type(kind));
        }
        Layout::check_names(&fields)?;
        self.types.insert(kind, fields);
        self.checked()
    }

    /// How many leading bits of an address become part of a key.
    pub fn with_prefixes(mut self, ipv4: u8, ipv6: u8) -> Result<Layout, LayoutError> {
        for (prefix, max) in [(ipv4, 32), (ipv6, 128)] {
            if prefix > max {
                return Err(LayoutError::Prefix { prefix, max });
            }
        }
        (self.ipv4_prefix, self.ipv6_prefix) = (ipv4, ipv6);
        Ok(self)
    }

    /// Whether these can be the fields of a lookup or of a type.
    pub fn check_names(fields: &[String]) -> Result<(), LayoutError> {
        match fields {
            [] => Err(LayoutError::NoFields),
            fields if fields.iter().any(String::is_empty) => Err(LayoutError::Unnamed),
            _ => Ok(()),
        }
    }

    pub fn lookups(&self) -> &[Lookup] {
        &self.lookups
    }

    /// The fields of a type; none of a type that is not declared.
    pub fn type_fields(&self, kind: u8) -> &[String] {
        self.types.get(&kind).map_or(&[], Vec::as_slice)
    }

    pub fn ipv4_prefix(&self) -> u8 {
        self.ipv4_prefix
    }

    pub fn ipv6_prefix(&self) -> u8 {
        self.ipv6_prefix
    }

    /// The files that a policy in `dir` is read from, `slo.map` first, then each lookup's map in order.
    pub fn files(&self, dir: &Path) -> Vec<PathBuf> {
        let maps = self.lookups.iter().map(|lookup| dir.join(&lookup.file));
        std::iter::once(dir.join(SLO_MAP)).chain(maps).collect()
    }

    pub(super) fn has_lookup(&self, name: &str) -> bool {
        self.lookups.iter().any(|lookup| lookup.name() == name)
    }

    /// `source, website`
    pub(super) fn lookup_list(&self) -> String {
        self.lookups.iter().map(Lookup::name).collect::<Vec<_>>().join(", ")
    }

    pub(super) fn has_type(&self, kind: u8) -> bool {
        self.types.contains_key(&kind)
    }

    /// `0, 1, 2`
    pub(super) fn type_list(&self) -> String {
        self.types.keys().map(u8::to_string).collect::<Vec<_>>().join(", ")
    }

    /// Every field that a lookup or a type names, each once.
    pub(super) fn field_names(&self) -> BTreeSet<&str> {
        let looked_up = self.lookups.iter().flat_map(|lookup| &lookup.fields);
        looked_up.chain(self.types.values().flatten()).map(String::as_str).collect()
    }

    /// Whether a field is an address, even where a proxy sends it as text.
    pub(super) fn is_address(&self, name: &str) -> bool {
        let is_network = |lookup: &Lookup| lookup.method == Method::Ip && lookup.fields[0] == name;
        name == "source" || self.lookups.iter().any(is_network)
    }

    fn checked(self) -> Result<Layout, LayoutError> {
        if self.field_names().len() > FIELDS_MAX { Err(LayoutError::TooManyFields) } else { Ok(self) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(fields: &[&str], file: &str) -> Lookup {
        Lookup { fields: owned(fields), file: file.into(), method: Method::Str }
    }

    #[test]
    fn the_built_in_layout_is_the_page_of_the_design() {
        let layout = Layout::default();
        let names: Vec<_> = layout.lookups().iter().map(Lookup::name).collect();
        assert_eq!(names, ["source+website", "source+owner", "source", "website", "owner"]);
        let files = layout.files(Path::new("maps"));
        assert_eq!(files[0], Path::new("maps/slo.map"));
        assert_eq!(files[1], Path::new("maps/source+website.map"));
        assert_eq!(layout.type_fields(5), ["source", "website"]);
        assert_eq!(layout.type_fields(0), [""; 0]);
        assert_eq!(layout.type_list(), "0, 1, 2, 3, 4, 5");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let layout = Layout::default;
        assert_eq!(layout().with_type(0, owned(&["source"])), Err(LayoutError::Type(0)));
        assert_eq!(layout().with_type(10, owned(&["source"])), Err(LayoutError::Type(10)));
        assert_eq!(layout().with_type(6, vec![]), Err(LayoutError::NoFields));
        assert_eq!(layout().with_lookups(vec![lookup(&[""], "a.map")]), Err(LayoutError::Unnamed));
        let twice = vec![lookup(&["a"], "a.map"), lookup(&["b"], "a.map")];
        assert_eq!(layout().with_lookups(twice), Err(LayoutError::File("a.map".into())));
        let slo_map = vec![lookup(&["a"], "slo.map")];
        assert_eq!(layout().with_lookups(slo_map), Err(LayoutError::File("slo.map".into())));
        assert_eq!(layout().with_prefixes(33, 64), Err(LayoutError::Prefix { prefix: 33, max: 32 }));
        let many: Vec<String> = (0..FIELDS_MAX).map(|number| format!("field{number}")).collect();
        assert_eq!(layout().with_type(9, many), Err(LayoutError::TooManyFields));
    }
}
