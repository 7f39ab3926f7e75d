//! The spread of keys over a table: a hash with its own secret.

use std::hash::BuildHasher;

use crate::base::Key;

/// Spreads keys with a secret hash, so that clients cannot choose keys that collide in a shard or slot, even
/// if the keys themselves depend on no secret.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    mask: u64,
    factor: u64,
}

impl Spread {
    /// Each table has its own spread. The standard library takes the secret from the system.
    #[expect(
        clippy::disallowed_types,
        reason = "the secret decides only where a row is kept, and neither a row nor a verdict depends on \
                  that place"
    )]
    #[allow(clippy::new_without_default, reason = "no two spreads are the same")]
    pub fn new() -> Spread {
        let secret = std::hash::RandomState::new();
        Spread::of(secret.hash_one(0), secret.hash_one(1))
    }

    pub(super) const fn of(mask: u64, factor: u64) -> Spread {
        Spread { mask, factor: factor | 1 }
    }

    /// The 64 bits of a key's hash: the low half of a product, XORed with its high half.
    #[inline]
    pub fn bits(self, key: Key) -> u64 {
        let product = u128::from(key.bits() ^ self.mask) * u128::from(self.factor);
        product as u64 ^ (product >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys that a plain spread would put in one shard, one slot, or both.
    fn crafted() -> Vec<Vec<u64>> {
        let of = |key: fn(u64) -> u64| (0..6_000).map(key).collect();
        vec![
            of(|n| n),
            of(|n| n << 3 | 5 << 40),
            of(|n| n << 43 | 7),
            of(|n| n << 51),
            of(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
            // The inverse of the golden ratio's multiplier: products that differ in their lowest bits only.
            of(|n| n.wrapping_mul(0xF1DE_83E1_9937_733D)),
        ]
    }

    #[test]
    fn no_crafted_keys_meet_in_one_place() {
        for keys in crafted() {
            let spread = Spread::of(0x0123_4567_89AB_CDEF, 0xFEDC_BA98_7654_3210);
            for bits in [0..3, 29..32, 50..54, 57..64, 61..64] {
                let mut counts = vec![0u32; 1 << bits.len()];
                for &key in &keys {
                    counts[(spread.bits(Key::from_bits(key)) >> bits.start) as usize % (1 << bits.len())] +=
                        1;
                }
                let fair = 6_000 / counts.len() as u32;
                assert!(counts.iter().all(|&count| count < 3 * fair), "{bits:?}: {counts:?}");
            }
        }
    }
}
