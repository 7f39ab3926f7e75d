//! Summaries of a policy for the log: the number of lines in each file, and what changed in them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::path::Path;

use hashbrown::{DefaultHashBuilder, HashMap};

use crate::base::{cut, plural, shown};
use crate::policy::{Policy, map};

/// The maximum number of SLOs whose changes are listed.
const SLOS_MAX: usize = 8;

/// The maximum number of characters of an option's value to show.
const VALUE_CHARS_MAX: usize = 40;

/// The maximum length of the list of changes, in characters.
const CHANGES_CHARS_MAX: usize = 1_000;

impl Policy {
    /// A summary of the SLOs and the maps that exist, like `2 SLOs; source.map 5 lines, website.map 0 lines`.
    pub fn summary(&self) -> String {
        let size = |file, lines| format!("{} {}", shown_path(file), plural(lines, "line"));
        let maps = self.sizes.iter().filter_map(|(file, lines)| Some(size(file, (*lines)?)));
        let (slos, maps) = (plural(self.slos.len(), "SLO"), maps.collect::<Vec<_>>());
        if maps.is_empty() { format!("{slos}; no maps") } else { format!("{slos}; {}", maps.join(", ")) }
    }

    /// Whether any SLO has a limit. Without a limit, slowlane only counts.
    pub fn has_limits(&self) -> bool {
        self.slos.iter().any(|slo| !slo.is_unlimited())
    }

    /// The changes from another policy: `SLO 2001 rate 50/s -> 20/s; website.map 120 -> 121 lines (+2 -1)`.
    pub fn changes_since(&self, before: &Policy) -> String {
        let maps = self.sizes.iter().filter_map(|(file, lines)| self.map_change(before, file, *lines));
        let changes: Vec<String> = self.slo_changes(before).into_iter().chain(maps).collect();
        let text = match changes.is_empty() {
            true => format!("no change: {}", self.summary()),
            false => changes.join("; "),
        };
        cut(text, CHANGES_CHARS_MAX)
    }

    /// The files that are missing or have fewer than half as many lines as in the other policy. Such files
    /// may be only half-written.
    pub fn shrunk_since(&self, before: &Policy) -> Vec<String> {
        let slo_map = (Path::new("slo.map"), Some(self.slos.len()), Some(before.slos.len()));
        let maps = self.sizes.iter().map(|(file, lines)| (&**file, *lines, before.lines_of(file)));
        let shrunk = std::iter::once(slo_map).chain(maps).filter_map(|(file, now, was)| {
            let was = was.filter(|&was| was > 2 * now.unwrap_or(0))?;
            let (file, was) = (shown_path(file), plural(was, "line"));
            Some(match now {
                Some(now) => format!("{file} has {} instead of {was}", plural(now, "line")),
                None => format!("{file} is missing (it had {was})"),
            })
        });
        shrunk.collect()
    }

    fn lines_of(&self, file: &Path) -> Option<usize> {
        self.sizes.iter().find(|(known, _)| known == file)?.1
    }

    /// The text of a map, which is empty if no line has a key.
    fn text_of(&self, file: &Path) -> &[u8] {
        let path = self.slo_map.path.with_file_name("").join(file);
        let mut maps = self.lookups.iter().chain(self.fields.maps());
        maps.find(|map| map.path == path).map_or(b"", |map| map.text())
    }

    fn slo_changes(&self, before: &Policy) -> Vec<String> {
        if self.slo_map.text() == before.slo_map.text() {
            return Vec::new();
        }
        let (now, was) = (self.slo_texts(), before.slo_texts());
        let changed = now.iter().filter_map(|(id, value)| match was.get(id) {
            Some(was) => slo_change(was, value).map(|change| format!("SLO {id} {change}")),
            None => Some(format!("SLO {id} added ({})", short(value))),
        });
        let removed = was.keys().filter(|id| !now.contains_key(*id)).map(|id| format!("SLO {id} removed"));
        let mut changes: Vec<String> = changed.chain(removed).collect();
        let more = changes.len().saturating_sub(SLOS_MAX);
        changes.truncate(SLOS_MAX);
        changes.extend((more > 0).then(|| format!("{} changed", plural(more, "more SLO"))));
        changes
    }

    /// The options of each SLO, by its number.
    fn slo_texts(&self) -> BTreeMap<u32, Cow<'_, str>> {
        let slo = |(id, options)| {
            Some((std::str::from_utf8(id).ok()?.parse().ok()?, String::from_utf8_lossy(options)))
        };
        lines(self.slo_map.text()).filter_map(slo).collect()
    }

    fn map_change(&self, before: &Policy, file: &Path, lines: Option<usize>) -> Option<String> {
        let name = shown_path(file);
        match (lines, before.lines_of(file)) {
            (None, None) => None,
            (Some(now), None) => Some(format!("{name} new, {}", plural(now, "line"))),
            (None, Some(was)) => Some(format!("{name} {} -> removed", plural(was, "line"))),
            (Some(now), Some(was)) => {
                let change = text_change(self.text_of(file), before.text_of(file))?;
                let was = if now == was { String::new() } else { format!("{was} -> ") };
                Some(format!("{name} {was}{} {change}", plural(now, "line")))
            }
        }
    }
}

/// The options that differ: `rate 50/s -> 20/s, max_delay=2s added`.
fn slo_change(was: &str, now: &str) -> Option<String> {
    let value = |text, name| words(text).find(|&(given, _)| given == name).map(|(_, value)| short(value));
    let changed = words(now).filter_map(|(name, to)| {
        let (from, name, to) = (value(was, name), short(name), short(to));
        match from {
            Some(from) => (from != to).then(|| format!("{name} {from} -> {to}")),
            None => Some(format!("{name}={to} added")),
        }
    });
    let removed = words(was).filter(|&(name, _)| value(now, name).is_none());
    let removed = removed.map(|(name, value)| format!("{}={} removed", short(name), short(value)));
    let changes: Vec<String> = changed.chain(removed).collect();
    (!changes.is_empty()).then(|| changes.join(", "))
}

fn words(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split_ascii_whitespace().filter_map(|word| word.split_once('='))
}

/// The numbers of added and removed lines, like `(+2 -1)`. None if the lines are the same.
fn text_change(now: &[u8], was: &[u8]) -> Option<String> {
    if lines(now).eq(lines(was)) {
        return None;
    }
    let (hasher, mut counts) = (DefaultHashBuilder::default(), HashMap::<u64, isize>::new());
    lines(now).for_each(|line| *counts.entry(hasher.hash_one(line)).or_default() += 1);
    lines(was).for_each(|line| *counts.entry(hasher.hash_one(line)).or_default() -= 1);
    let sum = |sign: isize| counts.values().map(|count| (sign * count).max(0)).sum::<isize>();
    match (sum(1), sum(-1)) {
        (0, 0) => Some("in a different order".into()),
        (added, removed) => Some(format!("(+{added} -{removed})")),
    }
}

/// The keys and values of a map.
fn lines(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    map::lines(text).flatten().map(|line| (line.key, line.value))
}

/// Text of a file, safe to display and not too long.
fn short(text: &str) -> String {
    cut(shown(text), VALUE_CHARS_MAX)
}

fn shown_path(path: &Path) -> String {
    shown(path.as_os_str().as_encoded_bytes())
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::policy::Layout;

    fn policy(files: &[(&str, &str)]) -> Policy {
        let read = |path: &Path| {
            let file = files.iter().find(|(name, _)| path == Path::new("maps").join(name));
            file.map(|(_, text)| text.as_bytes().to_vec()).ok_or_else(|| io::ErrorKind::NotFound.into())
        };
        Policy::parse(Path::new("maps"), &Layout::default(), read).unwrap()
    }

    const SLOS: (&str, &str) = ("slo.map", "0 burst=1 rate=1/s\n3001 burst=1 rate=50/s\n");

    #[test]
    fn every_existing_map_is_listed_with_its_lines() {
        let full = policy(&[SLOS, ("source.map", "# ours\n::1 3001\n::2 3001\n"), ("website.map", "a 0\n")]);
        assert_eq!(full.summary(), "2 SLOs; source.map 2 lines, website.map 1 line");
        assert!(Policy::builtin().summary().ends_with("1 SLO; no maps"));
    }

    #[test]
    fn changes_name_slos_and_count_lines() {
        let full = policy(&[SLOS, ("source.map", "::1 3001\n::2 3001\n"), ("website.map", "a 0\nb 0\n")]);
        let changes = |files: &[(&str, &str)]| policy(files).changes_since(&full);
        let same =
            [SLOS, ("source.map", "# a comment\n::1 3001\n::2  3001\n"), ("website.map", "a 0\nb 0\n")];
        assert_eq!(changes(&same), "no change: 2 SLOs; source.map 2 lines, website.map 2 lines");
        assert_eq!(
            changes(&[
                ("slo.map", "0 rate=1/s burst=1\n3001 burst=1 rate=20/s max_delay=2s\n2 burst=1 rate=1/s"),
                ("source.map", "::1 3001\n::3 3001\n::4 3001\n"),
                ("owner.map", "ann 2\n"),
            ]),
            "SLO 2 added (burst=1 rate=1/s); SLO 3001 rate 50/s -> 20/s, max_delay=2s added; source.map 2 \
             -> 3 lines (+2 -1); website.map 2 lines -> removed; owner.map new, 1 line"
        );
        assert_eq!(
            changes(&[
                ("slo.map", "0 burst=1 rate=1/s law=fair"),
                ("source.map", ""),
                ("website.map", "b 0\na 0")
            ]),
            "SLO 0 law=fair added; SLO 3001 removed; source.map 2 -> 0 lines (+0 -2); website.map 2 lines \
             in a different order"
        );
        let [fewer, more] = [("slo.map", "0 burst=1 rate=1/s law=fair"), SLOS].map(|slos| policy(&[slos]));
        assert_eq!(more.changes_since(&fewer), "SLO 0 law=fair removed; SLO 3001 added (burst=1 rate=50/s)");
    }

    #[test]
    fn changes_are_bounded_and_safe_to_show() {
        let slos = |rate: u32, count: u32| -> String {
            (0..count)
                .map(|id| format!("{id} burst=1 rate={rate}/s law=fair share={}\n", "\u{1b}".repeat(90)))
                .collect()
        };
        let (before, after) = (slos(1, 100), slos(2, 100));
        let text = policy(&[("slo.map", &after)]).changes_since(&policy(&[("slo.map", &before)]));
        assert!(text.starts_with("SLO 0 rate 1/s -> 2/s; SLO 1 rate "), "{text}");
        assert!(text.ends_with("; 92 more SLOs changed"), "{text}");
        let text = policy(&[("slo.map", &after)]).changes_since(&Policy::builtin());
        assert!(text.chars().count() <= CHANGES_CHARS_MAX + 1 && !text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn a_map_with_less_than_half_of_its_lines_has_shrunk() {
        let lines = |count: usize| (0..count).map(|number| format!("w{number} 0\n")).collect::<String>();
        let with = |count: usize| policy(&[SLOS, ("website.map", &lines(count))]);
        let none = Vec::<String>::new();
        assert_eq!(with(5).shrunk_since(&with(10)), none);
        assert_eq!(with(4).shrunk_since(&with(10)), ["website.map has 4 lines instead of 10 lines"]);
        assert_eq!(with(0).shrunk_since(&with(1)), ["website.map has 0 lines instead of 1 line"]);
        assert_eq!(policy(&[SLOS]).shrunk_since(&with(1)), ["website.map is missing (it had 1 line)"]);
        assert_eq!(policy(&[SLOS]).shrunk_since(&with(0)), none, "an empty map may go");
        assert_eq!(with(9).shrunk_since(&policy(&[SLOS])), none);
        let one = policy(&[("slo.map", "0 burst=1 rate=1/s")]);
        let three = policy(&[("slo.map", "0 burst=1 rate=1/s\n1 burst=1 rate=1/s\n2 burst=1 rate=1/s")]);
        assert_eq!(one.shrunk_since(&three), ["slo.map has 1 line instead of 3 lines"]);
    }
}
