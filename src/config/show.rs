//! The configuration in force as text, with the comments of the shipped file.

use std::collections::{BTreeMap, VecDeque};

use toml::{Table, Value};

use crate::config::mistakes::TEMPLATE;
use crate::config::{ConfigError, File};

/// The text of a configuration. For the defaults it equals the shipped file.
pub(super) fn show(file: &File) -> Result<String, ConfigError> {
    let sections = |file: &File| match Table::try_from(file) {
        Ok(values) => Ok(sections(values)),
        Err(error) => Err(ConfigError::Unwritable(error.to_string())),
    };
    // The template may write the defaults in another notation: 1m for 60s.
    let (mut sections, mut defaults) = (sections(file)?, sections(&File::default())?);
    let next = |sections: &mut Sections, name: &str| sections.get_mut(name)?.pop_front();
    let mut shown: Vec<String> = Vec::new();
    let mut blocks = TEMPLATE.trim_end().split("\n\n").peekable();
    while let Some(block) = blocks.next() {
        let Some(name) = name_of(block) else {
            shown.push(block.to_owned());
            continue;
        };
        let default = next(&mut defaults, name).unwrap_or_default();
        // A list may have fewer tables than the template.
        shown.extend(next(&mut sections, name).map(|table| filled(block, table, default)));
        if blocks.peek().is_none_or(|block| name_of(block) != Some(name)) {
            let more = sections.remove(name).into_iter().flatten();
            shown.extend(more.map(|table| format!("[[{name}]]{}", settings(table))));
        }
    }
    // Derived fields that the template does not have.
    shown.extend(sections.into_iter().filter_map(|(name, mut tables)| {
        let table = tables.pop_front().filter(|table| !table.is_empty())?;
        Some(format!("[{name}]{}", settings(table)))
    }));
    Ok(shown.join("\n\n") + "\n")
}

/// The tables of each section, by its name. A list like `[[policy.lookups]]` has several.
type Sections = BTreeMap<String, VecDeque<Table>>;

/// Splits a configuration into its sections: `[policy.types]` is the section `policy.types`.
fn sections(values: Table) -> Sections {
    let mut sections = Sections::new();
    let mut open = vec![(String::new(), values)];
    while let Some((name, table)) = open.pop() {
        let path =
            |key: &str| if name.is_empty() { key.to_owned() } else { format!("{name}.{}", quoted(key)) };
        let mut keys = Table::new();
        for (key, value) in table {
            match value {
                Value::Table(inner) => open.push((path(&key), inner)),
                Value::Array(items) if items.first().is_some_and(Value::is_table) => {
                    let table = |item| if let Value::Table(table) = item { Some(table) } else { None };
                    sections.insert(path(&key), items.into_iter().filter_map(table).collect());
                }
                value => drop(keys.insert(key, value)),
            }
        }
        if !keys.is_empty() || !sections.contains_key(&name) {
            sections.insert(name, [keys].into());
        }
    }
    sections
}

/// The section of a block of the template: a paragraph that begins with its name.
fn name_of(block: &str) -> Option<&str> {
    block.strip_prefix('[')?.trim_start_matches('[').split(']').next()
}

/// A block of the template with the values in force. A key without a value becomes a comment.
fn filled(block: &str, mut table: Table, mut default: Table) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in block.lines() {
        let Some((key, is_comment)) = key_of(line) else {
            lines.push(line.to_owned());
            continue;
        };
        match (table.remove(key), default.remove(key)) {
            (Some(value), default) if Some(&value) != default.as_ref() => {
                lines.push(with_value(line.trim_start_matches("# "), key, &value));
            }
            (None, _) if !is_comment => {}
            _ => lines.push(line.to_owned()),
        }
    }
    lines.join("\n") + &settings(table)
}

/// Lines of keys that the template does not have.
fn settings(table: Table) -> String {
    table.iter().map(|(key, value)| format!("\n{} = {value}", quoted(key))).collect()
}

/// The key of a line, and whether the line is commented out, like `# dir = "policy"`.
fn key_of(line: &str) -> Option<(&str, bool)> {
    let (text, is_comment) = match line.strip_prefix("# ") {
        Some(text) => (text, true),
        None => (line, false),
    };
    let (key, _) = text.split_once(" = ")?;
    let is_key = |key: &str| key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_key(key).then_some((key, is_comment))
}

fn quoted(key: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    match !key.is_empty() && key.bytes().all(is_bare) {
        true => key.to_owned(),
        false => Value::from(key).to_string(),
    }
}

/// The line with another value. Its comment keeps its column if the value leaves room.
fn with_value(line: &str, key: &str, value: &Value) -> String {
    let setting = format!("{key} = {value}");
    match line.find(" # ") {
        Some(at) => {
            let comment = &line[at + 1..];
            let column = at + 1;
            format!("{setting:<width$} {comment}", width = column - 1)
        }
        None => setting,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::config::{Config, Flags};

    /// The output for a config file with this text.
    fn shown(text: &str) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        Config::show(Some(file.path()), Flags::default()).unwrap()
    }

    fn load(text: &str) -> Config {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        Config { file: None, ..Config::load(Some(file.path()), Flags::default()).unwrap() }
    }

    #[test]
    fn the_defaults_are_shown_as_the_shipped_file() {
        assert_eq!(Config::show(None, Flags::default()).unwrap(), TEMPLATE);
    }

    /// Every key has a line in the template, and so a comment that explains it.
    #[test]
    fn the_template_has_every_key() {
        let values = Table::try_from(File::default()).unwrap();
        let template = TEMPLATE.replace("# dir =", "dir =");
        let written: Table = template.parse().unwrap();
        for (section, keys) in &values {
            for key in keys.as_table().unwrap().keys() {
                assert!(written[section].get(key).is_some(), "[{section}] {key}");
            }
        }
    }

    #[test]
    fn what_is_changed_is_shown_in_its_place_and_nothing_else_is() {
        let text =
            shown("[table]\nsize = 7\n[policy]\ndir = '/etc/slowlane/policy'\n[policy.types]\n6 = ['a']\n");
        let differing: Vec<_> =
            text.lines().zip(TEMPLATE.lines()).filter(|(one, other)| one != other).collect();
        assert_eq!(differing.len(), 3, "{differing:?}");
        assert!(text.contains("\nsize = 7 "));
        assert!(text.contains("\ndir = \"/etc/slowlane/policy\""));
        assert!(text.contains("\n6 = [\"a\"] "));
    }

    #[test]
    fn lookups_may_be_more_or_fewer_than_the_template_has() {
        let lookup = |name: &str| {
            format!("[[policy.lookups]]\nfields = ['{name}']\nmap = '{name}.map'\nmatch = 'beg'\n")
        };
        for names in [&["a"][..], &["a", "b"], &["a", "b", "c", "d", "e", "f", "g"]] {
            let written: String = names.iter().map(|name| lookup(name)).collect();
            let written = format!("policy.dir = '/p'\n{written}");
            let text = shown(&written);
            assert_eq!(text.matches("[[policy.lookups]]").count(), names.len(), "{text}");
            assert_eq!(load(&text), load(&written));
            assert!(text.contains("[log]\nlevel = \"info\" "), "{text}");
        }
        let none = "policy.dir = '/p'\npolicy.lookups = []\n";
        assert_eq!(load(&shown(none)), load(none));
    }

    #[test]
    fn derived_fields_are_shown_as_they_are_in_force() {
        let derived = "[policy]\ndir = 'maps'\n[policy.derived.asn]\nfrom = 'source'\nmap = 'asn.map'\nmatch = 'ip'\n\
                       [policy.derived.'a b']\nfrom = 'x'\nipv4_prefix = 8\nipv6_prefix = 16\n\
                       [policy.derived.network]\nipv4_prefix = 20\n[policy.types]\n6 = ['asn', 'a b']\n";
        let text = shown(derived);
        assert_eq!(load(&text), load(derived), "{text}");
        assert!(
            text.contains("[policy.derived.asn]\nfrom = \"source\"\nmap = \"asn.map\"\nmatch = \"ip\""),
            "{text}"
        );
        assert_ne!(load(&text), load("[policy]\ndir = 'maps'\n[policy.types]\n6 = ['asn', 'a b']\n"));
    }

    /// A text that may need quotes.
    fn name() -> impl Strategy<Value = String> {
        "[a-zé\"\\\\# ='\u{1}]{1,6}"
    }

    proptest! {
        #[test]
        fn what_is_shown_is_what_is_in_force(
            listen in prop::collection::vec("[a-z]{1,9}:[1-9][0-9]{0,3}", 0..3),
            sizes in (1u32..1000, 1u32..90_000, 0u64..9_000),
            fields in prop::collection::vec(name(), 1..4),
            files in prop::collection::btree_set(name(), 0..7),
            dir in prop::option::of("/[a-z \"\\\\é]{1,9}"),
            types in prop::collection::btree_map(1u8..10, prop::collection::vec(name(), 1..3), 0..4),
        ) {
            let text = |text: &str| Value::from(text).to_string();
            let list = |texts: &[String]| Value::from(texts.to_vec()).to_string();
            let dir = dir.map_or(String::new(), |dir| format!("dir = {}\n", text(&dir)));
            let types: String = types.iter().map(|(kind, fields)| format!("{kind} = {}\n", list(fields))).collect();
            let lookup = |file: &String| {
                let file = text(&format!("{file}.map"));
                format!("[[policy.lookups]]\nfields = {}\nmap = {file}\nmatch = 'end'\n", list(&fields))
            };
            let lookups: String = files.iter().map(lookup).collect();
            let (size, seconds, ms) = sizes;
            let written = format!(
                "[spop]\nlisten = {}\ntimeout = '{seconds}s'\n[table]\nsize = {size}\n[hold]\nlongest = '{}ms'\n\
                 when_full = 'deny'\n[policy]\n{dir}[policy.types]\n{types}{lookups}",
                list(&listen), ms + 1,
            );
            let shown = shown(&written);
            prop_assert_eq!(load(&shown), load(&written), "{}", shown);
            prop_assert_eq!(super::tests::shown(&shown), shown);
        }
    }

    #[test]
    fn a_relative_policy_directory_is_shown_where_it_is() {
        let flags = Flags { policy: Some("maps".into()), ..Flags::default() };
        let text = Config::show(None, flags).unwrap();
        let dir = std::path::absolute(Path::new("maps")).unwrap();
        assert!(text.contains(&format!("\ndir = \"{}\"", dir.display())), "{text}");
    }
}
