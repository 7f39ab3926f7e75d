//! Operators' blocks, with their fields in canonical form, and an index of the blocks for a policy's requests.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use arc_swap::{ArcSwap, Guard};
use arrayvec::ArrayVec;
use hashbrown::HashMap;
use thiserror::Error;

use crate::base::network::{canonical, read, untranslated};
use crate::base::{
    Blocked, Key, KeyHasher, KeySecret, Network, TARGET_FIELDS_MAX, TargetError, VALUE_BYTES_MAX, Value,
    shown, target,
};
use crate::policy::{EXTRA_MAX, Field, Place, Policy, Text, Values};

/// The maximum number of distinct sets of blocked fields. Each set adds a lookup to every request, and each
/// prefix length makes a separate set.
pub const SHAPES_MAX: usize = 32;

/// The error for fields that cannot be blocked. Its message gives the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BlockTargetError {
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error("{name} {value:?}: expected an address or a network, like 192.0.2.66 or 192.0.2.0/24")]
    Address { name: String, value: String },
    #[error("{name} {value:?}: expected a host, like shop.example")]
    Host { name: String, value: String },
    #[error(
        "blocks already use {SHAPES_MAX} distinct sets of fields, the maximum, and each prefix length makes \
         a separate set: make room with `slowlane block rm`"
    )]
    TooManyShapes,
    #[error(
        "blocks already use {EXTRA_MAX} fields that the policy does not use, the maximum: block by a \
         field of the policy, or end the blocks that use other fields and reload the policy"
    )]
    TooManyFields,
}

impl Policy {
    /// Converts the fields of a block, as typed by an operator, to canonical form.
    ///
    /// A host loses its port and is converted to lower case. An address without a length becomes the network
    /// of one customer, as in keys; for IPv6, this is usually a /64.
    ///
    /// ```
    /// use slowlane_core::{base::Target, policy::Policy};
    /// let typed = [("source", "2001:db8::1"), ("website", "Shop.example:80")];
    /// let target = Target::Fields(Policy::builtin().block_fields(typed).unwrap());
    /// assert_eq!(target.to_string(), "source=2001:db8::/64 website=shop.example");
    /// ```
    ///
    /// # Errors
    /// The first fault, with its remedy.
    pub fn block_fields<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        typed: impl IntoIterator<Item = (N, V)>,
    ) -> Result<target::Fields, BlockTargetError> {
        let typed = target::Fields::new(typed)?;
        let fields = typed.iter().map(|(name, value)| Ok((name, self.block_value(name, value)?)));
        let fields: Vec<_> = fields.collect::<Result<_, BlockTargetError>>()?;
        Ok(target::Fields::new(fields)?)
    }

    fn block_value(&self, name: &str, value: &[u8]) -> Result<Vec<u8>, BlockTargetError> {
        let unknown = Field::extra(name);
        let field = self.fields.find(name).map_or(&unknown, |(_, field)| field);
        let faulty = || (name.to_owned(), shown(value));
        let given = field.value(Value::Text(value));
        if field.has_host() {
            if let Value::NoHost(_) = given {
                let (name, value) = faulty();
                return Err(BlockTargetError::Host { name, value });
            }
            // The canonical form of a host is never longer than the original, so the length need not be checked again.
            return Ok(Text::default().of(&given).to_vec());
        }
        let network = match given {
            Value::Address(address) => Some((address, self.fields.masks().prefix(address))),
            _ if field.is_address() => network_of(value),
            _ => return Ok(value.to_vec()),
        };
        let Some((address, prefix)) = network else {
            let (name, value) = faulty();
            return Err(BlockTargetError::Address { name, value });
        };
        let network = Network::of(address, prefix).to_string();
        // A single IPv6 address is written with its length, or it would be read as the customer's whole network.
        let is_whole = address.is_ipv6() && !network.contains('/');
        Ok(if is_whole { format!("{network}/128") } else { network }.into_bytes())
    }

    /// Adds a block to an index for the requests of this policy. A field that the policy does not use is
    /// added to the fields that the policy reads.
    ///
    /// # Errors
    /// There are too many distinct sets of fields, or too many fields that the policy does not use.
    pub fn add_block(
        &self,
        index: &mut BlockIndex,
        fields: &target::Fields,
        blocked: Blocked,
    ) -> Result<(), BlockTargetError> {
        let (mut parts, mut hasher) = (ArrayVec::new(), KeyHasher::new(self.key_secret, 0, 0));
        for (name, value) in fields.iter() {
            let (place, field) = self.fields.for_block(name).ok_or(BlockTargetError::TooManyFields)?;
            match network_of(value).filter(|_| field.is_address()) {
                Some((address, prefix)) => {
                    hasher.address(Network::of(address, prefix).address());
                    parts.push(Part::Network { place, prefix, is_ipv4: address.is_ipv4() });
                }
                None => {
                    hasher.part(value);
                    parts.push(Part::Text(place));
                }
            }
        }
        let shape = match index.shapes.iter().position(|shape| shape.parts == parts) {
            Some(shape) => shape,
            None if index.shapes.len() == SHAPES_MAX => return Err(BlockTargetError::TooManyShapes),
            None => {
                index.shapes.push(Shape { parts, blocks: HashMap::new() });
                index.shapes.len() - 1
            }
        };
        index.shapes[shape].blocks.insert(hasher.finish(), blocked);
        Ok(())
    }

    /// Whether the policy itself, and not just a block, uses this field.
    pub fn knows(&self, name: &str) -> bool {
        self.fields.find(name).is_some_and(|(place, _)| place < self.fields.count())
    }

    /// Puts these blocks in force, in place of the previous blocks.
    pub fn put_blocks(&self, index: BlockIndex) {
        let is_any = !index.shapes.is_empty();
        self.blocks.index.store(Arc::new(index));
        self.blocks.is_any.store(is_any, Relaxed);
    }
}

/// Reads the network of a block, in the form in which requests carry addresses.
fn network_of(value: &[u8]) -> Option<(IpAddr, u8)> {
    read(value).and_then(untranslated).map(canonical)
}

/// The index of the blocks in force. While there is no block, checking a batch costs one relaxed load.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    is_any: AtomicBool,
    index: ArcSwap<BlockIndex>,
}

/// The index of the blocks that were in force when it was loaded.
pub(super) type BlocksInForce = Guard<Arc<BlockIndex>>;

impl Blocks {
    /// The index, unless there is no block.
    #[inline]
    pub(super) fn in_force(&self) -> Option<BlocksInForce> {
        self.is_any.load(Relaxed).then(|| self.index.load())
    }
}

/// An index of blocks by the values of their fields. It is valid only for the requests of one policy.
#[derive(Debug, Default)]
pub struct BlockIndex {
    shapes: Vec<Shape>,
}

/// The blocks with one set of fields, each under the keyed hash of the fields' values.
#[derive(Debug)]
struct Shape {
    parts: ArrayVec<Part, TARGET_FIELDS_MAX>,
    blocks: HashMap<Key, Blocked>,
}

/// A field of a block, and how the field is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The text that a map would hold.
    Text(Place),
    /// The leading bits of an address.
    Network { place: Place, prefix: u8, is_ipv4: bool },
}

impl BlockIndex {
    /// The block that matches a request; if several do, the one that ends last. The block may have expired.
    // This function is separate because its buffers would enlarge the stack frame of every decision.
    #[cold]
    #[inline(never)]
    pub(super) fn find(&self, secret: KeySecret, values: Values<'_, '_>) -> Option<Blocked> {
        let found = self.shapes.iter().filter_map(|shape| shape.find(secret, values));
        found.max_by_key(|blocked| blocked.until)
    }
}

impl Shape {
    fn find(&self, secret: KeySecret, values: Values<'_, '_>) -> Option<Blocked> {
        let mut hasher = KeyHasher::new(secret, 0, 0);
        for part in &self.parts {
            match *part {
                Part::Text(place) => {
                    let mut text = Text::default();
                    let value = text.of(values.get(place)?);
                    // No block has a longer value.
                    if value.len() > VALUE_BYTES_MAX {
                        return None;
                    }
                    hasher.part(value)
                }
                Part::Network { place, prefix, is_ipv4 } => match values.get(place)? {
                    &Value::Address(address) if address.is_ipv4() == is_ipv4 => {
                        hasher.address(Network::of(address, prefix).address())
                    }
                    _ => return None,
                },
            };
        }
        self.blocks.get(&hasher.finish()).copied()
    }
}
