//! The cases of a file, each with a request, its SLOs and steps in virtual time. Also, the errors in a file.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::Serialize;

use slowlane_core::base::{FIELDS_MAX, Kind, Request, SloId, Value, Verdict, is_same_name, shown, units};

/// The cases of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suite {
    pub cases: Vec<TestCase>,
}

/// A request, the SLOs that the request falls under, and the steps that follow. Each case begins with empty counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestCase {
    /// Counted from 1.
    pub line: usize,
    /// The request and its SLOs, as typed in the file.
    pub text: [String; 2],
    pub fields: TestFields,
    pub slos: Slos,
    pub steps: Vec<TestStep>,
}

/// The SLOs that a request falls under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slos {
    /// These SLOs: first the SLO that the lookup finds, then the SLOs that `also=` names.
    Ids(Vec<SloId>),
    /// Any SLOs, each with `rate=unlimited`.
    Unlimited,
    /// No SLO: the lookup fails for this request, which is therefore denied.
    Refused,
}

/// The name of [`Slos::Unlimited`].
pub(super) const UNLIMITED: &str = units::UNLIMITED;

/// The name of [`Slos::Refused`].
pub(super) const REFUSED: &str = "refused";

/// A step of a case, and its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestStep {
    /// Counted from 1.
    pub line: usize,
    /// The text as typed, without its verdicts.
    pub text: String,
    pub action: Action,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// This many requests at equal intervals over this time. The first request comes now.
    Ask { count: u32, time: Duration, fields: TestFields, expected: Expected },
    /// Time passes.
    After(Duration),
    /// This many requests in flight end, in the order in which they passed. If None, all requests that have passed end.
    Done(Option<u32>),
}

impl TestCase {
    /// The request and its SLOs, as one line.
    pub(super) fn title(&self) -> String {
        self.text.join(" -> ")
    }
}

/// The expected verdicts on the requests of one step, in any order. No actual verdict matches two expected verdicts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected(pub(super) Vec<Verdicts>);

/// A number of verdicts of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdicts {
    pub(super) count: u32,
    pub(super) kind: Kind,
    /// The minimum and the maximum, in milliseconds for a delay or in seconds for a refusal.
    pub(super) range: RangeInclusive<u64>,
}

/// Any delay, and any `Retry-After`.
pub(super) const ANY: RangeInclusive<u64> = 0..=u64::MAX;

impl Verdicts {
    /// Whether a verdict could fit both.
    pub(super) fn overlaps(&self, other: &Verdicts) -> bool {
        let begins_within = |one: &Verdicts, other: &Verdicts| one.range.contains(other.range.start());
        self.kind == other.kind && (begins_within(self, other) || begins_within(other, self))
    }
}

/// The number that proxies get with a verdict: milliseconds for a delay, seconds for a refusal, 0 for a pass.
pub(super) fn amount(verdict: Verdict) -> u64 {
    match verdict {
        Verdict::Pass => 0,
        Verdict::Delay(_) => verdict.delay_ms(),
        Verdict::Deny { retry_after_s } => retry_after_s.into(),
    }
}

/// Verdicts in the notation of the file, such as `1 pass, 3 delay 20ms..60ms`. A single verdict needs no number.
pub(super) fn written(verdicts: &[Verdicts]) -> String {
    let is_one = verdicts.iter().map(|verdicts| verdicts.count).sum::<u32>() == 1;
    let one = |Verdicts { count, kind, range }: &Verdicts| {
        let unit = if *kind == Kind::Deny { Duration::from_secs } else { Duration::from_millis };
        let [from, to] = [range.start(), range.end()].map(|amount| unit(*amount));
        let number = if is_one { String::new() } else { format!("{count} ") };
        let range = match kind {
            Kind::Pass => String::new(),
            _ if *range == ANY => String::new(),
            _ if from == to => format!(" {}", units::written(from)),
            _ => format!(" {}..{}", units::written(from), units::written(to)),
        };
        format!("{number}{}{range}", kind.name())
    };
    verdicts.iter().map(one).collect::<Vec<_>>().join(", ")
}

pub(super) const TOO_MANY_FIELDS: &str = "a request may have at most 32 fields: give fewer";

const _: () = assert!(FIELDS_MAX == 32, "as the message says");

/// The fields of a request: their names and values, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TestFields(Vec<(String, String)>);

impl TestFields {
    /// Adds the field of a word such as `website=shop.example`.
    pub(super) fn add(&mut self, word: &str) -> Result<(), String> {
        let is_of_name = |letter: char| letter.is_alphanumeric() || "-_.".contains(letter);
        let named = word.split_once('=').filter(|(name, _)| !name.is_empty() && name.chars().all(is_of_name));
        let Some((name, value)) = named else {
            return Err(format!("{}expected a field and its value, like website=shop.example", quoted(word)));
        };
        if self.place(name).is_some() {
            return Err(format!("{}is given twice: keep one", quoted(name)));
        }
        if self.0.len() == FIELDS_MAX {
            return Err(TOO_MANY_FIELDS.to_owned());
        }
        self.0.push((name.to_owned(), value.to_owned()));
        Ok(())
    }

    /// The names, in the order of the file.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// These fields and the fields of `other`, which replace fields of the same name.
    pub(super) fn with(&self, other: &TestFields) -> TestFields {
        let mut both = self.clone();
        for (name, value) in &other.0 {
            match both.place(name) {
                Some(place) => both.0[place].1.clone_from(value),
                None => both.0.push((name.clone(), value.clone())),
            }
        }
        both
    }

    /// Whether a request can carry all these fields.
    pub(super) fn fit(&self) -> bool {
        self.carried().count() <= FIELDS_MAX
    }

    /// The request with these fields.
    pub(super) fn request(&self) -> Request<'_> {
        let mut request = Request::new();
        for (name, value) in self.carried() {
            request.push(name.as_bytes(), Value::Text(value.as_bytes()));
        }
        request
    }

    /// All fields except fields with an empty value, which proxies leave out.
    fn carried(&self) -> impl Iterator<Item = &(String, String)> {
        self.0.iter().filter(|(_, value)| !value.is_empty())
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.names().position(|other| is_same_name(other.as_bytes(), name.as_bytes()))
    }
}

/// The maximum number of errors that are kept. Any further errors are only counted.
const ERRORS_MAX: usize = 100;

/// How many characters of a bad word an error quotes.
const QUOTED_CHARS_MAX: usize = 80;

/// One error or warning and its place, counted in lines and characters from 1. If no line is given, it concerns the
/// whole file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CaseError {
    pub line: Option<usize>,
    pub column: Option<usize>,
    pub text: String,
}

/// The errors in a file. As the error of a `Result`, the list is never empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaseErrors {
    /// The first errors; any others are only counted.
    pub listed: Vec<CaseError>,
    pub count: usize,
}

impl CaseErrors {
    /// One error about the whole file.
    pub fn of_file(text: String) -> CaseErrors {
        CaseErrors { listed: vec![CaseError { line: None, column: None, text }], count: 1 }
    }

    pub(super) fn add(&mut self, line: usize, column: usize, text: String) {
        self.count += 1;
        if self.listed.len() < ERRORS_MAX {
            self.listed.push(CaseError { line: Some(line), column: Some(column), text });
        }
    }
}

impl fmt::Display for CaseError {
    /// `line:column: message`, without the name of the file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for number in self.line.iter().chain(&self.column) {
            write!(f, "{number}:")?;
        }
        let blank = if self.line.is_some() { " " } else { "" };
        write!(f, "{blank}{}", self.text)
    }
}

/// The start of a message: a word from the file in quotes, shortened and safe to display.
pub(super) fn quoted(word: &str) -> String {
    let dots = if word.chars().nth(QUOTED_CHARS_MAX).is_some() { "…" } else { "" };
    let begin: String = word.chars().take(QUOTED_CHARS_MAX).collect();
    format!("\"{}{dots}\": ", shown(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(words: &[&str]) -> TestFields {
        let mut fields = TestFields::default();
        words.iter().for_each(|word| fields.add(word).unwrap());
        fields
    }

    #[test]
    fn a_line_replaces_fields_of_its_case_or_takes_them_away() {
        let case = fields(&["source=192.0.2.1", "api-key=a", "owner=acme"]);
        let both = case.with(&fields(&["cost=5", "api_key=b", "owner="]));
        assert_eq!(both, fields(&["source=192.0.2.1", "api-key=b", "owner=", "cost=5"]));
        let request = both.request();
        assert_eq!(request.get(b"api_key"), Some(Value::Text(b"b")));
        assert_eq!((request.get(b"owner"), request.fields().count()), (None, 3));
    }

    #[test]
    fn a_field_has_a_name_and_comes_once() {
        let mut fields = fields(&["api-key=1"]);
        assert_eq!(fields.add("api_key=2"), Err("\"api_key\": is given twice: keep one".to_owned()));
        for word in ["=1", "a b=1", "\u{feff}source=1", "source", "a->b=1"] {
            assert!(fields.add(word).unwrap_err().contains("expected a field"), "{word}");
        }
        (1..FIELDS_MAX).for_each(|number| fields.add(&format!("f{number}=1")).unwrap());
        assert_eq!(fields.add("more=1"), Err(TOO_MANY_FIELDS.to_owned()));
    }

    #[test]
    fn the_fields_of_a_case_and_of_a_step_are_one_request() {
        let mut case = TestFields::default();
        (0..FIELDS_MAX).for_each(|number| case.add(&format!("f{number}=1")).unwrap());
        assert!(case.fit() && case.with(&fields(&["f1=2"])).fit());
        assert!(!case.with(&fields(&["more=1"])).fit());
        assert!(case.with(&fields(&["more=1", "f1="])).fit(), "an empty value takes a field away");
    }

    #[test]
    fn items_are_apart_in_kind_or_in_range() {
        let item = |kind, range| Verdicts { count: 1, kind, range };
        let any = item(Kind::Delay, ANY);
        let [low, high] = [1..=20, 21..=40].map(|range| item(Kind::Delay, range));
        let deny = item(Kind::Deny, 1..=20);
        assert!(any.overlaps(&low) && low.overlaps(&any) && any.overlaps(&any) && low.overlaps(&low));
        assert!(!low.overlaps(&high) && !high.overlaps(&low) && !low.overlaps(&deny));
    }

    #[test]
    fn a_long_word_is_cut_and_cannot_control_a_terminal() {
        let long = "é".repeat(QUOTED_CHARS_MAX + 1);
        assert_eq!(quoted(&long), format!("\"{}…\": ", "é".repeat(QUOTED_CHARS_MAX)));
        assert_eq!(quoted("\u{1b}[31m"), "\"\\u{1b}[31m\": ");
    }

    #[test]
    fn mistakes_beyond_the_most_are_counted() {
        let mut errors = CaseErrors::default();
        for line in 1..=ERRORS_MAX + 7 {
            errors.add(line, 3, "an unterminated quote".to_owned());
        }
        assert_eq!((errors.listed.len(), errors.count), (ERRORS_MAX, ERRORS_MAX + 7));
        assert_eq!(errors.listed[1].to_string(), "2:3: an unterminated quote");
    }
}
