//! The pieces of a log format: literals and items.

use crate::tools::access_log::escape::Escape;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Literal(Vec<u8>),
    Item(Item),
}

/// What a proxy puts a value in for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// As the proxy names it: `%ci`, `%[src]`, `$host`; without flags.
    pub noun: String,
    /// The name that HAProxy 3.0 and later let it be given: `%(owner)[...]`.
    pub(super) label: Option<String>,
    /// It stands between quotes of its own.
    pub(super) is_quoted: bool,
    pub(super) escape: Escape,
}
