//! Answers of the Runtime API, produced in pieces.

use std::fmt::Write;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::observe::status::{Column, Filter, Row, header};
use crate::server::runtime_api::command::{Command, Which, help};
use slowlane_core::base::key::Key;
use slowlane_core::base::shown::Shown;
use slowlane_core::base::time::Timestamp;
use slowlane_core::policy::{MapView, Policy};
use slowlane_core::table::{Cursor, Page};
use slowlane_core::throttle::Throttle;

/// The approximate length of a piece in bytes, a little less than a page of rows.
pub const PIECE_BYTES: usize = 8 * 1024;

/// The most pages that one piece scans, even if the filter matches no row.
const PAGES_MAX: usize = 16;

/// Facts about the process for `show info`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Info {
    pub pid: u32,
    pub threads: usize,
    pub uptime: Duration,
    pub connections: i64,
    pub connections_total: u64,
    pub requests_total: u64,
    pub is_ending: bool,
}

/// An answer in progress.
#[derive(Debug)]
pub struct Answer {
    /// The start of the answer.
    text: String,
    rest: Rest,
    is_refusal: bool,
}

/// The rest of the answer, still to be produced.
#[derive(Debug)]
enum Rest {
    Nothing,
    Rows {
        next: Cursor,
        filter: Filter,
    },
    Clear {
        next: Cursor,
        filter: Filter,
    },
    /// The policy is held weakly: a slow reader must not keep an old policy alive.
    Map {
        policy: Weak<Policy>,
        number: usize,
        next: usize,
    },
}

const NO_MAP: &str = "Unknown map identifier. Please use #<id> or <file>.\n";

impl Answer {
    /// Carries out a command, or starts to, or returns its error as the answer.
    pub fn to(command: Result<Command, String>, throttle: &Throttle, info: &Info, now: Timestamp) -> Answer {
        let table = throttle.table();
        let command = match command {
            Ok(command) => command,
            Err(reported) => return Answer::refusal(reported),
        };
        match command {
            Command::Nothing | Command::Prompt(_) | Command::Quit => Answer::of(String::new()),
            Command::Help(words) => {
                Answer::of(format!("The following commands are valid at this level:\n{}", help(&words)))
            }
            Command::ShowTables => Answer::of(header(table)),
            Command::ShowTable(Which::Of(key)) => Answer::of(row(throttle, key, now)),
            Command::ShowTable(Which::All(filter)) => {
                Answer::and(header(table), Rest::Rows { next: Cursor::default(), filter })
            }
            Command::SetTable(key, values) => {
                set(throttle, key, &values, now);
                Answer::of(String::new())
            }
            Command::ClearTable(Which::Of(key)) => {
                throttle.forget(key, |_| true);
                Answer::of(String::new())
            }
            Command::ClearTable(Which::All(filter)) => {
                Answer::and(String::new(), Rest::Clear { next: Cursor::default(), filter })
            }
            Command::ShowMaps => Answer::of(maps(&throttle.policy())),
            Command::ShowMap(name) => show_map(&throttle.policy(), &name),
            Command::GetMap(name, value) => match map(&throttle.policy(), &name) {
                Some(map) => Answer::of(get(&map, &value)),
                None => Answer::refusal(NO_MAP.into()),
            },
            Command::ShowInfo => Answer::of(info.text()),
            Command::ShowVersion => Answer::of(format!("{VERSION}\n")),
        }
    }

    /// An error as an answer.
    pub fn refusal(text: String) -> Answer {
        Answer { is_refusal: true, ..Answer::of(text) }
    }

    pub fn is_refusal(&self) -> bool {
        self.is_refusal
    }

    fn of(text: String) -> Answer {
        Answer::and(text, Rest::Nothing)
    }

    fn and(text: String, rest: Rest) -> Answer {
        Answer { text, rest, is_refusal: false }
    }

    /// Appends the next piece, which may be empty; false if the answer is complete.
    pub fn more(&mut self, throttle: &Throttle, now: Timestamp, out: &mut String) -> bool {
        out.push_str(&std::mem::take(&mut self.text));
        let rest = std::mem::replace(&mut self.rest, Rest::Nothing);
        self.rest = match rest {
            Rest::Nothing => Rest::Nothing,
            Rest::Rows { next, filter } => match rows(throttle, next, &filter, now, out) {
                Some(next) => Rest::Rows { next, filter },
                None => Rest::Nothing,
            },
            Rest::Clear { next, filter } => match clear(throttle, next, &filter, now) {
                Some(next) => Rest::Clear { next, filter },
                None => Rest::Nothing,
            },
            Rest::Map { policy, number, next } => match lines(&policy, number, next, out) {
                Some(next) => Rest::Map { policy, number, next },
                None => Rest::Nothing,
            },
        };
        !matches!(self.rest, Rest::Nothing)
    }
}

/// `show table <table> key <key>`. Like HAProxy, it shows no header without a row.
fn row(throttle: &Throttle, key: Key, now: Timestamp) -> String {
    match Row::of(throttle, key, now) {
        Some(row) => format!("{}{row}\n", header(throttle.table())),
        None => String::new(),
    }
}

fn rows(
    throttle: &Throttle,
    from: Cursor,
    filter: &Filter,
    now: Timestamp,
    out: &mut String,
) -> Option<Cursor> {
    let (mut page, mut next) = (Page::new(), Some(from));
    for _ in 0..PAGES_MAX {
        next = throttle.table().page(next?, now, &mut page);
        for found in page.iter().filter(|found| filter.passes(&found.entry, now)) {
            writeln!(out, "{}", Row { found: *found, now }).expect("a string takes all that is written");
        }
        if out.len() >= PIECE_BYTES {
            break;
        }
    }
    next
}

fn clear(throttle: &Throttle, from: Cursor, filter: &Filter, now: Timestamp) -> Option<Cursor> {
    let mut page = Page::new();
    let next = throttle.table().page(from, now, &mut page);
    for found in page.iter().filter(|found| filter.passes(&found.entry, now)) {
        // The row may have changed since it was copied, so the filter is applied again.
        throttle.forget(found.key, |entry| filter.passes(entry, now));
    }
    next
}

/// `set table`. As in HAProxy, the row expires no sooner than before, and no sooner than after the table's `expire`.
fn set(throttle: &Throttle, key: Key, values: &[(Column, u32)], now: Timestamp) {
    let left = throttle.table().row(key, now).map_or(Duration::ZERO, |found| found.left);
    throttle.table().with(key, now, left, |entry| {
        values.iter().for_each(|&(column, value)| column.write(entry, value, now));
    });
}

/// Finds a map by `#1`, by its path in `show map`, or by the name of its file.
fn map<'p>(policy: &'p Policy, name: &str) -> Option<MapView<'p>> {
    let is_it = |map: &MapView<'_>| match name.strip_prefix('#') {
        Some(number) => number.parse() == Ok(map.number),
        None => map.path.as_os_str() == name || map.path.file_name().is_some_and(|file| file == name),
    };
    policy.maps().find(is_it)
}

fn maps(policy: &Policy) -> String {
    let line = |map: MapView<'_>| {
        let path = Shown(map.path.as_os_str().as_encoded_bytes());
        let used_by = match map.lookup {
            Some(lookup) => format!("lookup {} ({})", Shown(lookup.as_bytes()), map.method),
            None => "SLOs".into(),
        };
        format!(
            "{} ({path}) pattern loaded from file '{path}' used by {used_by}. curr_ver=0 next_ver=0 entry_cnt={}\n",
            map.number, map.entries
        )
    };
    "# id (file) description\n".to_owned() + &policy.maps().map(line).collect::<String>()
}

fn show_map(policy: &Arc<Policy>, name: &str) -> Answer {
    match map(policy, name) {
        Some(map) => {
            let policy = Arc::downgrade(policy);
            Answer::and(String::new(), Rest::Map { policy, number: map.number, next: 0 })
        }
        None => Answer::refusal(NO_MAP.into()),
    }
}

/// Lines of `show map`. In place of HAProxy's memory address, it shows the offset of the line in its file.
fn lines(policy: &Weak<Policy>, number: usize, from: usize, out: &mut String) -> Option<usize> {
    let Some(policy) = policy.upgrade() else {
        out.push_str("# the policy has been reloaded meanwhile: repeat the command\n");
        return None;
    };
    let map = policy.maps().nth(number)?;
    for (line, next) in map.lines_from(from) {
        writeln!(out, "{:#x} {} {}", line.at, Shown(line.key), Shown(line.value))
            .expect("a string takes all that is written");
        if out.len() >= PIECE_BYTES {
            return Some(next);
        }
    }
    None
}

fn get(map: &MapView<'_>, value: &str) -> String {
    let found = map.find(value.as_bytes());
    let method = map.method;
    match found {
        None => format!("type={method}, case=sensitive, found=no\n"),
        Some(line) => {
            let idx = if matches!(method, "str" | "ip" | "beg") { "tree" } else { "list" };
            let (key, value) = (Shown(line.key), Shown(line.value));
            format!(
                "type={method}, case=sensitive, found=yes, idx={idx}, key=\"{key}\", value=\"{value}\", type=\"str\"\n"
            )
        }
    }
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

impl Info {
    /// The lines of HAProxy's `show info` that apply to slowlane.
    fn text(&self) -> String {
        let uptime_s = self.uptime.as_secs();
        let (days, hours, minutes) = (uptime_s / 86_400, uptime_s / 3_600 % 24, uptime_s / 60 % 60);
        format!(
            "Name: slowlane\nVersion: {VERSION}\nNbthread: {}\nNbproc: 1\nProcess_num: 1\nPid: {}\n\
             Uptime: {days}d {hours}h{minutes:02}m{:02}s\nUptime_sec: {uptime_s}\n\
             CurrConns: {}\nCumConns: {}\nCumReq: {}\nStopping: {}\n",
            self.threads,
            self.pid,
            uptime_s % 60,
            self.connections,
            self.connections_total,
            self.requests_total,
            u8::from(self.is_ending),
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::server::runtime_api::words::commands;
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
        let answer = |words: &_| {
            let mut answer = Answer::to(Command::parse(words), throttle, &Info::default(), NOW);
            let mut reported = String::new();
            for _ in 0..100 {
                if !answer.more(throttle, NOW, &mut reported) {
                    return reported;
                }
            }
            panic!("an endless answer: {reported:.200}");
        };
        commands(line).iter().map(answer).collect()
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
}
