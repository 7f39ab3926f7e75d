//! The read buffer of a connection.

use std::io;

use futures_util::FutureExt;
use tokio::io::AsyncReadExt;

use crate::server::stream::Stream;

/// The initial size: room for a few questions. Most of the many connections never need more.
const READ_BYTES_MIN: usize = 2 * 1024;

/// The size that a busy connection grows to. Only a longer frame needs more.
const READ_BYTES_MAX: usize = 16 * 1024;

/// A first-in, first-out buffer, limited to the size of one frame.
///
/// ```text
///  │ used │ bytes() ······ │ space() ······ │
///         ▲ consume        ▲ filled
/// ```
#[derive(Debug, Default)]
pub(super) struct Inbox {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    bytes_max: usize,
    /// The last read filled all the space.
    is_small: bool,
}

impl Inbox {
    pub(super) fn new(frame_bytes_max: u32) -> Inbox {
        let bytes_max = (frame_bytes_max as usize + size_of::<u32>()).max(READ_BYTES_MAX);
        Inbox { buffer: vec![0; READ_BYTES_MIN], bytes_max, ..Inbox::default() }
    }

    /// A buffer that begins with bytes read before.
    pub(super) fn with(frame_bytes_max: u32, unread: &[u8]) -> Inbox {
        let mut inbox = Inbox::new(frame_bytes_max);
        inbox.buffer.resize(inbox.buffer.len().max(unread.len()), 0);
        inbox.buffer[..unread.len()].copy_from_slice(unread);
        Inbox { end: unread.len(), ..inbox }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }

    pub(super) fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Reads once, and returns the number of bytes. 0: the peer has closed.
    pub(super) async fn read(&mut self, stream: &mut Stream) -> io::Result<usize> {
        let bytes = stream.read(self.space()).await?;
        self.filled(bytes);
        Ok(bytes)
    }

    /// Reads what has come already, as far as there is room.
    pub(super) async fn read_at_once(&mut self, stream: &mut Stream) -> io::Result<usize> {
        if self.space().is_empty() { Ok(0) } else { self.read(stream).now_or_never().unwrap_or(Ok(0)) }
    }

    /// The space for the next read. It is empty only if the buffer holds a whole frame of the largest size.
    pub(super) fn space(&mut self) -> &mut [u8] {
        if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let is_small = std::mem::take(&mut self.is_small) && self.buffer.len() < READ_BYTES_MAX;
        if is_small || self.end == self.buffer.len() {
            let doubled = (self.buffer.len() * 2).min(self.bytes_max);
            self.buffer.resize(doubled, 0);
        }
        &mut self.buffer[self.end..]
    }

    fn filled(&mut self, bytes: usize) {
        self.end += bytes;
        self.is_small = self.end == self.buffer.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in_whatever_the_steps() {
        let mut inbox = Inbox::new(20_000);
        let (mut written, mut read) = (0u32, 0u32);
        for step in 1..2_000usize {
            let space = inbox.space();
            let bytes = space.len().min(step * 7 % 5_000);
            for byte in &mut space[..bytes] {
                *byte = written as u8;
                written += 1;
            }
            inbox.filled(bytes);
            let used = inbox.bytes().len().min(step * 11 % 5_000);
            for &byte in &inbox.bytes()[..used] {
                assert_eq!(byte, read as u8);
                read += 1;
            }
            inbox.consume(used);
        }
        assert!(read > 1_000_000);
        assert!(inbox.buffer.len() <= 20_004);
    }
}
