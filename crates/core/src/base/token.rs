//! The access token of the admin listener or of a token server.

use std::fmt;

use serde::Deserialize;
use subtle::ConstantTimeEq;
use thiserror::Error;

/// The minimum length of a token. A shorter token could be guessed; 16 hex digits hold 64 bits.
const LENGTH_MIN: usize = 16;

/// A secret with which clients authenticate. It is compared in constant time and never logged.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Token(String);

/// The error for text that is not a token. Its message does not repeat the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "expected a token of {LENGTH_MIN} or more ASCII letters, digits or punctuation marks, like the output of `openssl rand -hex 16`"
)]
pub struct TokenError;

impl Token {
    /// Whether the value of an `Authorization` header holds this token.
    ///
    /// ```
    /// use slowlane_core::base::Token;
    /// let token = Token::try_from("0123456789abcdef".to_owned()).unwrap();
    /// assert!(token.is_in(b"Bearer 0123456789abcdef"));
    /// assert!(!token.is_in(b"Bearer 0123456789abcdeF") && !token.is_in(b"Bearer ") && !token.is_in(b""));
    /// ```
    pub fn is_in(&self, authorization: &[u8]) -> bool {
        let Some((scheme, given)) = authorization.split_at_checked(BEARER.len()) else { return false };
        scheme.eq_ignore_ascii_case(BEARER) && self.is(given)
    }

    /// Whether these bytes are this token.
    pub fn is(&self, given: &[u8]) -> bool {
        given.ct_eq(self.0.as_bytes()).into()
    }

    /// The header value to send with a request.
    pub fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

const BEARER: &[u8] = b"Bearer ";

impl TryFrom<String> for Token {
    type Error = TokenError;

    fn try_from(text: String) -> Result<Token, TokenError> {
        let is_one = text.len() >= LENGTH_MIN && text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_one { Ok(Token(text)) } else { Err(TokenError) }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_short_or_has_blanks_is_no_token_and_is_not_repeated() {
        for text in ["", "0123456789abcde", "0123456789 abcdef", "0123456789abcdef\n", "0123456789abcdéf"] {
            let error = Token::try_from(text.to_owned()).unwrap_err().to_string();
            assert!(text.is_empty() || !error.contains(text), "{error}");
        }
        let token = Token::try_from("0123456789abcdef".to_owned()).unwrap();
        assert_eq!(format!("{token:?}"), "Token(…)");
    }

    #[test]
    fn only_the_whole_token_opens() {
        let token = Token::try_from("0123456789abcdef".to_owned()).unwrap();
        for wrong in [
            "0123456789abcdef",
            "Basic 0123456789abcdef",
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdef ",
        ] {
            assert!(!token.is_in(wrong.as_bytes()), "{wrong}");
        }
        assert!(token.is_in(b"bearer 0123456789abcdef"), "the scheme is not case-sensitive (RFC 9110, 11.1)");
    }
}
