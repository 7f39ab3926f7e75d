//! One statement of a file of cases, read word by word.
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

use crate::policy_test::case::{Action, Arrivals, REFUSED, Slos, UNLIMITED};
use crate::policy_test::expected::{Expected, Item};
use crate::policy_test::fields::Fields;
use crate::policy_test::mistake::{Fault, Quoted, REQUESTS_MAX};
use crate::policy_test::words::{Piece, Token};
use slowlane_core::base::kind::Kind;
use slowlane_core::base::slo_id::SloId;
use slowlane_core::base::units;

/// What a statement says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Statement {
    Case(Fields, Slos),
    Step(Action),
}

/// A fault, and its column.
pub(super) type FaultAt = (usize, Fault);

/// The tokens of a statement that are not read yet.
#[derive(Clone, Copy)]
pub(super) struct Words<'t> {
    tokens: &'t [Token],
    /// The column behind the last token.
    end: usize,
}

const ARROW: &str = "->";

impl<'t> Words<'t> {
    pub(super) fn new(tokens: &'t [Token]) -> Words<'t> {
        Words { tokens, end: tokens.last().map_or(1, |last| last.end) }
    }

    /// The column of the next token.
    pub(super) fn column(&self) -> usize {
        self.tokens.first().map_or(self.end, |token| token.column)
    }

    /// Whether the statement begins a case.
    pub(super) fn is_case(&self) -> bool {
        self.word().is_some_and(|word| word.contains('='))
    }

    /// Reads the whole statement.
    pub(super) fn statement(mut self) -> Result<Statement, FaultAt> {
        let statement = match self.word() {
            Some(word) if word.contains('=') => self.case()?,
            Some("after") => {
                self.next();
                Statement::Step(Action::After(self.time()?))
            }
            Some("done") => {
                self.next();
                Statement::Step(Action::Done(None))
            }
            Some(_) if self.is_number() => self.counted()?,
            _ => {
                let step =
                    "requests like `10 at once -> 10 pass`, `after 2s`, `done`, or the fields of a case";
                return Err(self.expected(step));
            }
        };
        match self.tokens.is_empty() {
            true => Ok(statement),
            false => Err(self.expected("the end of the line, or ; before the next step")),
        }
    }

    fn case(&mut self) -> Result<Statement, FaultAt> {
        let fields = self.fields()?;
        self.keyword(ARROW, "-> and the ids of SLOs, like `-> 3001`")?;
        let named = match self.word() {
            Some(UNLIMITED) => Some(Slos::Unlimited),
            Some(REFUSED) => Some(Slos::Refused),
            _ => None,
        };
        if let Some(slos) = named {
            self.next();
            return Ok(Statement::Case(fields, slos));
        }
        let mut ids = vec![self.id()?];
        while self.comma() {
            ids.push(self.id()?);
        }
        Ok(Statement::Case(fields, Slos::Ids(ids)))
    }

    /// A step that begins with a number.
    fn counted(&mut self) -> Result<Statement, FaultAt> {
        let arrivals = match self.ordinal() {
            Some(number) => Arrivals::Ordinal(number),
            None => {
                let count = self.count()?;
                match self.word() {
                    Some("done") => {
                        self.next();
                        return Ok(Statement::Step(Action::Done(Some(count))));
                    }
                    Some("at") => {
                        self.next();
                        self.keyword("once", "once")?;
                        Arrivals::AtOnce(count)
                    }
                    Some("in") => {
                        self.next();
                        Arrivals::Spread(count, self.time()?)
                    }
                    _ => return Err(self.expected("`at once`, `in` and a time, or `done`")),
                }
            }
        };
        let fields = self.fields()?;
        self.keyword(ARROW, "-> and the verdicts, like `-> 10 pass`")?;
        let expected = self.verdicts(arrivals.count())?;
        Ok(Statement::Step(Action::Ask { arrivals, fields, expected }))
    }

    /// All fields before the arrow.
    fn fields(&mut self) -> Result<Fields, FaultAt> {
        let mut fields = Fields::default();
        while let Some(word) = self.word().filter(|&word| word != ARROW) {
            fields.add(word).map_err(|fault| (self.column(), fault))?;
            self.next();
        }
        Ok(fields)
    }

    /// The verdicts of so many requests. One of them may leave out its count, and gets the rest.
    fn verdicts(&mut self, asked: u32) -> Result<Expected, FaultAt> {
        let begins = self.column();
        let (mut items, mut rest): (Vec<Item>, Option<(usize, usize)>) = (Vec::new(), None);
        loop {
            let column = self.column();
            let count = if self.is_number() { self.count()? } else { 0 };
            let (kind, range) = self.verdict()?;
            let item = Item { count, kind, range };
            if items.iter().any(|other| other.overlaps(&item)) {
                return Err((column, Fault::Overlap(Quoted::of(kind.name()))));
            }
            if count == 0 && rest.replace((items.len(), column)).is_some() {
                return Err(expected(column, kind.name(), "a count: one verdict only may go without"));
            }
            items.push(item);
            if !self.comma() {
                break;
            }
        }
        let listed: u64 = items.iter().map(|item| u64::from(item.count)).sum();
        let left = u64::from(asked).checked_sub(listed);
        match (rest, left) {
            (Some((_, column)), None | Some(0)) => Err((column, Fault::NoRest { asked })),
            (None, Some(0)) => Ok(Expected { asked, items }),
            (None, _) => Err((begins, Fault::Sum { listed, asked })),
            (Some((place, _)), Some(left)) => {
                items[place].count = left as u32;
                Ok(Expected { asked, items })
            }
        }
    }

    fn verdict(&mut self) -> Result<(Kind, Option<(u64, u64)>), FaultAt> {
        let kind = Kind::ALL.into_iter().find(|kind| self.word() == Some(kind.name()));
        let kind = kind.ok_or_else(|| self.expected("pass, delay or deny"))?;
        self.next();
        if kind == Kind::Pass {
            return Ok((kind, None));
        }
        let column = self.column();
        let Some(word) = self.word() else { return Ok((kind, None)) };
        self.next();
        let (from, to) = word.split_once("..").unwrap_or((word, word));
        let range = (amount(from, kind, column)?, amount(to, kind, column)?);
        match range.0 <= range.1 {
            true => Ok((kind, Some(range))),
            false => Err(expected(column, word, "the shorter time first, like 20ms..1s")),
        }
    }

    fn id(&mut self) -> Result<SloId, FaultAt> {
        let is_number = |word: &&str| word.bytes().all(|byte| byte.is_ascii_digit());
        let id = self.word().filter(is_number).and_then(|word| word.parse().ok()).and_then(SloId::new);
        let id = id.ok_or_else(|| self.expected("the id of an SLO, 0 to 9999, `unlimited` or `refused`"))?;
        self.next();
        Ok(id)
    }

    /// A number from 1.
    fn count(&mut self) -> Result<u32, FaultAt> {
        let count = self.word().and_then(number);
        let count = count.ok_or_else(|| self.expected("a number of requests, 1 to 1000000, like 10"))?;
        self.next();
        Ok(count)
    }

    /// The number of a word like 11th. Nothing is read if it is another word.
    fn ordinal(&mut self) -> Option<u32> {
        let word = self.word()?;
        let digits = ["st", "nd", "rd", "th"].iter().find_map(|ending| word.strip_suffix(ending))?;
        let number = number(digits)?;
        self.next();
        Some(number)
    }

    fn time(&mut self) -> Result<Duration, FaultAt> {
        let word = self.word().ok_or_else(|| self.expected("a time, like 2s"))?;
        let time = time(word, self.column())?;
        self.next();
        Ok(time)
    }

    /// Reads this word, or tells what is expected.
    fn keyword(&mut self, word: &str, expected: &'static str) -> Result<(), FaultAt> {
        if self.word() != Some(word) {
            return Err(self.expected(expected));
        }
        self.next();
        Ok(())
    }

    /// Reads a comma, if there is one.
    fn comma(&mut self) -> bool {
        let is_comma = self.tokens.first().is_some_and(|token| token.piece == Piece::Comma);
        if is_comma {
            self.next();
        }
        is_comma
    }

    /// Whether a number is next, or a word that looks like one.
    fn is_number(&self) -> bool {
        self.word().is_some_and(|word| word.starts_with(|first: char| first.is_ascii_digit()))
    }

    fn word(&self) -> Option<&'t str> {
        match &self.tokens.first()?.piece {
            Piece::Word(text) => Some(text),
            Piece::Comma | Piece::Semicolon => None,
        }
    }

    fn next(&mut self) {
        self.tokens = self.tokens.get(1..).unwrap_or_default();
    }

    /// The next token is another one.
    pub(super) fn expected(&self, expected: &'static str) -> FaultAt {
        let word = self.tokens.first().map_or(Quoted::end(), |token| Quoted::of(token.piece.text()));
        (self.column(), Fault::Expected { word, expected })
    }
}

const _: () = assert!(REQUESTS_MAX == 1_000_000, "as the messages say");

/// A number of requests that a file may ask for.
fn number(digits: &str) -> Option<u32> {
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok())?.filter(|number| (1..=REQUESTS_MAX).contains(number))
}

/// The fault of a word that has been read.
fn expected(column: usize, word: &str, expected: &'static str) -> FaultAt {
    (column, Fault::Expected { word: Quoted::of(word), expected })
}

fn time(word: &str, column: usize) -> Result<Duration, FaultAt> {
    units::duration(word).map_err(|reason| (column, Fault::Duration { word: Quoted::of(word), reason }))
}

/// The amount of a verdict: proxies delay by whole milliseconds, and `Retry-After` has whole seconds.
fn amount(word: &str, kind: Kind, column: usize) -> Result<u64, FaultAt> {
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
