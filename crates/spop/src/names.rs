//! The names of a message's arguments, remembered because HAProxy sends the same names in the same order each time.

use crate::{Cursor, Error};

/// The maximum number of names to remember: the names of a message's first arguments.
const NAMES_MAX: usize = 16;

/// The size of the word in which a name, preceded by its length, is compared in one step.
const WORD_BYTES: usize = 16;

/// The names in a connection's last message, each with a tag: the reader's own data about the name.
///
/// ```
/// use spop::{Data, Error, Frame, Names, Notify};
///
/// let mut names = Names::<&str>::default();
/// let mut looked_up = 0;
/// for website in [&b"shop.example"[..], b"blog.example"] {
///     let mut bytes = Vec::new();
///     Notify::begin(&mut bytes, 7, 1).message(b"request", &[(b"website", Data::Str(website))]).finish();
///     let (frame, _) = Frame::cut(&bytes, 256)?.unwrap();
///     let mut messages = Notify::decode(frame)?.messages();
///     messages.next_message()?.unwrap().each_named(&mut names, |tag, name, value| {
///         let tag = tag.get_or_insert_with(|| { looked_up += 1; "a host" });
///         assert_eq!((*tag, name, value), ("a host", &b"website"[..], Data::Str(website)));
///     })?;
/// }
/// assert_eq!(looked_up, 1);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Names<T> {
    /// The last slot is for names that are not remembered.
    slots: [Slot<T>; NAMES_MAX + 1],
}

#[derive(Clone, Copy, Debug)]
struct Slot<T> {
    /// The length and the name, as on the wire.
    word: u128,
    /// The bits of the word that are compared.
    mask: u128,
    /// The number of bytes that the name and its length take together.
    length: usize,
    tag: Option<T>,
}

impl<T: Copy> Default for Names<T> {
    fn default() -> Names<T> {
        // Under this mask every word is 0, so no name matches this slot.
        Names { slots: [Slot { word: 1, mask: 0, length: 0, tag: None }; NAMES_MAX + 1] }
    }
}

impl<T: Copy> Names<T> {
    /// Forgets all tags. Call this function when the reader's data about the names has changed.
    pub fn forget_tags(&mut self) {
        self.slots.iter_mut().for_each(|slot| slot.tag = None);
    }

    /// Reads the name of an argument. The tag is `None` if the name is new at this position, if it is not remembered,
    /// or after [`forget_tags`](Names::forget_tags).
    #[inline(always)]
    pub(crate) fn read<'a>(
        &mut self,
        number: usize,
        rest: &mut Cursor<'a>,
    ) -> Result<(&'a [u8], &mut Option<T>), Error> {
        let slot = &mut self.slots[number.min(NAMES_MAX)];
        let bytes = rest.rest();
        let name = match slot.is_at(bytes) {
            true => &rest.slice(slot.length as u64)?[1..],
            false => {
                let name;
                (name, *rest) = slot.read(number < NAMES_MAX, *rest)?;
                name
            }
        };
        Ok((name, &mut slot.tag))
    }
}

impl<T> Slot<T> {
    /// Whether `bytes` begin with the slot's name. False for fewer than 8 bytes (16, if the name has over 7).
    #[inline(always)]
    fn is_at(&self, bytes: &[u8]) -> bool {
        if self.length <= size_of::<u64>() {
            let is_same = |first: &[u8; 8]| u64::from_le_bytes(*first) & self.mask as u64 == self.word as u64;
            bytes.first_chunk().is_some_and(is_same)
        } else {
            let is_same = |first: &[u8; WORD_BYTES]| u128::from_le_bytes(*first) & self.mask == self.word;
            bytes.first_chunk().is_some_and(is_same)
        }
    }

    /// Reads a name, and remembers it if `is_remembered` and the name is short. The cursor is passed and returned by
    /// value: a cursor in memory would cost a few stores for each argument.
    #[inline(never)]
    fn read<'a>(
        &mut self,
        is_remembered: bool,
        mut rest: Cursor<'a>,
    ) -> Result<(&'a [u8], Cursor<'a>), Error> {
        let bytes = rest.rest();
        let name = rest.string()?;
        let length = name.len() + 1;
        let mut first = [0; WORD_BYTES];
        let fits = is_remembered && length <= WORD_BYTES;
        if fits {
            first[..length].copy_from_slice(&bytes[..length]);
        }
        let mask = if fits { u128::MAX >> (8 * (WORD_BYTES - length)) } else { 0 };
        let word = if fits { u128::from_le_bytes(first) } else { 1 };
        // Near the end of a frame, a known name is also read here, and keeps its tag.
        if (word, mask) != (self.word, self.mask) || !fits {
            *self = Slot { word, mask, length, tag: None };
        }
        Ok((name, rest))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Data, Frame, Notify};

    type Argument = (Vec<u8>, u8);

    /// Names and values of one NOTIFY as they are read, with the name that their tag was made for.
    fn read(names: &mut Names<u64>, arguments: &[Argument]) -> Vec<(Vec<u8>, i64, u64)> {
        let pairs: Vec<(&[u8], Data<'_>)> =
            arguments.iter().map(|(name, value)| (&name[..], Data::Int64((*value).into()))).collect();
        let mut bytes = Vec::new();
        Notify::begin(&mut bytes, 7, 1).message(b"request", &pairs).finish();
        let mut messages = Notify::decode(Frame::cut(&bytes, 65_536).unwrap().unwrap().0).unwrap().messages();
        let mut found = Vec::new();
        let message = messages.next_message().unwrap().unwrap();
        let each = |tag: &mut Option<u64>, name: &[u8], value: Data<'_>| {
            let tag = *tag.get_or_insert_with(|| hash(name));
            found.push((name.to_vec(), value.to_i64().unwrap(), tag));
        };
        message.each_named(names, each).unwrap();
        found
    }

    fn hash(name: &[u8]) -> u64 {
        name.iter().fold(name.len() as u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
    }

    fn any_arguments() -> impl Strategy<Value = Vec<Argument>> {
        let name = prop_oneof![
            "[ab]{0,2}".prop_map(String::into_bytes),
            "[a]{13,17}".prop_map(String::into_bytes),
            prop::collection::vec(any::<u8>(), 0..20),
            (238_usize..243).prop_map(|length| vec![b'n'; length]),
        ];
        prop::collection::vec((name, any::<u8>()), 0..20)
    }

    proptest! {
        #[test]
        fn a_tag_is_always_that_of_its_name(notifies in prop::collection::vec(any_arguments(), 1..5)) {
            let mut names = Names::default();
            for arguments in notifies.iter().chain(&notifies) {
                let expected: Vec<_> =
                    arguments.iter().map(|(name, value)| (name.clone(), (*value).into(), hash(name))).collect();
                prop_assert_eq!(read(&mut names, arguments), expected);
            }
        }
    }
}
