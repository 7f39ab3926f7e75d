//! The handshake: three lines from the side that dials, and the status in answer (peers-v2.0.txt, "Hello").
//!
//! ```text
//! HAProxyS 2.1                     the version
//! slowlane                         the name of the side that is dialled
//! lb1 4242 1                       the name of the side that dials, its process id, its relative process id
//! ```

use std::str;

use crate::error::ReadError;
use crate::peers::Error;

/// The maximum length of a hello. HAProxy's names have at most a few hundred bytes.
const HELLO_BYTES_MAX: usize = 1_024;

/// The maximum length of a status line: three digits, and room for an extension.
const STATUS_BYTES_MAX: usize = 64;

const PROTOCOL: &str = "HAProxyS ";

/// The first message of the dialling side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// The name that the other side must have.
    pub to: &'a str,
    /// The name of the side that dials.
    pub from: &'a str,
    /// The process id of the side that dials.
    pub process: u32,
}

/// The answer to a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelloStatus(pub u16);

impl HelloStatus {
    pub const OK: HelloStatus = HelloStatus(200);
    pub const TRY_AGAIN: HelloStatus = HelloStatus(300);
    pub const PROTOCOL: HelloStatus = HelloStatus(501);
    pub const VERSION: HelloStatus = HelloStatus(502);
    /// The hello asks for a name that the dialled side does not have.
    pub const WRONG_NAME: HelloStatus = HelloStatus(503);
    /// The dialling side is unknown here.
    pub const UNKNOWN_PEER: HelloStatus = HelloStatus(504);

    /// The status at the beginning of `bytes`, and its length; `None` if the status is incomplete.
    ///
    /// # Errors
    /// The bytes are not a status line.
    pub fn cut(bytes: &[u8]) -> Result<Option<(HelloStatus, usize)>, Error> {
        let Some(end) = bytes.iter().take(STATUS_BYTES_MAX).position(|&byte| byte == b'\n') else {
            let is_too_long = bytes.len() >= STATUS_BYTES_MAX;
            return if is_too_long { Err(Error::TooLongName(bytes.len() as u64)) } else { Ok(None) };
        };
        let digits = bytes[..end].get(..3).and_then(|digits| str::from_utf8(digits).ok());
        let status = digits.and_then(|digits| digits.parse().ok()).ok_or(ReadError::Truncated)?;
        Ok(Some((HelloStatus(status), end + 1)))
    }

    pub fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("{}\n", self.0).as_bytes());
    }
}

impl<'a> Hello<'a> {
    /// The hello at the beginning of `bytes`, and its length; `None` if the hello is incomplete.
    ///
    /// ```
    /// use spop::peers::Hello;
    /// let bytes = b"HAProxyS 2.1\nslowlane\nlb1 4242 1\nmore";
    /// let (hello, length) = Hello::cut(bytes).unwrap().unwrap();
    /// assert_eq!((hello.to, hello.from, hello.process), ("slowlane", "lb1", 4242));
    /// assert_eq!(&bytes[length..], b"more");
    /// ```
    ///
    /// # Errors
    /// The bytes are not a hello, or its version is neither 2.0 nor 2.1. The error is the status to answer with.
    pub fn cut(bytes: &'a [u8]) -> Result<Option<(Hello<'a>, usize)>, HelloStatus> {
        let said = &bytes[..bytes.len().min(HELLO_BYTES_MAX)];
        let mut ends = said.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(place, _)| place);
        let [first, second, third] = [ends.next(), ends.next(), ends.next()];
        let line = |begin: usize, end: usize| {
            let line = str::from_utf8(&said[begin..end]).map_err(|_| HelloStatus::PROTOCOL)?;
            Ok(line.strip_suffix('\r').unwrap_or(line))
        };
        // Checked first, because a client of another protocol may never send three lines.
        let spoken = first.unwrap_or(said.len()).min(PROTOCOL.len());
        if said[..spoken] != PROTOCOL.as_bytes()[..spoken] {
            return Err(HelloStatus::PROTOCOL);
        }
        let (Some(first), Some(second), Some(third)) = (first, second, third) else {
            return if said.len() == HELLO_BYTES_MAX { Err(HelloStatus::PROTOCOL) } else { Ok(None) };
        };
        if !matches!(line(0, first)?.strip_prefix(PROTOCOL), Some("2.0" | "2.1")) {
            return Err(HelloStatus::VERSION);
        }
        let (to, mut words) = (line(first + 1, second)?, line(second + 1, third)?.split(' '));
        let from = words.next().filter(|name| is_name(name)).ok_or(HelloStatus::PROTOCOL)?;
        if !is_name(to) {
            return Err(HelloStatus::PROTOCOL);
        }
        let process = words.next().and_then(|word| word.parse().ok()).ok_or(HelloStatus::PROTOCOL)?;
        Ok(Some((Hello { to, from, process }, third + 1)))
    }

    /// Appends the hello of version 2.1.
    pub fn encode(self, out: &mut Vec<u8>) {
        let Hello { to, from, process } = self;
        out.extend_from_slice(format!("{PROTOCOL}2.1\n{to}\n{from} {process} 1\n").as_bytes());
    }
}

/// Whether HAProxy accepts the name: printable ASCII without spaces. Names appear in logs, so a name must contain
/// nothing else.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn other_versions_and_protocols_are_told_apart() {
        for (bytes, status) in [
            (&b"HAProxyS 3.0\na\nb 1 1\n"[..], HelloStatus::VERSION),
            (b"HAProxyS 2.10\na\nb 1 1\n", HelloStatus::VERSION),
            (b"GET / HTTP/1.1\r\n", HelloStatus::PROTOCOL),
            (b"GE", HelloStatus::PROTOCOL),
            (b"HAProxyS 2.1\na\n\n", HelloStatus::PROTOCOL),
            (b"HAProxyS 2.1\na\nb\n", HelloStatus::PROTOCOL),
            (b"HAProxyS 2.1\na\nb x 1\n", HelloStatus::PROTOCOL),
            (b"HAProxyS 2.1\n\xff\nb 1 1\n", HelloStatus::PROTOCOL),
            (b"HAProxyS 2.1\na\n\x1b[2Jb 1 1\n", HelloStatus::PROTOCOL),
            (b"HAProxyS 2.1\na\tb\nb 1 1\n", HelloStatus::PROTOCOL),
        ] {
            assert_eq!(Hello::cut(bytes), Err(status), "{bytes:?}");
        }
        assert_eq!(
            Hello::cut(&[&b"HAProxyS 2.1\n"[..], &[b'a'; 2_000]].concat()),
            Err(HelloStatus::PROTOCOL)
        );
        assert!(Hello::cut(b"HAProxyS 2.0\r\na\r\nb 1 1\r\n").unwrap().is_some());
    }

    #[test]
    fn a_status_is_three_digits_in_a_line() {
        assert_eq!(HelloStatus::cut(b"200\nrest"), Ok(Some((HelloStatus::OK, 4))));
        assert_eq!(HelloStatus::cut(b"504 unknown\r\n"), Ok(Some((HelloStatus::UNKNOWN_PEER, 13))));
        assert_eq!(HelloStatus::cut(b"20"), Ok(None));
        assert!(HelloStatus::cut(b"2x0\n").is_err());
        assert!(HelloStatus::cut(b"20\n").is_err());
        assert!(HelloStatus::cut(&[b'2'; STATUS_BYTES_MAX]).is_err());
    }

    proptest! {
        #[test]
        fn what_is_written_is_cut_off_again(to in "[a-z0-9.-]{1,60}", from in "[a-zA-Z0-9._-]{1,60}", process: u32) {
            let (hello, mut bytes) = (Hello { to: &to, from: &from, process }, Vec::new());
            hello.encode(&mut bytes);
            for end in 0..bytes.len() {
                prop_assert_eq!(Hello::cut(&bytes[..end]), Ok(None));
            }
            let length = bytes.len();
            bytes.extend_from_slice(&[0, 0]);
            prop_assert_eq!(Hello::cut(&bytes), Ok(Some((hello, length))));
        }
    }
}
