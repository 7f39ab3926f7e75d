//! The line of configuration around a log format.

use crate::tools::access_log::escape::Escape;

/// What a line of configuration has around the string, and nginx's `escape=` in it.
pub(super) fn directive(text: &str) -> (Escape, String) {
    let mut rest = text.trim();
    if let Some(named) = rest.strip_prefix("log_format ") {
        rest = named.trim_start().split_once(char::is_whitespace).map_or("", |(_, rest)| rest).trim_start();
    } else if let Some(unnamed) = rest.strip_prefix("log-format ") {
        rest = unnamed.trim_start();
    }
    let escapes = [("default", Escape::Backslash), ("json", Escape::Json), ("none", Escape::None)];
    let mut escape = Escape::Backslash;
    if let Some((name, others)) =
        rest.strip_prefix("escape=").and_then(|rest| rest.split_once(char::is_whitespace))
        && let Some(&(_, given)) = escapes.iter().find(|(given, _)| *given == name)
    {
        (escape, rest) = (given, others.trim_start());
    }
    (escape, quoted_strings(rest).unwrap_or_else(|| rest.to_owned()))
}

/// One or more strings in quotes, joined as nginx joins them; None: the text is not only such.
fn quoted_strings(text: &str) -> Option<String> {
    let mut rest = text.trim_end_matches([';', ' ', '\t', '\n']);
    let mut joined = String::new();
    while !rest.is_empty() {
        let quote = rest.chars().next().filter(|&c| c == '\'' || c == '"')?;
        let mut chars = rest.char_indices().skip(1);
        loop {
            match chars.next()? {
                (at, c) if c == quote => {
                    rest = rest[at + 1..].trim_start();
                    break;
                }
                // Only a quote needs it; HAProxy's own are read with the format.
                (_, '\\') => match chars.next()?.1 {
                    c if c == quote => joined.push(c),
                    c => joined.extend(['\\', c]),
                },
                (_, c) => joined.push(c),
            }
        }
    }
    (!joined.is_empty()).then_some(joined)
}
