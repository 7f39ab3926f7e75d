//! The directives of a configuration file of nginx, each with its place in the text.

use std::ops::Range;
use std::path::PathBuf;

use glob::MatchOptions;

/// Blocks within blocks: nginx itself has no more than a few.
const DEPTH_MAX: usize = 32;

/// Patterns of includes match as those of nginx do.
pub(crate) const PATTERNS: MatchOptions =
    MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };

/// A directive, with the content of its `{ }` if it has one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Directive {
    pub(crate) words: Vec<String>,
    /// From the byte of its first word to the byte after its `;` or `}`.
    pub(crate) place: Range<usize>,
    /// The bytes between its braces.
    pub(crate) block: Option<Range<usize>>,
    pub(crate) inner: Vec<Directive>,
    /// The files of an `include`.
    pub(crate) files: Vec<PathBuf>,
}

impl Directive {
    pub(crate) fn name(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    /// The pattern of an `include`.
    pub(crate) fn included(&self) -> Option<&str> {
        self.words.get(1).filter(|_| self.name() == "include" && self.block.is_none()).map(String::as_str)
    }
}

/// Reads the directives of a text. `include` returns the files of a pattern. The error is the position that is not
/// understood.
pub(crate) fn parse(text: &str, include: &dyn Fn(&str) -> Vec<PathBuf>) -> Result<Vec<Directive>, usize> {
    let mut parser = Parser { text: text.as_bytes(), at: 0, include };
    match parser.directives(0) {
        Ok(directives) if parser.at == text.len() => Ok(directives),
        _ => Err(parser.at),
    }
}

/// The line of a byte. Lines count from 1.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|&byte| byte == b'\n').count()
}

struct Parser<'t> {
    text: &'t [u8],
    at: usize,
    include: &'t dyn Fn(&str) -> Vec<PathBuf>,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        let mut is_comment = false;
        while let Some(byte) = self.peek() {
            match byte {
                b'\n' => is_comment = false,
                b'#' => is_comment = true,
                _ if is_comment || byte.is_ascii_whitespace() => {}
                _ => return,
            }
            self.at += 1;
        }
    }

    fn directives(&mut self, depth: usize) -> Result<Vec<Directive>, ()> {
        let mut directives = Vec::new();
        loop {
            self.skip_space();
            match self.peek() {
                None | Some(b'}') => return Ok(directives),
                Some(_) => directives.push(self.directive(depth)?),
            }
        }
    }

    fn directive(&mut self, depth: usize) -> Result<Directive, ()> {
        let (first, mut own) = (self.at, Directive::default());
        loop {
            self.skip_space();
            match self.peek().ok_or(())? {
                b';' => break,
                b'{' if depth < DEPTH_MAX => {
                    self.at += 1;
                    let begin = self.at;
                    match own.name().ends_with("_by_lua_block") {
                        true => self.skip_code()?,
                        false => own.inner = self.directives(depth + 1)?,
                    }
                    own.block = Some(begin..self.at);
                    self.peek().ok_or(())?;
                    break;
                }
                b'{' | b'}' => return Err(()),
                _ => own.words.push(self.word()?),
            }
        }
        self.at += 1;
        own.place = first..self.at;
        own.files = own.included().map(self.include).unwrap_or_default();
        Ok(own)
    }

    /// Skips Lua up to its last brace.
    fn skip_code(&mut self) -> Result<(), ()> {
        let mut depth = 1;
        loop {
            depth += match self.peek().ok_or(())? {
                b'{' => 1,
                b'}' => -1,
                _ => 0,
            };
            if depth == 0 {
                return Ok(());
            }
            self.at += 1;
        }
    }

    /// A word. nginx removes a backslash only before a quote and another backslash; a regular expression keeps its own.
    fn word(&mut self) -> Result<String, ()> {
        let quote = self.peek().filter(|byte| matches!(byte, b'"' | b'\''));
        self.at += usize::from(quote.is_some());
        let mut word = Vec::new();
        loop {
            let next = self.text.get(self.at + 1).copied();
            match (self.peek(), quote) {
                (None, Some(_)) => return Err(()),
                (Some(byte), Some(quote)) if byte == quote => {
                    self.at += 1;
                    break;
                }
                (None | Some(b';' | b'{'), None) => break,
                (Some(byte), None) if byte.is_ascii_whitespace() => break,
                (Some(b'\\'), _) => {
                    let escaped = next.ok_or(())?;
                    if !matches!(escaped, b'"' | b'\'' | b'\\') {
                        word.push(b'\\');
                    }
                    word.push(escaped);
                    self.at += 1;
                }
                (Some(b'$'), None) if next == Some(b'{') => {
                    word.extend_from_slice(b"${");
                    self.at += 1;
                }
                (Some(byte), _) => word.push(byte),
            }
            self.at += 1;
        }
        Ok(String::from_utf8_lossy(&word).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn none(_: &str) -> Vec<PathBuf> {
        Vec::new()
    }

    #[test]
    fn words_are_those_that_nginx_reads() {
        let text = r#"server_name ~^(www|a)\.(.+)$ "a b" 'it\'s' a#b ${x}y; # no } here"#;
        let directives = parse(text, &none).unwrap();
        assert_eq!(directives[0].words, ["server_name", r"~^(www|a)\.(.+)$", "a b", "it's", "a#b", "${x}y"]);
        let text = "a { b_by_lua_block { x = {} } c { d e; } }";
        let directives = parse(text, &none).unwrap();
        let inner: Vec<&str> = directives[0].inner.iter().map(Directive::name).collect();
        assert_eq!((inner, directives[0].place.end), (vec!["b_by_lua_block", "c"], text.len()));
        for (text, at) in [("a", 1), ("a {", 3), ("a; }", 3), ("a \"b;", 5), ("a { b }", 6)] {
            assert_eq!(parse(text, &none).unwrap_err(), at, "{text}");
        }
    }

    proptest! {
        /// Whatever a file holds, each directive has a place in it.
        #[test]
        fn any_text_is_read_or_refused(text in r#"[a{};"'\\#$ \né]{0,80}"#) {
            for directive in parse(&text, &none).unwrap_or_default() {
                prop_assert!(text.get(directive.place.clone()).is_some(), "{:?}", directive);
            }
        }
    }
}
