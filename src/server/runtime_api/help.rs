//! The help of the Runtime API.

use slowlane_core::base::Shown;

/// The usage and the purpose of each command, in HAProxy's layout.
const COMMANDS: &[(&str, &str)] = &[
    ("clear table <table> [<filter>]*", "remove entries from the table (filter: data/key)"),
    ("get map <map> <value>", "report the line of a map that matches a value"),
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

/// The maximum number of characters of an unknown word that an error repeats.
const QUOTED_CHARS_MAX: usize = 80;

/// The error for an unknown command.
pub(super) fn unknown(word: &str) -> String {
    let quoted: String = word.chars().take(QUOTED_CHARS_MAX).collect();
    let intro = "Please enter one of the following commands only:";
    format!("Unknown command: '{}'. {intro}\n{}", Shown(quoted.as_bytes()), help(&[]))
}
