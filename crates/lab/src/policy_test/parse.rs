//! Reads the cases in a file, and checks the file's limits and the order of its statements.

use std::time::Duration;

use crate::policy_test::cases::{Action, CaseErrors, Suite, TOO_MANY_FIELDS, TestCase, TestStep, quoted};
use crate::policy_test::statement::{ARROW, CaseError, REQUESTS_MAX, Token, Words, tokens, written};
use slowlane_core::base::DURATION_MAX;

/// The maximum length of a file, in bytes.
pub const FILE_BYTES_MAX: usize = 4 << 20;

/// The maximum length of a line, in bytes, without its line ending.
const LINE_BYTES_MAX: usize = 16_384;

/// The maximum number of cases in a file. Each case has its own table.
const CASES_MAX: usize = 10_000;

impl Suite {
    /// Reads a file of cases. See [`policy_test`](crate::policy_test) for the format of such a file.
    ///
    /// ```
    /// use slowlane_lab::policy_test::Suite;
    /// let suite = Suite::parse(b"owner=acme  -> 1001; 10 at once -> pass\n11th -> delay # briefly").unwrap();
    /// let steps = &suite.cases[0].steps;
    /// assert_eq!((suite.cases.len(), &*steps[0].text, &*steps[1].text), (1, "10 at once", "11th"));
    /// let errors = Suite::parse(b"source=192.0.2.66 3002").unwrap_err();
    /// assert_eq!(errors.listed[0].column, Some(19));
    /// ```
    ///
    /// # Errors
    /// All errors of the file.
    pub fn parse(text: &[u8]) -> Result<Suite, CaseErrors> {
        if text.len() > FILE_BYTES_MAX {
            return Err(CaseErrors::of_file(format!("the file exceeds {FILE_BYTES_MAX} bytes: split it")));
        }
        let mut reader = Reader::default();
        for (line, number) in text.split(|&byte| byte == b'\n').zip(1..) {
            reader.number = number;
            if let Err((column, error)) = reader.line(line.strip_suffix(b"\r").unwrap_or(line)) {
                reader.spoil(column, error);
            }
            if reader.is_full {
                break;
            }
        }
        let Reader { suite, errors, .. } = reader;
        match (errors.count, suite.cases.len()) {
            (0, 0) => Err(CaseErrors::of_file("expected a case, like `source=192.0.2.1 -> 3001`".into())),
            (0, _) => Ok(suite),
            _ => Err(errors),
        }
    }
}

#[derive(Default)]
struct Reader {
    suite: Suite,
    errors: CaseErrors,
    /// The number of the current line, from 1.
    number: usize,
    /// The number of requests in the file so far.
    requests: u32,
    /// The number of requests in the open case, and their time. None if no case has begun or the last has an error.
    open: Option<(u32, Duration)>,
    /// Whether a limit has been exceeded. If so, the rest of the file is not read.
    is_full: bool,
}

impl Reader {
    fn line(&mut self, line: &[u8]) -> Result<(), CaseError> {
        if line.len() > LINE_BYTES_MAX {
            return Err((1, format!("the line is longer than {LINE_BYTES_MAX} bytes: shorten it")));
        }
        let text = str::from_utf8(line).map_err(|error| {
            let before = String::from_utf8_lossy(&line[..error.valid_up_to()]);
            (before.chars().count() + 1, "not UTF-8: save the file as UTF-8".to_owned())
        })?;
        let control = |&(letter, _): &(char, usize)| letter.is_control() && letter != '\t';
        if let Some((letter, column)) = text.chars().zip(1..).find(control) {
            return Err((column, format!("a control character, {}: remove it", letter.escape_unicode())));
        }
        for statement in tokens(text)?.split(|token| token.typed == ";") {
            if !statement.is_empty()
                && !self.is_full
                && let Err((column, error)) = self.statement(statement)
            {
                self.spoil(column, error);
            }
        }
        Ok(())
    }

    fn statement(&mut self, tokens: &[Token<'_>]) -> Result<(), CaseError> {
        let mut words = Words::new(tokens);
        let column = words.column();
        let mut sides = tokens.splitn(2, |token| token.text == ARROW).map(written);
        let (request, expected) = (sides.next().unwrap_or_default(), sides.next().unwrap_or_default());
        if words.begins_case() {
            let (fields, slos) = words.case()?;
            if self.suite.cases.len() == CASES_MAX {
                return self.stop(column, format!("the file has over {CASES_MAX} cases: split it"));
            }
            self.suite.cases.push(TestCase {
                line: self.number,
                text: [request, expected],
                fields,
                slos,
                steps: Vec::new(),
            });
            self.open = Some((0, Duration::ZERO));
            return Ok(());
        }
        if self.suite.cases.is_empty() && self.errors.count == 0 {
            return Err(words.expected("a case first, like `source=192.0.2.1 -> 3001`"));
        }
        let (action, number) = words.step()?;
        self.step(column, TestStep { line: self.number, text: request, action }, number)
    }

    /// Adds a step. `number` is the ordinal of its request, if the step gives an ordinal, such as 11 in `11th`.
    fn step(&mut self, column: usize, step: TestStep, number: Option<u32>) -> Result<(), CaseError> {
        let (asked, takes) = match step.action {
            Action::Ask { count, time, .. } => (count, time),
            Action::After(time) => (0, time),
            Action::Done(_) => (0, Duration::ZERO),
        };
        self.requests += asked;
        if self.requests > REQUESTS_MAX {
            let error =
                format!("the file has more than {REQUESTS_MAX} requests: use fewer, or split the file");
            return self.stop(column, error);
        }
        let Some((requests, time)) = &mut self.open else { return Ok(()) };
        *requests += asked;
        *time += takes;
        if number.is_some_and(|number| number != *requests) {
            let word = step.text.split(' ').next().unwrap_or_default();
            return Err((column, format!("{}this is request {requests} of the case", quoted(word))));
        }
        if *time > DURATION_MAX {
            let days = DURATION_MAX.as_secs() / 86_400;
            return Err((column, format!("the case takes more than {days} days: shorten its times")));
        }
        let case = self.suite.cases.last_mut().expect("a case is open");
        if let Action::Ask { fields, .. } = &step.action
            && !case.fields.with(fields).fit()
        {
            return Err((column, TOO_MANY_FIELDS.to_owned()));
        }
        case.steps.push(step);
        Ok(())
    }

    /// Notes an error. The remaining steps of the case are still read, but are no longer added to the case.
    fn spoil(&mut self, column: usize, error: String) {
        self.errors.add(self.number, column, error);
        self.open = None;
    }

    /// Returns the last error: no more of the file is read.
    fn stop(&mut self, column: usize, error: String) -> Result<(), CaseError> {
        self.is_full = true;
        Err((column, error))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy_test::cases;

    /// `line:column: message` of each mistake.
    fn errors(text: &[u8]) -> Vec<String> {
        let errors = Suite::parse(text).unwrap_err();
        errors.listed.iter().map(ToString::to_string).collect()
    }

    /// The same suite without comments, blanks and joined lines.
    fn plain(text: &str) -> String {
        let suite = Suite::parse(text.as_bytes()).unwrap_or_else(|errors| panic!("{errors:?}"));
        let mut plain = String::new();
        for case in suite.cases {
            plain += &(case.title() + "\n");
            for TestStep { text, action, .. } in case.steps {
                let verdicts = match action {
                    Action::Ask { expected, .. } => format!(" -> {}", cases::written(&expected.0)),
                    Action::After(_) | Action::Done(_) => String::new(),
                };
                plain += &format!("    {text}{verdicts}\n");
            }
        }
        plain
    }

    #[test]
    fn a_case_may_stand_on_one_line_or_on_many() {
        let one =
            "source=192.0.2.66 -> 3002; 10 at once -> 10 pass; 11th -> delay 2s; after 1s; 3 done; done";
        let many = "\r\n# the crawler\r\nsource=192.0.2.66 -> 3002 # by its address\r\n10 at once -> 10 pass;\n\
                    \t11th -> delay 2s\n after 1s\n3 done\ndone";
        assert_eq!(plain(one), plain(many));
        assert_eq!(plain(one).lines().count(), 6);
        let lines = |text: &str| {
            Suite::parse(text.as_bytes()).unwrap().cases[0]
                .steps
                .iter()
                .map(|step| step.line)
                .collect::<Vec<_>>()
        };
        assert_eq!((lines(one), lines(many)), (vec![1; 5], vec![4, 5, 6, 7, 8]));
    }

    #[test]
    fn a_verdict_without_a_count_gets_the_rest() {
        let text = "a=1 -> 0\n20 in 2s cost=2 -> deny, 5 pass, 5 delay 20ms..100ms, 2 delay 1s\n1 at once -> deny 3s";
        assert_eq!(
            plain(text),
            "a=1 -> 0\n    20 in 2s cost=2 -> 8 deny, 5 pass, 5 delay 20ms..100ms, 2 delay 1s\n    \
             1 at once -> deny 3s\n"
        );
    }

    /// The mistake of a text in which ^ marks its place.
    fn at(marked: &str) -> String {
        let (line, column) =
            marked.lines().zip(1..).find_map(|(line, number)| Some((number, line.find('^')? + 1))).unwrap();
        let found = errors(marked.replacen('^', "", 1).as_bytes());
        assert_eq!(found.len(), 1, "{marked}: {found:?}");
        let place = format!("{line}:{column}: ");
        found[0].strip_prefix(&place).unwrap_or_else(|| panic!("{marked}: {found:?}")).to_owned()
    }

    #[test]
    fn a_mistake_in_the_verdicts_is_told_with_its_place() {
        for (verdicts, fault) in [
            ("3 pass, deny, ^delay", "\"delay\": expected a count: only one verdict may omit its count"),
            ("^9 pass", "9 verdicts for 10 requests: expected one verdict for each request"),
            ("^9 pass, 2 deny", "11 verdicts for 10 requests: expected one verdict for each request"),
            (
                "10 pass, ^deny",
                "no request is left for this verdict: the other verdicts take 10 of 10; remove this \
                 verdict, or lower the other counts",
            ),
            (
                "5 delay, ^5 delay 20ms",
                "\"delay\": overlaps with an earlier verdict, so a request could count for either: merge \
                 the two verdicts, or change a range",
            ),
            ("10 delay ^20ms..10ms", "\"20ms..10ms\": expected the shorter time first, like 20ms..1s"),
            ("10 delay ^1500us", "\"1500us\": expected whole milliseconds, like 20ms"),
            ("10 deny ^1500ms", "\"1500ms\": expected whole seconds, as in Retry-After, like 3s"),
            ("10 deny ^3", "\"3\": expected a whole number and a unit (us, ms, s, m, h or d), like 5s"),
            ("10 pass ^3s", "\"3s\": expected the end of the line, or ; before the next step"),
            ("10 ^wait", "\"wait\": expected pass, delay or deny"),
            ("10 pass,^", "expected pass, delay or deny"),
            ("^0 pass", "\"0\": expected a number of requests from 1 to 1000000, like 10"),
        ] {
            assert_eq!(at(&format!("a=1 -> 0; 10 at once -> {verdicts}")), fault);
        }
    }

    #[test]
    fn a_mistake_elsewhere_is_told_with_its_place() {
        let step =
            "expected requests like `10 at once -> 10 pass`, `after 2s`, `done`, or the fields of a case";
        let id = "expected the id of an SLO (0 to 999999), `unlimited` or `refused`";
        for (marked, fault) in [
            (
                "\n ^10 at once -> pass",
                "\"10\": expected a case first, like `source=192.0.2.1 -> 3001`".to_owned(),
            ),
            ("a=1 -> ^shop", format!("\"shop\": {id}")),
            ("a=1 -> 2001, ^1000000", format!("\"1000000\": {id}")),
            ("a=1 -> 2001,^", id.to_owned()),
            ("a=1 -> unlimited^, 0", "\",\": expected the end of the line, or ; before the next step".into()),
            ("a=1^ # -> 0", "expected -> and the ids of SLOs, like `-> 3001`".into()),
            ("a=1 ^b -> 0", "\"b\": expected a field and its value, like website=shop.example".into()),
            ("a=1^, b=2 -> 0", "\",\": expected -> and the ids of SLOs, like `-> 3001`".into()),
            ("a=1 ^a=2 -> 0", "\"a\": is given twice: keep one".into()),
            ("a=1 -> 0\n^wait 3s", format!("\"wait\": {step}")),
            ("a=1 -> 0\n^-> 3s", format!("\"->\": {step}")),
            ("a=1 -> 0\n9 at ^one -> pass", "\"one\": expected once".into()),
            (
                "a=1 -> 0\n9 ^times -> pass",
                "\"times\": expected `at once`, `in` and a time, or `done`".into(),
            ),
            (
                "a=1 -> 0\n9 in ^5 -> pass",
                "\"5\": expected a whole number and a unit (us, ms, s, m, h or d), like 5s".into(),
            ),
            ("a=1 -> 0; after^", "expected a time, like 2s".into()),
            ("a=1 -> 0; after ^367d", "\"367d\": expected a duration of at most 366 days".into()),
            (
                "a=1 -> 0; after 366d; ^after 1s",
                "the case takes more than 366 days: shorten its times".into(),
            ),
            (
                "a=1 -> 0; 10 at once -> pass; ^12th -> delay",
                "\"12th\": this is request 11 of the case".into(),
            ),
            (
                "a=1 -> 0; ^1000001 at once -> pass",
                "\"1000001\": expected a number of requests from 1 to 1000000, like 10".into(),
            ),
            (
                "a=1 -> 0; ^99999999999 done",
                "\"99999999999\": expected a number of requests from 1 to 1000000, like 10".into(),
            ),
            (
                "a=1 -> 0; 999999 at once -> pass\nb=1 -> 0\n^2 in 1s -> pass\n???",
                "the file has more than 1000000 requests: use fewer, or split the file".into(),
            ),
            ("a=1 ^b=\"c -> 0", "an unterminated quote: add the closing quote".into()),
            ("a=1 -> 0^\0", "a control character, \\u{0}: remove it".into()),
        ] {
            assert_eq!(at(marked), fault);
        }
        assert_eq!(errors(b"caf\xc3\xa9=\xff -> 0"), ["1:6: not UTF-8: save the file as UTF-8"]);
    }

    /// Those of a step count beside those of its case.
    #[test]
    fn a_request_has_at_most_32_fields() {
        let fields = |from: usize, to: usize| (from..to).map(|n| format!("f{n}=1 ")).collect::<String>();
        let case = fields(0, 32) + "-> 0; ";
        assert!(Suite::parse((case.clone() + "1 at once f0=2 -> pass").as_bytes()).is_ok());
        let most = "a request may have at most 32 fields: give fewer";
        assert_eq!(at(&(case + "^1 at once g=1 -> pass")), most);
        assert_eq!(at(&(fields(0, 32) + "^f32=1 -> 0")), most);
        assert_eq!(at(&(fields(0, 20) + "-> 0; ^1st " + &fields(20, 40) + "-> pass")), most);
    }

    #[test]
    fn one_mistake_does_not_cause_others_and_every_mistake_is_told() {
        let text =
            b"a=1 - 0\n5 at once -> pass\n9th -> pass\nb=1 -> 0\n5 at twice -> pass; 9th -> pass\n\xff\n\
                     3 at once -> 4 pass";
        let places: Vec<String> =
            errors(text).iter().map(|reported| reported.split(": ").next().unwrap().to_owned()).collect();
        assert_eq!(places, ["1:5", "5:6", "6:1", "7:14"]);
    }

    #[test]
    fn a_file_has_its_limits() {
        assert_eq!(errors(b""), ["expected a case, like `source=192.0.2.1 -> 3001`"]);
        assert_eq!(errors(b"# a=1 -> 0\n\n"), errors(b""));
        assert_eq!(errors(&b"#".repeat(FILE_BYTES_MAX + 1)), ["the file exceeds 4194304 bytes: split it"]);
        let long = b"#".repeat(LINE_BYTES_MAX + 1);
        assert_eq!(errors(&long), ["1:1: the line is longer than 16384 bytes: shorten it"]);
        let cases = "a=1 -> 0\n".repeat(CASES_MAX);
        assert_eq!(Suite::parse(cases.as_bytes()).unwrap().cases.len(), CASES_MAX);
        assert_eq!(
            errors((cases + "b=1 -> 0; c=1 -> 0").as_bytes()),
            ["10001:1: the file has over 10000 cases: split it"]
        );
        assert_eq!(Suite::parse(&b"\n?".repeat(1_000)).unwrap_err().count, 1_000);
    }

    /// Sound statements. A request of a number comes after its case, where that number is 1.
    fn statements() -> impl Strategy<Value = String> {
        let step = prop_oneof![
            "[1-9]0 at once( cost=[0-9])? -> (pass|delay|deny 3s|1 pass, 8 deny 1d, delay 1ms\\.\\.2s)",
            "[1-9] in [1-9](ms|s|m) -> (pass|deny|delay 6ms\\.\\.9ms)",
            "after [1-9](us|s|h|d)",
            "([1-9] )?done",
        ];
        let fields = "[a-c]{1,2}=([a-z.]{0,4}|\"[ -!#-\\[\\]-~é\t]{0,9}\") (d=[!-+\\--:<-~&&[^\"]]{0,9} )?";
        let slos = "-> ([0-9]{1,4}(, ?[0-9]{4})?|unlimited|refused)(; 1st -> (pass|delay|deny))?";
        let case = (fields, slos).prop_map(|(fields, slos)| fields + &slos);
        prop_oneof![3 => step, 1 => case]
    }

    proptest! {
        #[test]
        fn a_suite_reads_back_as_it_is_written(
            all in prop::collection::vec((statements(), "(;|\n|\r\n| # x\n)[ \t]{0,2}"), 0..12),
        ) {
            let text: String = all.into_iter().map(|(statement, end)| statement + &end).collect();
            let written = plain(&format!("a=1 -> 0\n{text}"));
            let fields = |text: &str| {
                let cases = Suite::parse(text.as_bytes()).unwrap().cases;
                cases.into_iter().map(|case| case.fields).collect::<Vec<_>>()
            };
            prop_assert_eq!(fields(&written), fields(&format!("a=1 -> 0\n{text}")));
            prop_assert_eq!(plain(&written), written);
        }

        #[test]
        fn any_words_are_cases_or_mistakes(
            words in prop::collection::vec(
                prop::sample::select(vec![
                    "source=192.0.2.66", "website=", "=", "->", " -> ", "3001", "pass", "deny", "delay 20ms", "10 at once",
                    "10 pass", "11th", "every 1s", "then", ";", ":", "\n", "\n", "#", " ", "  ", "0", "1e9", "é",
                ]),
                0..40,
            ),
        ) {
            match Suite::parse(words.concat().as_bytes()) {
                Ok(suite) => prop_assert!(!suite.cases.is_empty()),
                Err(errors) => prop_assert!(errors.count > 0 && !errors.listed[0].to_string().is_empty()),
            }
        }
    }
}
