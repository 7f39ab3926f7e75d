//! The record of one connection: the bytes of both directions, and its end.

use std::iter;

use crate::spoa::LENGTH_BYTES;
use spop::{Disconnect, Frame, Kind};

/// The longest frame of an agent: a longer frame is treated as garbage.
const FRAME_BYTES_MAX: u32 = 16 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Transcript {
    pub sent: Vec<u8>,
    pub received: Vec<u8>,
    pub end: End,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum End {
    /// Everything expected has arrived.
    #[default]
    Open,
    /// The agent has closed the connection.
    Closed,
    /// Something expected has not arrived in time.
    Overdue,
    /// More has arrived than is kept.
    Flooded,
}

/// The end of a turn. A close by the agent ends any turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// Do not wait.
    Sent,
    /// This many frames since the connection began, or an AGENT-DISCONNECT.
    Frames(usize),
    Closed,
}

/// A frame of the agent, with the value of its length field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received<'a> {
    pub frame: Frame<'a>,
    pub bytes: usize,
}

impl Transcript {
    /// The received frames. An error names the bytes that are not a frame.
    pub(super) fn frames(&self) -> Result<Vec<Received<'_>>, String> {
        if self.end == End::Flooded {
            return Err(self.ending());
        }
        let frames = cut(&self.received).collect::<Result<Vec<_>, _>>()?;
        let whole: usize = frames.iter().map(|received| LENGTH_BYTES + received.bytes).sum();
        match (self.received.len() - whole, self.end) {
            (0, _) | (_, End::Open | End::Flooded) => Ok(frames),
            (_, End::Closed) => Err("the agent closes in the middle of a frame".into()),
            (_, End::Overdue) => Err("the rest of a frame does not come in time".into()),
        }
    }

    /// The frames that were sent, up to the first invalid one.
    pub(super) fn asked(&self) -> impl Iterator<Item = Frame<'_>> {
        cut(&self.sent).map_while(Result::ok).map(|sent| sent.frame)
    }

    /// Whether an open connection needs no further wait.
    pub(super) fn is_complete(&self, until: Until) -> bool {
        let is_last = |(number, received): (usize, Result<Received<'_>, String>)| match received {
            Ok(received) => number == 1 || received.frame.head.kind == Kind::AGENT_DISCONNECT,
            Err(_) => true,
        };
        match until {
            Until::Sent => true,
            Until::Closed => false,
            Until::Frames(0) => true,
            Until::Frames(count) => (1..=count).rev().zip(cut(&self.received)).any(is_last),
        }
    }

    /// The end of the conversation, for use in a reason.
    pub(super) fn ending(&self) -> String {
        if self.end == End::Flooded {
            return "more comes than any agent needs to say".into();
        }
        let frames = cut(&self.received).collect::<Result<Vec<_>, _>>().unwrap_or_default();
        let goodbye = frames.iter().find(|received| received.frame.head.kind == Kind::AGENT_DISCONNECT);
        match (goodbye.map(|received| Disconnect::decode(received.frame)), self.end) {
            (Some(Ok(Disconnect { status, .. })), _) => format!("AGENT-DISCONNECT, status {status}"),
            (Some(Err(error)), _) => format!("an invalid AGENT-DISCONNECT: {error}"),
            (None, End::Closed) => "the agent closes without AGENT-DISCONNECT".into(),
            (None, End::Overdue | End::Open | End::Flooded) => {
                match frames.last().map(|last| last.frame.head.kind) {
                    None => "no answer in time".into(),
                    Some(Kind::AGENT_HELLO) => "no answer in time after AGENT-HELLO".into(),
                    Some(Kind::ACK) => "no answer in time after an ACK".into(),
                    Some(Kind(number)) => format!("no answer in time after a frame of type {number}"),
                }
            }
        }
    }
}

/// The longest NOTIFY among these bytes, as the length field states it.
pub(super) fn longest_notify(bytes: &[u8]) -> usize {
    let sent = cut(bytes).map_while(Result::ok);
    let notifies = sent.filter(|sent| sent.frame.head.kind == Kind::NOTIFY);
    notifies.map(|notify| notify.bytes).max().unwrap_or_default()
}

/// The whole frames. An error is the last item, and names the bytes that are not a frame.
fn cut(bytes: &[u8]) -> impl Iterator<Item = Result<Received<'_>, String>> {
    let mut rest = bytes;
    iter::from_fn(move || match Frame::cut(rest, FRAME_BYTES_MAX) {
        Ok(None) => None,
        Ok(Some((frame, bytes))) => {
            rest = &rest[bytes..];
            Some(Ok(Received { frame, bytes: bytes - LENGTH_BYTES }))
        }
        Err(error) => {
            rest = b"";
            Some(Err(format!("this is not a frame: {error}")))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spoa::frames::frame;
    use spop::Head;

    fn received(bytes: &[u8], end: End) -> Transcript {
        Transcript { received: bytes.to_vec(), end, ..Transcript::default() }
    }

    #[test]
    fn frames_are_whole_or_told_to_be_broken() {
        let ack = frame(Head::new(Kind::ACK, 1, 1), b"");
        assert_eq!(received(&ack, End::Open).frames().unwrap()[0].bytes, ack.len() - 4);
        assert!(received(&ack[..9], End::Open).frames().unwrap().is_empty());
        assert!(received(&ack[..9], End::Closed).frames().unwrap_err().contains("the middle of a frame"));
        assert!(received(&ack[..9], End::Overdue).frames().unwrap_err().contains("does not come in time"));
        assert!(received(b"HTTP/1.1", End::Closed).frames().unwrap_err().contains("not a frame"));
    }

    #[test]
    fn a_flood_is_not_read_as_frames() {
        let ack = frame(Head::new(Kind::ACK, 1, 1), b"");
        let flooded = received(&ack, End::Flooded);
        assert_eq!(flooded.frames(), Err("more comes than any agent needs to say".into()));
        assert_eq!(flooded.ending(), "more comes than any agent needs to say");
    }

    #[test]
    fn the_longest_notify_is_found_among_other_frames() {
        let [short, long] = [3, 300].map(|bytes| frame(Head::new(Kind::NOTIFY, 1, 1), &vec![0; bytes]));
        let other = frame(Head::of_connection(Kind::HAPROXY_HELLO), &[0; 900]);
        assert_eq!(longest_notify(&[&other[..], &short, &long, &short].concat()), long.len() - 4);
        assert_eq!(longest_notify(&other), 0);
        assert_eq!(longest_notify(&[&short[..], b"HTTP/1.1"].concat()), short.len() - 4);
    }

    #[test]
    fn a_wait_ends_with_its_frames_a_goodbye_or_garbage() {
        let ack = frame(Head::new(Kind::ACK, 1, 1), b"");
        let goodbye = frame(Head::of_connection(Kind::AGENT_DISCONNECT), b"");
        let is_complete = |bytes: &[u8], until| received(bytes, End::Open).is_complete(until);
        assert!(is_complete(b"", Until::Sent));
        assert!(!is_complete(&ack, Until::Closed));
        assert!(is_complete(&ack, Until::Frames(1)) && !is_complete(&ack, Until::Frames(2)));
        assert!(is_complete(&goodbye, Until::Frames(2)));
        assert!(is_complete(b"HTTP/1.1", Until::Frames(1)));
    }
}
