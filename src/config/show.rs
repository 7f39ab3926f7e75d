//! The configuration in force as text, with the comments of the shipped file.

use std::collections::BTreeMap;

use toml::{Table, Value};

use crate::config::error::ConfigError;
use crate::config::file::File;
use crate::config::mistakes::TEMPLATE;

/// The text of a configuration. For the defaults it equals the shipped file.
pub(super) fn show(file: &File) -> Result<String, ConfigError> {
    let sections = |file: &File| match Table::try_from(file) {
        Ok(values) => Ok(sections(values)),
        Err(error) => Err(ConfigError::Unwritable(error.to_string())),
    };
    let (sections, defaults) = (sections(file)?, sections(&File::default())?);
    let mut shown = Shown { sections, defaults, section: String::new(), text: String::new() };
    TEMPLATE.lines().for_each(|line| shown.line(line));
    shown.end_section();
    shown.text.truncate(shown.text.trim_end().len());
    Ok(shown.text + "\n")
}

/// The tables of each section, by its name. A list like `[[policy.lookups]]` has several.
type Sections = BTreeMap<String, Vec<Table>>;

/// Splits a configuration into its sections: `[policy.types]` is the section `policy.types`.
fn sections(values: Table) -> Sections {
    let mut sections = Sections::new();
    let mut open = vec![(String::new(), values)];
    while let Some((name, table)) = open.pop() {
        let path = |key: &str| if name.is_empty() { key.to_owned() } else { format!("{name}.{key}") };
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
            sections.insert(name, vec![keys]);
        }
    }
    sections
}

/// The text so far, and the values that are still to be written.
struct Shown {
    /// The keys that are not written yet.
    sections: Sections,
    /// The defaults. The template may write them in another notation: 1m for 60s.
    defaults: Sections,
    /// The current section of the template.
    section: String,
    text: String,
}

impl Shown {
    fn line(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix('[') {
            let name = name.trim_start_matches('[').split(']').next().unwrap_or_default();
            if name != self.section {
                self.end_section();
                self.section = name.to_owned();
                if !self.sections.contains_key(name) {
                    return;
                }
            } else if !self.go_on_to_next() {
                return;
            }
            return self.push(line);
        }
        match key_of(line) {
            Some((key, is_comment)) => self.key(line, key, is_comment),
            // A list with fewer tables than the template needs no blank lines for the rest.
            None if line.is_empty() && !self.sections.contains_key(&self.section) => {}
            None => self.push(line),
        }
    }

    /// Writes the line of a key with its value in force, as a comment only if it has no value.
    fn key(&mut self, line: &str, key: &str, is_comment: bool) {
        let take = |sections: &mut Sections| sections.get_mut(&self.section)?.first_mut()?.remove(key);
        let default = take(&mut self.defaults);
        match take(&mut self.sections) {
            value @ Some(_) if value == default => self.push(line),
            Some(value) => {
                let line = with_value(line.trim_start_matches("# "), key, &value);
                self.push(&line);
            }
            None if is_comment => self.push(line),
            None => {}
        }
    }

    /// Goes on to the next table of the list; false if there is none.
    fn go_on_to_next(&mut self) -> bool {
        self.push_rest_of_table();
        let section = &self.section;
        let go_on = |sections: &mut Sections| {
            let has_more = sections.get_mut(section).is_some_and(|tables| {
                tables.remove(0);
                !tables.is_empty()
            });
            if !has_more {
                sections.remove(section);
            }
            has_more
        };
        go_on(&mut self.defaults);
        go_on(&mut self.sections)
    }

    /// Writes the keys that the template does not mention.
    fn end_section(&mut self) {
        self.push_rest_of_table();
        let Some(tables) = self.sections.remove(&self.section) else { return };
        for table in tables.into_iter().skip(1) {
            self.push_before_blank(&format!("\n[[{}]]", self.section));
            for (key, value) in table {
                self.push_before_blank(&format!("{} = {value}", quoted(&key)));
            }
        }
    }

    fn push_rest_of_table(&mut self) {
        let Some(table) = self.sections.get_mut(&self.section).and_then(|tables| tables.first_mut()) else {
            return;
        };
        for (key, value) in std::mem::take(table) {
            self.push_before_blank(&format!("{} = {value}", quoted(&key)));
        }
    }

    fn push(&mut self, line: &str) {
        self.text += line;
        self.text.push('\n');
    }

    /// Adds a line before the blank lines at the end of the text.
    fn push_before_blank(&mut self, line: &str) {
        let blank = self.text.split_off(self.text.trim_end_matches('\n').len() + 1);
        self.push(line);
        self.text += &blank;
    }
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

/// The line with another value. Its comment stays in its column if the value leaves room.
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
