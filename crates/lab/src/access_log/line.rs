//! Takes lines apart by their format, as far as their values are wanted.
//!
//! ```text
//! format   %ci : %cp  [ %tr ]␣ … %{+Q}r          wanted: %ci, %tr, %r
//! line     192.0.2.7:4711 [06/Feb/2009:12:14:14.655] … "GET / HTTP/1.1"
//!          ╰─slot 0─╯      ╰────────slot 1─────────╯    ╰───slot 2───╯
//! ```
//! A value ends at the first occurrence of the literal after it, so nothing is copied and nothing is tried twice.

use memchr::memchr;

use crate::access_log::before::before;
use crate::access_log::format::Format;
use crate::access_log::piece::{Item, Piece};
use crate::access_log::slots::Slots;
use crate::access_log::syslog::behind_prefix;

/// Why a line does not fit its format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Misfit {
    /// The literal before this step's item is missing.
    Before(usize),
    /// The literal after this step's item is missing.
    Within(usize),
    /// This step's item is not an address.
    Address(usize),
    /// The line goes on after the last item.
    After,
}

impl Misfit {
    /// How far the line fits.
    fn reached(self) -> usize {
        match self {
            Misfit::Before(step) | Misfit::Within(step) | Misfit::Address(step) => step,
            Misfit::After => usize::MAX,
        }
    }
}

/// A format, compiled to take lines apart.
#[derive(Clone, Debug)]
pub(super) struct Steps {
    steps: Vec<Step>,
    moves: Vec<Move>,
    /// The literal after the last item.
    tail: Vec<u8>,
}

/// One pass over a part of the line.
#[derive(Clone, Debug)]
enum Move {
    Step(usize),
    /// Unwanted items from this step on, each by the byte that ends it.
    Skip(usize, Vec<u8>),
}

/// A literal and the item after it.
#[derive(Clone, Debug)]
struct Step {
    before: Vec<u8>,
    shape: Shape,
    /// The literal after the item; empty at the end of the format.
    end: Vec<u8>,
    slot: Option<usize>,
    noun: String,
    /// A line that is cut off within this item is still useful.
    may_be_cut: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Text,
    /// Quoted, except for numbers.
    Quoted,
    /// IPv6 addresses contain colons, and a colon may follow them.
    Address,
    /// `{a|b}`; if there are none, the space is missing too.
    Captures,
}

impl Steps {
    /// `slot` returns the slot of a wanted item.
    pub(super) fn new(format: &Format, mut slot: impl FnMut(&Item) -> Option<usize>) -> Steps {
        let mut steps: Vec<Step> = Vec::new();
        let mut literal = Vec::new();
        for piece in &format.pieces {
            match piece {
                Piece::Literal(text) => {
                    literal = text.clone();
                    if let Some(step) = steps.last_mut() {
                        step.end.clone_from(text);
                    }
                }
                Piece::Item(item) => steps.push(Step {
                    before: std::mem::take(&mut literal),
                    shape: shape(item),
                    end: Vec::new(),
                    slot: slot(item),
                    noun: item.noun.clone(),
                    may_be_cut: matches!(item.noun.as_str(), "%r" | "$request"),
                }),
            }
        }
        Steps { moves: moves(&steps), steps, tail: literal }
    }

    /// Drops all steps after the last wanted item.
    pub(super) fn only_wanted(mut self) -> Steps {
        let last = self.steps.iter().rposition(|step| step.slot.is_some());
        self.steps.truncate(last.map_or(0, |last| last + 1));
        self.moves = moves(&self.steps);
        self.tail.clear();
        self
    }

    /// The message for a misfit.
    pub(super) fn tell(&self, misfit: Misfit) -> String {
        let literal = |text: &[u8]| format!("{:?}", String::from_utf8_lossy(text));
        match misfit {
            Misfit::Before(number) => {
                let step = &self.steps[number];
                format!("does not fit the format: no {} before {}", literal(&step.before), step.noun)
            }
            Misfit::Within(number) => {
                let step = &self.steps[number];
                format!("does not fit the format: no {} after {}", literal(&step.end), step.noun)
            }
            Misfit::Address(number) => {
                format!("does not fit the format: {} is not an address", self.steps[number].noun)
            }
            Misfit::After => "does not fit the format: it goes on after the last item".to_owned(),
        }
    }

    /// Fills the slots from a line. `is_whole`: the line must fit to its end, which tells similar formats apart.
    pub(super) fn take_apart<'l>(
        &self,
        line: &'l [u8],
        is_whole: bool,
        slots: &mut Slots<'l>,
    ) -> Result<(), Misfit> {
        let mut at = 0;
        let mut skips_space = false;
        let count = self.steps.len();
        for next_move in &self.moves {
            let (Move::Step(number) | Move::Skip(number, _)) = *next_move;
            let step = &self.steps[number];
            let before = step.before(skips_space);
            // A text ends where this literal was found, so it is there.
            let is_found = number > 0 && self.steps[number - 1].shape == Shape::Text;
            if !is_found && !line[at..].starts_with(before) {
                return Err(Misfit::Before(number));
            }
            at += before.len();
            if let Move::Skip(_, ends) = next_move {
                at = skip(line, at, ends).map_err(|count| Misfit::Within(number + count))?;
                skips_space = false;
                continue;
            }
            let is_last = number + 1 == count;
            let (value, next) = match step.value(line, at) {
                Some(found) => found,
                None if step.may_be_cut && is_last && !is_whole && at < line.len() => {
                    let quote = usize::from(step.shape == Shape::Quoted && line[at] == b'"');
                    (Some(&line[at + quote..]), line.len())
                }
                None if step.shape == Shape::Address => return Err(Misfit::Address(number)),
                None => return Err(Misfit::Within(number)),
            };
            skips_space = step.shape == Shape::Captures && value.is_none();
            if let Some(slot) = step.slot {
                slots[slot] = value;
            }
            at = next;
        }
        match is_whole {
            true if line[at..].trim_ascii_end() != self.tail.trim_ascii_end() => Err(Misfit::After),
            _ => Ok(()),
        }
    }

    /// The same for a line with or without a syslog prefix. `is_prefixed` remembers which the last line was.
    pub(super) fn take_apart_of_syslog<'l>(
        &self,
        line: &'l [u8],
        is_whole: bool,
        is_prefixed: &mut bool,
        slots: &mut Slots<'l>,
    ) -> Result<(), Misfit> {
        let text = |is_prefixed: bool| if is_prefixed { behind_prefix(line) } else { Some(line) };
        let first = text(*is_prefixed).map(|text| self.take_apart(text, is_whole, slots));
        if let Some(Ok(())) = first {
            return Ok(());
        }
        let second = text(!*is_prefixed).map(|text| self.take_apart(text, is_whole, slots));
        if let Some(Ok(())) = second {
            *is_prefixed = !*is_prefixed;
            return Ok(());
        }
        // The misfit that comes later in the line explains more.
        let misfits = [first, second].into_iter().flatten().filter_map(Result::err);
        Err(misfits.max_by_key(|misfit| misfit.reached()).unwrap_or(Misfit::Before(0)))
    }
}

fn moves(steps: &[Step]) -> Vec<Move> {
    let mut moves = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        match (step.skipped_until(), moves.last_mut()) {
            (Some(end), Some(Move::Skip(_, ends))) => ends.push(end),
            (Some(end), _) => moves.push(Move::Skip(number, vec![end])),
            (None, _) => moves.push(Move::Step(number)),
        }
    }
    moves
}

/// Skips an item for each end. Err: the number of ends found.
fn skip(line: &[u8], mut at: usize, ends: &[u8]) -> Result<usize, usize> {
    for (count, &end) in ends.iter().enumerate() {
        let is_first = count == 0;
        // Continue after the end of the previous item.
        at += usize::from(!is_first);
        at += line[at..].iter().position(|&byte| byte == end).ok_or(count)?;
    }
    Ok(at)
}

fn shape(item: &Item) -> Shape {
    match item.noun.as_str() {
        "%ci" | "%fi" | "%bi" | "%si" | "%Bi" | "$remote_addr" => Shape::Address,
        "%hr" | "%hs" => Shape::Captures,
        _ if item.is_quoted => Shape::Quoted,
        _ => Shape::Text,
    }
}

impl Step {
    /// The byte that ends an unwanted item, if a single byte does.
    fn skipped_until(&self) -> Option<u8> {
        let is_text = self.shape == Shape::Text && self.slot.is_none() && !self.may_be_cut;
        self.end.first().copied().filter(|_| is_text && self.end.len() == 1)
    }

    fn before(&self, skips_space: bool) -> &[u8] {
        match self.before.split_first() {
            Some((b' ', others)) if skips_space => others,
            _ => &self.before,
        }
    }

    /// The value that begins here, and where the step ends. None: the end is missing.
    fn value<'l>(&self, line: &'l [u8], at: usize) -> Option<(Option<&'l [u8]>, usize)> {
        match self.shape {
            Shape::Captures => self.captures(line, at),
            Shape::Quoted if line.get(at) == Some(&b'"') => self.quoted(line, at + 1),
            Shape::Address => self.address(line, at),
            Shape::Text | Shape::Quoted => self.text(line, at),
        }
    }

    fn address<'l>(&self, line: &'l [u8], at: usize) -> Option<(Option<&'l [u8]>, usize)> {
        let rest = &line[at..];
        let is_part = |byte: &&u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
        let length = match rest.iter().take_while(is_part).count() {
            // A Unix socket has no address.
            0 if rest.starts_with(b"unix:") => {
                if self.end.starts_with(b":") {
                    4
                } else {
                    5
                }
            }
            0 if rest.starts_with(b"-") => 1,
            0 => return None,
            // The last colon belongs to the port.
            run if self.end.starts_with(b":") => rest[..run].iter().rposition(|&byte| byte == b':')?,
            run => run,
        };
        Some((Some(&rest[..length]), at + length))
    }

    fn text<'l>(&self, line: &'l [u8], at: usize) -> Option<(Option<&'l [u8]>, usize)> {
        let rest = &line[at..];
        let value = if self.end.is_empty() { rest } else { before(&self.end, rest)? };
        Some((Some(value), at + value.len()))
    }

    fn quoted<'l>(&self, line: &'l [u8], at: usize) -> Option<(Option<&'l [u8]>, usize)> {
        let rest = &line[at..];
        let mut from = 0;
        loop {
            let quote = from + memchr(b'"', &rest[from..])?;
            let behind = &rest[quote + 1..];
            // HAProxy does not encode the quotes that a client sends in some values.
            if behind.is_empty() || behind.starts_with(&self.end) {
                return Some((Some(&rest[..quote]), at + quote + 1));
            }
            from = quote + 1;
        }
    }

    fn captures<'l>(&self, line: &'l [u8], at: usize) -> Option<(Option<&'l [u8]>, usize)> {
        let rest = &line[at..];
        let (open, close): (&[u8], &[u8]) =
            if rest.starts_with(b"\"{") { (b"\"{", b"}\"") } else { (b"{", b"}") };
        let Some(inside) = rest.strip_prefix(open) else { return Some((None, at)) };
        let (value, rest) = inside.split_at_checked(memchr(b'}', inside)?)?;
        // A line that is cut after the brace has no closing quote.
        rest.starts_with(close).then_some((Some(value), at + open.len() + value.len() + close.len()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::access_log::slots::SLOTS_MAX;

    /// Every value of a line, with its item.
    fn values(format: &str, line: &str) -> Result<Vec<(String, Option<String>)>, Misfit> {
        let format = Format::parse(format).unwrap();
        let mut count = 0;
        let steps = Steps::new(&format, |_| {
            count += 1;
            Some(count - 1)
        });
        let mut slots = [None; SLOTS_MAX];
        steps.take_apart_of_syslog(line.as_bytes(), true, &mut false, &mut slots)?;
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        Ok(format.items().zip(slots).map(|(item, value)| (item.noun.clone(), value.map(text))).collect())
    }

    fn value(format: &str, line: &str, noun: &str) -> Option<String> {
        let values = values(format, line).unwrap_or_else(|misfit| panic!("{line:?}: {misfit:?}"));
        values.into_iter().find(|(given, _)| given == noun).unwrap().1
    }

    const SHORT: &str = "%ci:%cp [%tr] %sq/%bq %hr %hs %{+Q}r";

    #[test]
    fn addresses_have_colons_and_captures_may_be_missing() {
        for (line, address, captures) in [
            ("192.0.2.1:80 [x] 0/0 \"GET / HTTP/1.1\"", "192.0.2.1", None),
            ("2001:db8::1:80 [x] 0/0 {a|} \"GET / HTTP/1.1\"", "2001:db8::1", Some("a|")),
            ("unix:1 [x] 0/0 {a|b} {c} \"GET / HTTP/1.1\"", "unix", Some("a|b")),
            ("Feb  6 12:14:14 host haproxy[1]: ::1:80 [x] 0/0 \"GET / HTTP/1.1\"", "::1", None),
            ("<134>1 2009-02-06T12:14:14Z host haproxy 1 - - ::1:80 [x] 0/0 \"GET / HTTP/1.1\"", "::1", None),
            (
                "<134>1 - h haproxy 1 - [a@1 b=\"c ]\\\" d\"][e@1] ::1:80 [x] 0/0 \"GET / HTTP/1.1\"",
                "::1",
                None,
            ),
            ("<134>1 - h haproxy 1 - - \u{feff}::1:80 [x] 0/0 \"GET / HTTP/1.1\"", "::1", None),
        ] {
            assert_eq!(value(SHORT, line, "%ci").as_deref(), Some(address));
            assert_eq!(value(SHORT, line, "%hr").as_deref(), captures);
            assert_eq!(value(SHORT, line, "%r").as_deref(), Some("GET / HTTP/1.1"));
        }
    }

    #[test]
    fn quotes_from_a_client_do_not_end_a_value() {
        let line = "a\"b\"c";
        assert_eq!(
            value("%{+Q}[req.hdr(x)] %ST", &format!("\"{line}\" 404"), "%[req.hdr(x)]").unwrap(),
            line
        );
        assert_eq!(value("\"$http_x\" $status", "\"a\\x22 b\" 404", "$http_x").unwrap(), "a\\x22 b");
    }

    #[test]
    fn a_misfit_names_its_place() {
        let misfit = |line| values(SHORT, line).unwrap_err();
        assert_eq!(misfit("192.0.2.1:80 x"), Misfit::Within(1));
        assert_eq!(misfit("192.0.2.1:80 [x"), Misfit::Within(2));
        assert_eq!(misfit("192.0.2.1:80 [x] 0/0 \"GET"), Misfit::Within(7));
        assert_eq!(misfit("192.0.2.1:80 [x] 0/0 \"GET\" and more"), Misfit::After);
        assert_eq!(misfit(""), Misfit::Address(0));
    }

    #[test]
    fn quoted_captures_end_with_their_quote() {
        let line = |rest: &str| format!("192.0.2.1:80 [x] 0/0 {rest}");
        let whole = line("\"{a|b}\" \"{c}\" \"GET / HTTP/1.1\"");
        assert_eq!(value(SHORT, &whole, "%hr").as_deref(), Some("a|b"));
        assert_eq!(value(SHORT, &whole, "%hs").as_deref(), Some("c"));
        for (cut, step) in [("\"{a}", 5), ("\"{a} ", 5), ("\"{a", 5), ("{a} \"{c}", 6), ("\"{a}\" \"{c}", 6)]
        {
            assert_eq!(values(SHORT, &line(cut)), Err(Misfit::Within(step)), "{cut}");
        }
    }

    #[test]
    fn a_truncated_request_line_is_still_read() {
        let format = Format::parse(SHORT).unwrap();
        let steps = Steps::new(&format, |item| (item.noun == "%r").then_some(0)).only_wanted();
        let mut slots = [None; SLOTS_MAX];
        steps.take_apart(b"192.0.2.1:80 [x] 0/0 \"GET /lon", false, &mut slots).unwrap();
        assert_eq!(slots[0], Some(&b"GET /lon"[..]));
    }

    proptest! {
        #[test]
        fn any_bytes_fit_or_misfit(line in prop::collection::vec(any::<u8>(), 0..200)) {
            for format in Format::known() {
                let steps = Steps::new(&format, |_| Some(0));
                let mut slots = [None; SLOTS_MAX];
                let _ = steps.take_apart_of_syslog(&line, false, &mut true, &mut slots);
            }
        }

        #[test]
        fn values_without_spaces_are_read_back(
            values_in in prop::collection::vec("[!-~]{1,20}", 3), literal in "( | - |\" \")"
        ) {
            prop_assume!(values_in.iter().all(|value| !value.contains(literal.trim())) || literal == " ");
            let format = format!("$a{literal}$b{literal}$c");
            let line = values_in.join(&literal);
            let read: Vec<_> = values(&format, &line).unwrap().into_iter().map(|(_, value)| value.unwrap()).collect();
            prop_assert_eq!(read, values_in);
        }
    }
}
