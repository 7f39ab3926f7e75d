//! Questions to the admin address of a daemon: one each connection, bounded in time and in length.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::server::socket::Address;
use crate::shown::shown;
use crate::status::{KeyLine, Snapshot};

/// A daemon that is alive answers within milliseconds.
const PATIENCE: Duration = Duration::from_secs(3);

/// Several times the longest snapshot.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// A daemon that can be asked.
#[derive(Clone, Debug)]
pub struct Daemon {
    pub address: Address,
    /// What opens it, where it wants a token.
    pub token: Option<String>,
}

/// Why there is no answer, and what would help.
#[derive(Debug, Error)]
pub enum FetchError {
    #[error("{address}: {source}: is slowlane running? Name its admin address with --admin")]
    Unreachable { address: String, source: io::Error },
    #[error("{address}: it wants its token: name the file that holds it with --token-file")]
    Closed { address: String },
    #[error("{address}: status {status}: {text}")]
    Refused { address: String, status: u16, text: String },
    #[error("{address}: not an answer of slowlane's ({reason}): name its admin address with --admin")]
    Strange { address: String, reason: String },
}

/// What the daemon does now.
pub(super) fn snapshot(daemon: &Daemon) -> Result<Snapshot, FetchError> {
    let body = get(daemon, "/api/status")?;
    serde_json::from_slice(&body).map_err(|error| strange(daemon, error.to_string()))
}

/// Why a key is throttled, or as much of it as the daemon can say.
pub(super) fn why(daemon: &Daemon, key: &KeyLine) -> String {
    let explained = match &key.why {
        Some(query) => get(daemon, &format!("/api/why?{query}")),
        None => Err(FetchError::Refused { address: String::new(), status: 404, text: String::new() }),
    };
    let text = match explained {
        Err(FetchError::Refused { status: 404, .. }) => get(daemon, &format!("/api/table/{}", key.key)),
        explained => explained,
    };
    match text {
        Ok(text) => String::from_utf8_lossy(&text).into_owned(),
        Err(error) => error.to_string(),
    }
}

/// The body of an answer of status 200.
fn get(daemon: &Daemon, target: &str) -> Result<Vec<u8>, FetchError> {
    let address = &daemon.address;
    let unreachable = |source| FetchError::Unreachable { address: address.to_string(), source };
    let bytes = ask(daemon, target).map_err(unreachable)?;
    let (status, body) = taken_apart(&bytes).map_err(|reason| strange(daemon, reason.to_owned()))?;
    match status {
        200 => Ok(body.to_vec()),
        401 => Err(FetchError::Closed { address: address.to_string() }),
        status => {
            let text = shown(body.split(|&byte| byte == b'\n').next().unwrap_or_default());
            Err(FetchError::Refused { address: address.to_string(), status, text })
        }
    }
}

fn strange(daemon: &Daemon, reason: String) -> FetchError {
    FetchError::Strange { address: daemon.address.to_string(), reason }
}

/// A connection of either kind.
trait Connection: Read + Write {
    fn patience(&self, patience: Duration) -> io::Result<()>;
}

impl Connection for TcpStream {
    fn patience(&self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience)).and_then(|()| self.set_write_timeout(Some(patience)))
    }
}

impl Connection for UnixStream {
    fn patience(&self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience)).and_then(|()| self.set_write_timeout(Some(patience)))
    }
}

/// All that comes until the daemon closes: in HTTP/1.0 that is the end of an answer.
fn ask(daemon: &Daemon, target: &str) -> io::Result<Vec<u8>> {
    let deadline = Instant::now() + PATIENCE;
    let mut connection = connect(&daemon.address)?;
    connection.patience(PATIENCE)?;
    let token = daemon.token.as_ref().map(|token| format!("Authorization: Bearer {token}\r\n"));
    let token = token.unwrap_or_default();
    let question = format!("GET {target} HTTP/1.0\r\nHost: slowlane\r\nAccept: */*\r\n{token}\r\n");
    connection.write_all(question.as_bytes())?;
    let (mut answer, mut piece) = (Vec::new(), [0; 16 * 1024]);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        connection.patience(left)?;
        match connection.read(&mut piece) {
            Ok(0) => return Ok(answer),
            Ok(count) => answer.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(error) => return Err(error),
        }
        if answer.len() > ANSWER_BYTES_MAX {
            return Err(io::Error::other("an answer without end"));
        }
    }
}

fn connect(address: &Address) -> io::Result<Box<dyn Connection>> {
    match address {
        Address::Unix(path) => Ok(Box::new(UnixStream::connect(path)?)),
        Address::Tcp(name) => {
            let mut result = Err(io::ErrorKind::AddrNotAvailable.into());
            for address in name.to_socket_addrs()? {
                result = TcpStream::connect_timeout(&address, PATIENCE);
                if result.is_ok() {
                    break;
                }
            }
            Ok(Box::new(result?))
        }
    }
}

/// Status and body. An answer that says how long it is has to be as long.
fn taken_apart(answer: &[u8]) -> Result<(u16, &[u8]), &'static str> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or("no end of its head")?;
    let (head, body) = (&answer[..end], &answer[end + 4..]);
    let head = std::str::from_utf8(head).map_err(|_| "its head is no text")?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok());
    let length = lines.filter_map(|line| line.split_once(':'));
    let mut length = length.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    match length.next().map(|(_, value)| value.trim().parse::<usize>()) {
        Some(length) if length != Ok(body.len()) => Err("it is cut off"),
        _ => Ok((status.ok_or("no status")?, body)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_answer_is_taken_apart() {
        let answer = b"HTTP/1.0 200 OK\r\ncontent-type: a\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(taken_apart(answer), Ok((200, &b"{}"[..])));
        assert_eq!(taken_apart(&answer[..answer.len() - 1]), Err("it is cut off"));
        assert_eq!(taken_apart(b"HTTP/1.1 404 Not Found\r\n\r\n"), Ok((404, &b""[..])));
        assert_eq!(taken_apart(b"SSH-2.0-OpenSSH\r\n\r\n"), Err("no status"));
        assert_eq!(taken_apart(b"HTTP/1.0 200 OK\r\n"), Err("no end of its head"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_answer_or_not(bytes in prop::collection::vec(any::<u8>(), 0..100), text in "(HTTP/1.)?[0-9 \r\n:a-z]{0,60}") {
            let _ = taken_apart(&bytes);
            let _ = taken_apart(text.as_bytes());
        }
    }
}
