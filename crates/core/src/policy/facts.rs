//! The fields of a request that identify a key to an operator.

use crate::base::{SloId, Value};
use crate::policy::{Batch, Fields, Masks, Place, Policy, Values};

/// A field that the policy uses, with its value in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fact<'p, 'a> {
    pub name: &'p str,
    pub value: Value<'a>,
    /// Whether it is part of the key.
    pub in_key: bool,
    /// Leading bits of the address that are part of the key, if not all are.
    pub prefix: Option<u8>,
}

impl Batch<'_, '_> {
    /// Passes the fields of a request that the policy uses to `each`. The fields of the SLO's key come first.
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
        let in_key = policy.key_places(slo);
        let masks = policy.fields.masks_of(slo.kind());
        for &place in in_key {
            policy.fields.fact(Some(masks), place, values).map(&mut each);
        }
        for place in (0..policy.fields.count()).filter(|place| !in_key.contains(place)) {
            policy.fields.fact(None, place, values).map(&mut each);
        }
    }
}

impl Policy {
    /// The names of the fields that make up the key of an SLO.
    pub fn key_fields(&self, slo: SloId) -> impl Iterator<Item = &str> {
        self.key_places(slo).iter().map(|&place| self.fields.name(place))
    }
}

impl Fields {
    /// The fact of a field. `masks` are the prefixes of the key that contains it.
    fn fact<'p, 'a>(
        &'p self,
        masks: Option<Masks>,
        place: Place,
        values: Values<'_, 'a>,
    ) -> Option<Fact<'p, 'a>> {
        let value = values.0[place]?;
        let prefix = masks.and_then(|masks| self.prefix(masks, place, value));
        Some(Fact { name: self.name(place), value, in_key: masks.is_some(), prefix })
    }
}
