//! Hosts in the keys of a map, converted to the canonical form that hosts in requests have.

use std::ops::Range;

use crate::base::{in_one_form, path_of_base};
use crate::policy::layout::is_base;
use crate::policy::{Lookup, Method, is_host, map};

/// Rewrites the hosts in the keys of a map: `Shop.Example.:80` becomes `shop.example`. A key that gets shorter is
/// padded with spaces, so that all lines stay where they are.
///
/// Keys of `beg`, `end`, `dom` and `sub` are parts of a host, so they are only converted to lower case. `reg`
/// ignores case instead. In a map of `base`, keys of `str` and `beg` begin with the host; keys of other
/// methods may contain only a path, and stay unchanged.
pub(in crate::policy) fn normalise(text: &mut [u8], lookup: &Lookup) {
    let fields = lookup.fields.len();
    let Some(host) = lookup.fields.iter().position(|field| is_host(field) || is_base(field)) else { return };
    let is_base = is_base(&lookup.fields[host]);
    if is_base && !matches!(lookup.method, Method::Str | Method::Ip | Method::Beg) {
        return;
    }
    // Only a host at the end of a key is converted as a whole: elsewhere, a shorter host would leave a gap before the
    // next part.
    let is_whole = (matches!(lookup.method, Method::Str | Method::Ip) || is_base) && host + 1 == fields;
    let range = |key: &[u8], at: usize| part(key, fields, host, at);
    let hosts: Vec<Range<usize>> =
        map::lines(text).flatten().filter_map(|line| range(line.key, line.at)).collect();
    for range in hosts {
        let host = &mut text[range];
        match lookup.method {
            Method::Reg => {}
            _ if is_whole => whole(host, is_base),
            _ => lower(host, is_base),
        }
    }
}

/// The position of the host in a key. None if the key does not have one part for each field.
pub(in crate::policy) fn part(key: &[u8], fields: usize, host: usize, at: usize) -> Option<Range<usize>> {
    if fields == 1 {
        return Some(at..at + key.len());
    }
    let mut parts = key.split(|&byte| byte == b'+');
    if parts.clone().count() != fields {
        return None;
    }
    let before: usize = parts.by_ref().take(host).map(|part| part.len() + 1).sum();
    let start = at + before;
    Some(start..start + parts.next()?.len())
}

/// Converts a host to canonical form. In a base, the path after the host is kept. Text that is not a host is
/// left unchanged, because no request can match it.
fn whole(text: &mut [u8], is_base: bool) {
    let path = if is_base { path_of_base(text) } else { text.len() };
    let (host, rest) = text.split_at(path);
    let Some(form) = in_one_form(host, rest).filter(|form| form.len() <= text.len()) else { return };
    text[..form.len()].copy_from_slice(&form);
    text[form.len()..].fill(b' ');
}

fn lower(text: &mut [u8], is_base: bool) {
    let end = if is_base { path_of_base(text) } else { text.len() };
    text[..end].make_ascii_lowercase();
}
