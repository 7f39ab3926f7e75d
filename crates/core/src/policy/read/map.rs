//! The syntax of a map file, which is HAProxy's: keys with their values and positions.
//!
//! ```text
//! # a comment, only where the # is the line's first byte
//!    shop.example    2001      a key, blanks, a value
//! café.example                 a key with an empty value
//! ```
//! Blanks are spaces and tabs. A key ends at the first blank. The value is the rest of the line, without
//! surrounding blanks. Keys and values are bytes, UTF-8 or not; nothing is quoted or escaped. A line ends at
//! LF, or at the first CR before it.
//!
//! The rules are those of `pat_ref_read_from_file_smp` in HAProxy's `pattern.c`, with three exceptions. A line
//! too long for HAProxy's buffer and a NUL byte are faults here, because HAProxy would garble them. A byte order mark
//! at the beginning is skipped, because in HAProxy the first line would never match.

use crate::policy::{LINE_BYTES_MAX, PolicyErrorKind};

/// A line of a map that holds a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Counted from 1.
    pub number: usize,
    /// The start of the key, in bytes from the start of the file.
    pub at: usize,
    pub key: &'a [u8],
    pub value: &'a [u8],
}

/// The byte order mark, with which Windows editors begin UTF-8 text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The lines of a map file that hold keys. An invalid line is an error with the line's number.
///
/// ```
/// use slowlane_core::policy::map;
///
/// let lines: Vec<_> = map::lines(b"# websites\nshop.example 2001\r\n").map(Result::unwrap).collect();
/// assert_eq!(lines.len(), 1);
/// assert_eq!((lines[0].number, lines[0].key, lines[0].value), (2, &b"shop.example"[..], &b"2001"[..]));
/// ```
pub fn lines(text: &[u8]) -> impl Iterator<Item = Result<Line<'_>, (usize, PolicyErrorKind)>> {
    let mut at = if text.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
    text[at..].split_inclusive(|&byte| byte == b'\n').enumerate().filter_map(move |(index, written)| {
        let (number, begins) = (index + 1, at);
        at += written.len();
        match line(written) {
            Ok((indent, key, value)) if !key.is_empty() => {
                Some(Ok(Line { number, at: begins + indent, key, value }))
            }
            Ok(_) => None,
            Err(kind) => Some(Err((number, kind))),
        }
    })
}

/// The value of a line, given the position of any byte of its key.
#[inline]
pub(in crate::policy) fn value_at(text: &[u8], key: usize) -> &[u8] {
    let rest = &text[key..];
    let line = &rest[..find(rest, |byte| byte == b'\n' || byte == b'\r')];
    trim(&line[find(line, is_blank)..])
}

/// The number of the line that contains the byte at `at`.
pub(in crate::policy) fn line_number(text: &[u8], at: usize) -> usize {
    1 + text[..at].iter().filter(|&&byte| byte == b'\n').count()
}

/// The length of the indent before the key, the key, and the value. The key is empty if the line has no key.
fn line(written: &[u8]) -> Result<(usize, &[u8], &[u8]), PolicyErrorKind> {
    if written.len() > LINE_BYTES_MAX {
        return Err(PolicyErrorKind::LineTooLong);
    }
    if written.starts_with(b"#") {
        return Ok((0, b"", b""));
    }
    let end = find(written, |byte| byte == b'\n' || byte == b'\r');
    let content = &written[..end];
    if content.contains(&0) {
        return Err(PolicyErrorKind::Nul);
    }
    let indent = find(content, |byte| !is_blank(byte));
    let rest = &content[indent..];
    let (key, value) = rest.split_at(find(rest, is_blank));
    Ok((indent, key, trim(value)))
}

/// The position of the first byte for which `is` holds, or the end.
fn find(bytes: &[u8], is: impl Fn(u8) -> bool) -> usize {
    bytes.iter().position(|&byte| is(byte)).unwrap_or(bytes.len())
}

fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `key=value` of each line, and `!` for an invalid line.
    fn read(text: &[u8]) -> Vec<String> {
        let show = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let line = |line: Line<'_>| format!("{}:{}={}", line.number, show(line.key), show(line.value));
        lines(text).map(|read| read.map_or_else(|(number, _)| format!("{number}:!"), line)).collect()
    }

    #[test]
    fn a_key_ends_at_the_first_blank_and_the_value_with_the_line() {
        assert_eq!(read(b"a 1\nb\t2\nc \t 3 \t \n"), ["1:a=1", "2:b=2", "3:c=3"]);
        assert_eq!(read(b"a one two # three\n"), ["1:a=one two # three"]);
        assert_eq!(read(b"\"a b\" 1\n"), ["1:\"a=b\" 1"]);
        assert_eq!(read(b"a\\ b 1"), ["1:a\\=b 1"]);
    }

    #[test]
    fn a_comment_begins_in_the_first_column_only() {
        assert_eq!(read(b"# foo\n#foo 1\n # foo\na#b 1\n"), ["3:#=foo", "4:a#b=1"]);
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_line() {
        assert_eq!(read(b"\xef\xbb\xbfa 1\nb 2\n"), ["1:a=1", "2:b=2"]);
        assert_eq!(read(b"\xef\xbb\xbf# websites\r\na 1\r\n"), ["2:a=1"]);
        assert_eq!(read(b"\xef\xbb\xbf"), [""; 0]);
        assert_eq!(
            read("a 1\n\u{feff}b 2\n".as_bytes()),
            ["1:a=1", "2:\u{feff}b=2"],
            "only at the beginning"
        );
    }

    #[test]
    fn leading_blanks_and_empty_lines_are_skipped() {
        assert_eq!(read(b"\n \t \n\r\n  \r\n \t a 1\n"), ["5:a=1"]);
    }

    #[test]
    fn a_key_without_a_value_has_an_empty_one() {
        assert_eq!(read(b"a\nb \t\nc"), ["1:a=", "2:b=", "3:c="]);
    }

    #[test]
    fn a_line_ends_at_a_carriage_return() {
        assert_eq!(read(b"a 1\r\nb\r\nc 2 \rd 3\ne\r 4\n"), ["1:a=1", "2:b=", "3:c=2", "4:e="]);
    }

    #[test]
    fn vertical_space_and_other_bytes_belong_to_the_key() {
        assert_eq!(read(b"\x0ba 1\n"), ["1:\u{b}a=1"]);
        assert_eq!(lines(b"\xff\xfe\x80 1").next().unwrap().unwrap().key, b"\xff\xfe\x80");
    }

    #[test]
    fn a_line_is_as_long_as_haproxy_reads_it_whole() {
        let line = |bytes: usize| [b"#".repeat(bytes - 1), b"\n".to_vec()].concat();
        assert_eq!(read(&line(LINE_BYTES_MAX)), [""; 0]);
        assert_eq!(read(&line(LINE_BYTES_MAX + 1)), ["1:!"]);
        assert_eq!(read(&[line(LINE_BYTES_MAX + 1), b"a 1".to_vec()].concat()), ["1:!", "2:a=1"]);
    }

    #[test]
    fn a_nul_is_a_fault_except_where_nothing_is_read() {
        assert_eq!(read(b"a\0b 1\na 1\0\nb\r\0\n#\0\n"), ["1:!", "2:!", "3:b="]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_and_found_again(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            for line in lines(&text).flatten() {
                prop_assert!(text[line.at..].starts_with(line.key));
                prop_assert_eq!(value_at(&text, line.at), line.value);
                prop_assert_eq!(line_number(&text, line.at), line.number);
            }
        }

        #[test]
        fn printed_lines_are_read_back(
            pairs in proptest::collection::vec(("[!-\"$-~é][!-~é]{0,9}", "([!-~é]([!-~é ]{0,9}[!-~é])?)?"), 0..9),
            before in "[ \t]{0,3}", between in "[ \t]{1,3}", after in "[ \t]{0,3}(\r?\n){1,2}(#[a-z\t ]*\n)?",
        ) {
            let text: String =
                pairs.iter().map(|(key, value)| format!("{before}{key}{between}{value}{after}")).collect();
            let read: Vec<_> = lines(text.as_bytes()).map(Result::unwrap).collect();
            prop_assert_eq!(read.len(), pairs.len());
            for (line, (key, value)) in read.iter().zip(&pairs) {
                prop_assert_eq!((line.key, line.value), (key.as_bytes(), value.as_bytes()));
            }
        }
    }
}
