//! The help of the Runtime API.

use slowlane_core::base::Shown;

/// The usage and the purpose of each command, in HAProxy's layout.
const COMMANDS: &[(&str, &str)] = &[
    ("clear table <table> [<filter>]*", "remove entries from the table (filter: data/key)"),
    ("set table <table> key <k> [data.* <v>]*", "update or create a table entry's columns"),
    (
        "show table [<table> [<filter>]*]",
        "report table usage or dump the table's contents (filter: data/key)",
    ),
    ("help [<command>]", "list matching or all commands"),
    ("quit", "disconnect"),
];

/// The help for the commands that begin with these words, and for `help` and `quit`.
pub(super) fn help(words: &[String]) -> String {
    let wanted = words.join(" ");
    let always = ["help", "quit"];
    let is_wanted =
        |usage: &str| usage.starts_with(&wanted) || always.iter().any(|word| usage.starts_with(word));
    let lines = COMMANDS.iter().filter(|(usage, _)| is_wanted(usage));
    lines.map(|(usage, what)| format!("  {usage:<40}: {what}\n")).collect()
}

/// The errors for commands of HAProxy that slowlane does without.
pub(super) const NO_MAPS: &str =
    "slowlane has no map commands: `slowlane why FIELD=VALUE` names the line of a map that matches.\n";
pub(super) const NO_INFO: &str =
    "slowlane has no such command: `slowlane status` prints its version and its state.\n";
pub(super) const NO_PROMPT: &str =
    "slowlane has no prompt: it answers one line, in which `;` separates commands.\n";

/// The maximum number of characters of an unknown word that an error repeats.
const QUOTED_CHARS_MAX: usize = 80;

/// The error for an unknown command.
pub(super) fn unknown(word: &str) -> String {
    let quoted: String = word.chars().take(QUOTED_CHARS_MAX).collect();
    let intro = "Please enter one of the following commands only:";
    format!("Unknown command: '{}'. {intro}\n{}", Shown(quoted.as_bytes()), help(&[]))
}
