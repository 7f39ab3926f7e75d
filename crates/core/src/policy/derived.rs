//! The derived fields of a policy: each is made of another field, by a mask or by a map.

use std::sync::atomic::AtomicBool;

use crate::base::{Network, Value};
use crate::policy::field::Field;
use crate::policy::{Derivation, LookupMap, Place};

/// A derived field among the fields of a policy.
#[derive(Debug)]
pub(super) struct Derived {
    pub(super) from: Place,
    pub(super) to: Place,
    /// The index of its maker.
    pub(super) maker: usize,
    /// A decision reads it, or a block. The values of others are not made.
    pub(super) is_needed: AtomicBool,
}

/// How a derived field is made, whether the policy uses the field or not.
#[derive(Debug)]
pub(super) struct Maker {
    pub(super) name: String,
    pub(super) derivation: Derivation,
    /// Set for a derivation by a map. Its only field is the one that it is made of.
    pub(super) map: Option<LookupMap>,
}

impl Maker {
    /// The value of its field for a value of the other one.
    #[inline]
    pub(super) fn make<'a>(&'a self, field: &Field, from: &Option<Value<'a>>) -> Option<Value<'a>> {
        match (&self.derivation, from) {
            (&Derivation::Network { ipv4_prefix, ipv6_prefix, .. }, &Some(Value::Address(address))) => {
                let prefix = if address.is_ipv4() { ipv4_prefix } else { ipv6_prefix };
                Some(Value::Network(Network::of(address, prefix)))
            }
            _ => self.map.as_ref()?.value(from).map(|value| field.value(value)),
        }
    }
}
