//! `reg`: keys that are regular expressions, all of which are searched at once.
//!
//! An expression may match anywhere in the value. Expressions match bytes: `.` matches any byte but LF, and
//! `\w` and `(?i)` cover only ASCII.
//!
//! PCRE, HAProxy's usual library, has more features. Expressions that use these are refused: look-around,
//! back-references, atomic groups, possessive quantifiers, recursion, conditions, callouts, `\K`, `\G`, `\R`,
//! `\h` and `\Q…\E`. One common feature differs: `$` does not match before a final LF.

use std::collections::HashSet;
use std::error::Error;

use regex_automata::MatchKind;
use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::primitives::StateID;
use regex_automata::util::{start, syntax};

use crate::base::shown;
use crate::policy::index::texts::List;
use crate::policy::{AUTOMATA_MAX, Pattern, PolicyErrorKind, SEARCH_STEPS_MAX, quoted};

/// A regular expression that matches only this text. The expression has no blanks and no invisible letters,
/// so it can be part of a key in a map.
///
/// ```
/// use slowlane_core::policy::expression_of;
/// assert_eq!(expression_of("Acme Inc. (#1)"), r"Acme\x20Inc\.\x20\(\x231\)");
/// ```
pub fn expression_of(text: &str) -> String {
    let letter = |letter: char| match letter {
        '.' | '+' | '*' | '?' | '(' | ')' | '|' | '[' | ']' | '{' | '}' | '^' | '$' | '\\' => {
            format!("\\{letter}")
        }
        '#' | '\0'..=' ' | '\x7f' => format!("\\x{:02x}", u32::from(letter)),
        _ if letter.is_whitespace() || shown(letter.to_string()) != letter.to_string() => {
            format!("\\x{{{:x}}}", u32::from(letter))
        }
        _ => letter.to_string(),
    };
    text.chars().map(letter).collect()
}

/// Memory limit of one compiled expression, in bytes. Most expressions need a hundredth of this.
const DFA_BYTES_MAX: usize = 256 << 10;

/// Memory limit of an automaton for several expressions, in bytes. While such an automaton is searched, it
/// stays in the caches of a processor.
const JOINT_BYTES_MAX: usize = 2 << 20;

/// Regular expressions in the order of their lines. The first line that matches anywhere wins.
///
/// The expressions are compiled into complete automata, usually a single one, before the first request. A
/// search takes one step per byte and automaton, whatever the expressions and the value are.
#[derive(Debug)]
pub(in crate::policy) struct Regexes {
    regexes: Vec<String>,
    lines: List,
    automata: Vec<Joint>,
    ignores_case: bool,
}

/// The automaton of several consecutive lines.
#[derive(Debug)]
struct Joint {
    dfa: dense::DFA<Vec<u32>>,
    start: StateID,
    /// For each state, the first line that matches there, counted from the automaton's first line.
    matches: Vec<u16>,
    /// The index of the automaton's first line among the expressions.
    begin: usize,
}

/// Marks a state in which no line matches.
const NONE: u16 = u16::MAX;

impl Regexes {
    pub(in crate::policy) fn new(ignores_case: bool) -> Regexes {
        Regexes { regexes: Vec::new(), lines: List::default(), automata: Vec::new(), ignores_case }
    }

    /// Adds a pattern. Returns the earlier pattern with the same key, if there is one.
    pub(in crate::policy) fn insert(
        &mut self,
        pattern: Pattern,
        text: &[u8],
    ) -> Result<Option<Pattern>, PolicyErrorKind> {
        let key = pattern.key(text);
        let kind = |reason: String| PolicyErrorKind::Regex { key: quoted(key), reason };
        let regex = std::str::from_utf8(key)
            .map_err(|_| kind("the expression is not UTF-8: write non-UTF-8 bytes as \\xNN".into()))?;
        compile(&[regex], self.ignores_case, DFA_BYTES_MAX).map_err(|error| kind(reason(&error)))?;
        let first = self.lines.insert(pattern, text)?;
        self.regexes.push(regex.to_owned());
        Ok(first)
    }

    /// Joins the expressions into as few automata as possible.
    pub(in crate::policy) fn finish(&mut self) -> Result<(), PolicyErrorKind> {
        let (mut begin, mut size) = (0, self.regexes.len());
        while begin < self.regexes.len() {
            if self.automata.len() == AUTOMATA_MAX {
                return Err(PolicyErrorKind::Regexes { taken: begin, lines: self.regexes.len() });
            }
            // A number of lines that fitted before is likely to fit again.
            size = size.min(self.regexes.len() - begin);
            let joint = loop {
                match compile(&self.regexes[begin..begin + size], self.ignores_case, JOINT_BYTES_MAX) {
                    Ok(dfa) => break Joint::new(dfa, begin),
                    Err(error) if size == 1 => {
                        let key = quoted(self.regexes[begin].as_bytes());
                        return Err(PolicyErrorKind::Regex { key, reason: reason(&error) });
                    }
                    Err(_) => size = size.div_ceil(2),
                }
            };
            self.automata.push(joint);
            begin += size;
        }
        Ok(())
    }

    pub(in crate::policy) fn find(&self, value: &[u8]) -> Option<Pattern> {
        if value.len() * self.automata.len() > SEARCH_STEPS_MAX {
            return Some(Pattern::REFUSED);
        }
        let line = self.automata.iter().find_map(|joint| joint.first_line(value))?;
        Some(self.lines.0[line])
    }
}

impl Joint {
    fn new(dfa: dense::DFA<Vec<u32>>, begin: usize) -> Joint {
        let start = dfa
            .start_state(&start::Config::new())
            .expect("no look-around depends on the text before a value");
        let mut joint = Joint { dfa, start, matches: Vec::new(), begin };
        let (mut unseen, mut seen) = (vec![start], HashSet::from([start]));
        while let Some(state) = unseen.pop() {
            let place = joint.place(state);
            if joint.matches.len() <= place {
                joint.matches.resize(place + 1, NONE);
            }
            if joint.dfa.is_match_state(state) {
                let lines = 0..joint.dfa.match_len(state);
                let first = lines.map(|index| joint.dfa.match_pattern(state, index).as_u32()).min();
                joint.matches[place] = first.map_or(NONE, |line| line as u16);
            }
            let bytes = joint.dfa.byte_classes().representatives(0..=255).filter_map(|unit| unit.as_u8());
            let nexts = bytes.map(|byte| joint.dfa.next_state(state, byte));
            for next in nexts.chain([joint.dfa.next_eoi_state(state)]).collect::<Vec<_>>() {
                if seen.insert(next) {
                    unseen.push(next);
                }
            }
        }
        joint
    }

    fn place(&self, state: StateID) -> usize {
        state.as_usize() >> self.dfa.stride2()
    }

    /// The first line of the automaton that matches, as an index among all expressions.
    fn first_line(&self, value: &[u8]) -> Option<usize> {
        let (mut state, mut first) = (self.start, NONE);
        for &byte in value {
            state = self.dfa.next_state(state, byte);
            // The automaton reports a match one byte late.
            if self.dfa.is_match_state(state) {
                first = first.min(self.matches[self.place(state)]);
                if first == 0 {
                    break;
                }
            }
        }
        if first != 0 {
            first = first.min(self.matches[self.place(self.dfa.next_eoi_state(state))]);
        }
        (first != NONE).then(|| self.begin + usize::from(first))
    }
}

fn compile<R: AsRef<str>>(
    regexes: &[R],
    ignores_case: bool,
    bytes_max: usize,
) -> Result<dense::DFA<Vec<u32>>, Box<dense::BuildError>> {
    let limits = dense::Config::new()
        .start_kind(StartKind::Unanchored)
        .match_kind(MatchKind::All)
        .dfa_size_limit(Some(bytes_max))
        .determinize_size_limit(Some(4 * bytes_max));
    let syntax = syntax::Config::new().unicode(false).utf8(false).case_insensitive(ignores_case);
    let nfa = thompson::Config::new().utf8(false).nfa_size_limit(Some(4 * bytes_max));
    dense::Builder::new().configure(limits).syntax(syntax).thompson(nfa).build_many(regexes).map_err(Box::new)
}

/// The last line of the innermost error. The lines before it only show the expression.
fn reason(error: &dense::BuildError) -> String {
    let mut innermost: &dyn Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    let text = innermost.to_string();
    if error.is_size_limit_exceeded() || text.contains("exceeded") {
        let limit = DFA_BYTES_MAX >> 10;
        return format!("the expression takes more than {limit} KiB: lower the counts in {{ }} first");
    }
    text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy::Answer;
    use crate::policy::LIST_LINES_MAX;

    /// Inserts the expressions, each with the number of its line as its answer.
    fn regexes(keys: &[&[u8]]) -> Result<Regexes, String> {
        let (text, mut regexes, mut at) = (keys.concat(), Regexes::new(false), 0);
        for (line, key) in keys.iter().enumerate() {
            let pattern = Pattern::new(at, key, Answer::slo(line));
            regexes.insert(pattern, &text).map_err(|kind| kind.to_string())?;
            at += key.len();
        }
        regexes.finish().map_err(|kind| kind.to_string())?;
        Ok(regexes)
    }

    fn line_of(regexes: &Regexes, value: &[u8]) -> Option<usize> {
        regexes.find(value).and_then(|pattern| pattern.answer.place())
    }

    #[test]
    fn the_first_that_matches_anywhere_wins() {
        let regexes = regexes(&[br"^/api/v\d+/", b"api"]).unwrap();
        assert_eq!(line_of(&regexes, b"/api/v12/items"), Some(0));
        assert_eq!(line_of(&regexes, b"/api/items"), Some(1));
        assert_eq!(line_of(&regexes, b"/API/"), None);
    }

    proptest! {
        /// Any text has an expression that fits a line, and that matches nothing else.
        #[test]
        fn an_expression_of_a_text_matches_it_alone(text in ".{0,30}", other in ".{0,30}") {
            let expression = format!("^{}$", expression_of(&text));
            prop_assert!(!expression.contains(char::is_whitespace), "{expression}");
            let regexes = regexes(&[expression.as_bytes()]).unwrap();
            prop_assert_eq!(line_of(&regexes, text.as_bytes()), Some(0));
            prop_assert_eq!(line_of(&regexes, other.as_bytes()).is_some(), text == other);
        }
    }

    #[test]
    fn case_is_ignored_where_asked() {
        let (key, mut regexes) = (br"^WWW\.", Regexes::new(true));
        regexes.insert(Pattern::new(0, key, Answer::slo(0)), key).unwrap();
        regexes.finish().unwrap();
        assert_eq!(line_of(&regexes, b"www.shop.example"), Some(0));
    }

    /// Automata that were built while searching took 1.1 s for a value of 1000 bytes, and 2.5 GB for twenty of them.
    #[test]
    fn an_expression_that_takes_much_memory_is_refused() {
        assert!(regexes(&[b"x.{8}y"]).is_ok());
        let refused = regexes(&[b"x.{19}y"]).unwrap_err();
        assert_eq!(
            refused,
            "\"x.{19}y\": the expression takes more than 256 KiB: lower the counts in { } first"
        );
        // Each is small, and two of them together have the states of one times those of the other.
        let many: Vec<Vec<u8>> =
            (0..LIST_LINES_MAX).map(|line| format!("{line}.{{8}}y{line}").into_bytes()).collect();
        let refused = regexes(&many.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap_err();
        assert!(refused.contains("expressions use up all the memory and time"), "{refused}");
    }

    #[test]
    fn what_does_not_fit_one_automaton_has_several_and_shorter_values() {
        let keys: Vec<Vec<u8>> = (0..20).map(|line| format!("{line}.{{7}}y").into_bytes()).collect();
        let regexes = regexes(&keys.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
        let count = regexes.automata.len();
        assert!((2..=AUTOMATA_MAX).contains(&count), "{count}");
        let value = |length: usize| [&b"19_______y"[..], &b"x".repeat(length - 10)].concat();
        assert_eq!(line_of(&regexes, b"19_______y"), Some(9), "9 comes before 19");
        assert_eq!(line_of(&regexes, &value(SEARCH_STEPS_MAX / count)), Some(9));
        assert_eq!(regexes.find(&value(SEARCH_STEPS_MAX / count + 1)), Some(Pattern::REFUSED));
    }

    /// A question of HAProxy has at most 16,380 bytes.
    #[test]
    fn one_automaton_searches_any_value_of_a_question() {
        let keys: Vec<Vec<u8>> = (0..1_000).map(|number| format!("^/shop/{number}/").into_bytes()).collect();
        let regexes = regexes(&keys.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
        assert_eq!(regexes.automata.len(), 1);
        let longest = [&b"/shop/999/"[..], &b"x".repeat(16_380 - 10)].concat();
        assert_eq!(line_of(&regexes, &longest), Some(999));
    }

    #[test]
    fn bytes_are_bytes() {
        let regexes = regexes(&[br"^.\xff$"]).unwrap();
        assert!(regexes.find(b"\x80\xff").is_some());
        assert!(regexes.find("é".as_bytes()).is_none());
    }

    #[test]
    fn unsupported_pcre_syntax_is_refused_in_one_line() {
        for key in
            [&b"(?=a)"[..], br"(a)\1", b"a++b(?>c)", br"\K", b"(", b"[\xc3\xa9]", b"a{9999999}", b"\xff"]
        {
            let refused = regexes(&[key]).unwrap_err();
            assert_eq!(refused.lines().count(), 1, "{refused}");
        }
        let refused = regexes(&[b"(?=a)"]).unwrap_err();
        assert_eq!(refused, "\"(?=a)\": look-around, including look-ahead and look-behind, is not supported");
    }

    #[test]
    fn a_map_has_a_thousand_lines_at_most() {
        let keys = vec![&b"a"[..]; LIST_LINES_MAX + 1];
        assert!(regexes(&keys).unwrap_err().contains("1000"));
    }

    proptest! {
        /// All at once or one after the other, with one automaton or several.
        #[test]
        fn the_first_line_is_found_as_when_each_is_tried(
            keys in prop::collection::vec("(\\^)?[ab.]{1,3}(\\$|a\\*|b\\{3\\}|\\[ab\\]\\+)?", 1..12),
            values in prop::collection::vec("[abc\n]{0,12}", 1..8),
        ) {
            let all = regexes(&keys.iter().map(String::as_bytes).collect::<Vec<_>>()).unwrap();
            let each: Vec<Regexes> = keys.iter().map(|key| regexes(&[key.as_bytes()]).unwrap()).collect();
            for value in values {
                let first = each.iter().position(|one| one.find(value.as_bytes()).is_some());
                prop_assert_eq!(line_of(&all, value.as_bytes()), first, "{:?} in {:?}", keys, value);
            }
        }
    }

    /// An automaton remembers which of the last nine bytes began a match: some 2^9 states alone, and 3^9 for both, which
    /// are too many.
    #[test]
    fn lines_that_do_not_fit_together_have_an_automaton_each() {
        let all = regexes(&[b"1.{8}[ACEGIKMOQSUWY]", b"2.{8}[ACEGIKMOQSUWY]"]).unwrap();
        assert_eq!(all.automata.len(), 2);
        assert_eq!([b"1________A", b"2________Y"].map(|value| line_of(&all, value)), [Some(0), Some(1)]);
        assert_eq!([&b"21________A"[..], b"2________B"].map(|value| line_of(&all, value)), [Some(0), None]);
        for Joint { dfa, matches, .. } in &all.automata {
            let states = dfa.memory_usage() / (4 * dfa.stride());
            assert!(matches.len() <= states, "{} places for {states} states", matches.len());
        }
    }
}
