//! The bins of a histogram of whole numbers, with the same number of bins for each power of two.

/// The bin of a number. There are `each` bins per power of two; `each` is itself a power of two. Below twice
/// `each`, every number has its own bin.
///
/// ```
/// use slowlane_core::base::histogram::{bin, bounds};
/// assert_eq!([0, 31, 32, 33, 34].map(|number| bin(number, 16)), [0, 31, 32, 32, 33]);
/// assert_eq!(bounds(32, 16), (32, 34));
/// ```
pub fn bin(number: u64, each: u64) -> usize {
    let doublings = (number / each).checked_ilog2().map_or(0, u64::from);
    (doublings * each + (number >> doublings)) as usize
}

/// The first number of a bin, and the first number after the bin.
pub fn bounds(bin: usize, each: u64) -> (u64, u64) {
    let bin = bin as u64;
    let doublings = (bin / each).saturating_sub(1);
    let first = bin - doublings * each;
    (first << doublings, (first + 1) << doublings)
}
