//! The number of different addresses, estimated with two words of memory.

/// A bit for each address, chosen by its hash. Several may share one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AddressBits([u64; 2]);

impl AddressBits {
    pub(super) fn of(hash: u64) -> AddressBits {
        // The upper bits: the lower ones choose a counter's place.
        let mut bits = [0; 2];
        bits[usize::from(hash >> 63 == 1)] = 1 << (hash >> 57 & 63);
        AddressBits(bits)
    }

    pub(super) fn and(self, AddressBits([first, second]): AddressBits) -> AddressBits {
        AddressBits([self.0[0] | first, self.0[1] | second])
    }

    /// The number of addresses that explains them (linear counting: Whang and others, 1990). None: too many to tell.
    pub(super) fn addresses(self) -> Option<u32> {
        let zeros = f64::from(self.0[0].count_zeros() + self.0[1].count_zeros());
        (zeros > 0.0).then(|| (128.0 * (128.0 / zeros).ln()).round() as u32)
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, RandomState};

    use super::*;

    #[test]
    fn bits_tell_the_number_of_addresses_about() {
        let hasher = RandomState::new();
        let bits = |addresses: u32| {
            (0..addresses)
                .fold(AddressBits::default(), |bits, n| bits.and(AddressBits::of(hasher.hash_one(n))))
        };
        assert_eq!([bits(0), bits(1)].map(AddressBits::addresses), [Some(0), Some(1)]);
        assert_eq!(bits(9_000).addresses(), None);
        for addresses in [10_u32, 50, 100, 200] {
            let told = bits(addresses).addresses().unwrap();
            assert!(told.abs_diff(addresses) <= addresses / 3 + 2, "{told} for {addresses}");
        }
    }
}
