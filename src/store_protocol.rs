//! The protocol between nodes and a token server: typed messages in frames.
//!
//! ```text
//! each side:  HELLO ─ "slowlane-store 03\n" │ frame │ frame │ …
//! frame:      length ─ 4 bytes, little-endian │ message, postcard
//!
//! node ─▶ Question::Login ─▶ StoreAnswer::Welcome
//! node ─▶ Question::Exchange ─▶ StoreAnswer::Response      one at a time
//! ```
//! The version changes whenever the type of a message changes.

use std::io;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use slowlane_core::base::shown;
use slowlane_core::cluster::{Due, Response};

/// The greeting that each side sends; its last digits are the version. Version 01 was RESP, the protocol of Redis.
pub const HELLO: &str = "slowlane-store 03\n";

/// The common prefix of the greetings of all versions.
const NAME: &[u8] = b"slowlane-store ";

/// A request from a node. The type does not implement `Debug`, so that a token is never logged.
#[derive(Serialize, Deserialize)]
pub enum Question<D = Due> {
    /// The first request, with the token of the server if the node has one.
    Login(Option<String>),
    Exchange(D),
}

/// An answer from a token server.
#[derive(Debug, Serialize, Deserialize)]
pub enum StoreAnswer {
    /// The token is correct, or neither side has one.
    Welcome,
    Response(Box<Response>),
    Refused(Refusal),
}

/// The reason why a token server refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum Refusal {
    #[error("the token server requires a token: write [cluster] store as slowlane://:TOKEN@host:port")]
    NoToken,
    #[error("the token server's token differs from this node's")]
    WrongToken,
    #[error("the token server has no token, but this node sends one: set [cluster] token_file there")]
    NoneWanted,
    #[error("the token server already has the maximum number of nodes")]
    Full,
    #[error(
        "the token server rejected a value that is out of bounds; run the same version of slowlane on it and on all nodes"
    )]
    Numbers,
}

/// Why the exchange with the other side failed.
#[derive(Debug, Error)]
pub enum ProtocolError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(
        "the other side speaks RESP, the protocol of Redis, as older versions of slowlane do; run the same \
         version of slowlane on all nodes and the token server"
    )]
    Resp,
    #[error(
        "the other side speaks {0}, not {hello}; run the same version of slowlane on all nodes and the token server",
        hello = HELLO.trim_end()
    )]
    Version(String),
    #[error("the other side does not speak the protocol of a token server")]
    Foreign,
    #[error("a message of {0} bytes is too long")]
    TooLong(usize),
    #[error("a message cannot be read: {0}")]
    Message(#[from] postcard::Error),
}

/// Sends the greeting of this side.
///
/// # Errors
/// The stream fails.
pub async fn greet(stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    stream.write_all(HELLO.as_bytes()).await?;
    stream.flush().await
}

/// Reads the greeting of the other side.
///
/// # Errors
/// The stream fails, or the other side is not slowlane or runs a different version.
pub async fn greeted(stream: &mut (impl AsyncRead + Unpin)) -> Result<(), ProtocolError> {
    let mut hello = [0; HELLO.len()];
    stream.read_exact(&mut hello).await?;
    match hello {
        _ if hello == HELLO.as_bytes() => Ok(()),
        // A RESP command from an older node, or a RESP error from an older server.
        [b'*' | b'-', ..] => Err(ProtocolError::Resp),
        _ if hello.starts_with(NAME) => Err(ProtocolError::Version(shown(hello.trim_ascii_end()))),
        _ => Err(ProtocolError::Foreign),
    }
}

/// The frame of a message.
///
/// # Panics
/// The message has 4 GiB or more.
pub fn frame(message: &impl Serialize) -> Vec<u8> {
    let bytes = postcard::to_extend(message, vec![0; size_of::<u32>()]);
    let mut bytes = bytes.expect("every type of message can be serialised");
    let length = u32::try_from(bytes.len() - size_of::<u32>()).expect("a message has less than 4 GiB");
    bytes[..size_of::<u32>()].copy_from_slice(&length.to_le_bytes());
    bytes
}

/// Writes a message.
///
/// # Errors
/// The stream fails.
pub async fn write(stream: &mut (impl AsyncWrite + Unpin), message: &impl Serialize) -> io::Result<()> {
    stream.write_all(&frame(message)).await?;
    stream.flush().await
}

/// Reads a message of at most `bytes_max` bytes.
///
/// # Errors
/// The stream fails or ends, the message is too long, or the bytes are not a message of this type.
pub async fn read<T: DeserializeOwned>(
    stream: &mut (impl AsyncRead + Unpin),
    bytes_max: usize,
) -> Result<T, ProtocolError> {
    let length = stream.read_u32_le().await? as usize;
    if length > bytes_max {
        return Err(ProtocolError::TooLong(length));
    }
    // Memory grows with the bytes received, so an announced length alone reserves none.
    let mut bytes = Vec::new();
    if stream.take(length as u64).read_to_end(&mut bytes).await? < length {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    Ok(postcard::from_bytes(&bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_greeting_and_messages_follow_each_other() {
        let mut bytes = Vec::new();
        greet(&mut bytes).await.unwrap();
        write(&mut bytes, &Question::<Due>::Login(Some("token".into()))).await.unwrap();
        write(&mut bytes, &Question::Exchange(&Due::default())).await.unwrap();
        let mut from = &bytes[..];
        greeted(&mut from).await.unwrap();
        let login: Question = read(&mut from, 100).await.unwrap();
        assert!(matches!(login, Question::Login(Some(token)) if token == "token"));
        let due: Question = read(&mut from, 100).await.unwrap();
        assert!(matches!(due, Question::Exchange(due) if due.is_empty()));
        assert!(matches!(read::<Question>(&mut from, 100).await, Err(ProtocolError::Io(_))));
    }

    #[tokio::test]
    async fn who_is_no_slowlane_of_this_version_is_named() {
        for (bytes, response) in [
            (&b"*2\r\n$4\r\nAUTH\r\n$16\r\n"[..], "the other side speaks RESP"),
            (b"-ERR Protocol error: expected an array of bulk strings\r\n", "the other side speaks RESP"),
            (b"slowlane-store 17\n", "the other side speaks slowlane-store 17, not slowlane-store 03;"),
            (b"GET / HTTP/1.1\r\n\r\n", "the other side does not speak"),
            (b"slow", "early eof"),
        ] {
            let error = greeted(&mut &bytes[..]).await.unwrap_err().to_string();
            assert!(error.contains(response), "{error}");
        }
    }

    #[tokio::test]
    async fn what_is_too_long_is_refused_before_it_comes() {
        for (bytes, response) in [
            (&[101, 0, 0, 0][..], "a message of 101 bytes"),
            (&[0xFF; 4], "a message of 4294967295 bytes"),
            (&[100, 0, 0, 0, 1], "unexpected end of file"),
            (&[1, 0, 0, 0, 9], "a message cannot be read"),
        ] {
            let error = read::<Question>(&mut &bytes[..], 100).await.err().unwrap().to_string();
            assert!(error.contains(response), "{error}");
        }
    }
}
