//! The fields of a request that identify a key to an operator.

use crate::base::{SloId, Value};
use crate::policy::{Batch, Policy};

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
}

impl Policy {
    /// The names of the fields that make up the key of an SLO.
    pub fn key_fields(&self, slo: SloId) -> impl Iterator<Item = &str> {
        self.key_places(slo).iter().map(|&place| self.fields.name(place))
    }
}
