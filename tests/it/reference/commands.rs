//! The commands: from the help that each prints.

use std::collections::BTreeMap;

use super::{agrees, filled, sentence, table};
use crate::cli::{COMMANDS, ran};

/// The help of a command in its parts.
#[derive(Default)]
struct Help {
    /// `config haproxy`; the program itself has no name.
    name: String,
    about: Vec<String>,
    usage: String,
    /// Subcommands, under their headings.
    commands: Vec<(String, Vec<String>)>,
    rows: Vec<Flag>,
    /// The text after the flags.
    after: Vec<String>,
}

/// A flag or an argument, and its text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Flag {
    typed: String,
    text: String,
}

impl Help {
    fn of(name: &str) -> Help {
        let words: Vec<&str> = name.split_whitespace().chain(["--help"]).collect();
        let text = ran(&words).out;
        let mut help = Help { name: name.to_owned(), ..Help::default() };
        let mut section = "";
        for line in text.lines() {
            let is_heading = !line.is_empty() && !line.starts_with(' ');
            match section {
                "" if line.starts_with("Usage: ") => {
                    help.usage = line["Usage: ".len()..].to_owned();
                    section = "Usage";
                }
                "" => help.about.push(line.to_owned()),
                "after" => help.after.push(line.to_owned()),
                _ if COMMANDS.contains(&line) => {
                    help.commands.push((line.trim_end_matches(':').to_owned(), Vec::new()));
                    section = "Commands";
                }
                _ if ["Arguments:", "Options:"].contains(&line) => section = "Flags",
                _ if is_heading => {
                    section = "after";
                    help.after.push(line.to_owned());
                }
                "Commands" => {
                    let word = line.strip_prefix("  ").and_then(|line| line.split(' ').next());
                    let word = word.filter(|word| !word.is_empty() && *word != "help");
                    help.commands.last_mut().unwrap().1.extend(word.map(str::to_owned));
                }
                "Flags" => help.read_flag(line),
                _ => assert!(line.is_empty(), "{name}: {line}"),
            }
        }
        help.rows.retain(|row| !row.typed.ends_with("--help") && !row.typed.ends_with("--version"));
        help
    }

    /// A flag begins on a line of its own; its text is on that line or below it.
    fn read_flag(&mut self, line: &str) {
        let text = line.trim();
        let depth = line.len() - line.trim_start().len();
        if depth <= 6 && text.starts_with(['-', '<', '[']) {
            let (typed, text) = text.split_once("  ").unwrap_or((text, ""));
            self.rows.push(Flag { typed: typed.to_owned(), text: text.trim().to_owned() });
        } else if !text.is_empty() {
            let row = self.rows.last_mut().expect("a flag comes first");
            let value = text.strip_prefix("- ").map(|text| text.split_once(": ").unwrap_or((text, "")));
            row.text += &match value {
                Some((value, "")) => format!(" `{value}`;"),
                Some((value, text)) => format!(" `{value}`: {};", text.trim()),
                None if text == "Possible values:" => ". Values:".to_owned(),
                None if row.text.is_empty() => text.to_owned(),
                None => format!(" {text}"),
            };
        }
    }

    /// The exit codes that the help names: the meaning of each.
    fn exit_codes(&self) -> Option<[String; 2]> {
        let text = [&self.about[..], &self.after].concat().join(" ");
        let (_, codes) = text.split_once("Exit code 0: ")?;
        let (good, bad) = codes.split_once(" 1: ")?;
        let bad = bad.split(" 2: ").next().unwrap();
        let bad = bad.find(". ").map_or(bad, |end| &bad[..end]);
        Some([good, bad].map(|text| text.trim().trim_end_matches('.').to_owned()))
    }

    /// Its section: what the help says but for flags of several commands, and exit codes.
    fn section(&self, shared: &BTreeMap<Flag, Vec<String>>) -> String {
        let about = self.about.join("\n");
        let about: Vec<&str> = about.split("\n\n").map(str::trim).filter(|text| !text.is_empty()).collect();
        let mut text = format!("### slowlane {}\n\n", self.name);
        for paragraph in about {
            let paragraph = paragraph.split("Exit code 0: ").next().unwrap().replace('\n', " ");
            if !paragraph.is_empty() {
                text += &format!("{}\n\n", wrapped(&sentence(&flagged(&paragraph))));
            }
        }
        text += &format!("```text\n{}\n```\n\n", self.usage);
        let (own, common): (Vec<&Flag>, Vec<&Flag>) =
            self.rows.iter().partition(|row| !shared.contains_key(row));
        if !own.is_empty() {
            text += &(table(&["flag", "meaning"], own.into_iter().map(Flag::cells)) + "\n");
        }
        if !common.is_empty() {
            let names: Vec<String> = common.iter().map(|row| format!("`{}`", row.name())).collect();
            text += &format!(
                "{}\n\n",
                wrapped(&format!("Shared flags, [described above](#shared-flags): {}.", names.join(", ")))
            );
        }
        let after = self.after.join("\n");
        let after = after.split("Exit code 0: ").next().unwrap().trim();
        if !after.is_empty() {
            text += &format!("```text\n{after}\n```\n\n");
        }
        text
    }
}

impl Flag {
    /// Its long name alone.
    fn name(&self) -> &str {
        let words = self.typed.split([' ', '[', '=']);
        words.clone().find(|word| word.starts_with("--")).unwrap_or(&self.typed)
    }

    fn cells(&self) -> Vec<String> {
        vec![format!("`{}`", self.typed), self.meaning()]
    }

    /// Its text, with what stands in brackets behind a semicolon.
    fn meaning(&self) -> String {
        let mut text = self.text.trim_end_matches(';').to_owned();
        for word in ["default: ", "possible values: "] {
            if let Some((before, rest)) = text.clone().split_once(&format!(" [{word}")) {
                let (value, after) = rest.split_once(']').expect("it is closed");
                let value =
                    if value.contains(' ') && word == "default: " { value.to_owned() } else { coded(value) };
                text = format!("{before}; {word}{value}{after}");
            }
        }
        flagged(&text.replace(";;", ";"))
    }
}

/// Each word of a list between backticks.
fn coded(words: &str) -> String {
    words.split(", ").map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

/// A text with its flags and its paths between backticks.
fn flagged(text: &str) -> String {
    let parts = text.split('`').enumerate().map(|(number, part)| {
        let word = |word: &str| {
            let core = word.trim_matches([',', ';', ':', '.', '(', ')']);
            let is_code = core.starts_with("--") || core.contains(['_', '@', '<']) || core.contains("/s");
            let is_code = is_code || core.starts_with('/') || core.contains("://") || core.contains(":/");
            if is_code && !core.is_empty() {
                word.replacen(core, &format!("`{core}`"), 1)
            } else {
                word.to_owned()
            }
        };
        match number % 2 {
            0 => part.split(' ').map(word).collect::<Vec<_>>().join(" "),
            _ => part.to_owned(),
        }
    });
    parts.collect::<Vec<_>>().join("`")
}

/// A paragraph in lines of at most 120 characters.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().unwrap();
        if line.chars().count() + word.chars().count() >= 120 {
            lines.push(word.to_owned());
        } else {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        }
    }
    lines.join("\n")
}

/// All commands in the order of the help, each before its subcommands, under the heading of its group.
fn groups() -> Vec<(String, Vec<Help>)> {
    fn with_subcommands(name: &str, found: &mut Vec<Help>) {
        let help = Help::of(name);
        let names: Vec<String> = help.commands.iter().flat_map(|(_, names)| names.clone()).collect();
        found.push(help);
        names.iter().for_each(|sub| with_subcommands(&format!("{name} {sub}"), found));
    }
    let groups = Help::of("").commands.into_iter().map(|(heading, names)| {
        let mut found = Vec::new();
        names.iter().for_each(|name| with_subcommands(name, &mut found));
        (heading, found)
    });
    groups.collect()
}

fn page() -> String {
    let groups = groups();
    let commands: Vec<&Help> = groups.iter().flat_map(|(_, commands)| commands).collect();
    let mut flags: BTreeMap<Flag, Vec<String>> = BTreeMap::new();
    for command in &commands {
        for flag in &command.rows {
            flags.entry(flag.clone()).or_default().push(command.name.clone());
        }
    }
    flags.retain(|_, commands| commands.len() >= 3);
    filled("commands.txt", |name, _| match name {
        "list" => table(
            &["command", "purpose"],
            commands.iter().filter(|command| !command.name.contains(' ')).map(|command| {
                let anchor = format!("slowlane-{}", command.name);
                let purpose = command.about[0].trim_end_matches('.');
                vec![format!("[`slowlane {}`](#{anchor})", command.name), flagged(purpose)]
            }),
        ),
        "shared" => table(
            &["flag", "meaning", "of"],
            flags.iter().map(|(flag, of)| {
                let of: Vec<String> = of.iter().map(|name| format!("`{name}`")).collect();
                vec![flag.cells()[0].clone(), flag.meaning(), of.join(", ")]
            }),
        ),
        "exit-codes" => {
            let codes = |help: &Help| {
                let [good, bad] = help.exit_codes()?;
                Some(vec![format!("`{}`", help.name), flagged(&good), flagged(&bad)])
            };
            let [good, bad] = Help::of("").exit_codes().expect("those of all commands");
            let rows = commands.iter().filter_map(|command| codes(command));
            let rows: Vec<Vec<String>> = rows.chain([vec!["all others".to_owned(), good, bad]]).collect();
            table(&["command", "0", "1"], rows)
                + "\nExit code 2, for every command: the command line has an error.\n"
        }
        "commands" => {
            let mut text = String::new();
            for (heading, commands) in &groups {
                text += &format!("## {heading}\n\n");
                commands.iter().for_each(|command| text += &command.section(&flags));
            }
            text
        }
        other => panic!("@{other}"),
    })
}

#[test]
fn the_page_of_commands_is_their_help() {
    agrees("doc/book/reference-commands.md", &page());
}
