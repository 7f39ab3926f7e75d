//! The socket between the two processes of an upgrade, and its messages, each with or without a descriptor.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::cmsg_space;
use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

use crate::server::TransferState;
use crate::server::dedup::{DueReply, Fingerprint};
use crate::store_protocol::frame;
use slowlane_core::base::{Address, Decision, Timestamp};

/// The number of bytes of a snapshot that are written or read at once.
pub(super) const BUFFER_BYTES: usize = 256 << 10;

/// The maximum length of a message, which may contain the buffers of one connection.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// One end of the socket.
///
/// ```text
/// │ length: u32, little-endian │ UpgradeMessage, postcard │
///   a descriptor comes with the first byte
/// ```
#[derive(Debug)]
pub(super) struct Channel(pub(super) UnixStream);

impl Channel {
    /// The longest wait for the other process. `None` means no limit.
    pub(super) fn wait_at_most(&self, patience: Option<Duration>) -> io::Result<()> {
        self.0.set_read_timeout(patience)?;
        self.0.set_write_timeout(patience)
    }

    pub(super) fn send(
        &self,
        message: &UpgradeMessage,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let bytes = frame(message);
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = descriptor.as_slice();
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        let parts = [IoSlice::new(&bytes)];
        let sent = retry_on_intr(|| sendmsg(&self.0, &parts, &mut control, SendFlags::NOSIGNAL))?;
        (&self.0).write_all(&bytes[sent..])
    }

    /// # Errors
    /// The other process has ended, takes too long, or sends something other than a message.
    pub(super) fn receive(&self) -> io::Result<(UpgradeMessage, Option<OwnedFd>)> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut length = [0; size_of::<u32>()];
        let mut parts = [IoSliceMut::new(&mut length)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let read = retry_on_intr(|| recvmsg(&self.0, &mut parts, &mut control, flags))?.bytes;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let descriptor = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        (&self.0).read_exact(&mut length[read..])?;
        let length = u32::from_le_bytes(length) as usize;
        if length > MESSAGE_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut bytes = vec![0; length];
        (&self.0).read_exact(&mut bytes)?;
        Ok((postcard::from_bytes(&bytes).map_err(io::Error::other)?, descriptor))
    }
}

/// The version of these messages. A process hands over only to a process with the same version. So a change of
/// [`UpgradeMessage`], or of a type in it such as [`TransferState`], [`DueReply`] and [`Decision`], needs a new number.
/// Snapshots have a version of their own.
pub(super) const VERSION: u32 = 5;

/// A message between the two processes. Each description begins with its sender: the old or the new process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum UpgradeMessage {
    /// New: this process is a slowlane that takes over.
    Hello(u32),
    /// Old, with the socket: a socket of this listener, with its address in the config.
    Listener(String, Option<Address>),
    /// Old: all listeners are sent. The message contains a moment of the old process's clock, the same moment of the
    /// system's monotonic clock, and the key secret.
    Offer { moment: Timestamp, monotonic: Duration, key_secret: String },
    /// New: config and policy are read, and all addresses are bound.
    Built,
    /// Old, with a stream: a snapshot of all keys; then, in rounds, of the keys that have changed since.
    State,
    /// New: the snapshot is read.
    Restored,
    /// Old, with a stream: the keys that have changed since, the blocks, and the history.
    Changes,
    /// Old, with the socket: a connection.
    Connection(TransferState),
    /// Old: answers that nginx may request again.
    Answers(Vec<(Fingerprint, DueReply)>),
    /// Old: everything is sent, and this process has stopped deciding.
    Yours,
    /// New: this process has everything, and serves from now on.
    Taken,
    /// Old: systemd knows the new main process.
    Main,
    /// Old: a request to take back, because its client disconnected or its delay cannot be held.
    TakenBack(Box<Decision>),
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Seek;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn each_descriptor_comes_with_its_own_message() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (ours, theirs) = (Channel(ours), Channel(theirs));
        let file = |text: &str| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            file.rewind().unwrap();
            file
        };
        let (one, other) = (file("one"), file("other"));
        ours.send(&UpgradeMessage::Connection(TransferState::Http(b"1".to_vec())), Some(one.as_fd()))
            .unwrap();
        ours.send(&UpgradeMessage::Yours, None).unwrap();
        ours.send(&UpgradeMessage::Connection(TransferState::Http(vec![7; 10_000])), Some(other.as_fd()))
            .unwrap();
        drop(ours);
        let text = |descriptor: Option<OwnedFd>| {
            let mut text = String::new();
            File::from(descriptor.unwrap()).read_to_string(&mut text).unwrap();
            text
        };
        let (first, descriptor) = theirs.receive().unwrap();
        assert!(matches!(first, UpgradeMessage::Connection(TransferState::Http(unread)) if unread == b"1"));
        assert_eq!(text(descriptor), "one");
        assert!(matches!(theirs.receive().unwrap(), (UpgradeMessage::Yours, None)));
        let (third, descriptor) = theirs.receive().unwrap();
        assert!(
            matches!(third, UpgradeMessage::Connection(TransferState::Http(unread)) if unread.len() == 10_000)
        );
        assert_eq!(text(descriptor), "other");
        assert!(theirs.receive().is_err(), "the other end is closed");
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        for bytes in [&[0xFF; 8][..], &[1, 0, 0, 0, 0xFF], &[9, 0, 0, 0, 1], &[2, 0]] {
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            ours.write_all(bytes).unwrap();
            drop(ours);
            assert!(Channel(theirs).receive().is_err(), "{bytes:?}");
        }
    }
}
