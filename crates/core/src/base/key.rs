//! The key of an entry: a keyed hash of an SLO's type and of the fields that the type names.

use std::fmt;
use std::hash::Hasher;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use siphasher::sip::{SipHasher13, SipHasher24};

/// The eight-byte key of an entry, which fits a stick table with `type binary len 8`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key(u64);

impl Key {
    pub const fn from_bits(bits: u64) -> Key {
        Key(bits)
    }

    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Reads 16 hex digits in upper or lower case, such as the output of `Display`.
    ///
    /// ```
    /// use slowlane_core::base::Key;
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

/// The 16-byte secret of the keyed hash. Without the secret, a client can neither compute a request's key nor
/// find two requests with the same key.
///
/// ```
/// use slowlane_core::base::KeySecret;
/// let secret = KeySecret::from_bytes(*b"0123456789abcdef");
/// assert_eq!(KeySecret::read(b"30313233343536373839616263646566\n"), Some(secret));
/// assert_eq!(secret.to_hex(), "30313233343536373839616263646566");
/// assert_eq!(format!("{secret:?}"), "KeySecret(…)");
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeySecret([u64; 2]);

impl KeySecret {
    /// A publicly known secret for simulations and tests, where no client sends requests.
    pub const KNOWN: KeySecret = KeySecret([0; 2]);

    pub fn from_bytes(bytes: [u8; 16]) -> KeySecret {
        let bits = u128::from_le_bytes(bytes);
        KeySecret([bits as u64, (bits >> 64) as u64])
    }

    /// Reads 16 raw bytes, or 32 hex digits that may be surrounded by white space. None for anything else.
    pub fn read(text: &[u8]) -> Option<KeySecret> {
        if let Ok(bytes) = text.try_into() {
            return Some(KeySecret::from_bytes(bytes));
        }
        let digits = std::str::from_utf8(text.trim_ascii()).ok()?;
        let is_hex = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let bits = is_hex.then(|| u128::from_str_radix(digits, 16).ok())??;
        Some(KeySecret::from_bytes(bits.to_be_bytes()))
    }

    /// The secret as 32 hex digits, for other programs that use the same secret.
    pub fn to_hex(self) -> String {
        let bits = u128::from(self.0[0]) | u128::from(self.0[1]) << 64;
        bits.to_le_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Seals text that a proxy keeps and returns. Unlike the keys of requests, the seal uses SipHash-2-4.
    pub fn seal(self, text: &[u8]) -> Key {
        let mut hasher = SipHasher24::new_with_keys(self.0[0], self.0[1]);
        hasher.write(b"seal");
        hasher.write(text);
        Key(hasher.finish())
    }

    /// The keyed hash itself. Input for a key begins with a digit or `:`, so no other input may begin with either.
    #[inline]
    pub fn hasher(self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0[0], self.0[1])
    }
}

impl fmt::Debug for KeySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeySecret(…)")
    }
}

/// Hashes the parts of a key with SipHash-1-3 (Aumasson and Bernstein, 2012).
///
/// The input consists of the type, the tag of the law's state (4 bytes, little-endian), and the parts. A type below 10
/// is one ASCII digit; any other type is `:` and two bytes, little-endian. Each part consists of its length (4 bytes,
/// little-endian) and its bytes. The lengths distinguish `ab` + `c` from `a` + `bc`, so a client cannot get another
/// client's key by moving a letter to the next field. Nor can a client find a collision without knowing the secret.
///
/// ```
/// use slowlane_core::base::{KeyHasher, KeySecret};
/// let key = |secret, kind, website| KeyHasher::new(secret, kind, 0).part(website).finish();
/// let (one, other) = (KeySecret::from_bytes([1; 16]), KeySecret::from_bytes([2; 16]));
/// assert_eq!(key(one, 2, b"shop.example"), key(one, 2, b"shop.example"));
/// assert_ne!(key(one, 2, b"shop.example"), key(one, 1, b"shop.example"));
/// assert_ne!(key(one, 2, b"shop.example"), key(other, 2, b"shop.example"));
/// ```
#[derive(Clone)]
pub struct KeyHasher {
    /// The input so far. Input that fits in the buffer is hashed in one call.
    buffer: [u8; BUFFER_BYTES],
    length: usize,
    /// The hash so far, once the input no longer fits in the buffer.
    stream: Option<SipHasher13>,
    secret: KeySecret,
}

/// The size of the buffer, in bytes. The input of nearly every key fits.
const BUFFER_BYTES: usize = 128;

impl KeyHasher {
    /// Starts a key of the type `kind`, for entries whose law has this state tag.
    #[inline]
    pub fn new(secret: KeySecret, kind: u16, state_tag: u32) -> KeyHasher {
        let mut buffer = [0; BUFFER_BYTES];
        let length = head(&mut buffer, kind, state_tag);
        KeyHasher { buffer, length, stream: None, secret }
    }

    /// The key whose only part is an address, for a type from 0 to 9.
    ///
    /// ```
    /// use slowlane_core::base::{KeyHasher, KeySecret};
    /// let (secret, address) = (KeySecret::KNOWN, "192.0.2.1".parse().unwrap());
    /// let key = KeyHasher::new(secret, 3, 7).address(address).finish();
    /// assert_eq!(KeyHasher::key_of_address(secret, 3, 7, address), key);
    /// ```
    #[inline]
    pub fn key_of_address(secret: KeySecret, digit: u8, state_tag: u32, address: IpAddr) -> Key {
        let mut input = [0; 25];
        input[0] = b'0' + digit;
        input[1..5].copy_from_slice(&state_tag.to_le_bytes());
        let length = match address {
            IpAddr::V4(v4) => {
                input[5] = 4;
                input[9..13].copy_from_slice(&v4.octets());
                13
            }
            IpAddr::V6(v6) => {
                input[5] = 16;
                input[9..25].copy_from_slice(&v6.octets());
                25
            }
        };
        Key(secret.hasher().hash(&input[..length]))
    }

    #[inline]
    pub fn part(&mut self, bytes: &[u8]) -> &mut KeyHasher {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.write(&length.to_le_bytes());
        self.write(bytes);
        self
    }

    /// Adds an address as 4 or 16 bytes, so the address's spelling does not matter.
    #[inline]
    pub fn address(&mut self, address: IpAddr) -> &mut KeyHasher {
        match address {
            IpAddr::V4(v4) => self.part(&v4.octets()),
            IpAddr::V6(v6) => self.part(&v6.octets()),
        }
    }

    pub fn finish(&self) -> Key {
        match &self.stream {
            None => Key(self.secret.hasher().hash(&self.buffer[..self.length])),
            Some(stream) => Key(stream.finish()),
        }
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let room = self.buffer.get_mut(self.length..self.length + bytes.len());
        match room.filter(|_| self.stream.is_none()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.length += bytes.len();
            }
            None => self.stream(bytes),
        }
    }

    #[cold]
    fn stream(&mut self, bytes: &[u8]) {
        let stream = self.stream.get_or_insert_with(|| {
            let mut stream = self.secret.hasher();
            stream.write(&self.buffer[..self.length]);
            stream
        });
        stream.write(bytes);
    }
}

/// Writes the type and the tag, and returns their total length.
#[inline]
fn head(input: &mut [u8], kind: u16, state_tag: u32) -> usize {
    let at = match u8::try_from(kind) {
        Ok(digit @ 0..=9) => {
            input[0] = b'0' + digit;
            1
        }
        _ => {
            input[0] = b':';
            input[1..3].copy_from_slice(&kind.to_le_bytes());
            3
        }
    };
    input[at..at + 4].copy_from_slice(&state_tag.to_le_bytes());
    at + 4
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A key of any length is the hash of the documented bytes.
        #[test]
        fn it_is_what_is_documented(
            secret: [u8; 16], kind in prop_oneof![0u16..12, 0u16..1_000], tag: u32, lengths in prop::collection::vec(0usize..100, 0..5),
        ) {
            let secret = KeySecret::from_bytes(secret);
            let mut hasher = KeyHasher::new(secret, kind, tag);
            let [low, high] = kind.to_le_bytes();
            let mut bytes = if kind < 10 { vec![b'0' + low] } else { vec![b':', low, high] };
            bytes.extend(tag.to_le_bytes());
            for length in lengths {
                let part = vec![length as u8; length];
                hasher.part(&part);
                bytes.extend((length as u32).to_le_bytes());
                bytes.extend(part);
            }
            prop_assert_eq!(hasher.finish().bits(), secret.hasher().hash(&bytes));
        }
    }

    /// The first test vector of SipHash-1-3: no input, and the key 0, 1, … 15.
    #[test]
    fn the_hash_is_siphash_1_3() {
        let secret = KeySecret::from_bytes(std::array::from_fn(|number| number as u8));
        let expected = [0xDC, 0xC4, 0x0F, 0x05, 0x58, 0x01, 0xAC, 0xAB];
        assert_eq!(secret.hasher().hash(b"").to_le_bytes(), expected);
    }

    #[test]
    fn a_secret_is_sixteen_bytes_or_their_hex_digits() {
        let (secret, digits) =
            (KeySecret::from_bytes(*b"0123456789abcdef"), "30313233343536373839616263646566");
        assert_eq!(KeySecret::read(b"0123456789abcdef"), Some(secret));
        for text in [digits.to_owned(), format!("\t{digits}\r\n")] {
            assert_eq!(KeySecret::read(text.as_bytes()), Some(secret), "{text:?}");
        }
        let odd = ["", "0123456789abcde", "0123456789abcdef\n", &digits[1..], &format!("+{}", &digits[1..])];
        for text in odd {
            assert_eq!(KeySecret::read(text.as_bytes()), None, "{text:?}");
        }
    }
}
