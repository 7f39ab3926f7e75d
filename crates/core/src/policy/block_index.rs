//! The blocks that operators have set, indexed for the requests of a policy.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use arc_swap::{ArcSwapOption, Guard};
use arrayvec::ArrayVec;
use hashbrown::{DefaultHashBuilder, HashMap};
use thiserror::Error;

use crate::base::network::{canonical, read, untranslated};
use crate::base::{Blocked, Network, TARGET_FIELDS_MAX, TargetError, VALUE_BYTES_MAX, Value, target};
use crate::policy::{EXTRA_MAX, Fields, Place, Text, Values};

/// The maximum number of distinct sets of fields. Each costs a request one lookup. Each prefix length is a separate
/// set.
pub const SHAPES_MAX: usize = 32;

/// Fields that cannot be blocked. The message gives the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BlockTargetError {
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error("{name} {value:?}: expected an address or a network, like 192.0.2.66 or 192.0.2.0/24")]
    Address { name: String, value: String },
    #[error("{name} {value:?}: expected a host, like shop.example")]
    Host { name: String, value: String },
    #[error(
        "blocks already use {SHAPES_MAX} distinct sets of fields, the maximum: each prefix length is a separate \
         set; `slowlane block rm` makes room"
    )]
    TooManyShapes,
    #[error(
        "blocks already use {EXTRA_MAX} fields that the policy does not use, the maximum: block by another field; a \
         reload of the policy frees fields without a block"
    )]
    TooManyFields,
}

/// The index in force. Without a block, a batch costs one relaxed load.
#[derive(Default)]
pub(super) struct Blocks {
    is_any: AtomicBool,
    index: ArcSwapOption<BlockIndex>,
}

/// The index as it was when it was read.
pub(super) type BlocksInForce = Guard<Option<Arc<BlockIndex>>>;

impl Blocks {
    /// The index, unless there is no block.
    #[inline]
    pub(super) fn in_force(&self) -> Option<BlocksInForce> {
        self.is_any.load(Relaxed).then(|| self.index.load())
    }

    /// Replaces the index.
    pub(super) fn put(&self, index: BlockIndex) {
        let is_any = !index.shapes.is_empty();
        self.index.store(Some(Arc::new(index)));
        self.is_any.store(is_any, Relaxed);
    }
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocks").field("is_any", &self.is_any).finish_non_exhaustive()
    }
}

/// Blocks by the values of their fields. It fits the requests of one policy.
#[derive(Debug, Default)]
pub struct BlockIndex {
    shapes: Vec<Shape>,
}

/// The blocks with one set of fields.
#[derive(Debug)]
struct Shape {
    parts: ArrayVec<Part, TARGET_FIELDS_MAX>,
    blocks: HashMap<Box<[u8]>, Blocked, DefaultHashBuilder>,
}

/// A field of a block, and the kind of comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The text that a map would hold.
    Text(Place),
    /// The leading bits of an address.
    Network { place: Place, prefix: u8, is_ipv4: bool },
}

/// The values of a request for one shape, each preceded by its length.
type Joined = ArrayVec<u8, { TARGET_FIELDS_MAX * (VALUE_BYTES_MAX + 2) }>;

impl BlockIndex {
    /// Adds a block. A field that the policy does not use is added to the known ones.
    ///
    /// # Errors
    /// There are too many shapes, or too many fields that the policy does not use.
    pub(super) fn add(
        &mut self,
        known: &Fields,
        fields: &target::Fields,
        blocked: Blocked,
    ) -> Result<(), BlockTargetError> {
        let (mut parts, mut joined) = (ArrayVec::new(), Joined::new());
        for (name, value) in fields.iter() {
            let (place, field) = known.for_block(name).ok_or(BlockTargetError::TooManyFields)?;
            let network = field.is_address().then(|| read(value)).flatten();
            match network.and_then(untranslated).map(canonical) {
                Some((address, prefix)) => {
                    push_address(&mut joined, Network::of(address, prefix).address());
                    parts.push(Part::Network { place, prefix, is_ipv4: address.is_ipv4() });
                }
                None => {
                    push(&mut joined, value);
                    parts.push(Part::Text(place));
                }
            }
        }
        let shape = match self.shapes.iter().position(|shape| shape.parts == parts) {
            Some(shape) => shape,
            None if self.shapes.len() == SHAPES_MAX => return Err(BlockTargetError::TooManyShapes),
            None => {
                self.shapes.push(Shape { parts, blocks: HashMap::default() });
                self.shapes.len() - 1
            }
        };
        self.shapes[shape].blocks.insert(joined.as_slice().into(), blocked);
        Ok(())
    }

    /// The block that applies to a request; of several, the one that ends last. It may have expired.
    // A separate function, because its buffer would enlarge the stack frame of every decision.
    #[cold]
    #[inline(never)]
    pub(super) fn find(&self, values: Values<'_, '_>) -> Option<Blocked> {
        let found = self.shapes.iter().filter_map(|shape| shape.find(values));
        found.max_by_key(|blocked| blocked.until)
    }
}

impl Shape {
    fn find(&self, values: Values<'_, '_>) -> Option<Blocked> {
        let mut joined = Joined::new();
        for part in &self.parts {
            match *part {
                Part::Text(place) => push_text(&mut joined, values.get(place)?)?,
                Part::Network { place, prefix, is_ipv4 } => match values.get(place)? {
                    &Value::Address(address) if address.is_ipv4() == is_ipv4 => {
                        push_address(&mut joined, Network::of(address, prefix).address());
                    }
                    _ => return None,
                },
            }
        }
        self.blocks.get(joined.as_slice()).copied()
    }
}

/// Adds a value in the notation of a map. None if it is longer than any value in a block.
fn push_text(joined: &mut Joined, value: &Value<'_>) -> Option<()> {
    let is_long = match value {
        Value::Text(text) | Value::Name(text) | Value::NoHost(text) | Value::Base { text, .. } => {
            text.len() > VALUE_BYTES_MAX
        }
        Value::Address(_) | Value::Number(_) | Value::Network(_) => false,
    };
    (!is_long).then(|| push(joined, Text::default().of(value)))
}

fn push_address(joined: &mut Joined, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => push(joined, &v4.octets()),
        IpAddr::V6(v6) => push(joined, &v6.octets()),
    }
}

fn push(joined: &mut Joined, bytes: &[u8]) {
    let length = u16::try_from(bytes.len()).expect("values are short");
    joined.extend(length.to_le_bytes());
    joined.try_extend_from_slice(bytes).expect("there is room for each part");
}
