//! JSON lines: the values by key, and the proxy's names for the keys.

use std::borrow::Cow;
use std::cmp::Reverse;

use memchr::memchr2;
use slowlane_core::base::peer;

use crate::access_log::Escape;
use crate::access_log::format::{Dialect, Format, ITEMS_MAX, Item};
use crate::access_log::times::TimeForm;

/// The maximum depth of values: deeper values are refused. Proxies write at most three levels, for header values.
const DEPTH_MAX: usize = 16;

/// The known formats: their names, their keys, and the item that each key stands for. If several keys stand for one
/// item, the most frequent key is used.
const KNOWN: &str = include_str!("known_json.txt");

/// Calls `each` with the path, such as `.request.host`, and the text of every value. Of a list, only the first value is
/// used. None if the text is not one whole JSON object.
pub(super) fn walk<'l>(text: &'l [u8], each: &mut dyn FnMut(&[u8], &'l [u8])) -> Option<()> {
    let mut walk = Walk { rest: text, path: Vec::with_capacity(64), each };
    walk.take(b'{')?;
    walk.members(b'}', true, DEPTH_MAX)?;
    walk.rest.trim_ascii_start().is_empty().then_some(())
}

struct Walk<'l, 'e> {
    rest: &'l [u8],
    path: Vec<u8>,
    each: &'e mut dyn FnMut(&[u8], &'l [u8]),
}

impl<'l> Walk<'l, '_> {
    /// Takes this byte after any blanks. None if a different byte comes next.
    fn take(&mut self, byte: u8) -> Option<()> {
        self.rest = self.rest.trim_ascii_start().strip_prefix(&[byte])?;
        Some(())
    }

    /// Takes the members of an object or a list up to its end.
    fn members(&mut self, end: u8, mut is_wanted: bool, depth: usize) -> Option<()> {
        let (path_bytes, mut is_first) = (self.path.len(), true);
        while self.take(end).is_none() {
            if !std::mem::take(&mut is_first) {
                self.take(b',')?;
            }
            if end == b'}' {
                self.take(b'"')?;
                let key = self.string()?;
                self.path.push(b'.');
                self.path.extend_from_slice(key);
                self.take(b':')?;
            }
            self.value(is_wanted, depth.checked_sub(1)?)?;
            self.path.truncate(path_bytes);
            is_wanted &= end == b'}';
        }
        Some(())
    }

    fn value(&mut self, is_wanted: bool, depth: usize) -> Option<()> {
        for (begin, end) in [(b'{', b'}'), (b'[', b']')] {
            if self.take(begin).is_some() {
                return self.members(end, is_wanted, depth);
            }
        }
        let value = if self.take(b'"').is_some() { self.string()? } else { self.scalar()? };
        if is_wanted && value != b"null" {
            (self.each)(&self.path, value);
        }
        Some(())
    }

    /// The text of a string after its opening quote, with the escapes unchanged.
    fn string(&mut self) -> Option<&'l [u8]> {
        let mut at = 0;
        loop {
            at += memchr2(b'"', b'\\', &self.rest[at..])?;
            if self.rest[at] == b'"' {
                let value = &self.rest[..at];
                self.rest = &self.rest[at + 1..];
                return Some(value);
            }
            at = (at + 2).min(self.rest.len());
        }
    }

    /// A number or a word. Formats like `"bytes":%B` can also write a hyphen.
    fn scalar(&mut self) -> Option<&'l [u8]> {
        let is_inside = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-._".contains(byte);
        let text = self.rest.trim_ascii_start();
        let (value, rest) = text.split_at(text.iter().position(|byte| !is_inside(byte))?);
        self.rest = rest;
        Some(value).filter(|value| !value.is_empty())
    }
}

/// Whether a value looks like a value of this field.
type IsFit = fn(&[u8]) -> bool;

/// The fields for which options are proposed, each with a test for its values.
const FIELDS: [(&str, IsFit); 4] = [
    ("time", |text| text.len() >= 10 && TimeForm::Any.read(text).is_some()),
    ("source", |text| peer(text).is_some()),
    ("method", |text| {
        [&b"GET"[..], b"HEAD", b"POST", b"PUT", b"DELETE", b"PATCH", b"OPTIONS"].contains(&text)
    }),
    ("website", |text| {
        let last = text.rsplit(|&byte| byte == b'.').next().unwrap_or_default();
        let is_inside = |byte: &u8| byte.is_ascii_alphanumeric() || b"-.:".contains(byte);
        text.contains(&b'.')
            && text.iter().all(is_inside)
            && last.first().is_some_and(u8::is_ascii_alphabetic)
    }),
];

/// The keys in the first lines of a log, with their values, starting with the most frequent key.
pub(super) struct Leaves<'l>(Vec<(String, Vec<&'l [u8]>)>);

impl<'l> Leaves<'l> {
    pub(super) fn of(lines: &'l [Cow<'_, [u8]>]) -> Leaves<'l> {
        let mut leaves: Vec<(String, Vec<&[u8]>)> = Vec::new();
        let mut take = |path: &[u8], value: &'l [u8]| {
            let path = String::from_utf8_lossy(path);
            match leaves.iter_mut().find(|(known, _)| *known == path) {
                Some((_, values)) => values.push(value),
                None => leaves.push((path.into_owned(), vec![value])),
            }
        };
        for line in lines {
            let _ = walk(line, &mut take);
        }
        leaves.sort_by_key(|(_, values)| Reverse(values.len()));
        leaves.truncate(ITEMS_MAX);
        Leaves(leaves)
    }

    /// The formats to which these keys may belong.
    pub(super) fn formats(&self) -> impl Iterator<Item = Format> {
        KNOWN.lines().filter(|_| !self.0.is_empty()).map(|line| {
            let (name, keys) = line.split_once('|').expect("a known format has a name");
            self.format(name, keys)
        })
    }

    /// A format in which every key is an item, under the proxy's name for the item or, without one, under its own name.
    fn format(&self, name: &str, keys: &str) -> Format {
        let item = |(path, _): &(String, _)| Item {
            path: path.clone(),
            ..Item::new(path.clone(), None, false, Escape::Backslash)
        };
        let mut items: Vec<Item> = self.0.iter().map(item).collect();
        for (path, noun) in keys.split_whitespace().filter_map(|pair| pair.split_once('=')) {
            let count = |at: &usize| self.0[*at].1.len();
            let known = items.iter().position(|item| item.noun == noun);
            let place = self.0.iter().position(|(known, _)| known == path);
            // If a proxy does not escape its values, a client may forge keys, so the most frequent key is used.
            if place.as_ref().map(count) > known.as_ref().map(count) {
                known.into_iter().for_each(|at| items[at].noun = items[at].path.clone());
                place.into_iter().for_each(|at| noun.clone_into(&mut items[at].noun));
            }
        }
        Format { name: name.to_owned(), dialect: Dialect::Json, before: String::new(), items, quotes: None }
    }

    /// The `--field` options with which to read these keys. None if no value looks like a time.
    pub(super) fn proposal(&self) -> Option<String> {
        let option = |(field, is_fit): &(&str, IsFit)| {
            let fit = self.0.iter().find(|(_, values)| values.iter().all(|value| is_fit(value)))?;
            Some(format!("--field {field}={}", fit.0))
        };
        let options: Vec<String> = FIELDS.iter().filter_map(option).collect();
        Some(options.join(" ")).filter(|options| options.contains("time="))
    }
}
