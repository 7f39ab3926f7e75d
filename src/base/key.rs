//! The key of an entry: XXH64 of an SLO's type and of the fields that the type names.

use std::fmt;
use std::net::IpAddr;

use arrayvec::ArrayVec;
use xxhash_rust::xxh64::{Xxh64, xxh64};

/// The key of an entry, in eight bytes: a `type binary len 8` key of a stick table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(u64);

impl Key {
    pub const fn from_bits(bits: u64) -> Key {
        Key(bits)
    }

    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Reads sixteen hex digits, in upper or lower case: the text of `Display`.
    ///
    /// ```
    /// use slowlane::base::key::Key;
    /// let key = Key::from_bits(0x26C7_827D_889F_6DA3);
    /// assert_eq!(Key::from_hex("26C7827D889F6DA3"), Some(key));
    /// assert_eq!(Key::from_hex("26C7"), None);
    /// ```
    pub fn from_hex(text: &str) -> Option<Key> {
        let is_hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hex.then(|| u64::from_str_radix(text, 16).ok().map(Key))?
    }
}

/// Upper-case hex, as `show table` prints a binary key.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016X}", self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

/// Hashes the parts of a key.
///
/// The hash has seed 0. Its input is the type as one ASCII digit, then the parts. Each part is its length
/// (4 bytes, little-endian) and its bytes. The lengths tell `ab` + `c` from `a` + `bc`: a client cannot get
/// the key of another one by moving a letter to the next field. A client can compute collisions of XXH64, as it
/// can for the hash of a stick table.
///
/// ```
/// use slowlane::base::key::KeyHasher;
/// let key = |kind, website| KeyHasher::new(kind).part(website).finish();
/// assert_eq!(key(2, b"shop.example"), key(2, b"shop.example"));
/// assert_ne!(key(2, b"shop.example"), key(1, b"shop.example"));
/// ```
#[derive(Clone)]
pub struct KeyHasher {
    /// The input so far. A key that fits is hashed in one call.
    buffer: ArrayVec<u8, BUFFER_BYTES>,
    /// The hash of a key that does not fit the buffer.
    stream: Option<Xxh64>,
}

/// Longer than nearly all keys.
const BUFFER_BYTES: usize = 128;

impl KeyHasher {
    /// Starts a key of the type `kind`, 0 to 9.
    pub fn new(kind: u8) -> KeyHasher {
        let mut buffer = ArrayVec::new();
        buffer.push(b'0' + kind);
        KeyHasher { buffer, stream: None }
    }

    pub fn part(&mut self, bytes: &[u8]) -> &mut KeyHasher {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.write(&length.to_le_bytes());
        self.write(bytes);
        self
    }

    /// Adds the 4 or 16 bytes of an address: its spelling does not matter.
    pub fn address(&mut self, address: IpAddr) -> &mut KeyHasher {
        match address {
            IpAddr::V4(v4) => self.part(&v4.octets()),
            IpAddr::V6(v6) => self.part(&v6.octets()),
        }
    }

    pub fn finish(&self) -> Key {
        match &self.stream {
            None => Key(xxh64(&self.buffer, 0)),
            Some(stream) => Key(stream.digest()),
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        if self.stream.is_none() && self.buffer.try_extend_from_slice(bytes).is_ok() {
            return;
        }
        let stream = self.stream.get_or_insert_with(|| {
            let mut stream = Xxh64::new(0);
            stream.update(&self.buffer);
            stream
        });
        stream.update(bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A key of any length is XXH64 of the documented bytes.
        #[test]
        fn it_is_what_is_documented(kind in 0u8..10, lengths in prop::collection::vec(0usize..100, 0..5)) {
            let (mut hasher, mut bytes) = (KeyHasher::new(kind), vec![b'0' + kind]);
            for length in lengths {
                let part = vec![length as u8; length];
                hasher.part(&part);
                bytes.extend((length as u32).to_le_bytes());
                bytes.extend(part);
            }
            prop_assert_eq!(hasher.finish().bits(), xxh64(&bytes, 0));
        }
    }
}
