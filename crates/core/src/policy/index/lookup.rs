//! A lookup with its map: the text of the file, and an index of its keys for the match method.

use std::io;
use std::path::PathBuf;
use std::slice;
use std::sync::Arc;

use crate::base::{SloId, VALUE_BYTES_MAX, Value, shown};
use crate::policy::index::networks::Networks;
use crate::policy::index::regexes::Regexes;
use crate::policy::index::substrings::Substrings;
use crate::policy::index::texts::{Exact, List, Prefixes};
use crate::policy::index::words::Words;
use crate::policy::read::hosts;
use crate::policy::read::slo::Slos;
use crate::policy::watch::Watch;
use crate::policy::{
    Answer, Lookup, MapFile, Method, Pattern, Place, PolicyErrorKind, PolicyErrors, Text, Values,
    WarningKind, Warnings, is_host, map, quoted,
};

/// The largest number of keys with which a map still fits in the L2 cache of a core, at 24 bytes per key.
const LARGE: usize = 8_192;

/// The map of a lookup.
#[derive(Debug)]
pub(in crate::policy) struct LookupMap {
    pub(in crate::policy) name: String,
    pub(in crate::policy) path: PathBuf,
    pub(in crate::policy) places: Box<[Place]>,
    pub(in crate::policy) method: Method,
    pub(in crate::policy) is_added: bool,
    text: Vec<u8>,
    keys: Keys,
    /// The number of lines that hold a key.
    pub(in crate::policy) entries: usize,
    /// Whether a line leaves the decision to the next lookup.
    leaves_some: bool,
    /// The number of keys that name each SLO, by the SLO's index.
    named: Vec<u32>,
    /// The watch that notes missing fields, if every limit needs one of the map's fields.
    pub(in crate::policy) watch: Option<Arc<Watch>>,
}

impl LookupMap {
    /// Reads a map. None if there is no file or the file has no key: such a map never answers. Without `slos`, the map
    /// belongs to a derived field: its values are text, and its file must exist, but may have no keys.
    pub(in crate::policy) fn read(
        (lookup, name): (&Lookup, String),
        places: Box<[Place]>,
        MapFile { path, text }: MapFile,
        slos: Option<&Slos>,
        errors: &mut PolicyErrors,
        warnings: &mut Warnings,
    ) -> Option<LookupMap> {
        let mut text = match text {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound && slos.is_some() => return None,
            Err(error) => {
                errors.add(&path, None, PolicyErrorKind::Unreadable(error.to_string()));
                return None;
            }
        };
        hosts::normalise(&mut text, lookup);
        let mut keys = Keys::new(lookup, lookup.fields.iter().any(|field| is_host(field)));
        let (mut entries, mut named, mut leaves_some) =
            (0, vec![0; slos.map_or(0, |slos| slos.sorted.len())], false);
        for line in map::lines(&text) {
            entries += 1;
            let line = match line {
                Ok(line) => line,
                Err((number, kind)) => {
                    errors.add(&path, Some(number), kind);
                    continue;
                }
            };
            let mut report = |kind| errors.add(&path, Some(line.number), kind);
            let answer = match slos {
                Some(slos) => answer(line.value, slos),
                None if (1..=VALUE_BYTES_MAX).contains(&line.value.len()) => Ok(Answer::NEXT),
                None => Err(PolicyErrorKind::Value(quoted(line.key))),
            };
            let answer = answer.unwrap_or_else(|kind| {
                report(kind);
                Answer::NEXT
            });
            leaves_some |= answer == Answer::NEXT;
            match keys.insert(Pattern::new(line.at, line.key, answer), &text) {
                Ok(None) => answer.place().into_iter().for_each(|slo| named[slo] += 1),
                Ok(Some(first)) => warnings.add_with(&path, || repeated(line.number, line.key, first, &text)),
                Err(kind) => report(kind),
            }
            if let Some(kind) = lookup.error(&line) {
                report(kind);
            } else if let Some(warning) = lookup.warning(&line) {
                warnings.add(&path, Some(line.number), warning);
            }
        }
        let finished = keys.finish(&text, |first, again| {
            warnings.add_with(&path, || {
                repeated(map::line_number(&text, again.at()), first.key(&text), first, &text)
            });
        });
        if let Err(kind) = finished {
            errors.add(&path, None, kind);
        }
        (entries > 0 || slos.is_none()).then(|| LookupMap {
            name,
            path,
            places,
            method: lookup.method,
            is_added: lookup.is_added,
            text,
            keys,
            entries,
            leaves_some,
            named,
            watch: None,
        })
    }

    /// Whether the map is large enough for [`look`](LookupMap::look) to save time. Smaller maps stay in the cache.
    #[inline]
    pub(in crate::policy) fn is_large(&self) -> bool {
        self.entries > LARGE
    }

    /// Reads the memory that [`find`](LookupMap::find) reads first, if the keys of the map are networks
    /// without a rest. Does nothing for other maps.
    #[inline]
    pub(in crate::policy) fn look(&self, values: Values<'_, '_>) -> u32 {
        match (&self.keys, &*self.places) {
            (Keys::Networks(networks), &[place]) => {
                values.address(place).map_or(0, |address| networks.look(address))
            }
            _ => 0,
        }
    }

    /// The line that matches these values.
    #[inline]
    pub(in crate::policy) fn find(&self, values: Values<'_, '_>) -> Option<Pattern> {
        if let (Keys::Networks(networks), &[place]) = (&self.keys, &*self.places) {
            return match values.address(place) {
                Some(address) => networks.find(address, b"", &self.text),
                None => self.lacks_field(),
            };
        }
        let mut joined = Text::default();
        match &self.keys {
            Keys::Texts(texts) => match values.joined(&self.places, &mut joined) {
                Some(value) => texts.find(value, &self.text),
                None => self.lacks_field(),
            },
            Keys::Networks(networks) => {
                let (&first, others) = self.places.split_first()?;
                match values.address(first).zip(values.joined(others, &mut joined)) {
                    Some((address, rest)) => networks.find(address, rest, &self.text),
                    None => self.lacks_field(),
                }
            }
        }
    }

    /// The value on the line that matches, in the map of a derived field. If the search would take too long,
    /// returns a value that causes the request to be refused.
    pub(in crate::policy) fn value(&self, of: &Option<Value<'_>>) -> Option<Value<'_>> {
        let pattern = self.find(Values(slice::from_ref(of)))?;
        let text = || Value::Text(map::value_at(&self.text, pattern.at()));
        Some(if pattern.answer == Answer::REFUSED { Value::NoHost(b"") } else { text() })
    }

    /// No line matches a request that lacks a field of the map. If every limit needs such a field, the fault is noted.
    #[inline]
    fn lacks_field(&self) -> Option<Pattern> {
        if let Some(watch) = &self.watch {
            watch.suspect_essential();
        }
        None
    }

    /// The line that matches every client, or every client of one kind, so that no later lookup is tried.
    /// Also returns a noun for these clients.
    pub(in crate::policy) fn catch_all(&self) -> Option<(usize, &'static str)> {
        let (pattern, whom) = match &self.keys {
            Keys::Networks(networks) if self.places.len() == 1 => match networks.all_ipv6() {
                Some(pattern) => (pattern, "client"),
                None => (networks.all_ipv4()?, "IPv4 client"),
            },
            Keys::Texts(Texts::Reg(regexes)) if self.places.len() == 1 => (regexes.find(b"")?, "request"),
            _ => return None,
        };
        let is_final = !self.leaves_some && pattern.answer.place().is_some();
        is_final.then(|| (self.line_number(pattern), whom))
    }

    /// The first line for all IPv4 addresses that has no counterpart for all IPv6 addresses, and the missing key.
    pub(in crate::policy) fn of_ipv4_alone(&self) -> Option<(usize, String)> {
        let Keys::Networks(networks) = &self.keys else { return None };
        let alone = networks.ipv4_alone(&self.text)?;
        let rest = alone.key(&self.text);
        let meant = if self.places.len() > 1 { format!("::/0+{}", shown(rest)) } else { "::/0".into() };
        Some((self.line_number(alone), meant))
    }

    /// The number of keys that name this SLO. A key that occurs twice counts once, except in a `beg` or `sub` map.
    pub(in crate::policy) fn keys_of(&self, slo: usize) -> u32 {
        self.named[slo]
    }

    pub(in crate::policy) fn text(&self) -> &[u8] {
        &self.text
    }

    /// Whether the time for a lookup grows with the length of the value.
    pub(in crate::policy) fn is_search(&self) -> bool {
        matches!(self.method, Method::Dom | Method::Sub | Method::Reg)
    }

    /// The line number of a pattern. It is counted on demand, because storing it would cost memory for every
    /// line.
    pub(in crate::policy) fn line_number(&self, pattern: Pattern) -> usize {
        map::line_number(&self.text, pattern.at())
    }
}

#[derive(Debug)]
enum Keys {
    Networks(Networks),
    Texts(Texts),
}

impl Keys {
    fn new(lookup: &Lookup, ignores_case: bool) -> Keys {
        match lookup.method {
            Method::Ip => Keys::Networks(Networks::new(lookup.fields.len() > 1)),
            Method::Str => Keys::Texts(Texts::Str(Exact::default())),
            Method::Beg => Keys::Texts(Texts::Beg(Prefixes::default())),
            Method::End => Keys::Texts(Texts::End(List::default())),
            Method::Dom => Keys::Texts(Texts::Dom(Words::default())),
            Method::Sub => Keys::Texts(Texts::Sub(Substrings::default())),
            Method::Reg => Keys::Texts(Texts::Reg(Regexes::new(ignores_case))),
        }
    }

    /// Adds a line. If an earlier line has the same key, that line wins and is returned.
    fn insert(&mut self, pattern: Pattern, text: &[u8]) -> Result<Option<Pattern>, PolicyErrorKind> {
        match self {
            Keys::Networks(networks) => networks.insert(pattern, text),
            Keys::Texts(Texts::Str(exact)) => Ok(exact.insert(pattern, text)),
            // Equal `beg` keys are found when `finish` sorts them.
            Keys::Texts(Texts::Beg(prefixes)) => {
                prefixes.insert(pattern);
                Ok(None)
            }
            Keys::Texts(Texts::End(list)) => list.insert(pattern, text),
            Keys::Texts(Texts::Dom(words)) => words.insert(pattern, text),
            // `sub` keys that contain earlier ones are found by `finish`.
            Keys::Texts(Texts::Sub(substrings)) => substrings.insert(pattern).map(|()| None),
            Keys::Texts(Texts::Reg(regexes)) => regexes.insert(pattern, text),
        }
    }

    /// Finishes the index after all lines have been inserted. Calls `repeated` with each pair of lines with the same
    /// key that `insert` did not find, the winner first. Of two `sub` keys, the second may merely contain the first.
    fn finish(&mut self, text: &[u8], repeated: impl FnMut(Pattern, Pattern)) -> Result<(), PolicyErrorKind> {
        match self {
            Keys::Texts(Texts::Beg(prefixes)) => prefixes.sort(text, repeated),
            Keys::Texts(Texts::Sub(substrings)) => substrings.finish(text, repeated),
            Keys::Texts(Texts::Reg(regexes)) => return regexes.finish(),
            _ => {}
        }
        Ok(())
    }
}

/// Keys that are matched with text.
#[derive(Debug)]
enum Texts {
    Str(Exact),
    Beg(Prefixes),
    End(List),
    Dom(Words),
    Sub(Substrings),
    Reg(Regexes),
}

impl Texts {
    fn find(&self, value: &[u8], text: &[u8]) -> Option<Pattern> {
        match self {
            Texts::Str(exact) => exact.find(value, text),
            Texts::Beg(prefixes) => prefixes.find(value, text),
            Texts::End(list) => list.find(value, text),
            Texts::Dom(words) => words.find(value, text),
            Texts::Sub(substrings) => substrings.find(value),
            Texts::Reg(regexes) => regexes.find(value),
        }
    }
}

/// The warning about a line whose key already occurs on an earlier line.
fn repeated(line: usize, key: &[u8], first: Pattern, text: &[u8]) -> (Option<usize>, WarningKind) {
    let first = map::line_number(text, first.at());
    (Some(line), WarningKind::KeyTwice { key: quoted(key), first })
}

/// The answer of a line. An empty value counts as 0, as in HAProxy's `map_str_int`.
fn answer(value: &[u8], slos: &Slos) -> Result<Answer, PolicyErrorKind> {
    let number = match std::str::from_utf8(value).map(str::parse) {
        Ok(Ok(number)) => number,
        _ if value.is_empty() => 0,
        _ if value.contains(&b'#') => return Err(PolicyErrorKind::AnswerAndComment(quoted(value))),
        _ => return Err(PolicyErrorKind::Answer(quoted(value))),
    };
    match u32::try_from(number).ok().and_then(SloId::new) {
        _ if number == -1 => Ok(Answer::NEXT),
        Some(id) => slos.answer(id),
        None => Err(PolicyErrorKind::NoSuchSlo(number)),
    }
}
