//! A line of the Runtime API, cut into commands and these into words.

/// HAProxy takes no more words of a command than this.
pub(super) const WORDS_MAX: usize = 64;

/// The words of one command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    words: Vec<String>,
    is_cut: bool,
}

impl Words {
    /// The word at a place, or an empty one.
    pub fn get(&self, place: usize) -> &str {
        self.words.get(place).map_or("", String::as_str)
    }

    /// All words from a place on.
    pub fn from(&self, place: usize) -> &[String] {
        self.words.get(place..).unwrap_or_default()
    }

    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// There were more than a command may have.
    pub fn are_cut(&self) -> bool {
        self.is_cut
    }
}

/// The commands of a line without its end, each as its words.
///
/// Blanks part words and `;` parts commands. A backslash goes, and what it stands before is taken as it is. Bytes that are
/// no UTF-8 become U+FFFD, which no word of ours has.
///
/// ```
/// use slowlane::server::runtime_api::commands;
/// let words = |line: &str| commands(line.as_bytes()).iter().map(|words| words.from(0).join("|")).collect::<Vec<_>>();
/// assert_eq!(words("show  table slowlane ; show map\r"), ["show|table|slowlane", "show|map"]);
/// assert_eq!(words(r"get map a\;b\ c ^/v[0-9]\\."), [r"get|map|a;b c|^/v[0-9]\."]);
/// assert_eq!(words(""), [""]);
/// ```
pub fn commands(line: &[u8]) -> Vec<Words> {
    let text = String::from_utf8_lossy(line);
    let (mut commands, mut words, mut word) = (Vec::new(), Words::default(), None::<String>);
    let mut letters = text.trim_end_matches('\r').chars();
    while let Some(letter) = letters.next() {
        match letter {
            ' ' | '\t' => words.add(word.take()),
            ';' => {
                words.add(word.take());
                commands.push(std::mem::take(&mut words));
            }
            '\\' => word.get_or_insert_default().extend(letters.next()),
            letter => word.get_or_insert_default().push(letter),
        }
    }
    words.add(word);
    commands.push(words);
    commands
}

impl Words {
    /// Those past the most are left out.
    fn add(&mut self, word: Option<String>) {
        let Some(word) = word else { return };
        if self.words.len() < WORDS_MAX {
            self.words.push(word);
        } else {
            self.is_cut = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_cut(line in prop::collection::vec(any::<u8>(), 0..300)) {
            let commands = commands(&line);
            prop_assert!(!commands.is_empty() && commands.len() <= line.len() + 1);
            for words in commands {
                prop_assert!(words.from(0).len() <= WORDS_MAX);
            }
        }

        #[test]
        fn words_come_out_as_they_were_escaped(words in prop::collection::vec("[ -~]{1,9}", 1..9)) {
            let escape = |word: &String| {
                word.chars().fold(String::new(), |text, letter| match letter {
                    ' ' | ';' | '\\' => text + "\\" + &letter.to_string(),
                    letter => text + &letter.to_string(),
                })
            };
            let line = words.iter().map(escape).collect::<Vec<_>>().join(" ");
            prop_assert_eq!(commands(line.as_bytes()), [Words { words, is_cut: false }]);
        }
    }
}
