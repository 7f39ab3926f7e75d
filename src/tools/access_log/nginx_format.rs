//! nginx's `log_format`.

use crate::tools::access_log::escape::Escape;
use crate::tools::access_log::format_error::FormatError;
use crate::tools::access_log::haproxy_format::push;
use crate::tools::access_log::piece::{Item, Piece};

/// `$name` and `${name}`.
pub(super) fn nginx(text: &str, escape: Escape) -> Result<Vec<Piece>, FormatError> {
    let (mut pieces, mut literal) = (Vec::new(), Vec::new());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        let name = match after.strip_prefix('{') {
            _ if c != '$' => "",
            Some(inner) => inner.split_once('}').ok_or_else(|| FormatError::Open(rest.to_owned()))?.0,
            None => {
                let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                &after[..end.unwrap_or(after.len())]
            }
        };
        if name.is_empty() {
            push(&mut literal, c);
            rest = after;
            continue;
        }
        if !literal.is_empty() {
            pieces.push(Piece::Literal(std::mem::take(&mut literal)));
        }
        let noun = format!("${name}");
        pieces.push(Piece::Item(Item { noun, label: None, is_quoted: false, escape }));
        let braces = if after.starts_with('{') { 2 } else { 0 };
        rest = &after[name.len() + braces..];
    }
    if !literal.is_empty() {
        pieces.push(Piece::Literal(literal));
    }
    Ok(pieces)
}
