//! An explanation of a request for people to read: the lines that selected its SLOs, and the fields that make
//! up its keys.

use std::path::Path;

use crate::base::{Network, Request, SloId, Value, cut, shown};
use crate::policy::{
    Answer, Asker, Batch, Case, Cases, LookupMap, Masks, Pattern, Place, Policy, Text, Values,
};

/// All SLOs of a request, each with the reasons for it. The request's own SLO comes first.
#[derive(Clone, Debug)]
pub struct Explanation<'p> {
    pub of: Vec<Explained<'p>>,
    pub cases: Cases<'p>,
    /// The client and the page of the request, if an SLO protects an application.
    pub asker: Option<Asker>,
}

/// One SLO of a request.
#[derive(Clone, Debug)]
pub struct Explained<'p> {
    pub case: Case<'p>,
    /// The SLO's options in `slo.map`, and the number of the line that holds them.
    pub written: &'p [u8],
    pub line: usize,
    /// The line of a map that selected the SLO. None if no map answered.
    pub origin: Option<Origin<'p>>,
    /// The SLO whose `also` led to this one.
    pub named_by: Option<SloId>,
    /// The maps that were consulted without an answer before the request's own SLO was found. Empty for any other SLO.
    pub asked: Vec<Asked<'p>>,
    /// The parts of the key.
    pub parts: Vec<Part<'p>>,
    /// The fields by which the SLO's bucket is divided.
    pub share: Vec<Part<'p>>,
}

/// The line of a map that answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin<'p> {
    /// The fields of the lookup, like `source+website`.
    pub lookup: &'p str,
    pub path: &'p Path,
    pub line: usize,
}

/// A map that was consulted and had no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked<'p> {
    pub lookup: &'p str,
    /// The matching line, if its value is -1, which leaves the answer to the next lookup.
    pub line: Option<usize>,
}

/// A field, and the part of its value that enters a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<'p> {
    pub field: &'p str,
    /// The value in the notation of a map or, for an address, the customer's network. None if the field is missing.
    pub value: Option<Vec<u8>>,
}

/// A field that the policy uses, with its value in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fact<'p, 'a> {
    pub name: &'p str,
    pub value: Value<'a>,
    /// Whether the value is part of the key.
    pub in_key: bool,
    /// How many leading bits of an address are part of the key, if not all are.
    pub prefix: Option<u8>,
}

impl Policy {
    /// The [`cases`](Policy::cases) of a request with their reasons, from a trace of the same lookups. This
    /// function counts lines in maps, so it is too slow to call for every request.
    pub fn explain(&self, request: &Request<'_>) -> Explanation<'_> {
        let mut batch = Batch::of(self);
        batch.push(request);
        let mut trace = Vec::new();
        let cases = batch.only_cases(&mut |map, found| trace.push((map, found)));

        let (values, mut before) = (batch.values(0), None);
        let of = cases.list.iter().map(|&case| {
            let is_refused = std::ptr::eq(case.slo, &self.refusing);
            let place = self.place(case.slo.id).expect("an SLO of this policy");
            let refs = &self.refs[place];
            let names = |(_, found): &Found<'_>| found.is_some_and(|line| line.answer.place() == Some(place));
            let by = trace.iter().position(names).filter(|_| !is_refused);
            let asked = if before.is_none() { &trace[..by.unwrap_or(trace.len())] } else { &[] };
            let written = self.slo_map.lines().find(|line| line.number == refs.line);
            let masks = self.fields.masks_of(case.slo.id.kind());
            let parts = self.key_places(case.slo.id).iter().map(|&place| self.part(masks, place, values));
            let share = refs.share.iter().map(|&place| self.part(self.fields.masks(), place, values));
            Explained {
                case,
                written: written.filter(|_| !is_refused).map_or(REFUSED, |line| line.value),
                line: refs.line,
                origin: by.and_then(|by| origin(&trace[by])),
                named_by: before.replace(case.slo.id).filter(|_| !case.is_added),
                asked: asked.iter().map(in_vain).collect(),
                parts: parts.collect(),
                share: share.collect(),
            }
        });
        let of = of.collect();
        let protected = cases.list.iter().find(|case| case.slo.law.protection().is_some());
        let asker = protected.map(|case| batch.asker(0, case.slo.id));
        Explanation { of, cases, asker }
    }

    /// A field, and the value that it adds to a key. A network shows its length unless it is a single address.
    fn part(&self, masks: Masks, place: Place, values: Values<'_, '_>) -> Part<'_> {
        let text = |value: &Value<'_>| match *value {
            Value::Address(address) if self.fields.is_address(place) => {
                let prefix = self.fields.prefix(masks, place, *value).unwrap_or(u8::MAX);
                Network::of(address, prefix).to_string().into_bytes()
            }
            _ => Text::default().of(value).to_vec(),
        };
        Part { field: self.fields.name(place), value: values.get(place).map(text) }
    }
}

impl Batch<'_, '_> {
    /// Calls `each` with every field of a request that the policy uses. The fields of the SLO's key come first.
    ///
    /// ```
    /// # use slowlane_core::{policy::{Batch, Policy}, base::{Request, SloId, Value}};
    /// let policy = Policy::builtin();
    /// let (mut batch, mut request) = (Batch::of(&policy), Request::new());
    /// request.push(b"website", Value::Text(b"shop.example"));
    /// request.push(b"source", Value::address("2001:db8::1".parse().unwrap()));
    /// batch.push(&request);
    /// let mut seen = Vec::new();
    /// let source_slo = SloId::new(3001).unwrap();
    /// batch.facts(0, source_slo, |fact| seen.push((fact.name.to_owned(), fact.in_key, fact.prefix)));
    /// assert_eq!(seen, [("source".into(), true, Some(64)), ("website".into(), false, None)]);
    /// ```
    pub fn facts(&self, number: usize, slo: SloId, mut each: impl FnMut(Fact<'_, '_>)) {
        let (policy, values) = (self.policy(), self.values(number));
        let (in_key, masks) = (policy.key_places(slo), policy.fields.masks_of(slo.kind()));
        let others = (0..policy.fields.count()).filter(|place| !in_key.contains(place));
        let places =
            in_key.iter().map(|&place| (place, Some(masks))).chain(others.map(|place| (place, None)));
        for (place, masks) in places {
            let Some(value) = values.0[place] else { continue };
            let prefix = masks.and_then(|masks| policy.fields.prefix(masks, place, value));
            each(Fact { name: policy.fields.name(place), value, in_key: masks.is_some(), prefix });
        }
    }

    /// The outermost group of a request under an SLO with `share`, like `network 203.0.113.0/24`.
    pub fn group_name(&self, row: usize, slo: SloId) -> String {
        let policy = self.policy();
        let refs = &policy.refs[policy.place(slo).expect("an SLO of this policy")];
        let Some(&outermost) = refs.share.first() else { return String::new() };
        let Part { field, value } = policy.part(policy.fields.masks(), outermost, self.values(row));
        let name = shown(field);
        let text = value.map_or_else(|| format!("no {name}"), |value| format!("{name} {}", shown(value)));
        cut(text, GROUP_NAME_CHARS)
    }
}

/// The maximum length of a group's name, in characters. Clients can choose these names, and many of them are kept.
const GROUP_NAME_CHARS: usize = 60;

/// Shown in place of an SLO's options for a request that cannot be looked up.
const REFUSED: &[u8] =
    b"refused: the website is not a valid host name, or a value is too long to be looked up";

/// A map that was consulted, and the line that matched, if any.
type Found<'p> = (&'p LookupMap, Option<Pattern>);

fn in_vain<'p>(&(map, found): &Found<'p>) -> Asked<'p> {
    let line = found.filter(|pattern| pattern.answer != Answer::REFUSED);
    Asked { lookup: &map.name, line: line.map(|pattern| map.line_number(pattern)) }
}

fn origin<'p>(&(map, found): &Found<'p>) -> Option<Origin<'p>> {
    Some(Origin { lookup: &map.name, path: &map.path, line: map.line_number(found?) })
}
