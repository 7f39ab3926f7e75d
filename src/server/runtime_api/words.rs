//! Splits a line of the Runtime API into commands and words.

/// Splits a line, without its line feed, into commands.
///
/// Blanks separate words, and `;` separates commands. A backslash is dropped, and the character after it is literal.
/// Bytes that are not UTF-8 become U+FFFD, which no command contains.
///
/// ```
/// use slowlane::server::runtime_api::commands;
/// let words = |line: &str| commands(line.as_bytes()).iter().map(|words| words.join("|")).collect::<Vec<_>>();
/// assert_eq!(words("show  table slowlane ; show map\r"), ["show|table|slowlane", "show|map"]);
/// assert_eq!(words(r"get map a\;b\ c ^/v[0-9]\\."), [r"get|map|a;b c|^/v[0-9]\."]);
/// assert_eq!(words(""), [""]);
/// ```
pub fn commands(line: &[u8]) -> Vec<Vec<String>> {
    let text = String::from_utf8_lossy(line);
    let mut letters = text.trim_end_matches('\r').chars();
    let (mut commands, mut words, mut word) = (Vec::new(), Vec::new(), None::<String>);
    loop {
        match letters.next() {
            Some('\\') => word.get_or_insert_default().extend(letters.next()),
            Some(' ' | '\t') => words.extend(word.take()),
            Some(letter) if letter != ';' => word.get_or_insert_default().push(letter),
            end => {
                words.extend(word.take());
                commands.push(std::mem::take(&mut words));
                if end.is_none() {
                    return commands;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_have_words(line in prop::collection::vec(any::<u8>(), 0..300)) {
            let commands = commands(&line);
            prop_assert!(!commands.is_empty() && commands.len() <= line.len() + 1);
            for words in commands {
                prop_assert!(words.len() <= line.len());
            }
        }

        #[test]
        fn escaped_words_read_back(words in prop::collection::vec("[ -~]{1,9}", 1..9)) {
            let escape = |word: &String| {
                word.chars().fold(String::new(), |text, letter| match letter {
                    ' ' | ';' | '\\' => text + "\\" + &letter.to_string(),
                    letter => text + &letter.to_string(),
                })
            };
            let line = words.iter().map(escape).collect::<Vec<_>>().join(" ");
            prop_assert_eq!(commands(line.as_bytes()), [words]);
        }
    }
}
