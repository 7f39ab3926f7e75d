//! Commands of the Runtime API, parsed from words.

use std::str::FromStr;

use crate::observe::status::{Column, Condition, FILTER_MAX, Filter, Operator, TABLE};
use crate::server::runtime_api::words::{WORDS_MAX, Words};
use slowlane_core::base::key::Key;
use slowlane_core::base::shown::Shown;

/// A command of the Runtime API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Nothing,
    Help(Vec<String>),
    ShowTables,
    ShowTable(Which),
    SetTable(Key, Vec<(Column, u32)>),
    ClearTable(Which),
    ShowMaps,
    ShowMap(String),
    GetMap(String, String),
    ShowInfo,
    ShowVersion,
    Prompt(Prompt),
    Quit,
}

/// The rows that a command shows or clears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    Of(Key),
    All(Filter),
}

/// Whether a connection stays open after a line, and whether it shows a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prompt {
    /// One line, one answer, then close.
    #[default]
    Once,
    /// Line after line.
    Interactive,
    /// Line after line, with the prompt `> `.
    Prompting,
    /// Switch between `Once` and `Prompting`.
    Toggle,
}

const EXPECTED_KEY: &str = "Require a key of sixteen hex digits\n";

const EXPECTED_VALUE: &str = "Require a valid integer value to store\n";

const EXPECTED_SHOW: &str =
    "Optional argument only supports \"data.<store_data_type>\" <operator> <value> or key <key>\n";

const EXPECTED_SET: &str = "Required arguments: <table> key <key> [data.<store_data_type> <value>]*\n";

const EXPECTED_CLEAR: &str =
    "Required arguments: <table> \"data.<store_data_type>\" <operator> <value> or <table> key <key>\n";

/// The most characters of an unknown word that an error repeats.
const QUOTED_CHARS_MAX: usize = 80;

impl Command {
    /// ```
    /// use slowlane::server::runtime_api::{Command, commands};
    /// let parse = |line: &str| Command::parse(&commands(line.as_bytes())[0]);
    /// assert_eq!(parse("show table"), Ok(Command::ShowTables));
    /// assert_eq!(parse("show table other"), Err("No such table\n".into()));
    /// ```
    ///
    /// # Errors
    /// The message with a line break. It is HAProxy's own message if HAProxy has one.
    pub fn parse(words: &Words) -> Result<Command, String> {
        match (words.get(0), words.get(1)) {
            _ if words.are_cut() => {
                Err(format!("Too many arguments. Commands must have at most {WORDS_MAX} arguments.\n"))
            }
            ("", _) => Ok(Command::Nothing),
            ("help", _) => Ok(Command::Help(words.from(1).to_vec())),
            ("quit", _) => Ok(Command::Quit),
            ("prompt", mode) => prompt(mode).map(Command::Prompt),
            ("show", "table") if words.get(2).is_empty() => Ok(Command::ShowTables),
            ("show", "table") => which(words, EXPECTED_SHOW).map(Command::ShowTable),
            ("clear", "table") if words.get(2).is_empty() => Err(EXPECTED_CLEAR.into()),
            ("clear", "table") => which(words, EXPECTED_CLEAR).map(Command::ClearTable),
            ("set", "table") => set(words),
            ("show", "map") if words.get(2).is_empty() => Ok(Command::ShowMaps),
            ("show", "map") => Ok(Command::ShowMap(words.get(2).into())),
            ("get", "map") if words.get(2).is_empty() || words.get(3).is_empty() => {
                Err("Missing map identifier and/or key.\n".into())
            }
            ("get", "map") => Ok(Command::GetMap(words.get(2).into(), words.get(3).into())),
            ("show", "info") => Ok(Command::ShowInfo),
            ("show", "version") => Ok(Command::ShowVersion),
            (unknown, _) => {
                let quoted: String = unknown.chars().take(QUOTED_CHARS_MAX).collect();
                let intro = "Please enter one of the following commands only:";
                Err(format!("Unknown command: '{}'. {intro}\n{}", Shown(quoted.as_bytes()), help(&[])))
            }
        }
    }
}

fn prompt(mode: &str) -> Result<Prompt, String> {
    match mode {
        "" => Ok(Prompt::Toggle),
        "n" => Ok(Prompt::Once),
        "i" => Ok(Prompt::Interactive),
        "p" => Ok(Prompt::Prompting),
        _ => Err("prompt: expected n (once), i (interactive) or p (with a prompt)\n".into()),
    }
}

fn table(words: &Words) -> Result<(), String> {
    if words.get(2) == TABLE { Ok(()) } else { Err("No such table\n".into()) }
}

/// `<table> key <key>`, or `<table> [data.<column> <operator> <value>]*`
fn which(words: &Words, expected: &str) -> Result<Which, String> {
    table(words)?;
    match words.get(3) {
        "key" => key(words.get(4)).map(Which::Of),
        "" => Ok(Which::All(Filter::default())),
        word if word.starts_with(DATA) => filter(words.from(3)).map(Which::All),
        _ => Err(expected.into()),
    }
}

const DATA: &str = "data.";

fn key(word: &str) -> Result<Key, String> {
    match word {
        "" => Err("Key value expected\n".into()),
        word => Key::from_hex(word).ok_or_else(|| EXPECTED_KEY.into()),
    }
}

fn filter(words: &[String]) -> Result<Filter, String> {
    let conditions = words.chunks(3).enumerate();
    let conditions = conditions.map(|(place, words)| {
        condition(words).map_err(|error| format!("Filter entry #{}: {error}\n", place + 1))
    });
    if words.len() > 3 * FILTER_MAX {
        return Err(format!("Detected extra data in filter: it takes {FILTER_MAX} conditions\n"));
    }
    conditions.collect()
}

fn condition(words: &[String]) -> Result<Condition, String> {
    let word = |place: usize| words.get(place).map_or("", String::as_str);
    let name = word(0).strip_prefix(DATA).ok_or("Require \"data.<store_data_type>\"")?;
    let column = Column::named(name).map_err(|error| error.to_string())?;
    let operator = Operator::named(word(1));
    let operator = operator.ok_or(r#"Require and operator among "eq", "ne", "le", "ge", "lt", "gt""#)?;
    let value = number(word(2)).ok_or("Require a valid integer value to compare against")?;
    Ok(Condition { column, operator, value })
}

/// Reads a number. Like HAProxy, it refuses a plus sign.
fn number<N: FromStr>(word: &str) -> Option<N> {
    word.parse().ok().filter(|_| !word.starts_with('+'))
}

fn set(words: &Words) -> Result<Command, String> {
    if words.get(2).is_empty() {
        return Err(EXPECTED_SET.into());
    }
    table(words)?;
    if words.get(3) != "key" {
        return Err(EXPECTED_SET.into());
    }
    let key = key(words.get(4))?;
    let pairs = words.from(5).chunks(2).map(|pair| {
        let name = pair[0].strip_prefix(DATA).ok_or("\"data.<type>\" followed by a value expected\n")?;
        let column = Column::named(name).map_err(|error| format!("{error}\n"))?;
        let value = pair.get(1).and_then(|value| number(value)).ok_or(EXPECTED_VALUE)?;
        Ok((column, value))
    });
    Ok(Command::SetTable(key, pairs.collect::<Result<_, String>>()?))
}

/// The usage and the purpose of each command, in HAProxy's layout.
const COMMANDS: &[(&str, &str)] = &[
    ("clear table <table> [<filter>]*", "remove entries from the table (filter: data/key)"),
    ("get map <map> <value>", "report the line of a map that answers for a value"),
    ("set table <table> key <k> [data.* <v>]*", "update or create a table entry's columns"),
    ("show info", "report information about the running process"),
    ("show map [<map>]", "report available maps or dump a map's contents"),
    (
        "show table [<table> [<filter>]*]",
        "report table usage or dump the table's contents (filter: data/key)",
    ),
    ("show version", "show version of the current process"),
    ("help [<command>]", "list matching or all commands"),
    ("prompt [n|i|p]", "toggle interactive mode with prompt"),
    ("quit", "disconnect"),
];

/// The help for the commands that begin with these words, and for `help`, `prompt` and `quit`.
pub(super) fn help(words: &[String]) -> String {
    let wanted = words.join(" ");
    let always = ["help", "prompt", "quit"];
    let is_wanted =
        |usage: &str| usage.starts_with(&wanted) || always.iter().any(|word| usage.starts_with(word));
    let lines = COMMANDS.iter().filter(|(usage, _)| is_wanted(usage));
    lines.map(|(usage, what)| format!("  {usage:<40}: {what}\n")).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::server::runtime_api::words::commands;

    fn parse(line: &str) -> Result<Command, String> {
        Command::parse(&commands(line.as_bytes())[0])
    }

    #[test]
    fn errors_are_in_haproxys_words() {
        for (line, reported) in [
            (
                "show table slowlane data.gpt0",
                r#"Filter entry #1: Require and operator among "eq", "ne", "le", "ge", "lt", "gt""#,
            ),
            (
                "show table slowlane data.gpt0 xx 3",
                r#"Filter entry #1: Require and operator among "eq", "ne", "le", "ge", "lt", "gt""#,
            ),
            (
                "show table slowlane data.gpt0 gt",
                "Filter entry #1: Require a valid integer value to compare against",
            ),
            (
                "show table slowlane data.gpt0 gt 3x",
                "Filter entry #1: Require a valid integer value to compare against",
            ),
            ("show table slowlane data.gpt0 gt 3 data.foo gt 3", "Filter entry #2: Unknown data type"),
            (
                "show table slowlane data.http_req_rate gt 3",
                "Filter entry #1: Data type not stored in this table",
            ),
            (
                "show table slowlane data.gpt0 gt +3",
                "Filter entry #1: Require a valid integer value to compare against",
            ),
            ("show table slowlane key", "Key value expected"),
            ("show table slowlane key 1", "Require a key of sixteen hex digits"),
            ("show table slowlane foo", EXPECTED_SHOW.trim_end()),
            ("clear table", EXPECTED_CLEAR.trim_end()),
            ("clear table nope", "No such table"),
            ("clear table slowlane foo", EXPECTED_CLEAR.trim_end()),
            ("set table", EXPECTED_SET.trim_end()),
            ("set table slowlane keyy a", EXPECTED_SET.trim_end()),
            (
                "set table slowlane key 0000000000000001 gpt0 5",
                "\"data.<type>\" followed by a value expected",
            ),
            ("set table slowlane key 0000000000000001 data.gpt0", "Require a valid integer value to store"),
            (
                "set table slowlane key 0000000000000001 data.gpt0 -1",
                "Require a valid integer value to store",
            ),
            (
                "set table slowlane key 0000000000000001 data.gpt0 4294967296",
                "Require a valid integer value to store",
            ),
            (
                "set table slowlane key 0000000000000001 data.gpt0 +1",
                "Require a valid integer value to store",
            ),
            ("get map", "Missing map identifier and/or key."),
            ("get map x", "Missing map identifier and/or key."),
        ] {
            assert_eq!(parse(line), Err(format!("{reported}\n")), "{line}");
        }
        assert!(
            parse("bogus\u{1b}[31m").unwrap_err().starts_with(r"Unknown command: 'bogus\u{1b}[31m'. Please")
        );
        assert!(
            parse("show table slowlane data.gpt0 gt 0 data.gpt0 gt 0 data.gpt0 gt 0 data.gpt0 gt 0").is_ok()
        );
        let set = "set table slowlane key 0000000000000001".to_owned();
        assert!(parse(&(set.clone() + &" data.gpt0 1".repeat(29))).is_ok(), "63 words");
        let reported = "Too many arguments. Commands must have at most 64 arguments.\n";
        assert_eq!(parse(&(set + &" data.gpt0 1".repeat(30))), Err(reported.into()));
        let five = "show table slowlane".to_owned() + &" data.gpt0 gt 0".repeat(5);
        assert!(parse(&five).unwrap_err().starts_with("Detected extra data in filter"));
    }

    #[test]
    fn words_are_read_as_commands() {
        let key = Key::from_bits(0xAB);
        assert_eq!(parse("show table slowlane"), Ok(Command::ShowTable(Which::All(Filter::default()))));
        assert_eq!(parse("show table slowlane key 00000000000000ab"), Ok(Command::ShowTable(Which::Of(key))));
        assert_eq!(
            parse("clear table slowlane key 00000000000000AB"),
            Ok(Command::ClearTable(Which::Of(key)))
        );
        assert_eq!(
            parse("set table slowlane key 00000000000000AB data.gpt0 5 data.gpc0_rate 9"),
            Ok(Command::SetTable(key, vec![(Column::Gpt0, 5), (Column::Gpc0Rate, 9)]))
        );
        assert_eq!(parse("prompt i"), Ok(Command::Prompt(Prompt::Interactive)));
        assert_eq!(parse(" "), Ok(Command::Nothing));
    }

    proptest! {
        #[test]
        fn any_words_are_a_command_or_an_error(line in "(show|set|clear|get|help|prompt|[a-z]{0,9})( (table|map|info|slowlane|key|data.gpt0|gt|[ -~é\u{0}-\u{1f}]{0,16})){0,9}") {
            if let Err(reported) = parse(&line) {
                prop_assert!(reported.ends_with('\n') && !reported.chars().any(|c| c.is_control() && c != '\n'), "{:?}", reported);
            }
        }
    }
}
