//! Texts that are one word in the files of a proxy.

use thiserror::Error;

use slowlane_core::base::{Address, reachable};

/// A file, ready to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// The path, relative to the folder of all files.
    pub name: &'static str,
    pub text: String,
}

/// The text is not a single word in the configuration of a proxy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?}: expected letters, digits and {PUNCTUATION}, as one word of a proxy's configuration")]
pub struct WordError(String);

/// The characters of addresses and paths besides letters and digits. Inside a word, they have no special meaning to
/// HAProxy or nginx.
const PUNCTUATION: &str = "/ . : - _ @ + [ ] *";

/// Checks that a text is one word in a proxy's configuration.
pub(super) fn word(text: &str) -> Result<&str, WordError> {
    let is_plain = |c: char| c.is_alphanumeric() || (c != ' ' && PUNCTUATION.contains(c));
    if !text.is_empty() && text.chars().all(is_plain) { Ok(text) } else { Err(WordError(text.to_owned())) }
}

/// The address of an agent in the notation of a proxy. `unix` is its prefix for the path of a Unix socket.
pub(super) fn agent(address: &Address, unix: &str) -> Result<String, WordError> {
    let written = match address {
        Address::Tcp(address) => reachable(address),
        Address::Unix(path) => format!("{unix}{}", path.display()),
    };
    word(&written)?;
    Ok(written)
}

/// Whether the shipped files always send this field.
pub(super) fn is_usual(name: &str) -> bool {
    ["source", "website", "owner", "method"].iter().any(|usual| usual.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_would_end_a_word_is_refused() {
        for text in ["", "/a b", "/a\nserver", "/a;", "/a\"", "/a'", "/a#", "/a\\", "/a{", "/a$b", "/a\0"] {
            assert_eq!(word(text), Err(WordError(text.to_owned())), "{text:?}");
        }
        assert_eq!(word("unix@/run/slowlane/größe_1.sock"), Ok("unix@/run/slowlane/größe_1.sock"));
    }

    proptest! {
        #[test]
        fn a_word_has_no_white_space_and_no_marks_of_a_proxy(text in "\\PC{0,12}") {
            if word(&text).is_ok() {
                let marks = [' ', '\t', '\n', ';', '{', '}', '"', '\'', '\\', '#', '$'];
                prop_assert!(!text.contains(marks), "{text:?}");
            }
        }
    }
}
