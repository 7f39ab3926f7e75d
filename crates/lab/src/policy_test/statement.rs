//! One statement in a file of cases, read word by word.
//!
//! ```text
//! case      = field {field} "->" slos
//! slos      = id {"," id} | "unlimited" | "refused"
//! requests  = (count "at" "once" | count "in" time | ordinal) {field} "->" verdict {"," verdict}
//! verdict   = [count] "pass" | [count] ("delay" | "deny") [time [".." time]]
//! after     = "after" time
//! done      = [count] "done"
//! ```

use std::time::Duration;

use crate::policy_test::cases::{
    ANY, Action, Expected, REFUSED, Slos, TestFields, UNLIMITED, Verdicts, quoted,
};
use slowlane_core::base::{Kind, SloId, plural, units};

/// The column of an error, and its text.
pub(super) type CaseError = (usize, String);

/// The maximum number of requests in a file. This many requests take about a second.
pub(super) const REQUESTS_MAX: u32 = 1_000_000;

pub(super) const ARROW: &str = "->";

/// The unread tokens of a statement.
pub(super) struct Words<'t> {
    tokens: &'t [Token<'t>],
    /// The column after the last token.
    end: usize,
}

impl<'t> Words<'t> {
    pub(super) fn new(tokens: &'t [Token<'t>]) -> Words<'t> {
        Words { tokens, end: tokens.last().map_or(1, Token::end) }
    }

    pub(super) fn begins_case(&self) -> bool {
        self.word().is_some_and(|word| word.contains('='))
    }

    pub(super) fn case(&mut self) -> Result<(TestFields, Slos), CaseError> {
        let fields = self.fields()?;
        self.keyword(ARROW, "-> and the ids of SLOs, like `-> 3001`")?;
        let slos = if self.accepts(UNLIMITED) {
            Slos::Unlimited
        } else if self.accepts(REFUSED) {
            Slos::Refused
        } else {
            let mut ids = vec![self.id()?];
            while self.accepts_comma() {
                ids.push(self.id()?);
            }
            Slos::Ids(ids)
        };
        self.ends().map(|()| (fields, slos))
    }

    /// A step, and the ordinal of its request if the step gives an ordinal, such as 11 in `11th`.
    pub(super) fn step(&mut self) -> Result<(Action, Option<u32>), CaseError> {
        let ordinal = self.word().and_then(ordinal);
        let action = if self.accepts("after") {
            Action::After(self.time()?)
        } else if self.accepts("done") {
            Action::Done(None)
        } else if ordinal.is_some() {
            self.next();
            self.requests(1, Duration::ZERO)?
        } else if self.is_number() {
            let count = self.count()?;
            if self.accepts("done") {
                Action::Done(Some(count))
            } else if self.accepts("at") {
                self.keyword("once", "once")?;
                self.requests(count, Duration::ZERO)?
            } else if self.accepts("in") {
                let time = self.time()?;
                self.requests(count, time)?
            } else {
                return Err(self.expected("`at once`, `in` and a time, or `done`"));
            }
        } else {
            let steps = "requests like `10 at once -> 10 pass`, `after 2s`, `done`, or the fields of a case";
            return Err(self.expected(steps));
        };
        self.ends().map(|()| (action, ordinal))
    }

    fn requests(&mut self, count: u32, time: Duration) -> Result<Action, CaseError> {
        let fields = self.fields()?;
        self.keyword(ARROW, "-> and the verdicts, like `-> 10 pass`")?;
        let expected = self.verdicts(count)?;
        Ok(Action::Ask { count, time, fields, expected })
    }

    /// All fields before the arrow.
    fn fields(&mut self) -> Result<TestFields, CaseError> {
        let mut fields = TestFields::default();
        while let Some(word) = self.word().filter(|&word| word != ARROW) {
            fields.add(word).map_err(|error| (self.column(), error))?;
            self.next();
        }
        Ok(fields)
    }

    /// The expected verdicts on this many requests. One verdict may omit its count, and then applies to all remaining
    /// requests.
    fn verdicts(&mut self, asked: u32) -> Result<Expected, CaseError> {
        let (begins, mut all, mut rest) = (self.column(), Vec::<Verdicts>::new(), None);
        loop {
            let column = self.column();
            let count = if self.is_number() { self.count()? } else { 0 };
            let verdicts = self.verdict(count)?;
            let name = quoted(verdicts.kind.name());
            if all.iter().any(|other| other.overlaps(&verdicts)) {
                let error = "overlaps with an earlier verdict, so a request could count for either: merge \
                             the two verdicts, or change a range";
                return Err((column, format!("{name}{error}")));
            }
            if count == 0 && rest.replace((all.len(), column)).is_some() {
                return Err((column, format!("{name}expected a count: only one verdict may omit its count")));
            }
            all.push(verdicts);
            if !self.accepts_comma() {
                break;
            }
        }
        let listed: u64 = all.iter().map(|verdicts| u64::from(verdicts.count)).sum();
        match (rest, u64::from(asked).checked_sub(listed)) {
            (Some((_, column)), None | Some(0)) => {
                let error = "no request is left for this verdict: the other verdicts take";
                Err((
                    column,
                    format!("{error} {listed} of {asked}; remove this verdict, or lower the other counts"),
                ))
            }
            (None, Some(0)) => Ok(Expected(all)),
            (None, _) => {
                let (listed, asked) = (plural(listed, "verdict"), plural(asked, "request"));
                Err((begins, format!("{listed} for {asked}: expected one verdict for each request")))
            }
            (Some((place, _)), Some(left)) => {
                all[place].count = left as u32;
                Ok(Expected(all))
            }
        }
    }

    fn verdict(&mut self, count: u32) -> Result<Verdicts, CaseError> {
        let of_name = |word: &str| Kind::ALL.into_iter().find(|kind| kind.name() == word);
        let kind = self.read("pass, delay or deny", of_name)?;
        let column = self.column();
        let Some(word) = self.word().filter(|_| kind != Kind::Pass) else {
            return Ok(Verdicts { count, kind, range: ANY });
        };
        self.next();
        let (from, to) = word.split_once("..").unwrap_or((word, word));
        let range = amount(from, kind, column)?..=amount(to, kind, column)?;
        match range.is_empty() {
            true => Err(expected(column, word, "the shorter time first, like 20ms..1s")),
            false => Ok(Verdicts { count, kind, range }),
        }
    }

    fn id(&mut self) -> Result<SloId, CaseError> {
        let id = |word: &str| SloId::new(digits(word)?);
        self.read("the id of an SLO (0 to 999999), `unlimited` or `refused`", id)
    }

    fn count(&mut self) -> Result<u32, CaseError> {
        self.read("a number of requests from 1 to 1000000, like 10", number)
    }

    fn time(&mut self) -> Result<Duration, CaseError> {
        let column = self.column();
        time(self.read("a time, like 2s", Some)?, column)
    }

    fn keyword(&mut self, word: &str, wanted: &str) -> Result<(), CaseError> {
        self.read(wanted, |next| (next == word).then_some(()))
    }

    fn ends(&self) -> Result<(), CaseError> {
        match self.tokens {
            [] => Ok(()),
            _ => Err(self.expected("the end of the line, or ; before the next step")),
        }
    }

    /// Reads a word, or reports what is expected instead.
    fn read<T>(&mut self, wanted: &str, read: impl FnOnce(&'t str) -> Option<T>) -> Result<T, CaseError> {
        let value = self.word().and_then(read).ok_or_else(|| self.expected(wanted))?;
        self.next();
        Ok(value)
    }

    /// Reads this word, if it is the next one.
    fn accepts(&mut self, word: &str) -> bool {
        self.keyword(word, "").is_ok()
    }

    fn accepts_comma(&mut self) -> bool {
        let is_next = self.tokens.first().is_some_and(|token| token.typed == ",");
        if is_next {
            self.next();
        }
        is_next
    }

    /// Whether a number comes next, or a word that looks like a number.
    fn is_number(&self) -> bool {
        self.word().is_some_and(|word| word.starts_with(|first: char| first.is_ascii_digit()))
    }

    fn word(&self) -> Option<&'t str> {
        self.tokens.first().filter(|token| !token.is_mark()).map(|token| token.text.as_str())
    }

    /// The column of the next token.
    pub(super) fn column(&self) -> usize {
        self.tokens.first().map_or(self.end, |token| token.column)
    }

    fn next(&mut self) {
        self.tokens = self.tokens.get(1..).unwrap_or_default();
    }

    /// The error for a next token that does not match what was expected.
    pub(super) fn expected(&self, wanted: &str) -> CaseError {
        match self.tokens.first() {
            Some(token) => expected(token.column, &token.text, wanted),
            None => (self.end, format!("expected {wanted}")),
        }
    }
}

const _: () = assert!(REQUESTS_MAX == 1_000_000, "as the messages say");

/// A number of requests, from 1 to the maximum for a file.
fn number(word: &str) -> Option<u32> {
    digits(word).filter(|number| (1..=REQUESTS_MAX).contains(number))
}

/// The number of a word like 11th.
fn ordinal(word: &str) -> Option<u32> {
    ["st", "nd", "rd", "th"].iter().find_map(|ending| number(word.strip_suffix(ending)?))
}

fn digits(word: &str) -> Option<u32> {
    word.bytes().all(|byte| byte.is_ascii_digit()).then(|| word.parse().ok())?
}

/// The error for a word that has already been read but does not match what was expected.
fn expected(column: usize, word: &str, wanted: &str) -> CaseError {
    (column, format!("{}expected {wanted}", quoted(word)))
}

fn time(word: &str, column: usize) -> Result<Duration, CaseError> {
    units::duration(word).map_err(|reason| (column, format!("{}{reason}", quoted(word))))
}

/// The amount of a verdict. Proxies delay by whole milliseconds, and `Retry-After` has whole seconds.
fn amount(word: &str, kind: Kind, column: usize) -> Result<u64, CaseError> {
    let time = time(word, column)?;
    let (unit, wanted) = match kind {
        Kind::Deny => (Duration::from_secs(1), "whole seconds, as in Retry-After, like 3s"),
        Kind::Pass | Kind::Delay => (Duration::from_millis(1), "whole milliseconds, like 20ms"),
    };
    match time.as_nanos().is_multiple_of(unit.as_nanos()) {
        true => Ok((time.as_nanos() / unit.as_nanos()) as u64),
        false => Err(expected(column, word, wanted)),
    }
}

/// A word or a punctuation mark. Columns are counted in characters from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token<'l> {
    pub(super) column: usize,
    /// The text as typed, with its quotes.
    pub(super) typed: &'l str,
    pub(super) text: String,
}

impl Token<'_> {
    /// The column after the token.
    pub(super) fn end(&self) -> usize {
        self.column + self.typed.chars().count()
    }

    /// Whether the token separates words or steps. The same character in quotes would be a word.
    pub(super) fn is_mark(&self) -> bool {
        matches!(self.typed, "," | ";")
    }
}

const OPEN_QUOTE: &str = "an unterminated quote: add the closing quote";

/// The tokens of a line up to its comment, or an error with its column.
///
/// A comment begins with a `#` at the start of a word. Between double quotes, `\"` is a quote, and `\\` is a backslash.
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

/// The length of the first word in bytes, and its text. None if a quote is not closed.
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
