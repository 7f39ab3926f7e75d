//! Map lines indexed by their match method.

mod exact;
mod list;
pub(in crate::policy) mod lookup;
pub(in crate::policy) mod networks;
pub(in crate::policy) mod pattern;
mod prefixes;
mod regexes;
mod substrings;
mod words;

pub use regexes::expression_of;
