//! The text before a literal.

use nom::bytes::complete::take_until;

/// The text before the first occurrence of a literal. None: it does not occur.
///
/// This runs several times per line, on short texts. nom searches at once; `memmem` would first prepare a searcher.
pub(super) fn before<'t>(literal: &[u8], text: &'t [u8]) -> Option<&'t [u8]> {
    take_until::<_, _, ()>(literal)(text).ok().map(|(_, before)| before)
}
