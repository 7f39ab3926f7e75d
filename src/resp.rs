//! RESP2, the protocol of Redis, on the side of the server: commands in, answers out.
//!
//! A command is an array of bulk strings, `*2\r\n$4\r\nPING\r\n$2\r\nhi\r\n`. Source: the [Redis serialization protocol
//! specification](https://redis.io/docs/latest/develop/reference/protocol-spec/).

use std::ops::Range;

use thiserror::Error;

/// The most words of a command.
pub const WORDS_MAX: usize = 4_096;

/// The digits of the largest length, and its sign.
const DIGITS_MAX: usize = 8;

/// The words of a command, and its length in bytes.
pub type Command<'b> = (Vec<&'b [u8]>, usize);

/// The bytes are no command, or one beyond the limits. The message is for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RespError {
    #[error("ERR Protocol error: expected an array of bulk strings")]
    NoCommand,
    #[error("ERR Protocol error: too many words")]
    Words,
    #[error("ERR Protocol error: too long")]
    Bytes,
}

/// Reads commands that come in pieces. No byte is looked at twice.
#[derive(Debug, Default)]
pub struct Reader {
    /// The words so far.
    words: Vec<Range<usize>>,
    /// How many words are missing. None before the length of the array is known.
    missing: Option<usize>,
    /// What is read so far of the command's bytes.
    at: usize,
}

impl Reader {
    /// Reads on. The bytes begin with those of the last call, until a command is complete.
    ///
    /// Returns none if bytes are missing.
    ///
    /// ```
    /// use slowlane::resp::Reader;
    /// let (mut reader, bytes) = (Reader::default(), b"*2\r\n$4\r\nPING\r\n$2\r\nhi\r\n*1");
    /// assert_eq!(reader.read(&bytes[..10], 100), Ok(None));
    /// assert_eq!(reader.read(bytes, 100), Ok(Some((vec![&b"PING"[..], b"hi"], 22))));
    /// assert!(reader.read(b"GET / HTTP/1.1\r\n", 100).is_err());
    /// ```
    ///
    /// # Errors
    /// The bytes are no command, or it would have more than `bytes_max` bytes or [`WORDS_MAX`] words.
    pub fn read<'b>(&mut self, bytes: &'b [u8], bytes_max: usize) -> Result<Option<Command<'b>>, RespError> {
        if self.missing.is_none() {
            let Some((words, at)) = length(bytes, self.at, b'*')? else { return Ok(None) };
            if words > WORDS_MAX {
                return Err(RespError::Words);
            }
            (self.missing, self.at) = (Some(words), at);
        }
        while let Some(missing @ 1..) = self.missing {
            let Some((length, begin)) = length(bytes, self.at, b'$')? else { return Ok(None) };
            let end = begin + length;
            if end + 2 > bytes_max {
                return Err(RespError::Bytes);
            }
            let Some(rest) = bytes.get(end..end + 2) else { return Ok(None) };
            if rest != b"\r\n" {
                return Err(RespError::NoCommand);
            }
            self.words.push(begin..end);
            (self.missing, self.at) = (Some(missing - 1), end + 2);
        }
        let Reader { words, at, .. } = std::mem::take(self);
        Ok(Some((words.into_iter().map(|word| &bytes[word]).collect(), at)))
    }
}

/// Reads a sign, a length and a line end. Returns the length and where the line ends; none if bytes are missing.
fn length(bytes: &[u8], at: usize, sign: u8) -> Result<Option<(usize, usize)>, RespError> {
    let line = &bytes[at.min(bytes.len())..];
    if line.first().is_some_and(|&first| first != sign) {
        return Err(RespError::NoCommand);
    }
    let Some(end) = line.iter().take(DIGITS_MAX + 1).position(|&byte| byte == b'\r') else {
        return if line.len() > DIGITS_MAX { Err(RespError::NoCommand) } else { Ok(None) };
    };
    match line.get(end + 1) {
        None => return Ok(None),
        Some(b'\n') => {}
        Some(_) => return Err(RespError::NoCommand),
    }
    let digits = &line[1..end];
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let number = || std::str::from_utf8(digits).ok()?.parse().ok();
    let length = is_number.then(number).flatten().ok_or(RespError::NoCommand)?;
    Ok(Some((length, at + end + 2)))
}

/// Writes the head of an array; its values follow.
pub fn write_array(out: &mut Vec<u8>, length: usize) {
    out.extend_from_slice(format!("*{length}\r\n").as_bytes());
}

pub fn write_bulk(out: &mut Vec<u8>, bytes: impl AsRef<[u8]>) {
    let bytes = bytes.as_ref();
    out.extend_from_slice(format!("${}\r\n", bytes.len()).as_bytes());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Writes an answer of one word, like OK.
pub fn write_simple(out: &mut Vec<u8>, word: &'static str) {
    out.extend_from_slice(format!("+{word}\r\n").as_bytes());
}

/// Writes an error: its code, then a sentence, in one line.
pub fn write_error(out: &mut Vec<u8>, line: &str) {
    out.extend_from_slice(format!("-{line}\r\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_follow_each_other() {
        let bytes = b"*1\r\n$4\r\nPING\r\n*0\r\n*2\r\n$0\r\n\r\n$3\r\n\r\na\r\n";
        let (mut reader, mut rest, mut commands) = (Reader::default(), &bytes[..], Vec::new());
        while let Ok(Some((words, used))) = reader.read(rest, 1_000) {
            commands.push(words);
            rest = &rest[used..];
        }
        assert_eq!(commands, [vec![&b"PING"[..]], vec![], vec![&b""[..], b"\r\na"]]);
        assert_eq!(rest, b"");
    }

    #[test]
    fn what_is_no_command_is_refused_at_once() {
        for bytes in [
            &b"GET / HTTP/1.0\r\n"[..],
            b"PING\r\n",
            b"+OK\r\n",
            b"*-1\r\n",
            b"*+1\r\n",
            b"*\r\n",
            b"*1\n23456789",
            b"*1\rx",
            b"*1\r\n:1\r\n",
            b"*1\r\n$-1\r\n",
            b"*1\r\n$1\r\nabc",
            b"*123456789",
            b"*1\r\n$18446744073709551615\r\n",
            b"\0",
        ] {
            let read = Reader::default().read(bytes, 1_000);
            assert_eq!(read, Err(RespError::NoCommand), "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn what_is_too_long_is_refused_before_it_comes() {
        assert_eq!(Reader::default().read(b"*4097\r\n", 1_000), Err(RespError::Words));
        assert_eq!(Reader::default().read(b"*1\r\n$1000\r\n", 1_000), Err(RespError::Bytes));
        let mut bytes = b"*1\r\n$989\r\n".to_vec();
        bytes.resize(999, b'x');
        assert_eq!(Reader::default().read(&bytes, 1_001), Ok(None));
        bytes.extend_from_slice(b"\r\n");
        assert!(matches!(Reader::default().read(&bytes, 1_001), Ok(Some((_, 1_001)))));
    }
}
