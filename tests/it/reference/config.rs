//! The keys of the config file: from its shipped text, and from the errors for values that it does not take.

use std::fs;

use toml::Value;

use super::{agrees, filled, grouped, marked, roff, sentence, table};
use crate::support::project;

/// A section of `slowlane.toml`.
struct Section {
    name: String,
    is_list: bool,
    /// Whether it is shipped as a comment.
    is_absent: bool,
    text: String,
    keys: Vec<Key>,
}

struct Key {
    name: String,
    /// Its default, or an example.
    value: String,
    is_set: bool,
    text: String,
}

/// The sections in their order, each table of a list by itself. Only the first of these has comments.
fn sections() -> Vec<Section> {
    let file = fs::read_to_string(project("slowlane.toml")).unwrap();
    let mut sections: Vec<Section> = Vec::new();
    for line in file.lines() {
        let (line, is_absent) = line.strip_prefix("# ").map_or((line, false), |line| (line, true));
        let (line, text) = line.split_once(" # ").unwrap_or((line, ""));
        let (line, text) = (line.trim_end(), text.trim().to_owned());
        if line.starts_with('[') && line.ends_with(']') {
            let name = line.trim_matches(['[', ']']).to_owned();
            sections.push(Section {
                name,
                is_list: line.starts_with("[["),
                is_absent,
                text,
                keys: Vec::new(),
            });
        } else if let (Some((name, value)), Some(section)) = (line.split_once(" = "), sections.last_mut())
            && !name.contains(' ')
        {
            section.keys.push(Key {
                name: name.to_owned(),
                value: value.to_owned(),
                is_set: !is_absent,
                text,
            });
        }
    }
    sections
}

/// The same with only the first table of a list.
fn once_each() -> Vec<Section> {
    let mut once: Vec<Section> = Vec::new();
    for section in sections() {
        if once.iter().all(|known| known.name != section.name) {
            once.push(section);
        }
    }
    once
}

impl Section {
    fn header(&self) -> String {
        if self.is_list { format!("[[{}]]", self.name) } else { format!("[{}]", self.name) }
    }

    /// The values that a key takes, as its errors name them.
    fn values(&self, key: &Key) -> String {
        let expected = |value: &str| {
            let mut text = self.header() + "\n";
            for other in self.keys.iter().filter(|other| other.is_set || self.is_absent) {
                if other.name != key.name {
                    text += &format!("{} = {}\n", other.name, other.value);
                }
            }
            text += &format!("{} = {value}\n", key.name);
            // Errors of the line itself come before those that follow from them.
            let (line, (_, mistakes)) = (text.lines().count(), slowlane::config::examine(&text));
            let is_own = |place: Option<usize>, text: &str| place == Some(line) || text.starts_with(value);
            let mut own = mistakes.into_iter().filter(|(place, text)| is_own(*place, text));
            let text = own.find_map(|(_, text)| Some(text.split_once("expected ")?.1.to_owned()))?;
            Some(text.trim_start_matches("one of ").to_owned())
        };
        let wrong_type = || expected("-1").unwrap_or_default();
        let example: toml::Table = format!("value = {}", key.value).parse().unwrap();
        let values = match &example["value"] {
            Value::Integer(_) | Value::Float(_) => expected("-1").expect("a range"),
            Value::Boolean(_) => "`true` or `false`".to_owned(),
            Value::Array(_) => {
                let items = expected("[]").or_else(|| expected("[\"nonsense !\"]"));
                items.map_or_else(wrong_type, |items| format!("a list: {items}"))
            }
            _ => match expected("\"nonsense !\"").or_else(|| expected("\"\"")) {
                Some(text) if text.starts_with("a whole number and a unit") => duration(expected),
                Some(text) => text,
                None => wrong_type(),
            },
        };
        let values = values.replace("a list: one or more of", "one or more of").replace("a number from ", "");
        let mut values = values.replace("path string", "a path");
        // The line itself has a better example.
        if let Some((before, like)) = values.split_once(", like ") {
            let after = like.split_once(", ").map_or("", |(_, after)| after);
            values = format!("{before} {after}").trim_end().to_owned();
        }
        let is_telling = !key.value.contains('…') && key.name.parse::<u32>().is_err();
        if !key.is_set && is_telling && !matches!(example["value"], Value::Boolean(_)) {
            values += &format!(", like {}", key.value);
        }
        grouped(&marked(values.trim_end_matches(" in [ ]")))
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let numbers = |key: &&Key| key.name.parse::<u32>().is_ok();
        let mut rows = Vec::new();
        if let Some(first) = self.keys.iter().find(numbers) {
            let listed = |is_set| {
                let keys = self.keys.iter().filter(|key| key.is_set == is_set);
                keys.map(|key| format!("`{} = {}`", key.name, key.value)).collect::<Vec<_>>().join(", ")
            };
            let text = format!("{}, like {}", self.keys.last().unwrap().text, listed(false));
            rows.push(vec![
                format!("`{}.NUMBER`", self.name),
                or_none(listed(true)),
                self.values(first),
                marked(&text),
            ]);
        }
        for key in self.keys.iter().filter(|key| !numbers(key)) {
            let of_list = if self.is_list && key.is_set { "of the first: " } else { "" };
            let default = if key.is_set { format!("{of_list}`{}`", key.value) } else { "–".to_owned() };
            let name = format!("`{}.{}`", self.name, key.name);
            rows.push(vec![name, default, self.values(key), marked(&key.text)]);
        }
        rows
    }
}

/// More than a shortest time, at most a longest.
fn duration(expected: impl Fn(&str) -> Option<String>) -> String {
    match (expected("\"1us\""), expected("\"200d\"")) {
        (Some(range), _) => range,
        (None, Some(most)) => format!("more than 0, {most}"),
        (None, None) => "more than 0".to_owned(),
    }
}

fn or_none(text: String) -> String {
    if text.is_empty() { "–".to_owned() } else { text }
}

const HEAD: [&str; 4] = ["key", "default", "values", "meaning"];

/// Sections of one kind for several listeners.
fn is_tls(section: &Section) -> bool {
    section.name.ends_with(".tls")
}

/// The rows of all sections for TLS: a key that means the same in several is one row.
fn tls(sections: &[Section]) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for row in sections.iter().filter(|section| is_tls(section)).flat_map(Section::rows) {
        match rows.iter_mut().find(|known| known[3] == row[3]) {
            Some(known) => known[0] += &format!(", {}", row[0]),
            None => rows.push(row),
        }
    }
    table(&HEAD, rows)
}

fn page() -> String {
    let sections = once_each();
    filled("config.txt", |name, _| match name {
        "sections" => {
            let mut text = String::new();
            for section in sections.iter().filter(|section| !is_tls(section)) {
                let level = if section.name.contains('.') { "###" } else { "##" };
                text += &format!("{level} {}\n\n{}\n\n", section.header(), sentence(&marked(&section.text)));
                text += &table(&HEAD, section.rows());
                text.push('\n');
            }
            // A section may say nothing of itself.
            text.replace("\n\n\n\n", "\n\n")
        }
        "tls" => tls(&sections),
        other => panic!("@{other}"),
    })
}

/// The default lookups, in their order.
pub fn lookups() -> String {
    let lookups = sections().into_iter().filter(|section| section.name == "policy.lookups");
    let cells = |section: Section| {
        let value = |name: &str| {
            let key = section.keys.iter().find(|key| key.name == name).unwrap();
            key.value.replace(['[', ']', '"'], "")
        };
        vec![format!("`{}`", value("map")), value("fields"), format!("`{}`", value("match"))]
    };
    table(&["map", "fields", "match"], lookups.map(cells))
}

/// A manual page has the keys by section, each by its own name.
fn manual_page() -> String {
    let body = filled("config.txt", |name, _| match name {
        "sections" => {
            let mut text = String::new();
            for section in once_each() {
                text += &format!("## {}\n\n{}\n\n", section.header(), sentence(&section.text));
                for key in &section.keys {
                    text += &section.item(key);
                }
            }
            text
        }
        _ => String::new(),
    });
    roff::page("slowlane.toml", &body)
}

impl Section {
    /// The description of a key, as a line of a list.
    fn item(&self, key: &Key) -> String {
        let values = format!("Values: {}.", self.values(key).replace('`', ""));
        let text = sentence(&key.text);
        let set =
            if key.is_set { format!("@{} = {}", key.name, key.value) } else { format!("@{}", key.name) };
        format!("{set}\n{text}\n{values}\n\n")
    }
}

#[test]
fn the_page_of_the_config_is_that_of_its_shipped_file() {
    agrees("doc/book/reference-config.md", &page());
}

#[test]
fn the_manual_page_of_the_config_is_that_of_its_shipped_file() {
    agrees("doc/man/slowlane.toml.5", &manual_page());
}
