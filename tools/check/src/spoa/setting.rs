//! The message that the suite sends to an agent, and the result of the handshake.

use std::net::IpAddr;
use std::str::FromStr;

use thiserror::Error;

use crate::spoa::frames::{Item, LENGTH_BYTES, OFFERED_BYTES, encoded};
use spop::{AgentHello, Data, Notify};

/// A message that no agent knows.
pub(super) const UNKNOWN: &[u8] = b"slowlane-spoa-check";

/// The number of arguments of a message fits in one byte.
const MESSAGE_ARGUMENTS_MAX: usize = u8::MAX as usize;

/// The maximum number of arguments that a user can add: some cases add two more.
pub(crate) const ARGUMENTS_MAX: usize = MESSAGE_ARGUMENTS_MAX - 2;

#[derive(Clone, Debug, Default)]
pub(crate) struct Setting {
    pub(super) message: String,
    pub(super) arguments: Vec<Argument>,
    /// `None` before the handshake, or if it fails.
    pub(super) agreed: Option<Agreed>,
}

/// The result of a plain handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Agreed {
    pub frame_bytes_max: u32,
    pub pipelining: bool,
    pub fragmentation: bool,
}

/// The answer to a plain hello on which an exchange depends. Without this answer, the cases are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    /// Any AGENT-HELLO.
    Greeting,
    /// An agreed frame size into which the message fits. Otherwise the cases fail.
    Room,
    /// The capability `pipelining`.
    Pipelining,
    /// No capability `fragmentation`.
    WholePayloads,
}

/// An argument of the message, whose type follows from its value.
///
/// `true` and `false` are BOOL, whole numbers are INT64, addresses are IPV4 or IPV6, and the rest is STR. A value after
/// `str:` is STR in any case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Argument {
    name: String,
    value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("expected an argument, like ip=192.0.2.1 or path=str:42")]
pub(crate) struct ArgumentError;

impl FromStr for Argument {
    type Err = ArgumentError;

    fn from_str(text: &str) -> Result<Argument, ArgumentError> {
        let (name, value) = text.split_once('=').ok_or(ArgumentError)?;
        Ok(Argument { name: name.to_owned(), value: value.to_owned() })
    }
}

impl Argument {
    fn pair(&self) -> Item<'_> {
        let value = if let Some(text) = self.value.strip_prefix("str:") {
            Data::Str(text.as_bytes())
        } else if let Ok(flag) = self.value.parse() {
            Data::Bool(flag)
        } else if let Ok(number) = self.value.parse() {
            Data::Int64(number)
        } else {
            match self.value.parse() {
                Ok(IpAddr::V4(address)) => Data::Ipv4(address),
                Ok(IpAddr::V6(address)) => Data::Ipv6(address),
                Err(_) => Data::Str(self.value.as_bytes()),
            }
        };
        (self.name.as_bytes(), value)
    }
}

impl Agreed {
    pub(super) fn of(hello: &AgentHello<'_>) -> Agreed {
        let has =
            |name: &[u8]| hello.capabilities.split(|&byte| byte == b',').any(|one| one.trim_ascii() == name);
        Agreed {
            frame_bytes_max: hello.frame_bytes_max,
            pipelining: has(b"pipelining"),
            fragmentation: has(b"fragmentation"),
        }
    }
}

impl Setting {
    pub(crate) fn new(message: String, arguments: Vec<Argument>) -> Setting {
        Setting { message, arguments, agreed: None }
    }

    /// The reason to skip an exchange.
    pub(super) fn lacks(&self, needs: Needs) -> Option<&'static str> {
        match (needs, self.agreed) {
            (Needs::Nothing, _) => None,
            (_, None) => Some("the plain handshake fails"),
            (Needs::Pipelining, Some(agreed)) if !agreed.pipelining => {
                Some("the agent does not announce pipelining")
            }
            (Needs::WholePayloads, Some(agreed)) if agreed.fragmentation => {
                Some("the agent announces fragmentation")
            }
            _ => None,
        }
    }

    pub(super) fn notify(&self, stream_id: u64, frame_id: u64) -> Vec<u8> {
        self.notify_with(stream_id, frame_id, &[])
    }

    /// The message, with more arguments after its own.
    pub(super) fn notify_with(&self, stream_id: u64, frame_id: u64, more: &[Item<'_>]) -> Vec<u8> {
        self.notify_after(stream_id, frame_id, &[], more)
    }

    /// A message of this name without arguments, then the usual message.
    pub(super) fn notify_second(&self, first: &[u8]) -> Vec<u8> {
        self.notify_after(1, 1, &[first], &[])
    }

    fn notify_after(&self, stream_id: u64, frame_id: u64, before: &[&[u8]], more: &[Item<'_>]) -> Vec<u8> {
        let arguments = self.arguments.iter().map(Argument::pair).chain(more.iter().copied());
        let arguments: Vec<Item<'_>> = arguments.collect();
        encoded(|out| {
            let notify = Notify::begin(out, stream_id, frame_id);
            let notify = before.iter().fold(notify, |notify, name| notify.message(name, &[]));
            notify.message(self.message.as_bytes(), &arguments).finish();
        })
    }

    /// A single message that the agent does not know.
    pub(super) fn notify_unknown(&self) -> Vec<u8> {
        encoded(|out| Notify::begin(out, 1, 1).message(UNKNOWN, &[(b"x", Data::Bool(true))]).finish())
    }

    /// The maximum number of arguments of one message, its own included.
    pub(super) fn notify_of_255_arguments(&self) -> Vec<u8> {
        let more = MESSAGE_ARGUMENTS_MAX.saturating_sub(self.arguments.len());
        let names: Vec<String> = (0..more).map(|number| format!("x{number}")).collect();
        let more: Vec<Item<'_>> = names.iter().map(|name| (name.as_bytes(), Data::Null)).collect();
        self.notify_with(1, 1, &more)
    }

    /// The message with an argument of text, in a frame of this many bytes, its length field excluded.
    pub(super) fn notify_of_size(&self, frame_bytes: usize) -> Vec<u8> {
        let sized = |text: usize| self.notify_with(1, 1, &[(b"x", Data::Str(&vec![b'a'; text]))]);
        let surplus = |text: usize| sized(text).len() - LENGTH_BYTES - text;
        // The length of the text is itself of variable length.
        let text = (0..4).fold(0, |text, _| frame_bytes.saturating_sub(surplus(text)));
        sized(text)
    }

    /// The size of the plain message in a frame, its length field excluded.
    pub(super) fn message_bytes(&self) -> usize {
        self.notify(1, 1).len() - LENGTH_BYTES
    }

    /// The agreed frame size, or the offered size.
    pub(super) fn frame_bytes_max(&self) -> usize {
        self.agreed.map_or(OFFERED_BYTES, |agreed| agreed.frame_bytes_max.min(OFFERED_BYTES)) as usize
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn setting() -> Setting {
        Setting::new("request".into(), vec!["ip=192.0.2.1".parse().unwrap()])
    }

    #[test]
    fn a_notify_can_have_any_size() {
        for size in [256, 281, 282, 283, 1_000, 2_320, 2_330, 2_340, 16_380, 16_381] {
            assert_eq!(setting().notify_of_size(size).len(), size + 4);
        }
    }

    #[test]
    fn an_exchange_is_skipped_for_what_the_agent_announces() {
        let announced = |capabilities| {
            let hello = AgentHello { frame_bytes_max: 256, capabilities };
            Setting { agreed: Some(Agreed::of(&hello)), ..setting() }
        };
        assert_eq!(setting().lacks(Needs::Nothing), None);
        assert_eq!(setting().lacks(Needs::Greeting), Some("the plain handshake fails"));
        assert_eq!(announced(b"").lacks(Needs::Greeting), None);
        assert!(announced(b"async").lacks(Needs::Pipelining).is_some());
        assert_eq!(announced(b"async, pipelining").lacks(Needs::Pipelining), None);
        assert!(announced(b"fragmentation").lacks(Needs::WholePayloads).is_some());
        assert_eq!(announced(b"pipelining").lacks(Needs::WholePayloads), None);
    }

    #[test]
    fn the_type_follows_from_the_value() {
        for (text, value) in [
            ("a=true", Data::Bool(true)),
            ("a=-5", Data::Int64(-5)),
            ("a=192.0.2.1", Data::Ipv4([192, 0, 2, 1].into())),
            ("a=::1", Data::Ipv6(std::net::Ipv6Addr::LOCALHOST)),
            ("a=shop.example", Data::Str(b"shop.example")),
            ("a=x=y", Data::Str(b"x=y")),
            ("a=str:5", Data::Str(b"5")),
            ("a=", Data::Str(b"")),
        ] {
            assert_eq!(text.parse::<Argument>().unwrap().pair(), (&b"a"[..], value), "{text}");
        }
        assert_eq!("a".parse::<Argument>(), Err(ArgumentError));
    }
}
