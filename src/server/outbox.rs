//! The answers that a connection has still to write, and their way to its socket.

use std::io;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use crate::server::stream::Stream;

/// Bytes that the socket has not taken yet. They may begin within an answer.
#[derive(Debug, Default)]
pub(super) struct Outbox(Vec<u8>);

impl Outbox {
    /// Bytes that another process has left.
    pub(super) fn with(bytes: Vec<u8>) -> Outbox {
        Outbox(bytes)
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Notes that so many bytes are written.
    pub(super) fn written(&mut self, bytes: usize) {
        if bytes >= self.0.len() { self.0.clear() } else { drop(self.0.drain(..bytes)) }
    }

    /// Writes everything, usually in one write, within `patience`. False: `ending` came first.
    pub(super) async fn flush_unless(
        &mut self,
        stream: &mut Stream,
        patience: Duration,
        ending: Pin<&mut impl Future<Output = ()>>,
    ) -> io::Result<bool> {
        if self.0.is_empty() {
            return Ok(true);
        }
        // Usually the socket accepts everything at once, and no timer is needed.
        let written = match stream.try_write(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            written => written.unwrap_or(0),
        };
        self.written(written);
        if self.0.is_empty() {
            return Ok(true);
        }
        tokio::select! {
            biased;
            written = self.flush(stream, patience) => written.map(|()| true),
            () = ending => Ok(false),
        }
    }

    /// Writes everything within `patience`. If it is dropped, the bytes that are left are still here.
    pub(super) async fn flush(&mut self, stream: &mut Stream, patience: Duration) -> io::Result<()> {
        let flushed = async {
            while !self.0.is_empty() {
                match stream.write(&self.0).await? {
                    0 => return Err(io::ErrorKind::WriteZero.into()),
                    written => self.written(written),
                }
            }
            // Bytes that TLS has taken may not be sent yet.
            stream.flush().await
        };
        timeout(patience, flushed).await?
    }
}

impl Deref for Outbox {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Outbox {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}
