//! The layout: the fields of each type's key and, in order, the lookups that name the SLO of a request.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::base::{CHAIN_MAX, FIELDS_MAX, JUDGED_MAX, SloId, date::WallShift};

/// The largest type: the thousands of the largest id.
const TYPE_MAX: u16 = (SloId::END / 1000 - 1) as u16;

/// The maximum number of lookups that add an SLO.
const ADDED_MAX: usize = JUDGED_MAX - CHAIN_MAX;

/// The file with the SLOs.
const SLO_MAP: &str = "slo.map";

/// Whether a field is the host of a request. Case, a final dot and a port make no difference in a host.
pub(super) fn is_host(field: &str) -> bool {
    field == "website"
}

/// Whether a field is a host followed by a path, like HAProxy's `base`.
pub(super) fn is_base(field: &str) -> bool {
    field == "base"
}

/// Whether the proxy files, as shipped or as printed for a policy, send a field with this name.
pub(super) fn is_known(field: &str) -> bool {
    const KNOWN: [&str; 13] = [
        "source",
        "website",
        "owner",
        "method",
        "path",
        "query",
        "url",
        "base",
        "user_agent",
        "referer",
        "origin",
        "domain",
        "descriptor",
    ];
    let word = field.to_ascii_lowercase().replace('-', "_");
    KNOWN.contains(&word.as_str()) || word.starts_with("x_")
}

/// The match methods of a map, with HAProxy's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// The value equals the key.
    Str,
    /// The address lies in the network that is the key. The longest prefix wins.
    Ip,
    /// The value begins with the key. The longest key wins.
    Beg,
    /// The value ends with the key. The first line wins.
    End,
    /// The key is one or more whole words of the value, delimited by `/`, `?`, `.` or `:`. The first line wins.
    Dom,
    /// The key occurs anywhere in the value. The first line wins.
    Sub,
    /// The key is a regular expression that matches anywhere in the value. The first line wins.
    Reg,
}

impl Method {
    pub const ALL: [Method; 7] =
        [Method::Str, Method::Ip, Method::Beg, Method::End, Method::Dom, Method::Sub, Method::Reg];

    /// The names, in the order of [`ALL`](Method::ALL).
    const NAMES: [&'static str; 7] = ["str", "ip", "beg", "end", "dom", "sub", "reg"];

    /// ```
    /// use slowlane_core::policy::Method;
    /// assert_eq!(Method::ALL.map(Method::name), ["str", "ip", "beg", "end", "dom", "sub", "reg"]);
    /// ```
    pub const fn name(self) -> &'static str {
        Method::NAMES[self as usize]
    }
}

/// A map, and the fields whose values, joined by `+`, are looked up in the map.
///
/// With [`Method::Ip`], the first field is matched as an address, and the others exactly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    pub fields: Vec<String>,
    /// The path of the map, relative to the policy's directory.
    pub file: PathBuf,
    pub method: Method,
    /// Whether the map is always consulted, and adds its SLO to the request's SLOs.
    pub is_added: bool,
}

impl Lookup {
    /// The names of the lookup's fields, joined by `+`, like `source+website`.
    pub fn name(&self) -> String {
        self.fields.join("+")
    }

    /// The name of the lookup's map file, without `.map`.
    fn file_name(&self) -> String {
        let file = self.file.to_string_lossy();
        file.strip_suffix(".map").unwrap_or(&file).to_owned()
    }

    fn built_in(fields: &[&str], method: Method) -> Lookup {
        let file = PathBuf::from(format!("{}.map", fields.join("+")));
        Lookup { fields: owned(fields), file, method, is_added: false }
    }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// An invalid layout.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LayoutError {
    #[error("type {0}: expected 1 to {TYPE_MAX}; type 0 is one bucket for all requests and has no fields")]
    Type(u16),
    #[error("no fields: name at least one")]
    NoFields,
    #[error("a field has an empty name: expected a name, like source")]
    Unnamed,
    #[error("at most {ADDED_MAX} lookups may have also = true: remove also = true from some lookups")]
    TooManyAdded,
    #[error("a request may have at most {FIELDS_MAX} fields in all: name fewer")]
    TooManyFields,
    #[error("{}: {}", .0.display(), "slo.map or another map already uses this file: name a different file")]
    File(PathBuf),
    #[error("derived field {0}: expected map and match, or ipv4_prefix and ipv6_prefix")]
    Derivation(String),
    #[error(
        "derived field {0}: expected a name other than source and, as its origin, a field that the proxy sends"
    )]
    DerivedTwice(String),
    #[error("prefix {prefix}: expected 0 to {max}")]
    Prefix { prefix: u8, max: u8 },
    #[error(
        "prefix of type {0}: the key of this type has no address: add the source field to the type, or \
         remove the prefix"
    )]
    NoAddress(u16),
}

/// The types, the lookups, and the address prefixes that identify a customer.
///
/// The default layout has the six built-in types and their five lookups, with the most specific lookup first.
///
/// ```
/// use slowlane_core::policy::{Layout, Lookup, Method};
///
/// let mut lookups = Layout::default().lookups().to_vec();
/// let fields = vec!["api_key".to_owned()];
/// lookups.insert(0, Lookup { fields: fields.clone(), file: "api_key.map".into(), method: Method::Str, is_added: false });
/// let layout = Layout::default().with_type(6, fields).unwrap().with_lookups(lookups).unwrap();
/// assert_eq!(layout.files("maps".as_ref())[1].to_str(), Some("maps/api_key.map"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    lookups: Vec<Lookup>,
    types: BTreeMap<u16, Vec<String>>,
    pub(super) ipv4_prefix: u8,
    pub(super) ipv6_prefix: u8,
    /// The prefix lengths, for IPv4 and IPv6, of the types that have their own.
    prefixes: BTreeMap<u16, (Option<u8>, Option<u8>)>,
    /// The derived fields, by name.
    pub(super) derived: BTreeMap<String, Derivation>,
    /// Fields that requests carry only to be ranked.
    pub(super) ranked: Vec<String>,
    /// The wall clock that calendar quotas follow.
    pub(super) wall: WallShift,
}

/// How slowlane derives a field from another field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Derivation {
    /// The network of an address, given the number of leading bits for IPv4 and IPv6.
    Network { from: String, ipv4_prefix: u8, ipv6_prefix: u8 },
    /// The value on the matching line of a map. The lookup's first field is the origin of the derived field.
    Map(Lookup),
}

impl Derivation {
    /// The built-in `network` field, with the prefix lengths of the networks that registries assign.
    fn network() -> (String, Derivation) {
        let network = Derivation::Network { from: "source".into(), ipv4_prefix: 24, ipv6_prefix: 48 };
        ("network".into(), network)
    }

    /// A derivation by a map in which the values of the field `from` are looked up.
    pub fn map(from: &str, file: PathBuf, method: Method) -> Derivation {
        Derivation::Map(Lookup { fields: vec![from.to_owned()], file, method, is_added: false })
    }

    /// The origin: the field from which the derived field is made.
    pub fn from(&self) -> &str {
        match self {
            Derivation::Network { from, .. } => from,
            Derivation::Map(lookup) => &lookup.fields[0],
        }
    }

    pub(super) fn lookup(&self) -> Option<&Lookup> {
        if let Derivation::Map(lookup) = self { Some(lookup) } else { None }
    }

    /// Whether the derived field is made from this field, and needs this field to be an address.
    pub(super) fn needs_address(&self, field: &str) -> bool {
        self.from() == field && self.lookup().is_none_or(|lookup| lookup.method == Method::Ip)
    }
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
            // One customer usually has a /64. With longer prefixes, one machine could appear as many sources.
            ipv6_prefix: 64,
            prefixes: BTreeMap::new(),
            derived: BTreeMap::from([Derivation::network()]),
            ranked: Vec::new(),
            wall: WallShift::default(),
        }
    }
}

impl Layout {
    /// Replaces the lookups. The first lookup whose map answers names the request's own SLO; lookups with
    /// `is_added` add more SLOs.
    ///
    /// # Errors
    /// Lookups without fields or with empty names, too many lookups that add SLOs, two maps with the same
    /// file, or too many fields.
    pub fn with_lookups(mut self, lookups: Vec<Lookup>) -> Result<Layout, LayoutError> {
        for lookup in &lookups {
            Layout::check_names(&lookup.fields)?;
        }
        if lookups.iter().filter(|lookup| lookup.is_added).count() > ADDED_MAX {
            return Err(LayoutError::TooManyAdded);
        }
        self.lookups = lookups;
        self.checked()
    }

    /// Adds a derived field, or replaces a built-in one. A request's own field of this name is ignored.
    ///
    /// ```
    /// use slowlane_core::policy::{Derivation, Layout, Method};
    /// let asn = |from| Derivation::map(from, "asn.map".into(), Method::Ip);
    /// let layout = Layout::default().with_derived("asn", asn("source")).unwrap();
    /// assert_eq!(layout.derivation("asn").map(Derivation::from), Some("source"));
    /// assert!(layout.derivation("network").is_some(), "it is built in");
    /// assert!(layout.with_derived("name", asn("network")).is_err());
    /// ```
    ///
    /// # Errors
    /// More bits than an address has, an empty name, the name `source`, a field that is derived from another
    /// derived field, a file that another map uses, or too many fields.
    pub fn with_derived(mut self, name: &str, derivation: Derivation) -> Result<Layout, LayoutError> {
        match &derivation {
            &Derivation::Network { ipv4_prefix, ipv6_prefix, .. } => {
                check_prefixes(Some(ipv4_prefix), Some(ipv6_prefix))?;
            }
            Derivation::Map(lookup) => Layout::check_names(&lookup.fields)?,
        }
        Layout::check_names(&[name.to_owned(), derivation.from().to_owned()])?;
        self.derived.insert(name.to_owned(), derivation);
        let is_twice = |(name, derivation): &(&String, &Derivation)| {
            self.derived.contains_key(derivation.from()) || **name == "source"
        };
        match self.derived.iter().find(is_twice) {
            Some((name, _)) => Err(LayoutError::DerivedTwice(name.clone())),
            None => self.checked(),
        }
    }

    /// Makes the policy also read these fields of each request, so that their values can be ranked.
    ///
    /// # Errors
    /// An empty name, or more fields than a request can carry.
    pub fn with_ranked(self, ranked: Vec<String>) -> Result<Layout, LayoutError> {
        if !ranked.is_empty() {
            Layout::check_names(&ranked)?;
        }
        Layout { ranked, ..self }.checked()
    }

    /// How a field is derived, if it is a derived field.
    pub fn derivation(&self, name: &str) -> Option<&Derivation> {
        self.derived.get(name)
    }

    /// Lets calendar quotas follow a wall clock.
    #[must_use]
    pub fn on(self, wall: WallShift) -> Layout {
        Layout { wall, ..self }
    }

    /// Adds a type from 1 to 999, or changes the fields of a built-in type.
    ///
    /// # Errors
    /// The type is not from 1 to 999, has no fields or an empty field name, or brings the total to too many fields.
    pub fn with_type(mut self, kind: u16, fields: Vec<String>) -> Result<Layout, LayoutError> {
        if !(1..=TYPE_MAX).contains(&kind) {
            return Err(LayoutError::Type(kind));
        }
        Layout::check_names(&fields)?;
        self.types.insert(kind, fields);
        self.checked()
    }

    /// Sets how many leading bits of an address become part of a key.
    ///
    /// # Errors
    /// More bits than an address has.
    pub fn with_prefixes(mut self, ipv4: u8, ipv6: u8) -> Result<Layout, LayoutError> {
        check_prefixes(Some(ipv4), Some(ipv6))?;
        (self.ipv4_prefix, self.ipv6_prefix) = (ipv4, ipv6);
        Ok(self)
    }

    /// Sets how many leading bits of an address become part of the keys of one type. `None` keeps the prefix
    /// that applies to all types.
    ///
    /// ```
    /// use slowlane_core::policy::Layout;
    /// let layout = Layout::default().with_type(6, vec!["source".into()]).unwrap();
    /// let layout = layout.with_type_prefixes(6, Some(16), Some(48)).unwrap();
    /// assert_eq!((layout.prefixes(3), layout.prefixes(6)), ((32, 64), (16, 48)));
    /// assert!(layout.with_type_prefixes(2, Some(16), None).is_err()); // a website is no address
    /// ```
    ///
    /// # Errors
    /// More bits than an address has, or a type without an address field.
    pub fn with_type_prefixes(
        mut self,
        kind: u16,
        ipv4: Option<u8>,
        ipv6: Option<u8>,
    ) -> Result<Layout, LayoutError> {
        check_prefixes(ipv4, ipv6)?;
        if !self.type_fields(kind).iter().any(|field| self.is_address(field)) {
            return Err(LayoutError::NoAddress(kind));
        }
        self.prefixes.insert(kind, (ipv4, ipv6));
        Ok(self)
    }

    /// Checks that these names can be the fields of a lookup or a type.
    ///
    /// # Errors
    /// There are no fields, or a name is empty.
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

    /// The fields of a type. Empty for an undeclared type.
    pub fn type_fields(&self, kind: u16) -> &[String] {
        self.types.get(&kind).map_or(&[], Vec::as_slice)
    }

    /// The number of leading bits of an address in the keys of a type, for IPv4 and IPv6.
    pub fn prefixes(&self, kind: u16) -> (u8, u8) {
        let (ipv4, ipv6) = self.own_prefixes(kind);
        (ipv4.unwrap_or(self.ipv4_prefix), ipv6.unwrap_or(self.ipv6_prefix))
    }

    /// The prefixes that are set for a single type.
    pub fn own_prefixes(&self, kind: u16) -> (Option<u8>, Option<u8>) {
        self.prefixes.get(&kind).copied().unwrap_or_default()
    }

    /// The lookups in order, followed by the lookups of derived fields, sorted by the name of the derived field.
    pub(super) fn maps(&self) -> impl Iterator<Item = &Lookup> {
        self.lookups.iter().chain(self.derived.values().filter_map(Derivation::lookup))
    }

    /// The files of a policy in `dir`: first `slo.map`, then the maps of lookups in order, then the maps of
    /// derived fields.
    pub fn files(&self, dir: &Path) -> Vec<PathBuf> {
        let maps = self.maps().map(|lookup| dir.join(&lookup.file));
        std::iter::once(dir.join(SLO_MAP)).chain(maps).collect()
    }

    pub(super) fn has_lookup(&self, name: &str) -> bool {
        self.lookups.iter().any(|lookup| lookup.name() == name || self.name_of(lookup) == name)
    }

    /// The name of a lookup, for operators: its fields. If several lookups have the same fields, all but the
    /// first are named after their map files, without `.map`.
    pub(super) fn name_of(&self, lookup: &Lookup) -> String {
        let first = self.lookups.iter().find(|other| other.fields == lookup.fields);
        match first {
            Some(first) if first.file != lookup.file => lookup.file_name(),
            _ => lookup.name(),
        }
    }

    /// The names of the lookups, like `source, website`.
    pub(super) fn lookup_list(&self) -> String {
        self.lookups.iter().map(|lookup| self.name_of(lookup)).collect::<Vec<_>>().join(", ")
    }

    /// All types up to the largest declared one, including undeclared ones.
    pub fn kinds(&self) -> RangeInclusive<u16> {
        0..=self.types.keys().next_back().copied().unwrap_or(0)
    }

    pub(super) fn has_type(&self, kind: u16) -> bool {
        self.types.contains_key(&kind)
    }

    /// The declared types, like `0, 1, 2`.
    pub(super) fn type_list(&self) -> String {
        self.types.keys().map(u16::to_string).collect::<Vec<_>>().join(", ")
    }

    /// Every field of a lookup or a type, every ranked field, and the origins of all these fields.
    pub fn field_names(&self) -> BTreeSet<&str> {
        let looked_up = self.lookups.iter().flat_map(|lookup| &lookup.fields);
        let used = looked_up.chain(self.types.values().flatten()).chain(&self.ranked).map(String::as_str);
        self.with_origins(used).collect()
    }

    /// The fields of [`field_names`](Layout::field_names) that a proxy sends.
    pub fn sent_fields(&self) -> BTreeSet<&str> {
        self.field_names().into_iter().filter(|name| self.derivation(name).is_none()).collect()
    }

    /// These fields, each followed by its origin if it is derived.
    pub(super) fn with_origins<'l>(
        &'l self,
        names: impl Iterator<Item = &'l str>,
    ) -> impl Iterator<Item = &'l str> {
        names
            .flat_map(|name| [Some(name), self.derivation(name).map(|derivation| derivation.from())])
            .flatten()
    }

    /// Whether a field is an address, even if a proxy sends it as text.
    pub(super) fn is_address(&self, name: &str) -> bool {
        let is_network = |lookup: &Lookup| lookup.method == Method::Ip && lookup.fields[0] == name;
        let needs_it = |derivation: &Derivation| derivation.needs_address(name);
        name == "source" || self.lookups.iter().any(is_network) || self.derived.values().any(needs_it)
    }

    fn checked(self) -> Result<Layout, LayoutError> {
        let mut files = BTreeSet::from([Path::new(SLO_MAP)]);
        if let Some(twice) = self.maps().find(|lookup| !files.insert(&lookup.file)) {
            return Err(LayoutError::File(twice.file.clone()));
        }
        if self.field_names().len() > FIELDS_MAX { Err(LayoutError::TooManyFields) } else { Ok(self) }
    }
}

fn check_prefixes(ipv4: Option<u8>, ipv6: Option<u8>) -> Result<(), LayoutError> {
    match (ipv4, ipv6) {
        (Some(prefix @ 33..), _) => Err(LayoutError::Prefix { prefix, max: 32 }),
        (_, Some(prefix @ 129..)) => Err(LayoutError::Prefix { prefix, max: 128 }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(fields: &[&str], file: &str) -> Lookup {
        Lookup { fields: owned(fields), file: file.into(), method: Method::Str, is_added: false }
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
    fn impossible_layouts_are_refused() {
        let layout = Layout::default;
        assert_eq!(layout().with_type(0, owned(&["source"])), Err(LayoutError::Type(0)));
        assert_eq!(layout().with_type(1_000, owned(&["source"])), Err(LayoutError::Type(1_000)));
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

    #[test]
    fn a_lookup_is_named_by_its_fields_and_the_next_of_the_same_fields_by_its_file() {
        let lookups = vec![
            lookup(&["website"], "sites.map"),
            lookup(&["website"], "more.map"),
            lookup(&["a"], "b.map"),
        ];
        let layout = Layout::default().with_lookups(lookups).unwrap();
        assert_eq!(layout.lookup_list(), "website, more, a");
    }
}
