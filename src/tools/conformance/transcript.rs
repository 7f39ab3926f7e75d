//! What was sent and received on one connection, and how it ended.

use crate::wire::spop::{Disconnect, Frame, Kind};

/// No frame of an agent is longer: a longer one is taken for garbage.
const FRAME_BYTES_MAX: u32 = 16 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Transcript {
    pub sent: Vec<u8>,
    pub received: Vec<u8>,
    pub end: End,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum End {
    /// All that was awaited has come.
    #[default]
    Open,
    /// The agent has closed the connection.
    Closed,
    /// Something awaited has not come in time.
    Overdue,
}

/// The end of a turn. A close by the agent ends any turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// Do not wait.
    Sent,
    /// So many frames since the connection began, or an AGENT-DISCONNECT.
    Frames(usize),
    Closed,
}

/// A frame of the agent, and its length as the length field has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received<'a> {
    pub frame: Frame<'a>,
    pub bytes: usize,
}

impl Transcript {
    /// The received frames. An error names the bytes that are no frame.
    pub(super) fn frames(&self) -> Result<Vec<Received<'_>>, String> {
        let (frames, rest) = cut(&self.received)?;
        match (rest, self.end) {
            (0, _) | (_, End::Open) => Ok(frames),
            (_, End::Closed) => Err("the agent closes in the middle of a frame".into()),
            (_, End::Overdue) => Err("the rest of a frame does not come in time".into()),
        }
    }

    /// The frames that were sent, up to the first wrong one.
    pub(super) fn asked(&self) -> Vec<Frame<'_>> {
        let mut rest = &self.sent[..];
        let mut frames = Vec::new();
        while let Ok(Some((frame, bytes))) = Frame::cut(rest, FRAME_BYTES_MAX) {
            frames.push(frame);
            rest = &rest[bytes..];
        }
        frames
    }

    /// Whether an open connection needs no further wait.
    pub(super) fn is_complete(&self, until: Until) -> bool {
        let is_broken = || cut(&self.received).is_err();
        match until {
            Until::Sent => true,
            Until::Closed => false,
            Until::Frames(count) => {
                cut(&self.received).is_ok_and(|(frames, _)| {
                    frames.len() >= count
                        || frames.iter().any(|received| received.frame.head.kind == Kind::AgentDisconnect)
                }) || is_broken()
            }
        }
    }

    /// The end of the conversation, for a reason.
    pub(super) fn ending(&self) -> String {
        let frames = cut(&self.received).map(|(frames, _)| frames).unwrap_or_default();
        let goodbye = frames.iter().find(|received| received.frame.head.kind == Kind::AgentDisconnect);
        match (goodbye.map(|received| Disconnect::decode(received.frame)), self.end) {
            (Some(Ok(Disconnect { status, .. })), _) => format!("AGENT-DISCONNECT, status {status}"),
            (Some(Err(error)), _) => format!("an AGENT-DISCONNECT that is wrong: {error}"),
            (None, End::Closed) => "the agent closes without AGENT-DISCONNECT".into(),
            (None, End::Overdue | End::Open) => match frames.last().map(|last| last.frame.head.kind) {
                None => "nothing comes in time".into(),
                Some(Kind::AgentHello) => "nothing comes in time after AGENT-HELLO".into(),
                Some(Kind::Ack) => "nothing comes in time after an ACK".into(),
                Some(kind) => format!("nothing comes in time after a frame {kind:?}"),
            },
        }
    }
}

/// The whole frames, and the number of bytes after them.
fn cut(bytes: &[u8]) -> Result<(Vec<Received<'_>>, usize), String> {
    let (mut frames, mut rest) = (Vec::new(), bytes);
    loop {
        match Frame::cut(rest, FRAME_BYTES_MAX) {
            Ok(None) => return Ok((frames, rest.len())),
            Ok(Some((frame, bytes))) => {
                frames.push(Received { frame, bytes: bytes - 4 });
                rest = &rest[bytes..];
            }
            Err(error) => return Err(format!("this is no frame: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::conformance::frames::frame;
    use crate::wire::spop::Head;

    fn received(bytes: &[u8], end: End) -> Transcript {
        Transcript { received: bytes.to_vec(), end, ..Transcript::default() }
    }

    #[test]
    fn frames_are_whole_or_told_to_be_broken() {
        let ack = frame(Head::new(Kind::Ack, 1, 1), b"");
        assert_eq!(received(&ack, End::Open).frames().unwrap()[0].bytes, ack.len() - 4);
        assert!(received(&ack[..9], End::Open).frames().unwrap().is_empty());
        assert!(received(&ack[..9], End::Closed).frames().unwrap_err().contains("the middle of a frame"));
        assert!(received(&ack[..9], End::Overdue).frames().unwrap_err().contains("does not come in time"));
        assert!(received(b"HTTP/1.1", End::Closed).frames().unwrap_err().contains("no frame"));
    }

    #[test]
    fn a_wait_ends_with_its_frames_a_goodbye_or_garbage() {
        let ack = frame(Head::new(Kind::Ack, 1, 1), b"");
        let goodbye = frame(Head::of_connection(Kind::AgentDisconnect), b"");
        let is_complete = |bytes: &[u8], until| received(bytes, End::Open).is_complete(until);
        assert!(is_complete(b"", Until::Sent));
        assert!(!is_complete(&ack, Until::Closed));
        assert!(is_complete(&ack, Until::Frames(1)) && !is_complete(&ack, Until::Frames(2)));
        assert!(is_complete(&goodbye, Until::Frames(2)));
        assert!(is_complete(b"HTTP/1.1", Until::Frames(1)));
    }
}
