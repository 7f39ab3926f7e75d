//! The configuration files shipped for the proxies, with the operator's addresses filled in.
//!
//! The files under `haproxy/` and `nginx/`, and Envoy's files under `examples/`, are the only source. With default
//! values, they are printed unchanged, except that a line with the version precedes HAProxy's configuration. The
//! templates here hold the parts of these files that depend on the operator; a test finds each part in a file.

pub mod envoy;
pub mod haproxy;
pub mod nginx;
mod peers;
mod sample;
mod template;

use std::time::Duration;

use thiserror::Error;

use crate::proxy::shipped::haproxy::Version;
use slowlane_core::base::{Address, reachable};

/// The values in the files of every proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places<'a> {
    /// The address of slowlane's listener.
    pub agent: &'a Address,
    /// The address that the proxy listens on.
    pub listen: &'a str,
    /// The address of the application.
    pub app: &'a str,
    /// The TLS settings for connections to slowlane. `None` means no TLS.
    pub tls: Option<ProxyTls<'a>>,
    /// Whether to send quotas to clients.
    pub ratelimit: bool,
    /// The longest delay that the policy allows.
    pub delay_max: Duration,
    /// The fields that the policy uses. The usual fields are always sent.
    pub fields: &'a [String],
}

impl<'a> Places<'a> {
    /// The values of the shipped files, with these addresses for slowlane and for the proxy's listener.
    pub fn shipped(agent: &'a Address, listen: &'a str) -> Places<'a> {
        Places {
            agent,
            listen,
            app: APP,
            tls: None,
            ratelimit: false,
            delay_max: Duration::ZERO,
            fields: &[],
        }
    }
}

/// How a proxy verifies slowlane, and presents its own certificate. The operator must create the files in
/// `/etc/slowlane/tls`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyTls<'a> {
    /// The name in slowlane's certificate.
    pub name: &'a str,
    /// Whether the proxy presents a certificate of its own.
    pub has_certificate: bool,
}

/// The name in the shipped files.
pub const NAME: &str = "slowlane.example";

/// The application in the shipped files.
pub const APP: &str = "127.0.0.1:8000";

/// A file, ready to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// The path, relative to the folder of all files.
    pub name: &'static str,
    pub text: String,
}

/// The reason why a configuration cannot be printed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unprintable {
    #[error("{0:?}: expected one word of letters, digits and {PUNCTUATION}, to fit a proxy's configuration")]
    Word(String),
    #[error("{0:?}: expected an address and a port, like {listen}", listen = envoy::LISTEN)]
    Port(String),
    #[error("--ratelimit: with --delivery hold, Envoy passes on no headers: use --delivery header")]
    NoRateLimit,
    #[error("HAProxy {0} has no `pause`: use --delivery hold or lua, or --version 3.2 or later")]
    NoPause(Version),
    #[error(
        "HAProxy {0} counts a request under at most 3 keys, and this policy has more: use another \
         --delivery, or --version 2.8 or later"
    )]
    TooManyKeys(Version),
}

/// The characters of addresses and paths besides letters and digits. Inside a word, these characters have no special
/// meaning to HAProxy or nginx.
const PUNCTUATION: &str = "/ . : - _ @ + [ ] *";

/// Checks that a string is one word in a proxy's configuration.
fn word(text: &str) -> Result<&str, Unprintable> {
    let is_plain = |c: char| c.is_alphanumeric() || (c != ' ' && PUNCTUATION.contains(c));
    if !text.is_empty() && text.chars().all(is_plain) {
        Ok(text)
    } else {
        Err(Unprintable::Word(text.to_owned()))
    }
}

/// The address of an agent in the notation of a proxy. `unix` is the proxy's prefix for the path of a Unix socket.
fn agent(address: &Address, unix: &str) -> Result<String, Unprintable> {
    let written = match address {
        Address::Tcp(address) => reachable(address),
        Address::Unix(path) => format!("{unix}{}", path.display()),
    };
    word(&written)?;
    Ok(written)
}

/// Whether the shipped files always send this field.
fn is_usual(name: &str) -> bool {
    ["source", "website", "owner", "method"].iter().any(|usual| usual.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_would_end_a_word_is_refused() {
        for text in ["", "/a b", "/a\nserver", "/a;", "/a\"", "/a'", "/a#", "/a\\", "/a{", "/a$b", "/a\0"] {
            assert_eq!(word(text), Err(Unprintable::Word(text.to_owned())), "{text:?}");
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
