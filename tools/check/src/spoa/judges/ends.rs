//! Judges of the end of a connection (SPOE.txt 3.2.8, 3.2.9, 3.5).

use crate::spoa::judges::{ensure, number, string};
use crate::spoa::{End, Judged, Transcript};
use spop::{Frame, Head, Kind};

/// The name of the AGENT-DISCONNECT in a reason.
const OWN: &str = "the AGENT-DISCONNECT";

/// An AGENT-DISCONNECT, with FIN and without ids.
pub(crate) fn leaves(transcript: &Transcript) -> Judged {
    let Head { flags, stream_id, frame_id, .. } = goodbye(transcript)?.head;
    ensure(flags & Head::FIN != 0, "the AGENT-DISCONNECT has no FIN")?;
    let ids = format!("the AGENT-DISCONNECT has the ids {stream_id}/{frame_id}");
    ensure((stream_id, frame_id) == (0, 0), ids)
}

/// The agent closes, with or without an AGENT-DISCONNECT.
pub(crate) fn closes(transcript: &Transcript) -> Judged {
    match transcript.end {
        End::Closed => Ok(()),
        End::Flooded => Err(transcript.ending()),
        End::Open | End::Overdue => Err("the agent does not close in time".into()),
    }
}

/// The AGENT-DISCONNECT has both mandatory items.
pub(crate) fn gives_a_reason(transcript: &Transcript) -> Judged {
    status(transcript)?;
    string(goodbye(transcript)?, OWN, "message").map(drop)
}

/// The agent sends an AGENT-DISCONNECT with an error, and closes.
pub(crate) fn refuses(transcript: &Transcript) -> Judged {
    ensure(status(transcript)? != 0, "the AGENT-DISCONNECT has status 0, which is not an error")?;
    closes(transcript)
}

/// Like [`refuses`], with this status of SPOE.txt 3.5.
pub(crate) fn refuses_as<const CODE: i64>(transcript: &Transcript) -> Judged {
    let status = status(transcript)?;
    ensure(status == CODE, format!("the AGENT-DISCONNECT has status {status}, expected {CODE}"))?;
    closes(transcript)
}

fn status(transcript: &Transcript) -> Result<i64, String> {
    number(goodbye(transcript)?, OWN, "status-code")
}

fn goodbye(transcript: &Transcript) -> Result<Frame<'_>, String> {
    let frames = transcript.frames()?;
    let goodbye = frames.iter().find(|received| received.frame.head.kind == Kind::AGENT_DISCONNECT);
    let goodbye = goodbye.map(|received| received.frame);
    goodbye.ok_or_else(|| format!("no AGENT-DISCONNECT: {}", transcript.ending()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spoa::frames::frame;
    use crate::spoa::judges::tests::{ack, closed, goodbye, silent, spoken};

    #[test]
    fn a_goodbye_is_a_frame_of_the_connection() {
        assert_eq!(leaves(&spoken(&[ack(1, 1), goodbye(0)])), Ok(()));
        let head = Head::of_connection(Kind::AGENT_DISCONNECT);
        assert!(leaves(&spoken(&[frame(Head { flags: 0, ..head }, b"")])).is_err());
        assert!(leaves(&spoken(&[frame(Head { frame_id: 1, ..head }, b"")])).is_err());
        assert!(leaves(&closed(&[ack(1, 1)])).unwrap_err().contains("closes without"));
        assert!(leaves(&silent()).is_err());
    }

    #[test]
    fn a_goodbye_has_a_status_and_a_message() {
        let of = |payload| spoken(&[frame(Head::of_connection(Kind::AGENT_DISCONNECT), payload)]);
        assert_eq!(gives_a_reason(&spoken(&[goodbye(77)])), Ok(()));
        assert!(gives_a_reason(&of(b"\x0bstatus-code\x03\x00")).unwrap_err().contains("no message"));
        assert!(gives_a_reason(&of(b"\x07message\x08\x00")).unwrap_err().contains("no status-code"));
        assert!(gives_a_reason(&of(b"\x0bstatus-code\x08\x010")).unwrap_err().contains("not a number"));
        assert!(gives_a_reason(&of(b"\x0bstatus")).unwrap_err().contains("not a list"));
    }

    #[test]
    fn a_refusal_has_its_status_and_a_close() {
        assert_eq!(refuses(&closed(&[goodbye(4)])), Ok(()));
        assert_eq!(refuses_as::<4>(&closed(&[goodbye(4)])), Ok(()));
        assert!(refuses_as::<3>(&closed(&[goodbye(4)])).unwrap_err().contains("status 4, expected 3"));
        assert!(refuses(&closed(&[goodbye(0)])).unwrap_err().contains("not an error"));
        assert!(refuses(&spoken(&[goodbye(4)])).unwrap_err().contains("does not close"));
        assert!(refuses(&closed(&[])).is_err());
        assert_eq!(closes(&closed(&[])), Ok(()));
        assert!(closes(&silent()).is_err());
        assert!(closes(&Transcript { end: End::Flooded, ..spoken(&[]) }).is_err());
    }
}
