//! The files of a policy, for an operator to read.

use std::path::Path;

use crate::policy::{Line, LookupMap, Policy, map};

/// `slo.map`, or the map of a lookup.
#[derive(Clone, Copy, Debug)]
pub struct MapView<'p> {
    /// The index among the maps; `slo.map` has 0.
    pub number: usize,
    pub path: &'p Path,
    /// The lookup, or the derived field. None for `slo.map`.
    pub lookup: Option<&'p str>,
    /// The match method: `str`, `ip`, `beg`, `end`, `dom`, `sub` or `reg`.
    pub method: &'static str,
    /// Number of lines that hold a key.
    pub entries: usize,
    text: &'p [u8],
    map: Option<&'p LookupMap>,
}

impl Policy {
    /// `slo.map`, and every map that holds a key.
    pub fn maps(&self) -> impl Iterator<Item = MapView<'_>> {
        let slo_map = MapView {
            number: 0,
            path: &self.slo_map.path,
            lookup: None,
            method: "str",
            entries: self.slos.len(),
            text: self.slo_map.text(),
            map: None,
        };
        let views = self.lookups.iter().chain(self.fields.maps()).enumerate().map(|(place, map)| MapView {
            number: place + 1,
            path: &map.path,
            lookup: Some(&map.name),
            method: map.method.name(),
            entries: map.entries,
            text: map.text(),
            map: Some(map),
        });
        std::iter::once(slo_map).chain(views)
    }
}

impl<'p> MapView<'p> {
    /// The lines that hold a key, starting at byte `begin` of the file. Each comes with the start of the next line.
    pub fn lines_from(&self, begin: usize) -> impl Iterator<Item = (Line<'p>, usize)> + use<'p> {
        let text = self.text;
        let lines = map::lines(text.get(begin..).unwrap_or_default()).flatten();
        lines.map(move |line| {
            let line = Line { at: begin + line.at, ..line };
            let length = text[line.at..].iter().position(|&byte| byte == b'\n');
            (line, length.map_or(text.len(), |length| line.at + length + 1))
        })
    }

    /// The line that the lookup would find for a value. The values of several fields are joined by `+`.
    pub fn find(&self, value: &[u8]) -> Option<Line<'p>> {
        let lines = |begin| self.lines_from(begin).map(|(line, _)| line);
        let Some(map) = self.map else { return lines(0).find(|line| line.key == value) };
        let at = map.find_text(value)?.at();
        let begin = self.text[..at].iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        lines(begin).next()
    }
}
