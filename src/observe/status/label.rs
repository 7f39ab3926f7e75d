//! The fields of a request in a few bytes, to describe a key.

use arrayvec::ArrayVec;

use crate::observe::status::FieldLine;
use slowlane_core::base::{Network, query, shown};
use slowlane_core::policy::{Fact, Text};

/// The maximum number of bytes to keep of a request: enough for a source, two websites and a little more.
const LABEL_BYTES_MAX: usize = 320;

/// The maximum number of bytes to keep of a name and of a value. Longer names and values are cut.
const NAME_BYTES_MAX: usize = 32;
const VALUE_BYTES_MAX: usize = 128;

const IN_KEY: u8 = 1;
const CUT: u8 = 2;

/// The facts of a request in sequence, as many as fit:
///
/// ```text
///  │ flags │ prefix + 1, or 0 │ bytes of name │ bytes of value │ name … │ value … │
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Label {
    bytes: ArrayVec<u8, LABEL_BYTES_MAX>,
    is_cut: bool,
}

/// A fact from a label. Its value is text, in the notation of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptFact<'l> {
    pub name: &'l [u8],
    pub value: &'l [u8],
    pub in_key: bool,
    /// The number of leading bits of the address that are in the key; `None` if all bits are.
    pub prefix: Option<u8>,
    /// Whether the name or the value was cut.
    pub is_cut: bool,
}

impl Label {
    pub fn push(&mut self, fact: Fact<'_, '_>) {
        let mut text = Text::default();
        let value = text.of(&fact.value);
        let name = &fact.name.as_bytes()[..fact.name.len().min(NAME_BYTES_MAX)];
        let kept = &value[..value.len().min(VALUE_BYTES_MAX)];
        let is_cut = name.len() < fact.name.len() || kept.len() < value.len();
        if self.bytes.remaining_capacity() < 4 + name.len() + kept.len() {
            self.is_cut = true;
            return;
        }
        let flags = if fact.in_key { IN_KEY } else { 0 } | if is_cut { CUT } else { 0 };
        let head = [flags, fact.prefix.map_or(0, |prefix| prefix + 1), name.len() as u8, kept.len() as u8];
        for part in [&head[..], name, kept] {
            self.bytes.try_extend_from_slice(part).expect("there is room");
        }
    }

    /// The facts, in the order of their arrival.
    pub fn facts(&self) -> impl Iterator<Item = KeptFact<'_>> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || {
            let (&[flags, prefix, name, value], after) = rest.split_first_chunk()?;
            let (name, after) = after.split_at(name.into());
            let (value, after) = after.split_at(value.into());
            rest = after;
            let prefix = prefix.checked_sub(1);
            Some(KeptFact { name, value, in_key: flags & IN_KEY > 0, prefix, is_cut: flags & CUT > 0 })
        })
    }

    /// The facts that belong to the key, ready for display.
    pub(super) fn in_key(&self) -> Vec<FieldLine> {
        let line = |fact: KeptFact<'_>| FieldLine { name: shown(fact.name), value: fact.shown() };
        self.facts().filter(|fact| fact.in_key).map(line).collect()
    }

    /// All facts as the query of a request; `None` if a part was too long to keep.
    pub(super) fn query(&self) -> Option<String> {
        let is_whole = !self.is_cut && self.facts().all(|fact| !fact.is_cut);
        is_whole.then(|| query::written(self.facts().map(|fact| (fact.name, fact.value))))
    }
}

impl KeptFact<'_> {
    /// The value in a form that is safe to display, with invisible and control characters escaped.
    ///
    /// An address becomes a network if the key contains only its network.
    pub fn shown(&self) -> String {
        let address = std::str::from_utf8(self.value).ok().and_then(|text| text.parse().ok());
        if let (Some(prefix), Some(address)) = (self.prefix, address) {
            return Network::of(address, prefix).to_string();
        }
        let cut = if self.is_cut { "…" } else { "" };
        shown(self.value) + cut
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use slowlane_core::base::Value;

    fn fact<'a>(name: &'a str, value: Value<'a>, in_key: bool) -> Fact<'a, 'a> {
        Fact { name, value, in_key, prefix: None }
    }

    proptest! {
        #[test]
        fn facts_that_fit_are_kept_unchanged(
            facts in prop::collection::vec(("[a-z_]{0,40}", prop::collection::vec(any::<u8>(), 0..200), any::<bool>()), 0..9)
        ) {
            let mut label = Label::default();
            facts.iter().for_each(|(name, value, in_key)| label.push(fact(name, Value::Text(value), *in_key)));
            let mut rest = facts.iter();
            for kept in label.facts() {
                // A shorter fact may fit after a longer one was left out.
                let came_from = rest.find(|(name, value, in_key)| {
                    let is_cut = name.len() > NAME_BYTES_MAX || value.len() > VALUE_BYTES_MAX;
                    let begins = name.as_bytes().starts_with(kept.name) && value.starts_with(kept.value);
                    begins && (*in_key, is_cut) == (kept.in_key, kept.is_cut)
                });
                prop_assert!(came_from.is_some(), "{kept:?} was never told");
            }
            prop_assert_eq!(label.facts().count() < facts.len(), label.is_cut);
        }
    }

    #[test]
    fn an_address_is_shown_as_the_network_that_is_counted() {
        let mut label = Label::default();
        let value = Value::address("2001:db8:1:2:3::4".parse().unwrap());
        label.push(Fact { prefix: Some(64), ..fact("source", value, true) });
        label.push(fact("source", value, false));
        label.push(fact("cost", Value::Number(-3), false));
        let shown: Vec<String> = label.facts().map(|fact| fact.shown()).collect();
        assert_eq!(shown, ["2001:db8:1:2::/64", "2001:db8:1:2:3::4", "-3"]);
    }
}
