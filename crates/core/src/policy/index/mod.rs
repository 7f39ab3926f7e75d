//! Indexes of the lines of a map, one kind for each match method.

pub(in crate::policy) mod lookup;
pub(in crate::policy) mod networks;
pub(in crate::policy) mod pattern;
mod regexes;
mod substrings;
mod texts;
mod words;

pub use regexes::expression_of;
