//! The fields that a policy needs, and the maps and SLOs that need them.

use std::collections::BTreeSet;
use std::path::Path;

use crate::base::SloId;
use crate::policy::generation::SloRefs;
use crate::policy::{Batch, LookupMap, Place, Policy, ValueKind};

/// A field that the policy needs, with its faults since the policy took effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needed<'p> {
    pub field: &'p str,
    pub kind: ValueKind,
    /// Whether no request has carried the field yet.
    pub is_missing: bool,
    /// The number of requests in which the field had an unusable value.
    pub unreadable: u64,
    /// The number of requests that lacked the field. Counted only if every limit needs the field.
    pub absent: u64,
    place: Place,
}

impl Batch<'_, '_> {
    /// Records which fields the requests of the batch carry, and these fields' [faults](Policy::faults). A
    /// field without a value counts as not carried.
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
        self.policy().fields.watch.note(self.rows());
    }
}

impl Policy {
    /// The fields that lookups, keys, `share` and `page` may need, by name, with origins in place of derived fields.
    ///
    /// A map without lines needs no fields, and neither does an SLO other than 0 that no map names.
    pub fn needed_fields(&self) -> impl Iterator<Item = Needed<'_>> {
        self.needed_places().into_iter().map(|place| self.needed(place))
    }

    /// The fields that the policy needs, with their faults since the policy took effect. If the policy has a
    /// limit, the cost and the announced work are included.
    pub fn faults(&self) -> impl Iterator<Item = Needed<'_>> {
        self.fields.watch.needed().map(|place| self.needed(place))
    }

    fn needed(&self, place: Place) -> Needed<'_> {
        let watch = &self.fields.watch;
        let (kind, (unreadable, absent)) = (watch.fields[place].kind, watch.counts(place));
        let (field, is_missing) = (self.fields.name(place), watch.is_missing(place));
        Needed { field, kind, is_missing, unreadable, absent, place }
    }

    /// The beginning of the field's last unusable value: at most 64 bytes, plus one byte if the value was longer.
    pub fn example(&self, needed: &Needed<'_>) -> Vec<u8> {
        self.fields.watch.example(needed.place)
    }

    /// Stops examining requests for faults that have not occurred since the last call. To be called every second.
    pub fn calm(&self) {
        self.fields.watch.calm();
    }

    /// The users of a field: `source+owner.map`, `type 4`, `share=owner`.
    pub fn needed_by(&self, needed: &Needed<'_>) -> Vec<String> {
        let is_it = |&place: &Place| self.fields.origin(place) == needed.place;
        let dir = self.slo_map.path.parent().unwrap_or(Path::new(""));
        let maps = self.lookups.iter().filter(|map| map.places.iter().any(is_it));
        let maps = maps.map(|map| map.path.strip_prefix(dir).unwrap_or(&map.path).display().to_string());
        let slos = || self.reachable().map(|slo| self.slos[slo].id);
        let types = slos().filter(|&id| self.key_places(id).iter().any(is_it)).map(SloId::kind);
        let types = types.collect::<BTreeSet<_>>().into_iter().map(|kind| format!("type {kind}"));
        let named = |option: &'static str, of: fn(&SloRefs) -> &[Place]| {
            let places =
                self.reachable().flat_map(move |slo| of(&self.refs[slo])).filter(|place| is_it(place));
            let names: BTreeSet<&str> = places.map(|&place| self.fields.name(place)).collect();
            names.into_iter().map(move |name| format!("{option}={name}")).collect::<Vec<_>>()
        };
        let (shares, pages) = (named("share", |refs| &refs.share), named("page", |refs| &refs.page));
        let measures = self.fields.measures().filter(|&place| place != needed.place && is_it(&place));
        let measures = measures.map(|place| self.fields.name(place).to_owned());
        maps.chain(types).chain(shares).chain(pages).chain(measures).collect()
    }

    /// Starts watching the fields. Every needed field counts as missing until a request carries it.
    pub(super) fn watch_fields(&mut self) {
        let needed = self.needed_places();
        let is_limited = |slo: &usize| !self.slos[*slo].is_unlimited();
        let limited: Vec<usize> = self.reachable().filter(is_limited).collect();
        let measures = self.fields.measures().filter(|_| !limited.is_empty());
        let matter: Vec<Place> = needed.iter().copied().chain(measures).collect();
        let mut essential = needed.clone();
        if limited.is_empty() || limited.contains(&0) {
            essential.clear();
        }
        let names_limit = |map: &&LookupMap| limited.iter().any(|&slo| map.keys_of(slo) > 0);
        for map in self.lookups.iter().filter(names_limit) {
            essential.retain(|place| self.needs(map, *place));
        }
        let watch = &self.fields.watch;
        watch.begin(needed, matter, essential.iter().copied());
        let fields = &self.fields;
        let needs_all =
            |map: &&mut LookupMap| map.places.iter().any(|&place| essential.contains(&fields.origin(place)));
        self.lookups.iter_mut().filter(needs_all).for_each(|map| map.watch = Some(watch.clone()));
    }

    /// Whether a map needs this field or a field derived from it.
    fn needs(&self, map: &LookupMap, field: Place) -> bool {
        map.places.iter().any(|&place| self.fields.origin(place) == field)
    }

    fn needed_places(&self) -> BTreeSet<Place> {
        self.used_places(self.reachable()).collect()
    }

    /// The indexes of the SLOs that a request can have: SLO 0 and the SLOs that maps name.
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
    use crate::base::BATCH_MAX;
    use crate::base::{FIELDS_MAX, Request, Timestamp, Value};
    use crate::policy::watch::EXAMPLE_BYTES;
    use crate::policy::{Layout, Lookup, Method};

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
            is_added: false,
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

    /// A policy with these files, and what it says of faults: field, unreadable, absent.
    fn faults(policy: &Policy) -> Vec<(&str, u64, u64)> {
        policy
            .faults()
            .map(|faults| (faults.field, faults.unreadable, faults.absent))
            .filter(|(_, unreadable, absent)| unreadable + absent > 0)
            .collect()
    }

    fn ask(policy: &Policy, fields: &[(&str, Value<'_>)]) {
        let (mut batch, mut request) = (Batch::of(policy), Request::new());
        fields.iter().for_each(|(name, value)| request.push(name.as_bytes(), *value));
        batch.push(&request);
        batch.cases(0, &batch.look_up(Timestamp::default()));
        batch.note_fields();
    }

    const SOURCES: &[(&str, &str)] =
        &[("slo.map", "0 rate=unlimited\n3001 burst=1 rate=1/s\n"), ("source.map", "::/0 3001\n")];
    const OWNERS: &[(&str, &str)] =
        &[("slo.map", "0 rate=unlimited\n1001 burst=1 rate=1/s\n"), ("owner.map", "acme 1001\n")];

    #[test]
    fn a_value_that_a_limit_cannot_use_is_counted_with_an_example() {
        let policy = parsed(&Layout::default(), SOURCES);
        let text = |text: &'static str| [("source", Value::Text(text.as_bytes()))];
        for readable in [
            "192.0.2.1",
            "[2001:db8::1]",
            "[2001:db8::1]:443",
            "192.0.2.1:4711",
            "fe80::1%eth0",
            " 192.0.2.1 ",
        ] {
            ask(&policy, &text(readable));
        }
        assert_eq!(faults(&policy), []);
        for unreadable in ["192.0.2.1, 10.0.0.1", "unix:", "-", "unknown", "shop.example"] {
            ask(&policy, &text(unreadable));
        }
        ask(&policy, &[("source", Value::Number(7))]);
        ask(&policy, &[]);
        assert_eq!(faults(&policy), [("source", 6, 1)]);
        let example =
            || policy.faults().find(|faults| faults.field == "source").map(|faults| policy.example(&faults));
        assert_eq!(example().unwrap(), b"7");
        let long = "x".repeat(10_000);
        ask(&policy, &[("source", Value::Text(long.as_bytes()))]);
        assert_eq!(example().unwrap(), [b'x'; EXAMPLE_BYTES]);
        assert_eq!(policy.needed_fields().map(|needed| needed.is_missing).collect::<Vec<_>>(), [false]);
    }

    #[test]
    fn a_cost_that_is_not_a_number_is_counted_and_a_missing_one_is_not() {
        let policy = parsed(&Layout::default(), SOURCES);
        let source = ("source", Value::Text(b"192.0.2.1"));
        for cost in [Value::Number(5), Value::Number(i64::MAX), Value::Text(b"0")] {
            ask(&policy, &[source, ("cost", cost)]);
        }
        ask(&policy, &[source]);
        assert_eq!(faults(&policy), []);
        for cost in [Value::Number(-1), Value::Text(b"true"), Value::Text(b"0.5")] {
            ask(&policy, &[source, ("cost", cost)]);
        }
        assert_eq!(faults(&policy), [("cost", 3, 0)]);
    }

    #[test]
    fn a_field_that_only_some_limits_need_may_be_absent() {
        let acme = [("owner", Value::Text(b"acme"))];
        let of = |files: &[(&str, &str)]| {
            let policy = parsed(&Layout::default(), files);
            ask(&policy, &acme);
            (0..2).for_each(|_| ask(&policy, &[("source", Value::Text(b"192.0.2.1"))]));
            faults(&policy).iter().map(|&(field, ..)| field.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(of(OWNERS), ["owner"]);
        assert_eq!(of(&[("slo.map", "0 rate=unlimited\n1001 law=protect\n"), OWNERS[1]]), ["owner"]);
        assert_eq!(of(&[OWNERS[0], OWNERS[1], ("website.map", "shop.example 0\n")]), ["owner"], "no limit");
        assert_eq!(
            of(&[("slo.map", "0 burst=1 rate=1/s\n1001 burst=1 rate=1/s\n"), OWNERS[1]]),
            [""; 0],
            "SLO 0"
        );
        let also_sources = "0 rate=unlimited\n1001 burst=1 rate=1/s\n3001 burst=1 rate=1/s\n";
        assert_eq!(of(&[("slo.map", also_sources), OWNERS[1], SOURCES[1]]), [""; 0]);
        let both = [("slo.map", also_sources), OWNERS[1], ("source+owner.map", "::/0+acme 3001\n")];
        assert_eq!(of(&both), ["owner"], "both need it");
        assert_eq!(
            of(&[("slo.map", "0 rate=unlimited\n"), ("owner.map", "acme 0\n")]),
            [""; 0],
            "no limit at all"
        );
    }

    #[test]
    fn a_question_of_the_operator_is_not_counted() {
        let policy = parsed(&Layout::default(), SOURCES);
        let mut request = Request::new();
        request.push(b"source", Value::Text(b"unix:"));
        request.push(b"cost", Value::Text(b"x"));
        policy.explain(&request);
        assert_eq!(faults(&policy), []);
        policy.calm();
        policy.calm();
        ask(&policy, &[("source", Value::Text(b"unix:"))]);
        assert_eq!(faults(&policy), [("source", 1, 0)], "it is watched again");
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

        /// Whatever comes before, each fault is counted once.
        #[test]
        fn each_fault_is_counted_whether_its_field_was_watched_or_not(
            requests in prop::collection::vec((0..4usize, 0..3usize, any::<bool>()), 0..40)
        ) {
            let policy = parsed(&Layout::default(), SOURCES);
            let (mut unreadable, mut absent, mut odd) = (0, 0, 0);
            for (source, cost, is_calm) in requests {
                let source: Option<&str> = [None, Some("192.0.2.1"), Some("[::1]"), Some("a, b")][source];
                let cost: Option<&str> = [None, Some("5"), Some("x")][cost];
                let fields = [("source", source), ("cost", cost)];
                let fields = fields.into_iter().filter_map(|(name, text)| Some((name, Value::Text(text?.as_bytes()))));
                ask(&policy, &fields.collect::<Vec<_>>());
                unreadable += u64::from(source == Some("a, b"));
                absent += u64::from(source.is_none());
                odd += u64::from(cost == Some("x"));
                if is_calm {
                    policy.calm();
                }
            }
            let expected = [("cost", odd, 0), ("source", unreadable, absent)];
            let expected = expected.into_iter().filter(|(_, one, other)| one + other > 0).collect::<Vec<_>>();
            prop_assert_eq!(faults(&policy), expected);
        }
    }
}
