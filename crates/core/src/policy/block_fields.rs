//! The fields of a block, as an operator types them and as requests carry them.

use std::net::IpAddr;

use crate::base::network::{canonical, read, untranslated};
use crate::base::{Blocked, Network, Value, shown, target};
use crate::policy::{BlockIndex, BlockTargetError, Field, Policy, Text};

impl Policy {
    /// The fields of a block as an operator types them, in canonical form.
    ///
    /// A host loses its port and its capitals. An address without a length becomes the network of one customer, as in
    /// keys: for IPv6 usually a /64.
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
        let kind = || (name.to_owned(), shown(value));
        let given = field.value(Value::Text(value));
        if field.has_host() {
            if let Value::NoHost(_) = given {
                let (name, value) = kind();
                return Err(BlockTargetError::Host { name, value });
            }
            // In canonical form, no value is longer.
            return Ok(Text::default().of(&given).to_vec());
        }
        let network = match given {
            Value::Address(address) => Some((address, self.fields.customer_prefix(address))),
            _ if field.is_address() => read(value).and_then(untranslated).map(canonical),
            _ => return Ok(value.to_vec()),
        };
        let Some((address, prefix)) = network else {
            let (name, value) = kind();
            return Err(BlockTargetError::Address { name, value });
        };
        Ok(network_text(address, prefix).into_bytes())
    }

    /// Adds a block to an index for the requests of this policy.
    ///
    /// # Errors
    /// There are too many shapes, or too many fields that the policy does not use.
    pub fn add_block(
        &self,
        index: &mut BlockIndex,
        fields: &target::Fields,
        blocked: Blocked,
    ) -> Result<(), BlockTargetError> {
        index.add(&self.fields, fields, blocked)
    }

    /// Whether the policy itself uses the field of a block.
    pub fn knows(&self, name: &str) -> bool {
        self.fields.find(name).is_some_and(|(place, _)| place < self.fields.count())
    }

    /// Puts blocks in force. They replace the ones before.
    pub fn put_blocks(&self, index: BlockIndex) {
        self.blocks.put(index);
    }
}

/// A single IPv6 address keeps its length, or it would read as the network of its customer.
fn network_text(address: IpAddr, prefix: u8) -> String {
    let network = Network::of(address, prefix).to_string();
    match network.contains('/') || address.is_ipv4() {
        true => network,
        false => format!("{network}/128"),
    }
}
