//! Answers of the Runtime API, produced in pieces.

use std::fmt::Write;
use std::str::FromStr;
use std::time::Duration;

use crate::observe::status::{Column, Condition, FILTER_MAX, StatusRow, TABLE, header, operator};
use slowlane_core::base::{Key, Shown, Timestamp};
use slowlane_core::table::{Cursor, Entry, Page};
use slowlane_core::throttle::Throttle;

/// The length in bytes at which a piece ends, after a whole page of rows.
pub const PIECE_BYTES: usize = 8 * 1024;

/// The maximum number of pages that one piece scans, even if the filter matches no row.
const PAGES_MAX: usize = 16;

/// The maximum number of words in a command, as in HAProxy.
const WORDS_MAX: usize = 64;

/// An answer in progress.
#[derive(Default)]
pub struct RuntimeAnswer {
    /// The beginning of the answer.
    text: String,
    /// Produces the remaining pieces. `None` if `text` is the whole answer.
    rest: Option<Rest>,
    pub is_refusal: bool,
    /// Whether the command ends the connection.
    pub is_end: bool,
}

/// Appends the next piece of an answer; returns false if the answer is complete.
type Rest = Box<dyn FnMut(&Throttle, Timestamp, &mut String) -> bool + Send>;

/// Executes a command, or begins to, and returns its answer. An error is an answer, too, in HAProxy's words if HAProxy
/// has the same error.
///
/// ```
/// # use {slowlane_core::{base::Timestamp, policy::Policy, table::Sizing, throttle::Throttle}, std::time::Duration};
/// use slowlane::server::runtime_api::{answer, commands};
/// let sizing = Sizing { entries_max: 10, expire: Duration::from_secs(30) };
/// let (throttle, now) = (Throttle::new(Policy::builtin(), sizing, 0), Timestamp::from_millis(1));
/// let mut text = String::new();
/// let goes_on = answer(&commands(b"show table other")[0], &throttle, now).more(&throttle, now, &mut text);
/// assert_eq!((goes_on, text.as_str()), (false, "No such table\n"));
/// ```
pub fn answer(words: &[String], throttle: &Throttle, now: Timestamp) -> RuntimeAnswer {
    carry_out(words, throttle, now).unwrap_or_else(RuntimeAnswer::refusal)
}

fn carry_out(words: &[String], throttle: &Throttle, now: Timestamp) -> Result<RuntimeAnswer, String> {
    if words.len() > WORDS_MAX {
        return Err(format!("Too many arguments. Commands must have at most {WORDS_MAX} arguments.\n"));
    }
    let third = word(words, 2);
    Ok(match (word(words, 0), word(words, 1)) {
        ("", _) => RuntimeAnswer::default(),
        ("help", _) => RuntimeAnswer::of(format!(
            "The following commands are valid at this level:\n{}",
            help(&words[1..])
        )),
        ("quit", _) => RuntimeAnswer { is_end: true, ..RuntimeAnswer::default() },
        ("show", "table") if third.is_empty() => RuntimeAnswer::of(header(throttle.table())),
        ("show", "table") => match key(words)? {
            Some(key) => RuntimeAnswer::of(row(key, throttle, now)),
            None => {
                let filter = filter(words, EXPECTED_SHOW)?;
                let rest = rest(move |from, throttle, now, out| rows(from, &filter, throttle, now, out));
                RuntimeAnswer { text: header(throttle.table()), rest, ..RuntimeAnswer::default() }
            }
        },
        ("clear", "table") if third.is_empty() => return Err(EXPECTED_CLEAR.into()),
        ("clear", "table") => match key(words)? {
            Some(key) => {
                throttle.forget(key, |_| true);
                RuntimeAnswer::default()
            }
            None => {
                let filter = filter(words, EXPECTED_CLEAR)?;
                let rest = rest(move |from, throttle, now, _| clear(from, &filter, throttle, now));
                RuntimeAnswer { rest, ..RuntimeAnswer::default() }
            }
        },
        ("set", "table") => {
            let (key, values) = values(words)?;
            set(key, &values, throttle, now);
            RuntimeAnswer::default()
        }
        ("show" | "get", "map") => return Err(NO_MAPS.into()),
        ("show", "info" | "version") => return Err(NO_INFO.into()),
        ("prompt", _) => return Err(NO_PROMPT.into()),
        (word, _) => return Err(unknown(word)),
    })
}

/// Repeats a step, each time from the cursor that the previous step returned.
fn rest(
    mut step: impl FnMut(Cursor, &Throttle, Timestamp, &mut String) -> Option<Cursor> + Send + 'static,
) -> Option<Rest> {
    let mut next = Some(Cursor::default());
    Some(Box::new(move |throttle, now, out| {
        next = next.take().and_then(|from| step(from, throttle, now, out));
        next.is_some()
    }))
}

impl RuntimeAnswer {
    /// The answer to a refused command.
    pub fn refusal(text: String) -> RuntimeAnswer {
        RuntimeAnswer { is_refusal: true, ..RuntimeAnswer::of(text) }
    }

    fn of(text: String) -> RuntimeAnswer {
        RuntimeAnswer { text, ..RuntimeAnswer::default() }
    }

    /// Appends the next piece, which may be empty; returns false if the answer is complete.
    pub fn more(&mut self, throttle: &Throttle, now: Timestamp, out: &mut String) -> bool {
        out.push_str(&std::mem::take(&mut self.text));
        self.rest.as_mut().is_some_and(|rest| rest(throttle, now, out))
    }
}

/// `show table <table> key <key>`. As in HAProxy, no header is shown without a row.
fn row(key: Key, throttle: &Throttle, now: Timestamp) -> String {
    match StatusRow::of(throttle, key, now) {
        Some(row) => format!("{}{row}\n", header(throttle.table())),
        None => String::new(),
    }
}

fn rows(
    from: Cursor,
    filter: &[Condition],
    throttle: &Throttle,
    now: Timestamp,
    out: &mut String,
) -> Option<Cursor> {
    let (mut page, mut next) = (Page::new(), Some(from));
    for _ in 0..PAGES_MAX {
        next = throttle.table().page(next?, now, &mut page);
        for found in page.iter().filter(|found| passes(filter, &found.entry, now)) {
            writeln!(out, "{}", StatusRow { found: *found, now }).expect("writing to a string cannot fail");
        }
        if out.len() >= PIECE_BYTES {
            break;
        }
    }
    next
}

fn passes(filter: &[Condition], entry: &Entry, now: Timestamp) -> bool {
    filter.iter().all(|condition| condition.holds(entry, now))
}

fn clear(from: Cursor, filter: &[Condition], throttle: &Throttle, now: Timestamp) -> Option<Cursor> {
    let mut page = Page::new();
    let next = throttle.table().page(from, now, &mut page);
    for found in page.iter().filter(|found| passes(filter, &found.entry, now)) {
        // The row may have changed since it was copied, so the filter is applied again.
        throttle.forget(found.key, |entry| passes(filter, entry, now));
    }
    next
}

/// `set table`. As in HAProxy, the row then expires no sooner than before, and no sooner than `expire` from now.
fn set(key: Key, values: &[(Column, u32)], throttle: &Throttle, now: Timestamp) {
    let left = throttle.table().row(key, now).map_or(Duration::ZERO, |found| found.left);
    throttle.table().with(key, now, left, |entry| {
        values.iter().for_each(|&(column, value)| column.write(entry, value, now));
    });
}

const EXPECTED_KEY: &str = "Require a key of sixteen hex digits\n";

const EXPECTED_VALUE: &str = "Require a valid integer value to store\n";

const EXPECTED_SHOW: &str =
    "Optional argument only supports \"data.<store_data_type>\" <operator> <value> or key <key>\n";

const EXPECTED_SET: &str = "Required arguments: <table> key <key> [data.<store_data_type> <value>]*\n";

const EXPECTED_CLEAR: &str =
    "Required arguments: <table> \"data.<store_data_type>\" <operator> <value> or <table> key <key>\n";

/// The word at an index, or an empty word.
fn word(words: &[String], place: usize) -> &str {
    words.get(place).map_or("", String::as_str)
}

/// The key in a command like `show table <table> key <key>`, or `None` if the words name no key.
fn key(words: &[String]) -> Result<Option<Key>, String> {
    match (word(words, 2), word(words, 3), word(words, 4)) {
        (TABLE, "key", "") => Err("Key value expected\n".into()),
        (TABLE, "key", key) => Key::from_hex(key).ok_or_else(|| EXPECTED_KEY.into()).map(Some),
        (TABLE, ..) => Ok(None),
        _ => Err("No such table\n".into()),
    }
}

const DATA: &str = "data.";

/// The conditions in a command like `show table <table> [data.<column> <operator> <value>]*`.
fn filter(words: &[String], expected: &str) -> Result<Vec<Condition>, String> {
    let words = match word(words, 3) {
        "" => &[],
        word if word.starts_with(DATA) => &words[3..],
        _ => return Err(expected.into()),
    };
    if words.len() > 3 * FILTER_MAX {
        return Err(format!("Detected extra data in filter: it takes {FILTER_MAX} conditions\n"));
    }
    let conditions = words.chunks(3).enumerate();
    let conditions = conditions.map(|(place, words)| {
        condition(words).map_err(|error| format!("Filter entry #{}: {error}\n", place + 1))
    });
    conditions.collect()
}

fn condition(words: &[String]) -> Result<Condition, String> {
    let name = word(words, 0).strip_prefix(DATA).ok_or("Require \"data.<store_data_type>\"")?;
    let column = Column::named(name)?;
    let orderings =
        operator(word(words, 1)).ok_or(r#"Require and operator among "eq", "ne", "le", "ge", "lt", "gt""#)?;
    let value = number(word(words, 2)).ok_or("Require a valid integer value to compare against")?;
    Ok(Condition { column, orderings, value })
}

/// Reads a number. Like HAProxy, refuses a plus sign.
fn number<N: FromStr>(word: &str) -> Option<N> {
    word.parse().ok().filter(|_| !word.starts_with('+'))
}

/// The key and the values in `set table <table> key <key> [data.<column> <value>]*`.
fn values(words: &[String]) -> Result<(Key, Vec<(Column, u32)>), String> {
    if word(words, 2).is_empty() {
        return Err(EXPECTED_SET.into());
    }
    let key = key(words)?.ok_or(EXPECTED_SET)?;
    let pairs = words[5..].chunks(2).map(|pair| {
        let name = pair[0].strip_prefix(DATA).ok_or("\"data.<type>\" followed by a value expected\n")?;
        let column = Column::named(name).map_err(|error| format!("{error}\n"))?;
        let value = pair.get(1).and_then(|value| number(value)).ok_or(EXPECTED_VALUE)?;
        Ok((column, value))
    });
    Ok((key, pairs.collect::<Result<_, String>>()?))
}

/// The usage and the purpose of each command, in HAProxy's layout.
const COMMANDS: &[(&str, &str)] = &[
    ("clear table <table> [<filter>]*", "remove entries from the table (filter: data/key)"),
    ("set table <table> key <k> [data.* <v>]*", "update or create a table entry's columns"),
    (
        "show table [<table> [<filter>]*]",
        "report table usage or dump the table's contents (filter: data/key)",
    ),
    ("help [<command>]", "list matching or all commands"),
    ("quit", "disconnect"),
];

/// The help for the commands that begin with these words, and for `help` and `quit`.
fn help(words: &[String]) -> String {
    let wanted = words.join(" ");
    let always = ["help", "quit"];
    let is_wanted =
        |usage: &str| usage.starts_with(&wanted) || always.iter().any(|word| usage.starts_with(word));
    let lines = COMMANDS.iter().filter(|(usage, _)| is_wanted(usage));
    lines.map(|(usage, what)| format!("  {usage:<40}: {what}\n")).collect()
}

/// The errors for HAProxy commands that slowlane does not have.
const NO_MAPS: &str =
    "slowlane has no map commands: `slowlane why FIELD=VALUE` names the map line that matches.\n";
const NO_INFO: &str = "slowlane has no such command: `slowlane status` prints its version and its state.\n";
const NO_PROMPT: &str =
    "slowlane has no prompt: a connection takes one line of commands, separated by `;`.\n";

/// The maximum number of characters of an unknown word that are quoted in an error.
const QUOTED_CHARS_MAX: usize = 80;

/// The error for an unknown command.
fn unknown(word: &str) -> String {
    let quoted: String = word.chars().take(QUOTED_CHARS_MAX).collect();
    let intro = "Please enter one of the following commands only:";
    format!("Unknown command: '{}'. {intro}\n{}", Shown(quoted.as_bytes()), help(&[]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::server::runtime_api::words::commands;
    use slowlane_core::policy::Policy;
    use slowlane_core::table::Sizing;

    const NOW: Timestamp = Timestamp::from_millis(60_000);

    /// A throttle with a full table.
    fn full(rows: u32) -> Throttle {
        let sizing = Sizing { entries_max: rows, expire: Duration::from_secs(30) };
        let throttle = Throttle::new(Policy::builtin(), sizing, 0);
        for bits in 1..=u64::from(rows) {
            throttle
                .table()
                .with(Key::from_bits(bits), NOW, Duration::ZERO, |entry| entry.gpt0 = bits as u32);
        }
        throttle
    }

    /// The answers to a line, each without its final empty line.
    fn reported(throttle: &Throttle, line: &[u8]) -> Vec<String> {
        let answered = |words: &Vec<String>| {
            let mut answer = answer(words, throttle, NOW);
            let mut reported = String::new();
            for _ in 0..100 {
                if !answer.more(throttle, NOW, &mut reported) {
                    return reported;
                }
            }
            panic!("an endless answer: {reported:.200}");
        };
        commands(line).iter().map(answered).collect()
    }

    const WORDS: &str = "(show|set|clear|get|help|prompt|quit|table|map|info|version|slowlane|key|data\\.gpt0|data\\.gpc0_rate|\
        gt|le|ne|#0|#1|slo\\.map|0|7|-1|4294967295|0000000000000007|;|\\\\|[ -~é\u{0}-\u{1f}\u{9b}\u{202e}]{0,9})";

    proptest! {
        /// An answer contains no empty line before its end, so clients can find its end.
        #[test]
        fn answers_to_any_line_are_complete(
            bytes in prop::collection::vec(any::<u8>(), 0..200), words in prop::collection::vec(WORDS, 0..12),
        ) {
            let throttle = full(100);
            for line in [&bytes[..], words.join(" ").as_bytes()] {
                for reported in reported(&throttle, line) {
                    prop_assert!(reported.is_empty() || reported.ends_with('\n'), "{:?}", reported);
                    prop_assert!(!reported.starts_with('\n') && !reported.contains("\n\n"), "{:?}", reported);
                    prop_assert!(!reported.chars().any(|letter| letter.is_control() && letter != '\n'), "{:?}", reported);
                }
                prop_assert!(throttle.usage().entries <= 100);
            }
        }
    }

    #[test]
    fn a_filter_selects_the_rows_to_show_and_clear() {
        let throttle = full(1_000);
        let rows = |line: &str| {
            reported(&throttle, line.as_bytes())[0].lines().filter(|row| row.contains("key=")).count()
        };
        let live = throttle.usage().entries as usize;
        assert_eq!(rows("show table slowlane"), live);
        let found = rows("show table slowlane data.gpt0 gt 300 data.gpt0 le 500");
        assert!((1..=200).contains(&found));
        assert_eq!(reported(&throttle, b"clear table slowlane data.gpt0 gt 300 data.gpt0 le 500"), [""]);
        assert_eq!(rows("show table slowlane"), live - found);
        assert_eq!(
            reported(&throttle, b"clear table slowlane;show table"),
            ["", "# table: slowlane, type: binary, size:1000, used:0\n",]
        );
    }

    /// The error of the first command of a line.
    fn refusal(line: &str) -> Option<String> {
        let answer = answer(&commands(line.as_bytes())[0], &full(10), NOW);
        answer.is_refusal.then_some(answer.text)
    }

    #[test]
    fn errors_are_in_haproxys_words() {
        for (line, reported) in [
            (
                "show table slowlane data.gpt0",
                r#"Filter entry #1: Require and operator among "eq", "ne", "le", "ge", "lt", "gt""#,
            ),
            (
                "show table slowlane data.gpt0 xx 3",
                r#"Filter entry #1: Require and operator among "eq", "ne", "le", "ge", "lt", "gt""#,
            ),
            (
                "show table slowlane data.gpt0 gt",
                "Filter entry #1: Require a valid integer value to compare against",
            ),
            (
                "show table slowlane data.gpt0 gt 3x",
                "Filter entry #1: Require a valid integer value to compare against",
            ),
            ("show table slowlane data.gpt0 gt 3 data.foo gt 3", "Filter entry #2: Unknown data type"),
            (
                "show table slowlane data.http_req_rate gt 3",
                "Filter entry #1: Data type not stored in this table",
            ),
            (
                "show table slowlane data.gpt0 gt +3",
                "Filter entry #1: Require a valid integer value to compare against",
            ),
            ("show table slowlane key", "Key value expected"),
            ("show table slowlane key 1", "Require a key of sixteen hex digits"),
            ("show table slowlane foo", EXPECTED_SHOW.trim_end()),
            ("clear table", EXPECTED_CLEAR.trim_end()),
            ("clear table nope", "No such table"),
            ("clear table slowlane foo", EXPECTED_CLEAR.trim_end()),
            ("set table", "Required arguments: <table> key <key> [data.<store_data_type> <value>]*"),
            (
                "set table slowlane keyy a",
                "Required arguments: <table> key <key> [data.<store_data_type> <value>]*",
            ),
            (
                "set table slowlane key 0000000000000001 gpt0 5",
                "\"data.<type>\" followed by a value expected",
            ),
            ("set table slowlane key 0000000000000001 data.gpt0", "Require a valid integer value to store"),
            (
                "set table slowlane key 0000000000000001 data.gpt0 -1",
                "Require a valid integer value to store",
            ),
            (
                "set table slowlane key 0000000000000001 data.gpt0 4294967296",
                "Require a valid integer value to store",
            ),
            (
                "set table slowlane key 0000000000000001 data.gpt0 +1",
                "Require a valid integer value to store",
            ),
            ("get map x", NO_MAPS.trim_end()),
            ("show map", NO_MAPS.trim_end()),
            ("show info", NO_INFO.trim_end()),
            ("prompt i", NO_PROMPT.trim_end()),
        ] {
            assert_eq!(refusal(line), Some(format!("{reported}\n")), "{line}");
        }
        assert!(
            refusal("bogus\u{1b}[31m").unwrap().starts_with(r"Unknown command: 'bogus\u{1b}[31m'. Please")
        );
        assert_eq!(
            refusal("show table slowlane data.gpt0 gt 0 data.gpt0 gt 0 data.gpt0 gt 0 data.gpt0 gt 0"),
            None
        );
        let set = "set table slowlane key 0000000000000001".to_owned();
        assert_eq!(refusal(&(set.clone() + &" data.gpt0 1".repeat(29))), None, "63 words");
        let reported = "Too many arguments. Commands must have at most 64 arguments.\n";
        assert_eq!(refusal(&(set + &" data.gpt0 1".repeat(30))), Some(reported.into()));
        let five = "show table slowlane".to_owned() + &" data.gpt0 gt 0".repeat(5);
        assert!(refusal(&five).unwrap().starts_with("Detected extra data in filter"));
    }

    #[test]
    fn words_are_read_as_commands() {
        let throttle = full(10);
        let reported = |line: &str| reported(&throttle, line.as_bytes()).concat();
        let row = "show table slowlane key 00000000000000AB";
        assert_eq!(reported(row), "");
        assert_eq!(reported("set table slowlane key 00000000000000AB data.gpt0 5 data.gpc0_rate 9"), "");
        let shown = reported(row);
        assert!(shown.contains("key=00000000000000AB ") && shown.contains("gpt0=5"), "{shown}");
        assert!(shown.contains("gpc0_rate(1000)=9"), "{shown}");
        assert!(reported("show table slowlane").contains(&shown[shown.find("key=").unwrap()..]));
        assert_eq!(reported("clear table slowlane key 00000000000000ab"), "");
        assert_eq!(reported(row), "");
        assert_eq!(reported(" "), "");
        let is_end = |line: &str| answer(&commands(line.as_bytes())[0], &throttle, NOW).is_end;
        assert_eq!([is_end("quit"), is_end("help")], [true, false]);
    }

    proptest! {
        #[test]
        fn any_words_are_a_command_or_an_error(line in "(show|set|clear|get|help|prompt|[a-z]{0,9})( (table|map|info|slowlane|key|data.gpt0|gt|[ -~é\u{0}-\u{1f}]{0,16})){0,9}") {
            if let Some(reported) = refusal(&line) {
                prop_assert!(reported.ends_with('\n') && !reported.chars().any(|c| c.is_control() && c != '\n'), "{:?}", reported);
            }
        }
    }
}
