//! The words of a line: spaces separate them, and quotes keep them together.

/// A word or a mark. Columns are counted in characters from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token<'l> {
    pub(super) column: usize,
    /// The text as typed, with its quotes.
    pub(super) typed: &'l str,
    pub(super) text: String,
}

impl Token<'_> {
    /// The column behind it.
    pub(super) fn end(&self) -> usize {
        self.column + self.typed.chars().count()
    }

    /// Whether the token separates words or steps. In quotes, it would be a word.
    pub(super) fn is_mark(&self) -> bool {
        matches!(self.typed, "," | ";")
    }
}

const OPEN_QUOTE: &str = "an unterminated quote";

/// The tokens of a line up to its comment, or the column of an error.
///
/// A comment begins with a `#` before a word. Between double quotes, `\"` is a quote and `\\` a backslash.
pub(super) fn tokens(line: &str) -> Result<Vec<Token<'_>>, (usize, String)> {
    let (mut tokens, mut column, mut rest) = (Vec::new(), 1, line);
    loop {
        let begin = rest.trim_start_matches([' ', '\t']);
        column += rest.len() - begin.len();
        let (bytes, text) = match begin.chars().next() {
            None | Some('#') => return Ok(tokens),
            Some(mark @ (',' | ';')) => (1, mark.to_string()),
            Some(_) => word(begin).ok_or_else(|| (column, OPEN_QUOTE.to_owned()))?,
        };
        let (typed, after) = begin.split_at(bytes);
        tokens.push(Token { column, typed, text });
        column += typed.chars().count();
        rest = after;
    }
}

/// The bytes and the text of the first word. None: a quote has no end.
fn word(line: &str) -> Option<(usize, String)> {
    let (mut text, mut is_quoted) = (String::new(), false);
    let mut letters = line.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => is_quoted = !is_quoted,
            '\\' if is_quoted => {
                let escaped = letters.next_if(|(_, next)| matches!(next, '"' | '\\'));
                text.push(escaped.map_or('\\', |(_, next)| next));
            }
            ' ' | '\t' | ',' | ';' if !is_quoted => return Some((at, text)),
            letter => text.push(letter),
        }
    }
    (!is_quoted).then_some((line.len(), text))
}

/// Tokens as typed, with single spaces.
pub(super) fn written(tokens: &[Token<'_>]) -> String {
    let mut text = String::new();
    for token in tokens {
        if !text.is_empty() && !token.is_mark() {
            text.push(' ');
        }
        text += token.typed;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Vec<(usize, String)> {
        tokens(line).unwrap().into_iter().map(|token| (token.column, token.text)).collect()
    }

    #[test]
    fn words_have_their_columns_in_characters() {
        let owned = |column, text: &str| (column, text.to_owned());
        assert_eq!(read("owner=café \t-> 0"), [owned(1, "owner=café"), owned(13, "->"), owned(16, "0")]);
        assert_eq!(
            read("a,b;c"),
            [owned(1, "a"), owned(2, ","), owned(3, "b"), owned(4, ";"), owned(5, "c")]
        );
        assert_eq!(read(" # all; of it"), []);
        assert_eq!(read("a#b #c"), [owned(1, "a#b")]);
    }

    #[test]
    fn quotes_keep_a_value_whole() {
        assert_eq!(
            read(r#"agent="a; b, \"c\" \\ \d" x"#),
            [(1, r#"agent=a; b, "c" \ \d"#.into()), (27, "x".into())]
        );
        assert_eq!(tokens(r#"a b="c"#), Err((3, OPEN_QUOTE.to_owned())));
        assert_eq!(read(r#"path=\d+"#), [(1, r"path=\d+".into())]);
    }

    #[test]
    fn a_statement_is_written_with_single_blanks_and_its_quotes() {
        let written = |line: &str| super::written(&tokens(line).unwrap());
        assert_eq!(written(r#"agent="a;  b"   ->	3001  ,3002 # all"#), r#"agent="a;  b" -> 3001, 3002"#);
    }
}
