//! The part of HTTP that the demonstration needs.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// The only website.
pub(super) const WEBSITE: &str = "shop.example";

/// The most bytes of a head.
const HEAD_BYTES_MAX: usize = 8192;

/// One side of an HTTP connection.
pub(super) struct Half {
    pub(super) stream: TcpStream,
    unread: Vec<u8>,
}

impl Half {
    pub(super) fn new(stream: TcpStream) -> Half {
        Half { stream, unread: Vec::new() }
    }

    pub(super) async fn connect(address: SocketAddr, source: Ipv4Addr) -> io::Result<Half> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((source, 0).into())?;
        let stream = socket.connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Half::new(stream))
    }

    /// Asks for a path, with further lines of the head. Returns the status of the answer.
    pub(super) async fn get(&mut self, path: &str, headers: &str) -> io::Result<u16> {
        let head = format!("GET {path} HTTP/1.1\r\nhost: {WEBSITE}\r\n{headers}\r\n");
        self.stream.write_all(head.as_bytes()).await?;
        let head = self.head().await?.ok_or(ErrorKind::UnexpectedEof)?;
        let (status, length) = status_and_length(&head).ok_or(ErrorKind::InvalidData)?;
        while self.unread.len() < length {
            self.read().await?;
        }
        self.unread.drain(..length);
        Ok(status)
    }

    /// Reads a head with its empty line. None: the connection was closed instead.
    pub(super) async fn head(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(end) = self.unread.windows(4).position(|four| four == b"\r\n\r\n") {
                let head: Vec<u8> = self.unread.drain(..end + 4).collect();
                return Ok(Some(String::from_utf8_lossy(&head).into_owned()));
            }
            if self.unread.len() > HEAD_BYTES_MAX {
                return Err(ErrorKind::InvalidData.into());
            }
            match self.read().await {
                Err(error) if error.kind() == ErrorKind::UnexpectedEof && self.unread.is_empty() => {
                    return Ok(None);
                }
                read => read?,
            }
        }
    }

    async fn read(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.unread).await? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

/// The status of an answer, and the length of its body.
fn status_and_length(head: &str) -> Option<(u16, usize)> {
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let value = |line: &str| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    };
    let length = lines.find_map(value).unwrap_or(0);
    (length <= HEAD_BYTES_MAX).then_some((status, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_its_status_and_how_long_it_is() {
        let head = "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 117\r\nretry-after: 1\r\n\r\n";
        assert_eq!(status_and_length(head), Some((429, 117)));
        assert_eq!(status_and_length("HTTP/1.1 204 No Content\r\n\r\n"), Some((204, 0)));
        for head in
            ["", "\r\n", "HTTP/1.1\r\n", "HTTP/1.1 x\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 9999999\r\n"]
        {
            assert_eq!(status_and_length(head), None, "{head:?}");
        }
    }
}
