//! Judges of ACKs (SPOE.txt 3.2.7, 3.4).

use crate::spoa::Judged;
use crate::spoa::judges::ensure;
use crate::spoa::transcript::{End, Received, Transcript};
use spop::{Ack, Action, AgentHello, Frame, Head, Kind};

/// Each NOTIFY has one ACK with its ids, and there are no other ACKs.
pub(crate) fn acks(transcript: &Transcript) -> Judged {
    acks_but(transcript, |_| false)
}

/// Each NOTIFY has its ACK, or the agent refuses with an AGENT-DISCONNECT.
pub(crate) fn acks_or_refuses(transcript: &Transcript) -> Judged {
    if is_refused(transcript)? { Ok(()) } else { acks(transcript) }
}

/// Like [`acks`], but a NOTIFY with ABORT may have an ACK or none.
pub(crate) fn acks_beside_abort(transcript: &Transcript) -> Judged {
    let is_aborted = |head: Head| head.flags & Head::ABORT != 0;
    if is_refused(transcript)? { Ok(()) } else { acks_but(transcript, is_aborted) }
}

/// Each NOTIFY has one ACK, except that some may have none.
fn acks_but(transcript: &Transcript, may_lack: fn(Head) -> bool) -> Judged {
    let mut open = heads(transcript.asked(), Kind::NOTIFY);
    if open.is_empty() {
        return Err(format!("the handshake before it fails: {}", transcript.ending()));
    }
    let frames = transcript.frames()?;
    for acked in heads(frames.iter().map(|received| received.frame), Kind::ACK) {
        match open.iter().position(|head| ids(head) == ids(&acked)) {
            Some(at) => drop(open.remove(at)),
            None => return Err(format!("an ACK has the ids {}, which are not open", ids(&acked))),
        }
    }
    match open.iter().find(|&&head| !may_lack(head)) {
        None => Ok(()),
        Some(head) => Err(format!("no ACK for {}: {}", ids(head), transcript.ending())),
    }
}

fn is_refused(transcript: &Transcript) -> Result<bool, String> {
    let frames = transcript.frames()?;
    Ok(frames.iter().any(|received| received.frame.head.kind == Kind::AGENT_DISCONNECT))
}

pub(crate) fn acks_nothing(transcript: &Transcript) -> Judged {
    // Other frames, and the end of the connection, are for other judges.
    match transcript.frames() {
        Err(reason) if transcript.end == End::Flooded => Err(reason),
        Ok(frames) if frames.iter().any(|received| received.frame.head.kind == Kind::ACK) => {
            Err("it is answered by an ACK".into())
        }
        _ => Ok(()),
    }
}

pub(crate) fn set_fin(transcript: &Transcript) -> Judged {
    each(transcript, |ack| ensure(ack.frame.head.flags & Head::FIN != 0, "an ACK has no FIN"))
}

/// No ACK is longer than agreed.
pub(crate) fn fit(transcript: &Transcript) -> Judged {
    let frames = transcript.frames()?;
    let hello = frames.first().and_then(|first| AgentHello::decode(first.frame).ok());
    let agreed = hello.ok_or("no frame size was agreed")?.frame_bytes_max;
    each(transcript, |&Received { bytes, .. }| {
        ensure(bytes <= agreed as usize, format!("an ACK has {bytes} bytes, and {agreed} were agreed"))
    })
}

/// The payload is a list of actions, each with a scope that exists.
pub(crate) fn are_actions(transcript: &Transcript) -> Judged {
    each(transcript, |ack| {
        actions(ack).map(drop).map_err(|error| format!("an ACK is not a list of actions: {error}"))
    })
}

/// An empty ACK makes HAProxy 3.1.0 wait for its timeout.
pub(crate) fn are_not_empty(transcript: &Transcript) -> Judged {
    each(transcript, |ack| ensure(!ack.frame.payload.is_empty(), "an ACK has no action"))
}

/// The characters that HAProxy accepts in the name of a variable.
pub(crate) fn name_variables(transcript: &Transcript) -> Judged {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.".contains(byte);
    each(transcript, |ack| {
        actions(ack).unwrap_or_default().into_iter().try_for_each(|action| {
            let (Action::SetVar { name, .. } | Action::UnsetVar { name, .. }) = action;
            let is_taken = !name.is_empty() && name.iter().all(is_letter);
            ensure(is_taken, format!("HAProxy takes no variable \"{}\"", name.escape_ascii()))
        })
    })
}

/// Judges each ACK. Without ACKs, there is nothing to judge.
fn each(transcript: &Transcript, judge: impl Fn(&Received<'_>) -> Judged) -> Judged {
    let frames = transcript.frames()?;
    let mut acks = frames.iter().filter(|received| received.frame.head.kind == Kind::ACK).peekable();
    acks.peek().ok_or_else(|| format!("no ACK: {}", transcript.ending()))?;
    acks.try_for_each(judge)
}

/// The actions, even of an ACK without FIN.
fn actions<'a>(received: &Received<'a>) -> Result<Vec<Action<'a>>, String> {
    let Frame { head, payload } = received.frame;
    let whole = Frame { head: Head { flags: head.flags | Head::FIN, ..head }, payload };
    let ack = Ack::decode(whole).map_err(|error| error.to_string())?;
    ack.actions().collect::<Result<_, _>>().map_err(|error| error.to_string())
}

fn heads<'a>(frames: impl Iterator<Item = Frame<'a>>, kind: Kind) -> Vec<Head> {
    frames.map(|frame| frame.head).filter(|head| head.kind == kind).collect()
}

/// The ids, as a reason shows them.
fn ids(head: &Head) -> String {
    format!("{}/{}", head.stream_id, head.frame_id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spoa::frames::{HELLO, flagged, frame, hello};
    use crate::spoa::judges::tests::{ack, closed, goodbye, greeting, silent, spoken};
    use crate::spoa::setting::tests::setting;

    fn reported(judge: fn(&Transcript) -> Result<(), String>, frames: &[Vec<u8>]) -> String {
        let frames = [&[greeting(256)], frames].concat();
        judge(&spoken(&frames)).err().unwrap_or_default()
    }

    fn of(flags: u32, payload: &[u8]) -> Vec<u8> {
        frame(Head { flags, ..Head::new(Kind::ACK, 1, 1) }, payload)
    }

    #[test]
    fn each_notify_has_one_ack_in_any_order() {
        assert_eq!(reported(acks, &[ack(2, 1), ack(1, 1)]), "");
        assert_eq!(reported(acks, &[ack(1, 1)]), "no ACK for 2/1: no answer in time after an ACK");
        assert!(reported(acks, &[ack(1, 1), ack(2, 1), ack(2, 1)]).contains("2/1, which are not open"));
        assert!(reported(acks, &[ack(1, 1), ack(2, 2)]).contains("2/2, which are not open"));
        assert!(acks(&silent()).unwrap_err().contains("no answer in time"));
        let left = acks(&closed(&[ack(1, 1)])).unwrap_err();
        assert!(left.contains("closes without AGENT-DISCONNECT"), "{left}");
    }

    /// An agent that fails the handshake of an exchange has not passed what comes after it.
    #[test]
    fn a_notify_that_was_never_sent_has_no_ack() {
        let transcript = Transcript { sent: Vec::new(), ..closed(&[]) };
        assert!(acks(&transcript).unwrap_err().contains("the handshake before it fails"));
        assert!(acks_or_refuses(&transcript).is_err());
    }

    #[test]
    fn a_refusal_is_an_answer() {
        assert_eq!(reported(acks_or_refuses, &[goodbye(4)]), "");
        assert_eq!(reported(acks_or_refuses, &[ack(1, 1), ack(2, 1)]), "");
        assert!(acks_or_refuses(&silent()).is_err());
        assert!(acks_or_refuses(&closed(&[])).is_err());
    }

    /// An aborted NOTIFY may go without its ACK, and no other one may.
    #[test]
    fn an_abort_excuses_its_own_notify_only() {
        let aborted = flagged(setting().notify(1, 1), Head::FIN | Head::ABORT);
        let sent = [hello(HELLO), aborted, setting().notify(2, 1)].concat();
        let judged = |frames: &[Vec<u8>], end| {
            let received = [&[greeting(256)], frames].concat().concat();
            acks_beside_abort(&Transcript { sent: sent.clone(), received, end })
        };
        assert_eq!(judged(&[ack(1, 1), ack(2, 1)], End::Open), Ok(()));
        assert_eq!(judged(&[ack(2, 1)], End::Overdue), Ok(()));
        assert_eq!(judged(&[goodbye(4)], End::Closed), Ok(()));
        assert!(judged(&[], End::Overdue).unwrap_err().contains("no ACK for 2/1: no answer in time"));
        assert!(judged(&[ack(1, 1)], End::Overdue).unwrap_err().contains("no ACK for 2/1"));
        assert!(judged(&[], End::Closed).unwrap_err().contains("closes without AGENT-DISCONNECT"));
        assert!(judged(&[ack(2, 1), ack(2, 1)], End::Open).unwrap_err().contains("not open"));
    }

    #[test]
    fn an_ack_has_fin_and_the_agreed_size() {
        assert_eq!(reported(set_fin, &[of(1, b"")]), "");
        assert_eq!(reported(set_fin, &[of(0, b"")]), "an ACK has no FIN");
        assert!(set_fin(&silent()).is_err(), "no ACK is no pass");
        assert_eq!(reported(fit, &[of(1, &[0; 249])]), "");
        assert_eq!(reported(fit, &[of(1, &[0; 250])]), "an ACK has 257 bytes, and 256 were agreed");
    }

    #[test]
    fn an_ack_is_a_list_of_actions() {
        for payload in [&b""[..], b"\x01\x03\x04\x01a\x11", b"\x02\x02\x00\x01a"] {
            assert_eq!(reported(are_actions, &[of(0, payload)]), "");
        }
        for payload in
            [&b"\x03"[..], b"\x01\x02\x02\x01a\x11", b"\x01\x03\x05\x01a\x11", b"\x02\x02\x00\x02a"]
        {
            assert!(
                reported(are_actions, &[of(1, payload)]).contains("not a list of actions"),
                "{payload:?}"
            );
        }
        assert_eq!(reported(are_not_empty, &[of(1, b"")]), "an ACK has no action");
        assert_eq!(reported(are_not_empty, &[ack(1, 1)]), "");
    }

    #[test]
    fn a_variable_has_a_name_that_haproxy_takes() {
        assert_eq!(reported(name_variables, &[of(1, b"\x02\x02\x02\x05a_B.9")]), "");
        assert_eq!(
            reported(name_variables, &[of(1, b"\x02\x02\x02\x03a-b")]),
            "HAProxy takes no variable \"a-b\""
        );
        assert!(reported(name_variables, &[of(1, b"\x02\x02\x02\x00")]).contains("no variable"));
    }

    #[test]
    fn an_ack_where_none_is_due_is_found() {
        assert_eq!(reported(acks_nothing, &[ack(1, 1)]), "it is answered by an ACK");
        assert_eq!(reported(acks_nothing, &[goodbye(4)]), "");
        assert_eq!(acks_nothing(&silent()), Ok(()));
        assert!(acks_nothing(&Transcript { end: End::Flooded, ..spoken(&[]) }).is_err());
    }
}
