//! Judges of the agent's hello (SPOE.txt 3.2.4, 3.2.5).

use crate::conformance::judges::item::item;
use crate::conformance::transcript::Transcript;
use spop::{Data, FRAME_BYTES_MIN, Frame, Head, Kind};

/// The name of the AGENT-HELLO in a reason.
const OWN: &str = "the hello";

/// The first frame is an AGENT-HELLO, with a stream-id and a frame-id of 0.
pub(crate) fn greets(transcript: &Transcript) -> Result<(), String> {
    let Head { stream_id, frame_id, .. } = hello(transcript)?.head;
    match (stream_id, frame_id) {
        (0, 0) => Ok(()),
        ids => Err(format!("the hello has the stream-id and frame-id {ids:?}")),
    }
}

/// An AGENT-HELLO or an AGENT-DISCONNECT, either by the book.
pub(crate) fn answers(transcript: &Transcript) -> Result<(), String> {
    match transcript.frames()?.first().map(|first| first.frame.head.kind) {
        Some(Kind::AgentHello | Kind::AgentDisconnect) => Ok(()),
        Some(kind) => Err(format!("the first frame is {kind:?}")),
        None => Err(transcript.ending()),
    }
}

pub(crate) fn sets_fin(transcript: &Transcript) -> Result<(), String> {
    match hello(transcript)?.head.flags & Head::FIN {
        0 => Err("the hello has no FIN".into()),
        _ => Ok(()),
    }
}

/// The version is at most one that HAProxy has announced.
pub(crate) fn has_version(transcript: &Transcript) -> Result<(), String> {
    let version = match item(hello(transcript)?, OWN, b"version")? {
        Some(Data::Str(version)) => version,
        Some(other) => return Err(format!("version is no string: {other:?}")),
        None => return Err("the hello has no version".into()),
    };
    let shown = version.escape_ascii();
    let number = number(version).ok_or_else(|| format!("version \"{shown}\" is not Major.Minor"))?;
    let newest = announced(transcript).into_iter().max();
    match newest {
        Some(newest) if number > newest => Err(format!("version \"{shown}\" was not announced")),
        _ => Ok(()),
    }
}

/// The agent agrees on a version that HAProxy has, or sends an AGENT-DISCONNECT.
pub(crate) fn agrees_on_a_version_or_refuses(transcript: &Transcript) -> Result<(), String> {
    answers(transcript)?;
    if hello(transcript).is_ok() { has_version(transcript) } else { Ok(()) }
}

/// At least 256, and at most the size that HAProxy has offered.
pub(crate) fn has_frame_size(transcript: &Transcript) -> Result<(), String> {
    let size = match item(hello(transcript)?, OWN, b"max-frame-size")? {
        None => return Err("the hello has no max-frame-size".into()),
        Some(value) => value.to_i64().ok_or_else(|| format!("max-frame-size is no number: {value:?}"))?,
    };
    let offered = offered(transcript).unwrap_or(i64::MAX);
    match size {
        size if size < i64::from(FRAME_BYTES_MIN) => Err(format!("max-frame-size {size} is below 256")),
        size if size > offered => Err(format!("max-frame-size {size} is above the offered {offered}")),
        _ => Ok(()),
    }
}

/// A list of names, which may be empty.
pub(crate) fn has_capabilities(transcript: &Transcript) -> Result<(), String> {
    match item(hello(transcript)?, OWN, b"capabilities")? {
        Some(Data::Str(list)) if list.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ') => Ok(()),
        Some(other) => Err(format!("capabilities is no list of names: {other:?}")),
        None => Err("the hello has no capabilities".into()),
    }
}

/// The AGENT-HELLO.
fn hello(transcript: &Transcript) -> Result<Frame<'_>, String> {
    match transcript.frames()?.first() {
        Some(first) if first.frame.head.kind == Kind::AgentHello => Ok(first.frame),
        _ => Err(format!("no AGENT-HELLO: {}", transcript.ending())),
    }
}

/// The versions of HAProxy's hello.
fn announced(transcript: &Transcript) -> Vec<(u32, u32)> {
    let versions = offer(transcript, b"supported-versions").and_then(Data::to_bytes).unwrap_or_default();
    versions.split(|&byte| byte == b',').filter_map(|version| number(version.trim_ascii())).collect()
}

fn offered(transcript: &Transcript) -> Option<i64> {
    offer(transcript, b"max-frame-size").and_then(Data::to_i64)
}

/// An item of HAProxy's hello.
fn offer<'a>(transcript: &'a Transcript, name: &[u8]) -> Option<Data<'a>> {
    let hello = transcript.asked().find(|frame| frame.head.kind == Kind::HaproxyHello)?;
    item(hello, "HAProxy's hello", name).ok().flatten()
}

fn number(version: &[u8]) -> Option<(u32, u32)> {
    let (major, minor) = std::str::from_utf8(version).ok()?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::judges::spoken::{hello_of, silent, spoken};
    use spop::{Data, Head, Kind};

    const VERSION: (&[u8], Data<'static>) = (b"version", Data::Str(b"2.0"));
    const SIZE: (&[u8], Data<'static>) = (b"max-frame-size", Data::Uint32(16_380));
    const CAPABILITIES: (&[u8], Data<'static>) = (b"capabilities", Data::Str(b"pipelining"));

    fn told(judge: fn(&Transcript) -> Result<(), String>, items: &[(&[u8], Data<'_>)]) -> String {
        judge(&spoken(&[hello_of(items)])).err().unwrap_or_default()
    }

    #[test]
    fn a_good_hello_passes_every_judge() {
        let good = [VERSION, SIZE, CAPABILITIES];
        let judges = [greets, answers, sets_fin, has_version, has_frame_size, has_capabilities];
        assert_eq!(judges.map(|judge| told(judge, &good)), [""; 6]);
        assert_eq!(told(agrees_on_a_version_or_refuses, &good), "");
    }

    #[test]
    fn silence_fails_every_judge() {
        for judge in [greets, answers, sets_fin, has_version, has_frame_size, has_capabilities] {
            assert!(judge(&silent()).unwrap_err().contains("nothing comes in time"));
        }
    }

    #[test]
    fn a_version_has_a_form_and_was_announced() {
        let version = |value| told(has_version, &[(VERSION.0, value), SIZE]);
        assert_eq!(version(Data::Str(b"1.9")), "");
        assert_eq!(version(Data::Str(b"2.1")), "version \"2.1\" was not announced");
        assert_eq!(version(Data::Str(b"2")), "version \"2\" is not Major.Minor");
        assert!(version(Data::Uint32(2)).contains("no string"));
        assert_eq!(told(has_version, &[SIZE]), "the hello has no version");
    }

    #[test]
    fn a_frame_size_is_at_most_the_offered_one() {
        let size = |value| told(has_frame_size, &[VERSION, (SIZE.0, value)]);
        assert_eq!(size(Data::Uint32(256)), "");
        assert!(size(Data::Uint32(255)).contains("below 256"));
        assert!(size(Data::Uint32(16_381)).contains("above the offered 16380"));
        assert!(size(Data::Str(b"16380")).contains("no number"));
        assert!(told(has_frame_size, &[VERSION]).contains("no max-frame-size"));
    }

    #[test]
    fn capabilities_are_mandatory_and_may_be_empty() {
        assert_eq!(told(has_capabilities, &[(CAPABILITIES.0, Data::Str(b""))]), "");
        assert!(told(has_capabilities, &[VERSION]).contains("no capabilities"));
        assert!(told(has_capabilities, &[(CAPABILITIES.0, Data::Bool(true))]).contains("no list"));
    }

    #[test]
    fn a_hello_of_a_stream_or_without_fin_is_none() {
        let head = Head::of_connection(Kind::AgentHello);
        let of = |head| spoken(&[crate::conformance::frames::frame(head, b"")]);
        assert!(greets(&of(Head { stream_id: 1, ..head })).is_err());
        assert!(sets_fin(&of(Head { flags: 0, ..head })).is_err());
        assert!(answers(&of(Head { kind: Kind::Ack, ..head })).is_err());
    }
}
