//! The throttling key: XXH64 of an SLO's type and of the fields that the type names.

use std::fmt;
use std::net::IpAddr;

use xxhash_rust::xxh64::Xxh64;

/// Who is throttled, in eight bytes: a `type binary len 8` key of a stick table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(u64);

impl Key {
    pub const fn from_bits(bits: u64) -> Key {
        Key(bits)
    }

    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Reads what `Display` writes: sixteen hex digits, in upper or lower case.
    ///
    /// ```
    /// use slowlane::key::Key;
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

/// Gathers the parts of a key.
///
/// What is hashed, with seed 0: the type as one ASCII digit, then each part as its length (4 bytes,
/// little-endian) and its bytes. The lengths keep `ab` + `c` apart from `a` + `bc`: where clients choose
/// a field, none can build another's key.
///
/// ```
/// use slowlane::key::KeyHasher;
/// let key = KeyHasher::new(2).part(b"shop.example").finish();
/// assert_eq!(key, KeyHasher::new(2).part(b"shop.example").finish());
/// assert_ne!(key, KeyHasher::new(1).part(b"shop.example").finish());
/// ```
#[derive(Clone)]
pub struct KeyHasher(Xxh64);

impl KeyHasher {
    pub fn new(kind: u8) -> KeyHasher {
        let mut hasher = Xxh64::new(0);
        hasher.update(&[b'0' + kind]);
        KeyHasher(hasher)
    }

    pub fn part(mut self, bytes: &[u8]) -> KeyHasher {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.0.update(&length.to_le_bytes());
        self.0.update(bytes);
        self
    }

    /// An address as its 4 or 16 bytes, whatever way it was written.
    pub fn address(self, address: IpAddr) -> KeyHasher {
        match address {
            IpAddr::V4(v4) => self.part(&v4.octets()),
            IpAddr::V6(v6) => self.part(&v6.octets()),
        }
    }

    pub fn finish(self) -> Key {
        Key(self.0.digest())
    }
}
