//! The fields that a policy needs, by the maps and SLOs that need them.

use std::collections::BTreeSet;
use std::path::Path;

use crate::base::SloId;
use crate::policy::{Batch, Missing, Place, Policy};

/// A field that the policy needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needed<'p> {
    pub field: &'p str,
    /// Whether no request has carried it yet.
    pub is_missing: bool,
    place: Place,
}

impl Batch<'_, '_> {
    /// Notes the fields that its requests carry. A field without a value does not count.
    ///
    /// ```
    /// # use std::{io, path::Path};
    /// use slowlane_core::{base::{Request, Value}, policy::{Batch, Layout, Policy}};
    /// # let read = |path: &Path| match path.to_str() {
    /// #     Some("slo.map") => Ok(b"0 rate=unlimited\n1001 burst=1 rate=1/s".to_vec()),
    /// #     Some("owner.map") => Ok(b"acme 1001".to_vec()),
    /// #     _ => Err(io::ErrorKind::NotFound.into()),
    /// # };
    /// let policy = Policy::parse(Path::new(""), &Layout::default(), read).unwrap();
    /// let is_missing = || policy.needed_fields().next().map(|needed| (needed.field, needed.is_missing));
    /// assert_eq!(is_missing(), Some(("owner", true)));
    /// let (mut batch, mut request) = (Batch::of(&policy), Request::new());
    /// request.push(b"owner", Value::Text(b"acme"));
    /// batch.push(&request);
    /// batch.note_fields();
    /// assert_eq!(is_missing(), Some(("owner", false)));
    /// ```
    #[inline]
    pub fn note_fields(&self) {
        self.policy().missing.note(self.rows());
    }
}

impl Policy {
    /// The fields that a lookup or the key of a request may need, in alphabetical order.
    ///
    /// A map without lines needs none, and neither does an SLO that no map names.
    pub fn needed_fields(&self) -> impl Iterator<Item = Needed<'_>> {
        self.needed_places().into_iter().map(move |place| Needed {
            field: self.fields.name(place),
            is_missing: self.missing.has(place),
            place,
        })
    }

    /// The users of a field: `source+owner.map`, `type 4`, `share=owner`.
    pub fn needed_by(&self, needed: &Needed<'_>) -> Vec<String> {
        let place = needed.place;
        let dir = self.slo_map.path.parent().unwrap_or(Path::new(""));
        let maps = self.lookups.iter().filter(|map| map.places.contains(&place));
        let maps = maps.map(|map| map.path.strip_prefix(dir).unwrap_or(&map.path).display().to_string());
        let slos = || self.reachable().map(|slo| self.slos[slo].id);
        let types = slos().filter(|&id| self.key_places(id).contains(&place)).map(SloId::kind);
        let types = types.collect::<BTreeSet<_>>().into_iter().map(|kind| format!("type {kind}"));
        let is_shared = self.reachable().any(|slo| self.refs[slo].share == Some(place));
        let share = is_shared.then(|| format!("share={}", needed.field));
        maps.chain(types).chain(share).collect()
    }

    /// All needed fields, none of them carried yet.
    pub(super) fn none_carried(&self) -> Missing {
        Missing::of(self.needed_places())
    }

    fn needed_places(&self) -> BTreeSet<Place> {
        let looked_up = self.lookups.iter().flat_map(|map| map.places.iter().copied());
        let counted = self.reachable().flat_map(|slo| self.key_places(self.slos[slo].id).iter().copied());
        let shared = self.reachable().filter_map(|slo| self.refs[slo].share);
        looked_up.chain(counted).chain(shared).collect()
    }

    /// The indexes of the SLOs that a request can have: SLO 0, and those that a map names.
    pub(super) fn reachable(&self) -> impl Iterator<Item = usize> {
        let is_named = |slo: usize| self.lookups.iter().any(|map| map.keys_of(slo) > 0);
        (0..self.slos.len()).filter(move |&slo| slo == 0 || is_named(slo))
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use proptest::prelude::*;

    use super::*;
    use crate::base::{FIELDS_MAX, Request, Value};
    use crate::policy::{BATCH_MAX, Layout, Lookup, Method};

    fn parsed(layout: &Layout, files: &[(&str, &str)]) -> Policy {
        let read = |path: &Path| {
            let file = files.iter().find(|(name, _)| path == Path::new("maps").join(name));
            file.map(|(_, text)| text.as_bytes().to_vec()).ok_or_else(|| io::ErrorKind::NotFound.into())
        };
        Policy::parse(Path::new("maps"), layout, read).unwrap()
    }

    /// Each needed field with what needs it.
    fn needs(policy: &Policy) -> Vec<(String, String)> {
        let needed = policy.needed_fields();
        needed.map(|needed| (needed.field.to_owned(), policy.needed_by(&needed).join(", "))).collect()
    }

    #[test]
    fn a_field_is_needed_by_maps_with_lines_and_by_slos_that_a_map_names() {
        let slo_map = "0 rate=unlimited\n2001 burst=1 rate=1/s\n4001 burst=1 rate=1/s law=fair share=method\n\
                       5001 burst=1 rate=1/s\n";
        let files = [
            ("slo.map", slo_map),
            ("source+owner.map", "192.0.2.0/24+acme 4001\n192.0.2.1+acme -1\n"),
            ("website.map", "# shop.example 2001\n"),
        ];
        let expected = [
            ("method", "share=method"),
            ("owner", "source+owner.map, type 4"),
            ("source", "source+owner.map, type 4"),
        ];
        let expected = expected.map(|(field, by)| (field.to_owned(), by.to_owned()));
        assert_eq!(needs(&parsed(&Layout::default(), &files)), expected);
        assert_eq!(needs(&Policy::builtin()), []);
        let unnamed = [("slo.map", slo_map), ("website.map", "shop.example 0\n")];
        assert_eq!(
            needs(&parsed(&Layout::default(), &unnamed)),
            [("website".to_owned(), "website.map".to_owned())],
            "no map names an SLO of another field"
        );
    }

    /// As many fields as a request can carry: each has its bit.
    fn of_many_fields() -> Policy {
        let names: Vec<String> = (0..FIELDS_MAX).map(|number| format!("f{number:02}")).collect();
        let lookup = |name: &String| Lookup {
            fields: vec![name.clone()],
            file: format!("{name}.map").into(),
            method: Method::Str,
        };
        let layout = Layout::default().with_type(1, vec![names[0].clone()]).unwrap();
        let layout = (2..=5).fold(layout, |layout, kind| {
            layout.with_type(kind, vec![names[usize::from(kind)].clone()]).unwrap()
        });
        let layout = layout.with_lookups(names.iter().map(lookup).collect()).unwrap();
        let files: Vec<String> = names.iter().map(|name| format!("{name}.map")).collect();
        let maps = files.iter().map(|file| (file.as_str(), "a 0\n"));
        parsed(&layout, &[("slo.map", "0 rate=unlimited\n")].into_iter().chain(maps).collect::<Vec<_>>())
    }

    proptest! {
        /// Whatever the batches, a field is missing until a request carries it.
        #[test]
        fn the_missing_fields_are_those_that_nobody_carried(
            batches in prop::collection::vec(prop::collection::vec(
                prop::collection::btree_set(0..FIELDS_MAX, 0..5), 1..=8), 0..6)
        ) {
            let policy = of_many_fields();
            let mut carried = BTreeSet::new();
            for requests in &batches {
                let names: Vec<Vec<String>> = requests.iter()
                    .map(|request| request.iter().map(|number| format!("f{number:02}")).collect())
                    .collect();
                let mut batch = Batch::of(&policy);
                for names in names.iter().take(BATCH_MAX) {
                    let mut request = Request::new();
                    names.iter().for_each(|name| request.push(name.as_bytes(), Value::Text(b"x")));
                    batch.push(&request);
                    carried.extend(names.iter().cloned());
                }
                batch.note_fields();
                for needed in policy.needed_fields() {
                    prop_assert_eq!(needed.is_missing, !carried.contains(needed.field), "{}", needed.field);
                }
            }
            prop_assert_eq!(policy.needed_fields().count(), FIELDS_MAX);
        }
    }
}
