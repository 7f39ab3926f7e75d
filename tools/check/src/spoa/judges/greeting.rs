//! Judges of the agent's hello (SPOE.txt 3.2.4, 3.2.5).

use crate::spoa::judges::{ensure, item, mandatory, number, string};
use crate::spoa::{Judged, Transcript};
use spop::{Data, FRAME_BYTES_MIN, Frame, Head, Kind};

/// The name of the AGENT-HELLO in a reason.
const OWN: &str = "the hello";

/// The first frame is an AGENT-HELLO, with a stream-id and a frame-id of 0.
pub(crate) fn greets(transcript: &Transcript) -> Judged {
    let head = hello(transcript)?.head;
    let ids = (head.stream_id, head.frame_id);
    ensure(ids == (0, 0), format!("the hello has the stream-id and frame-id {ids:?}"))
}

/// A valid AGENT-HELLO or a valid AGENT-DISCONNECT.
pub(crate) fn answers(transcript: &Transcript) -> Judged {
    match transcript.frames()?.first().map(|first| first.frame.head.kind) {
        Some(Kind::AGENT_HELLO | Kind::AGENT_DISCONNECT) => Ok(()),
        Some(Kind(number)) => Err(format!("the first frame is of type {number}")),
        None => Err(transcript.ending()),
    }
}

pub(crate) fn sets_fin(transcript: &Transcript) -> Judged {
    ensure(hello(transcript)?.head.flags & Head::FIN != 0, "the hello has no FIN")
}

/// The version is not newer than the newest that HAProxy has announced.
pub(crate) fn has_version(transcript: &Transcript) -> Judged {
    let text = string(hello(transcript)?, OWN, "version")?;
    let shown = text.escape_ascii();
    let version = version(text).ok_or_else(|| format!("version \"{shown}\" is not Major.Minor"))?;
    let is_announced = announced(transcript).into_iter().max().is_none_or(|newest| version <= newest);
    ensure(is_announced, format!("version \"{shown}\" was not announced"))
}

/// The agent agrees on a version that HAProxy has, or sends an AGENT-DISCONNECT.
pub(crate) fn agrees_on_a_version_or_refuses(transcript: &Transcript) -> Judged {
    answers(transcript)?;
    if hello(transcript).is_ok() { has_version(transcript) } else { Ok(()) }
}

/// The frame size is at least 256, and at most the size that HAProxy has offered.
pub(crate) fn has_frame_size(transcript: &Transcript) -> Judged {
    let size = number(hello(transcript)?, OWN, "max-frame-size")?;
    let offered = offer(transcript, "max-frame-size").and_then(Data::to_i64).unwrap_or(i64::MAX);
    ensure(size >= i64::from(FRAME_BYTES_MIN), format!("max-frame-size {size} is below 256"))?;
    ensure(size <= offered, format!("max-frame-size {size} is above the offered {offered}"))
}

/// The capabilities are a list of names, which may be empty.
pub(crate) fn has_capabilities(transcript: &Transcript) -> Judged {
    match mandatory(hello(transcript)?, OWN, "capabilities")? {
        Data::Str(list) if list.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ') => Ok(()),
        other => Err(format!("capabilities is not a list of names: {other:?}")),
    }
}

/// The AGENT-HELLO.
fn hello(transcript: &Transcript) -> Result<Frame<'_>, String> {
    match transcript.frames()?.first() {
        Some(first) if first.frame.head.kind == Kind::AGENT_HELLO => Ok(first.frame),
        _ => Err(format!("no AGENT-HELLO: {}", transcript.ending())),
    }
}

/// The versions of HAProxy's hello.
fn announced(transcript: &Transcript) -> Vec<(u32, u32)> {
    let versions = offer(transcript, "supported-versions").and_then(Data::to_bytes).unwrap_or_default();
    versions.split(|&byte| byte == b',').filter_map(|text| version(text.trim_ascii())).collect()
}

/// An item of HAProxy's hello.
fn offer<'a>(transcript: &'a Transcript, name: &str) -> Option<Data<'a>> {
    let hello = transcript.asked().find(|frame| frame.head.kind == Kind::HAPROXY_HELLO)?;
    item(hello, "HAProxy's hello", name).ok().flatten()
}

fn version(text: &[u8]) -> Option<(u32, u32)> {
    let (major, minor) = str::from_utf8(text).ok()?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spoa::judges::tests::{hello_of, silent, spoken};
    use spop::{Data, Head, Kind};

    const VERSION: (&[u8], Data<'static>) = (b"version", Data::Str(b"2.0"));
    const SIZE: (&[u8], Data<'static>) = (b"max-frame-size", Data::Uint32(16_380));
    const CAPABILITIES: (&[u8], Data<'static>) = (b"capabilities", Data::Str(b"pipelining"));

    fn reported(judge: fn(&Transcript) -> Result<(), String>, items: &[(&[u8], Data<'_>)]) -> String {
        judge(&spoken(&[hello_of(items)])).err().unwrap_or_default()
    }

    #[test]
    fn a_good_hello_passes_every_judge() {
        let good = [VERSION, SIZE, CAPABILITIES];
        let judges = [greets, answers, sets_fin, has_version, has_frame_size, has_capabilities];
        assert_eq!(judges.map(|judge| reported(judge, &good)), [""; 6]);
        assert_eq!(reported(agrees_on_a_version_or_refuses, &good), "");
    }

    #[test]
    fn silence_fails_every_judge() {
        for judge in [greets, answers, sets_fin, has_version, has_frame_size, has_capabilities] {
            assert!(judge(&silent()).unwrap_err().contains("no answer in time"));
        }
    }

    #[test]
    fn a_version_has_a_form_and_was_announced() {
        let version = |value| reported(has_version, &[(VERSION.0, value), SIZE]);
        assert_eq!(version(Data::Str(b"1.9")), "");
        assert_eq!(version(Data::Str(b"2.1")), "version \"2.1\" was not announced");
        assert_eq!(version(Data::Str(b"2")), "version \"2\" is not Major.Minor");
        assert!(version(Data::Uint32(2)).contains("not a string"));
        assert_eq!(reported(has_version, &[SIZE]), "the hello has no version");
    }

    #[test]
    fn a_frame_size_is_at_most_the_offered_one() {
        let size = |value| reported(has_frame_size, &[VERSION, (SIZE.0, value)]);
        assert_eq!(size(Data::Uint32(256)), "");
        assert!(size(Data::Uint32(255)).contains("below 256"));
        assert!(size(Data::Uint32(16_381)).contains("above the offered 16380"));
        assert!(size(Data::Str(b"16380")).contains("not a number"));
        assert!(reported(has_frame_size, &[VERSION]).contains("no max-frame-size"));
    }

    #[test]
    fn capabilities_are_mandatory_and_may_be_empty() {
        assert_eq!(reported(has_capabilities, &[(CAPABILITIES.0, Data::Str(b""))]), "");
        assert!(reported(has_capabilities, &[VERSION]).contains("no capabilities"));
        assert!(reported(has_capabilities, &[(CAPABILITIES.0, Data::Bool(true))]).contains("not a list"));
    }

    #[test]
    fn a_hello_of_a_stream_or_without_fin_is_none() {
        let head = Head::of_connection(Kind::AGENT_HELLO);
        let of = |head| spoken(&[crate::spoa::frames::frame(head, b"")]);
        assert!(greets(&of(Head { stream_id: 1, ..head })).is_err());
        assert!(sets_fin(&of(Head { flags: 0, ..head })).is_err());
        assert!(answers(&of(Head { kind: Kind::ACK, ..head })).is_err());
    }
}
