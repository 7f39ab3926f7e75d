//! All errors in a config file, each with its line, and the settings that remain when the faulty settings are removed.

use std::mem;
use std::sync::LazyLock;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeArray, DeString, DeTable, DeValue, Deserializer, Error};

use crate::config::Sections;
use slowlane_core::base::shown;

/// The maximum number of errors that are reported. A hundred errors usually have one cause.
const MISTAKES_MAX: usize = 100;

/// The maximum number of passes through the settings; each pass drops one more setting. Identical errors on one line
/// are reported once, so thousands of them would never reach the limit on errors.
const PASSES_MAX: usize = 2 * MISTAKES_MAX;

/// The shipped file: every key with its default and its comment.
pub(super) const TEMPLATE: &str = include_str!("../../slowlane.toml");

static SHIPPED: LazyLock<Spanned<DeTable<'static>>> =
    LazyLock::new(|| DeTable::parse(TEMPLATE).expect("a test parses the shipped file"));

impl Default for Sections {
    fn default() -> Sections {
        Sections::deserialize(Deserializer::from(SHIPPED.clone())).expect("a test parses the shipped file")
    }
}

/// The settings of a table. Missing keys take their values from the shipped file.
fn filled(table: &Spanned<DeTable<'_>>) -> Result<Sections, Error> {
    let mut table = table.clone();
    fill(table.get_mut(), SHIPPED.get_ref());
    Sections::deserialize(Deserializer::from(table))
}

fn fill<'t>(table: &mut DeTable<'t>, shipped: &DeTable<'t>) {
    for (key, value) in shipped {
        match (table.get_mut(key).map(Spanned::get_mut), value.get_ref()) {
            (None, _) => drop(table.insert(key.clone(), value.clone())),
            (Some(DeValue::Table(table)), DeValue::Table(shipped)) => fill(table, shipped),
            _ => {}
        }
    }
}

/// An error, and its line number, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ConfigMistake {
    pub(super) line: usize,
    pub(super) message: String,
}

/// The settings and the errors in a text. Settings with errors get defaults; after too many errors, all settings do.
pub(super) fn read(text: &str) -> (Sections, Vec<ConfigMistake>) {
    let (mut table, errors) = DeTable::parse_recoverable(text);
    let mut mistakes: Vec<ConfigMistake> = Vec::new();
    for error in &errors {
        // Other errors on the same line follow from the first one.
        let mistake = mistake(text, error);
        if mistakes.iter().all(|reported| reported.line != mistake.line) {
            mistakes.push(mistake);
        }
    }
    let broken: Vec<usize> = mistakes.iter().map(|mistake| mistake.line).collect();
    let (mut sections, mut incomplete) = (None, Vec::new());
    for _ in 0..PASSES_MAX {
        if sections.is_some() || mistakes.len() >= MISTAKES_MAX {
            break;
        }
        match filled(&table) {
            Ok(read) => sections = Some(read),
            Err(error) => {
                let mistake = mistake(text, &error);
                let at = error.span().map_or(0, |span| span.start);
                // The key that is now missing may have been removed here, after an earlier error.
                let is_known = incomplete.contains(&at) && mistake.message.starts_with("missing field");
                if !is_known && !broken.contains(&mistake.line) && !mistakes.contains(&mistake) {
                    mistakes.push(mistake);
                }
                if !remove(table.get_mut(), at, &mut incomplete) {
                    break;
                }
            }
        }
    }
    mistakes.sort();
    mistakes.truncate(MISTAKES_MAX);
    (sections.unwrap_or_default(), mistakes)
}

/// The line of a key in a section like `spop` or `spop.tls`, if the text contains the key.
pub(super) fn line_of(text: &str, section: &str, key: &str) -> Option<usize> {
    let (table, _) = DeTable::parse_recoverable(text);
    let mut inner = table.get_ref();
    for name in section.split('.') {
        let (_, section) = inner.get_key_value(name)?;
        inner = section.get_ref().as_table()?;
    }
    let (key, _) = inner.get_key_value(key)?;
    Some(line(text, key.span().start))
}

fn mistake(text: &str, error: &Error) -> ConfigMistake {
    let message = error.message().replace('\n', ", ").replace("a sequence", "a list in [ ]");
    // The message may quote the text and appear on a terminal, so control characters are escaped.
    ConfigMistake { line: line(text, error.span().map_or(0, |span| span.start)), message: shown(message) }
}

/// The line of a byte, counted from 1.
fn line(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|&byte| byte == b'\n').count() + 1
}

/// Removes the smallest item that contains the byte at `at`. If the item was in a table of a list, the start of that
/// table is added to `incomplete`.
fn remove(table: &mut DeTable<'_>, at: usize, incomplete: &mut Vec<usize>) -> bool {
    if table.iter_mut().any(|(_, value)| remove_within(value, at, incomplete)) {
        return true;
    }
    let is_here = |key: &Spanned<DeString<'_>>, value: &Spanned<DeValue<'_>>| {
        let is_leaf = !value.get_ref().is_table() && !value.get_ref().is_array();
        let is_between = is_leaf && (key.span().start..value.span().end).contains(&at);
        is_between || key.span().contains(&at) || value.span().contains(&at)
    };
    let found = table.iter().find(|(key, value)| is_here(key, value)).map(|(key, _)| key.clone());
    let Some(key) = found else { return false };
    // If the error may be in the lookups, only the lookups are removed, so that the policy directory stays known.
    if let Some(DeValue::Table(inner)) = table.get_mut(&key).map(Spanned::get_mut)
        && inner.remove("lookups").is_some()
    {
        return true;
    }
    table.remove(&key).is_some()
}

fn remove_within(value: &mut Spanned<DeValue<'_>>, at: usize, incomplete: &mut Vec<usize>) -> bool {
    match value.get_mut() {
        DeValue::Table(table) => remove(table, at, incomplete),
        DeValue::Array(items) => {
            if let Some(item) = items.iter_mut().find_map(|item| {
                let start = item.span().start;
                remove_within(item, at, incomplete).then_some(start)
            }) {
                incomplete.push(item);
                return true;
            }
            let is_here =
                |item: &Spanned<DeValue<'_>>| item.get_ref().is_table() && item.span().contains(&at);
            let (gone, rest): (Vec<_>, Vec<_>) =
                mem::replace(items, DeArray::new()).into_iter().partition(is_here);
            *items = rest.into_iter().collect();
            !gone.is_empty()
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        read(text).1.iter().map(|mistake| mistake.line).collect()
    }

    #[test]
    fn every_mistake_is_told_and_the_rest_is_read() {
        let text = "[hold]\nmax = -1\nlongest = '7s'\nwhen = 1\n[[policy.lookups]]\nmap = 'a'\nmatch = 'str'\n\
                    [[policy.lookups]]\nfields = ['a']\nmap = 'b'\nmatch = 'dir'\n[policy]\ndir = 'there'\n";
        let (file, mistakes) = read(text);
        assert_eq!(lines(text), [2, 4, 5, 11], "{mistakes:?}");
        assert_eq!(file.hold.longest.as_secs(), 7);
        assert_eq!(file.policy.written.dir.unwrap().to_str(), Some("there"));
        assert_eq!(line_of(text, "policy", "dir"), Some(13));
        assert_eq!(line_of(text, "policy", "types"), None);
    }

    #[test]
    fn a_lookup_too_many_does_not_hide_the_policy() {
        let lookup = "[[policy.lookups]]\nfields = ['a']\nmap = 'a.map'\nmatch = 'str'\n";
        let (file, mistakes) = read(&format!("policy.dir = 'there'\n{lookup}{lookup}"));
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        assert!(file.policy.written.dir.is_some());
    }

    #[test]
    fn mistakes_are_bounded() {
        let text: String = (0..1_000).map(|number| format!("a{number} = 1\n")).collect();
        assert_eq!(read(&text).1.len(), MISTAKES_MAX);
    }

    #[test]
    fn passes_over_equal_mistakes_are_bounded() {
        let read = |lookups: usize| {
            let lookups = "{map = 'a'}, ".repeat(lookups);
            read(&format!("hold.max = 7\npolicy.lookups = [{lookups}]\n"))
        };
        let (few, many) = (read(PASSES_MAX - 1), read(10 * PASSES_MAX));
        assert_eq!((few.0.hold.max, few.1.len()), (7, 1));
        assert_eq!((many.0.hold.max, many.1.len()), (Sections::default().hold.max, 1));
    }

    #[test]
    fn a_control_character_in_a_key_is_escaped_in_its_mistake() {
        let (_, mistakes) = read("[admin]\n\"\\u001b[2J\" = 1\n");
        assert!(mistakes[0].message.starts_with(r"unknown field `\u{1b}[2J`"), "{mistakes:?}");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_has_a_mistake(text in "([a-z\\[\\]=\"'\n .{}0-9]|\\[policy\\]\n|\\[\\[policy.lookups\\]\\]\n|dir = 1\n|max = 2\n|map = 'a'\n){0,30}") {
            let is_valid = DeTable::parse(&text).and_then(|table| filled(&table)).is_ok();
            prop_assert_eq!(read(&text).1.is_empty(), is_valid);
        }
    }
}
