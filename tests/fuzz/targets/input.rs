//! How one input holds several texts.

/// Ends each text but the last. UTF-8 has no such byte.
const END: u8 = 0xff;

/// The texts that one input consists of. A missing text is empty.
pub(super) fn texts<const N: usize>(bytes: &[u8]) -> [&[u8]; N] {
    let mut texts = bytes.splitn(N, |&byte| byte == END);
    [(); N].map(|()| texts.next().unwrap_or_default())
}
