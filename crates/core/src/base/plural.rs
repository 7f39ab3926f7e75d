//! Counts with their nouns.

use std::fmt::Display;

/// A count and its noun, which takes an `s` unless the count is 1.
///
/// ```
/// use slowlane_core::base::plural;
/// assert_eq!([plural(0, "client"), plural(1, "client"), plural(2, "client")], ["0 clients", "1 client", "2 clients"]);
/// ```
pub fn plural<C: Display + PartialEq + From<u8>>(count: C, noun: &str) -> String {
    format!("{count} {noun}{}", if count == C::from(1) { "" } else { "s" })
}
