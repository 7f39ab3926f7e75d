//! The configuration files shipped for the proxies, with the operator's addresses filled in.
//!
//! The files under `haproxy/` and `nginx/` are the only source. With default values they are printed byte for
//! byte, below a line that names the HAProxy version.

pub mod haproxy;
pub mod installed;
pub mod nginx;

use std::net::{IpAddr, SocketAddr};

use thiserror::Error;

use crate::base::address::Address;

/// A file, ready to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Relative to the folder of all files.
    pub name: &'static str,
    pub text: String,
}

/// The error of a text that is not one word in a proxy's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?}: expected letters, digits and {PUNCTUATION}, as one word of a proxy's configuration")]
pub struct WordError(String);

/// Characters of addresses and paths besides letters and digits. Inside a word, none of them is special to
/// HAProxy or nginx.
const PUNCTUATION: &str = "/ . : - _ @ + [ ] *";

/// Checks that a text is one word in a proxy's configuration.
fn word(text: &str) -> Result<&str, WordError> {
    let is_plain = |c: char| c.is_alphanumeric() || (c != ' ' && PUNCTUATION.contains(c));
    if !text.is_empty() && text.chars().all(is_plain) { Ok(text) } else { Err(WordError(text.to_owned())) }
}

/// The address at which a proxy on this machine reaches a listener. A listener on all addresses is on the
/// loopback too.
///
/// ```
/// use slowlane::proxy::shipped::reachable;
/// assert_eq!(reachable("0.0.0.0:9000"), "127.0.0.1:9000");
/// assert_eq!(reachable("[::]:9000"), "[::1]:9000");
/// assert_eq!(reachable("192.0.2.1:9000"), "192.0.2.1:9000");
/// ```
pub fn reachable(address: &str) -> String {
    match address.parse::<SocketAddr>() {
        Ok(SocketAddr::V4(v4)) if v4.ip().is_unspecified() => {
            SocketAddr::new(IpAddr::from([127, 0, 0, 1]), v4.port()).to_string()
        }
        Ok(SocketAddr::V6(v6)) if v6.ip().is_unspecified() => format!("[::1]:{}", v6.port()),
        _ => address.to_owned(),
    }
}

/// The address of an agent in a proxy's notation. `unix` is its prefix for the path of a Unix socket.
fn agent(address: &Address, unix: &str) -> Result<String, WordError> {
    let written = match address {
        Address::Tcp(address) => reachable(address),
        Address::Unix(path) => format!("{unix}{}", path.display()),
    };
    word(&written)?;
    Ok(written)
}

/// Replaces every `what` by its `with` in one pass. Replaced text is not searched again.
fn fill(text: &str, places: &[(&str, &str)]) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    loop {
        let first = places.iter().filter_map(|&(what, with)| Some((rest.find(what)?, what, with)));
        let Some((at, what, with)) = first.min_by_key(|&(at, ..)| at) else { return filled + rest };
        filled += &rest[..at];
        filled += with;
        rest = &rest[at + what.len()..];
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn filled_in_text_is_not_replaced_again() {
        assert_eq!(fill("a b a", &[("a", "b"), ("b", "c")]), "b c b");
        assert_eq!(fill("", &[("a", "b")]), "");
    }

    #[test]
    fn a_text_that_would_end_a_word_is_refused() {
        for text in ["", "/a b", "/a\nserver", "/a;", "/a\"", "/a'", "/a#", "/a\\", "/a{", "/a$b", "/a\0"] {
            assert_eq!(word(text), Err(WordError(text.to_owned())), "{text:?}");
        }
        assert_eq!(word("unix@/run/slowlane/größe_1.sock"), Ok("unix@/run/slowlane/größe_1.sock"));
    }

    proptest! {
        #[test]
        fn a_text_without_places_stays_as_it_is(text in "[a-y ]{0,40}") {
            prop_assert_eq!(fill(&text, &[("z", "a")]), text);
        }

        #[test]
        fn a_word_has_no_white_space_and_no_marks_of_a_proxy(text in "\\PC{0,12}") {
            if word(&text).is_ok() {
                let marks = [' ', '\t', '\n', ';', '{', '}', '"', '\'', '\\', '#', '$'];
                prop_assert!(!text.contains(marks), "{text:?}");
            }
        }
    }
}
