//! Hosts in the keys of a map, brought to the one form that requests have.

use std::ops::Range;

use crate::base::host::Host;
use crate::policy::layout::{Lookup, Method};
use crate::policy::read::map;

/// Rewrites the hosts in the keys of a map: `Shop.Example.:80` becomes `shop.example`. A key that gets shorter is
/// filled up with blanks, so that all lines stay where they are.
///
/// `beg`, `end` and `dom` look for parts of a host, so they only need lower case. `reg` ignores case instead.
pub(in crate::policy) fn normalise(text: &mut [u8], lookup: &Lookup, is_host: impl Fn(&str) -> bool) {
    let Some(host) = lookup.fields.iter().position(|field| is_host(field)) else { return };
    let fields = lookup.fields.len();
    // What follows a host in the middle of a key would not close up with a shorter one.
    let is_whole = matches!(lookup.method, Method::Str | Method::Ip) && host + 1 == fields;
    let range = |key: &[u8], at: usize| part(key, fields, host, at);
    let hosts: Vec<Range<usize>> =
        map::lines(text).flatten().filter_map(|line| range(line.key, line.at)).collect();
    for range in hosts {
        let host = &mut text[range];
        match lookup.method {
            Method::Reg => {}
            _ if is_whole => whole(host),
            _ => host.make_ascii_lowercase(),
        }
    }
}

/// Where the host of a key is. None if the key has not one part for each field.
fn part(key: &[u8], fields: usize, host: usize, at: usize) -> Option<Range<usize>> {
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

/// Writes the one form of a host over its spelling. What is no host stays as it is: no request can match it.
fn whole(host: &mut [u8]) {
    let form = match Host::read(host) {
        Some(Host::Name { name, .. }) => name.to_ascii_lowercase(),
        Some(Host::Ipv6(address)) => address.to_canonical().to_string().into_bytes(),
        None => return,
    };
    if form.len() <= host.len() {
        host[..form.len()].copy_from_slice(&form);
        host[form.len()..].fill(b' ');
    }
}
