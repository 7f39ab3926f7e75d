//! Slots as bits of words.

pub(super) const WORD_BITS: u64 = 64;

/// The words with the slots `from..end`, each with the bits of these slots.
pub(super) fn words(from: u64, end: u64) -> impl DoubleEndedIterator<Item = (u64, u64)> {
    let bits = move |word: u64| {
        let (first, next) = (word * WORD_BITS, (word + 1) * WORD_BITS);
        (u64::MAX << from.saturating_sub(first)) & (u64::MAX >> next.saturating_sub(end))
    };
    let words = if from < end { from / WORD_BITS..end.div_ceil(WORD_BITS) } else { 0..0 };
    words.map(move |word| (word, bits(word)))
}

/// The lowest `count` bits that are set in a word.
pub(super) fn lowest(word: u64, count: u32) -> u64 {
    word & !(0..count.min(word.count_ones())).fold(word, |left, _| left & (left - 1))
}

/// The highest `count` bits that are set in a word.
pub(super) fn highest(word: u64, count: u32) -> u64 {
    lowest(word.reverse_bits(), count).reverse_bits()
}
