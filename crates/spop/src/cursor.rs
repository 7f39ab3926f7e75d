//! A cursor over the unread bytes of a frame.

use std::iter;

use crate::{ReadError, varint};

/// Reads forward and never past the end.
///
/// A read that fails empties the cursor, so a loop of reads ends on any input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

/// The values that `read` finds in `bytes`, up to and including the first error.
pub(crate) fn each<'a, T, E>(
    bytes: &'a [u8],
    read: fn(&mut Cursor<'a>) -> Result<T, E>,
) -> impl Iterator<Item = Result<T, E>> {
    let mut rest = Cursor::new(bytes);
    iter::from_fn(move || {
        let value = (!rest.is_empty()).then(|| read(&mut rest))?;
        if value.is_err() {
            rest = Cursor::new(b"");
        }
        Some(value)
    })
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The unread bytes.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub(crate) fn byte(&mut self) -> Result<u8, ReadError> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        let (array, rest) = std::mem::take(&mut self.rest).split_first_chunk().ok_or(ReadError::Truncated)?;
        self.rest = rest;
        Ok(*array)
    }

    /// The next `length` bytes. A length beyond the end of the frame is an error and allocates nothing.
    #[inline]
    pub(crate) fn slice(&mut self, length: u64) -> Result<&'a [u8], ReadError> {
        let rest = std::mem::take(&mut self.rest);
        let length = usize::try_from(length).map_err(|_| ReadError::Truncated)?;
        let (slice, rest) = rest.split_at_checked(length).ok_or(ReadError::Truncated)?;
        self.rest = rest;
        Ok(slice)
    }

    #[inline(always)]
    pub(crate) fn varint(&mut self) -> Result<u64, ReadError> {
        let rest = std::mem::take(&mut self.rest);
        let (value, length) = varint::decode(rest)?;
        self.rest = &rest[length..];
        Ok(value)
    }

    /// A string, preceded by its length: `<LENGTH:varint><BYTES>` (SPOE.txt 3.1). It may contain any bytes,
    /// and may be empty.
    #[inline(always)]
    pub(crate) fn string(&mut self) -> Result<&'a [u8], ReadError> {
        let length = self.varint()?;
        self.slice(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_past_the_end_fails_and_leaves_nothing() {
        let mut cursor = Cursor::new(b"abc");
        assert_eq!(cursor.byte(), Ok(b'a'));
        assert_eq!(cursor.slice(3), Err(ReadError::Truncated));
        assert!(cursor.is_empty());
        assert_eq!(cursor.byte(), Err(ReadError::Truncated));
    }

    #[test]
    fn a_claim_of_all_the_memory_there_is_fails() {
        let mut bytes = Vec::new();
        varint::encode(u64::MAX, &mut bytes);
        assert_eq!(Cursor::new(&bytes).string(), Err(ReadError::Truncated));
    }
}
