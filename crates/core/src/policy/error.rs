//! Errors in the files of a policy, each with its place, the faulty text and the expected text.

use std::io;

use thiserror::Error;

use crate::base::{FIELDS_MAX, Rate, Sharing, SloId, VALUE_BYTES_MAX, cut, units::written};
use crate::law::OptionError;
use crate::policy::{
    BURST_YEARS_MAX, DEFAULT_LINE, Findings, LINE_BYTES_MAX, SKETCHES_BYTES_MAX, SLO_LINES_MAX,
    SUBSTRINGS_BYTES_MAX,
};

/// The maximum number of errors that are kept. Additional errors are only counted: so many usually have one cause.
pub const ERRORS_MAX: usize = 100;

/// The maximum number of characters of a faulty line that an error quotes.
const QUOTED_CHARS_MAX: usize = 80;

/// All errors of a policy, displayed one per line. A list that is returned as an error is never empty.
pub type PolicyErrors = Findings<PolicyErrorKind, ERRORS_MAX>;

/// An error in the files of a policy, without the place where it occurred.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PolicyErrorKind {
    #[error("cannot be read: {0}")]
    Unreadable(String),
    #[error("the parent of this path is a file: name the directory that contains slo.map and the other maps")]
    NoDirectory,
    #[error("no such file: create it with one SLO per line, at least `{DEFAULT_LINE}`")]
    NoSloMap,
    #[error("SLO 0, for requests that match no map, is missing: add the line `{DEFAULT_LINE}`")]
    NoDefault,
    #[error(
        "the line is longer than {LINE_BYTES_MAX} bytes, so HAProxy would read it as two lines: shorten it"
    )]
    LineTooLong,
    #[error("the line contains a NUL byte, at which HAProxy would stop reading: remove the byte")]
    Nul,

    #[error("{0:?}: expected the id of an SLO (0 to 999999) and its options, like `0 burst=100 rate=50/s`")]
    Id(String),
    #[error(
        "SLO {id}: type {} is not declared: use one of the types {types}, or declare this type in [policy.types]",
        .id.kind()
    )]
    Type { id: SloId, types: String },
    #[error("SLO {id} is already on line {first}: keep one of the two")]
    SloTwice { id: SloId, first: usize },
    #[error("{0:?}: expected an option, like burst=100")]
    Word(String),
    #[error("{0:?}: a comment needs a line of its own")]
    Comment(String),
    #[error("{0:?} is given twice: keep one")]
    OptionTwice(String),
    #[error("burst is missing: add it, for example burst=100")]
    NoBurst,
    #[error("rate is missing: add it, for example rate=50/s or rate=unlimited")]
    NoRate,
    #[error("{0} has no effect with rate=unlimited: remove it, or give a rate like 50/s")]
    OfNoLimit(String),
    #[error(
        "no request can pass: with burst={burst}, the first request would wait for 1/rate, {}, which is \
         longer than max_delay: set burst=1 or more, or a longer max_delay, or refuse everything \
         with rate=0/s",
        written(.rate.slot())
    )]
    NonePasses { burst: u32, rate: Rate },
    #[error("burst {burst} at {rate} takes longer than {BURST_YEARS_MAX} years to refill: lower the burst")]
    BurstTime { burst: u32, rate: Rate },
    #[error(transparent)]
    Law(#[from] OptionError),

    #[error("{0:?}: expected the id of an SLO, or -1 to leave the answer to the next lookup")]
    Answer(String),
    #[error(
        "{0:?}: expected the id of an SLO, or -1 to leave the answer to the next lookup; a comment needs a line of \
         its own"
    )]
    AnswerAndComment(String),
    #[error("{0:?}: expected the key, then the derived field's value of 1 to {VALUE_BYTES_MAX} bytes long")]
    Value(String),
    #[error("SLO {0} is not in slo.map: add it there, or name a different SLO")]
    NoSuchSlo(i64),
    #[error("{0:?}: expected an address or a network, like 192.0.2.0/24 or 2001:db8::/32")]
    Network(String),
    #[error(
        "{0:?}: clients behind NAT64 are counted under their IPv4 addresses: write the IPv4 networks, or \
         0.0.0.0/0 for all IPv4 clients"
    )]
    Translators(String),
    #[error(
        "{0:?}: a * in the middle of a host is not a wildcard: list the hosts one by one, or write a \
         regular expression in a map with match = \"reg\", like ^shop\\.[^.]+\\.example$"
    )]
    Wildcard(String),
    #[error("{0:?}: expected a network, a + and the other fields, like 192.0.2.0/24+shop.example")]
    NoRest(String),
    #[error("{0:?}: expected a character other than the delimiters / ? . :")]
    Delimiters(String),
    #[error("{key:?}: {reason}")]
    Regex { key: String, reason: String },
    #[error("cluster={sharing}: the {law} law allows only {}", listed(.known))]
    Sharing { sharing: &'static str, law: &'static str, known: &'static [Sharing] },
    #[error("also {name:?}: expected one of the lookups {lookups}")]
    Also { name: String, lookups: String },
    #[error("beyond=also needs also=: name the lookup of the SLO that applies when the rate is exceeded")]
    NoAlso,
    #[error(
        "this sketch and the sketches of SLOs with lower ids take {} MiB in all, but the maximum is {} MiB: \
         raise error or lower confidence", .0 >> 20, SKETCHES_BYTES_MAX >> 20
    )]
    Sketches(usize),
    #[error(
        "also={lookup} leads from SLO {via} back to SLO {next}, but an SLO with an assured rate cannot be \
         above itself: remove one also="
    )]
    AlsoRound { via: SloId, lookup: String, next: SloId },
    #[error(
        "also={lookup} leads from the SLOs {chain} to SLO {next}, but a request has at most three SLOs: \
         remove one also="
    )]
    AlsoLong { chain: String, lookup: String, next: SloId },
    #[error(
        "SLO {slo} has also=, but its lookup, {lookup}, has also = true: remove also= here, and add another \
         lookup with also = true"
    )]
    AlsoAdded { slo: SloId, lookup: String },
    #[error("assured \"{0}\": expected a rate above 0, like 10/s")]
    NoAssured(Rate),
    #[error("assured={0} needs also=: name the lookup of the SLO above this SLO, like also=owner")]
    AssuredAlone(Rate),
    #[error("assured={assured} is higher than the rate {rate}: lower the assured rate, or raise the rate")]
    AssuredOver { assured: Rate, rate: Rate },
    #[error(
        "assured={assured}: also={lookup} leads to SLO {above}, whose {law} law cannot go into debt: give SLO {above} \
         law=pace, token-bucket or leaky-bucket"
    )]
    AssuredAbove { assured: Rate, lookup: String, above: SloId, law: &'static str },
    #[error("share: the {law} law takes at most {most} fields: name fewer")]
    ShareMax { law: &'static str, most: usize },
    #[error("share= or page= has an empty name: expected the name of a field, like source")]
    NoShare,
    #[error(
        "a request may have at most {FIELDS_MAX} fields in all: in share=, name a field that a type \
         already has"
    )]
    TooManyFields,
    #[error(
        "the map has more than {SLO_LINES_MAX} SLOs: let keys with the same burst and rate share an SLO; each key still \
         has its own bucket"
    )]
    TooManySlos,
    #[error(
        "the map has more than {0} lines, and a request may have to be compared with all of them: use \
         match = \"str\" or \"beg\", which have no limit"
    )]
    TooManyLines(usize),
    #[error(
        "the keys up to and including this line take more than {SUBSTRINGS_BYTES_MAX} bytes in all: shorten \
         or remove some keys"
    )]
    SubstringBytes,
    #[error(
        "the first {taken} of the {lines} expressions use up all the memory and time that a map may take: \
         remove or simplify some of them; {{ }} and .* cost the most"
    )]
    Regexes { taken: usize, lines: usize },
}

fn listed(sharings: &[Sharing]) -> String {
    sharings.iter().map(|sharing| sharing.name()).collect::<Vec<_>>().join(", ")
}

impl PolicyErrorKind {
    /// The fault of an unreadable `slo.map`.
    pub(super) fn of_slo_map(error: &io::Error) -> PolicyErrorKind {
        match error.kind() {
            io::ErrorKind::NotFound => PolicyErrorKind::NoSloMap,
            io::ErrorKind::NotADirectory => PolicyErrorKind::NoDirectory,
            _ => PolicyErrorKind::Unreadable(error.to_string()),
        }
    }
}

/// Text of a file, shortened for a [`PolicyErrorKind`] to quote.
pub(super) fn quoted(bytes: &[u8]) -> String {
    cut(String::from_utf8_lossy(bytes).into_owned(), QUOTED_CHARS_MAX)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn quoted_text_is_cut_and_kept_on_one_line() {
        let long = "é".repeat(QUOTED_CHARS_MAX + 1);
        assert_eq!(quoted(long.as_bytes()).chars().count(), QUOTED_CHARS_MAX + 1);
        let kind = PolicyErrorKind::Word(quoted(b"a\x1b[2J\nb"));
        assert_eq!(kind.to_string(), "\"a\\u{1b}[2J\\nb\": expected an option, like burst=100");
    }

    #[test]
    fn the_hundred_and_first_problem_is_only_counted() {
        let mut errors = PolicyErrors::default();
        for line in 1..=ERRORS_MAX + 2 {
            errors.add(Path::new("slo.map"), Some(line), PolicyErrorKind::Nul);
        }
        assert_eq!(errors.count(), ERRORS_MAX + 2);
        let shown = errors.to_string();
        assert_eq!(shown.lines().count(), ERRORS_MAX + 1);
        assert!(shown.ends_with("\nand 2 more"));
    }
}
