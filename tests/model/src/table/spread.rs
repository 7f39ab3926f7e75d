//! A spread without a secret: the highest bits of a key choose its shard.

use crate::base::Key;

#[derive(Clone, Copy, Debug)]
pub struct Spread;

impl Spread {
    #[allow(clippy::new_without_default, reason = "as in crates/core/src/table")]
    pub fn new() -> Spread {
        Spread
    }

    pub fn bits(self, key: Key) -> u64 {
        key.bits()
    }
}
