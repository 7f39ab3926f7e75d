//! The pieces of a log format: literals and items.

use crate::access_log::escape::Escape;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Literal(Vec<u8>),
    Item(Item),
}

/// A placeholder that the proxy replaces with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// As the proxy names it: `%ci`, `%[src]`, `$host`; without flags.
    pub noun: String,
    /// The name that HAProxy 3.0 and later can give it: `%(owner)[...]`.
    pub(super) label: Option<String>,
    /// The proxy writes quotes around it.
    pub(super) is_quoted: bool,
    pub(super) escape: Escape,
}

/// Collects the pieces of a format; letters in a row become one literal.
#[derive(Default)]
pub(super) struct Pieces {
    pieces: Vec<Piece>,
    literal: Vec<u8>,
}

impl Pieces {
    pub(super) fn letter(&mut self, letter: char) {
        self.literal.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
    }

    pub(super) fn item(&mut self, item: Item) {
        self.end_literal();
        self.pieces.push(Piece::Item(item));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.literal.is_empty()
    }

    pub(super) fn ends_with_space(&self) -> bool {
        self.literal.ends_with(b" ")
    }

    pub(super) fn finish(mut self) -> Vec<Piece> {
        self.end_literal();
        self.pieces
    }

    fn end_literal(&mut self) {
        if !self.literal.is_empty() {
            self.pieces.push(Piece::Literal(std::mem::take(&mut self.literal)));
        }
    }
}
