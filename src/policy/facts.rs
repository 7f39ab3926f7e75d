//! What a policy sees of a request, field by field, for whoever has to name a key.

use crate::base::request::{Request, Value};
use crate::base::slo_id::SloId;
use crate::policy::fields::{Fields, Place, Values};
use crate::policy::{Docket, Policy};

/// A field that the policy looks at, as a request has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fact<'p, 'a> {
    pub name: &'p str,
    pub value: Value<'a>,
    /// It is a part of the key.
    pub in_key: bool,
    /// Only so many leading bits of the address are a part of the key.
    pub prefix: Option<u8>,
}

impl Policy {
    /// What a request has for each field that the policy looks at, those first that make up the key of the SLO.
    ///
    /// ```
    /// # use slowlane::{policy::Policy, base::request::{Request, Value}, base::slo_id::SloId};
    /// let mut request = Request::new();
    /// request.push(b"website", Value::Text(b"shop.example"));
    /// request.push(b"source", Value::address("2001:db8::1".parse().unwrap()));
    /// let mut seen = Vec::new();
    /// let source_slo = SloId::new(3001).unwrap();
    /// Policy::builtin().facts(&request, source_slo, |fact| seen.push((fact.name.to_owned(), fact.in_key, fact.prefix)));
    /// assert_eq!(seen, [("source".into(), true, Some(64)), ("website".into(), false, None)]);
    /// ```
    pub fn facts(&self, request: &Request<'_>, slo: SloId, each: impl FnMut(Fact<'_, '_>)) {
        self.each_fact(Values(&self.fields.values(request)), slo, each);
    }

    /// The same of a request in a docket, by its number.
    pub fn facts_of(&self, docket: &Docket<'_>, number: usize, slo: SloId, each: impl FnMut(Fact<'_, '_>)) {
        let count = self.fields.count();
        self.each_fact(Values(&docket.values[number * count..][..count]), slo, each);
    }

    fn each_fact(&self, values: Values<'_, '_>, slo: SloId, mut each: impl FnMut(Fact<'_, '_>)) {
        let in_key = &self.types[usize::from(slo.kind())];
        for &place in in_key {
            self.fields.fact(place, values, true).map(&mut each);
        }
        for place in (0..self.fields.count()).filter(|place| !in_key.contains(place)) {
            self.fields.fact(place, values, false).map(&mut each);
        }
    }

    /// The names of the fields that make up the key of an SLO.
    pub fn key_fields(&self, slo: SloId) -> impl Iterator<Item = &str> {
        self.types[usize::from(slo.kind())].iter().map(|&place| self.fields.name(place))
    }
}

impl Fields {
    fn fact<'p, 'a>(&'p self, place: Place, values: Values<'_, 'a>, in_key: bool) -> Option<Fact<'p, 'a>> {
        let value = values.0[place]?;
        let prefix = self.prefix(place, value).filter(|_| in_key);
        Some(Fact { name: self.name(place), value, in_key, prefix })
    }
}
