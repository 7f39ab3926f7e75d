//! The valid and invalid frames that the suite sends.

use spop::encode_string;
use spop::{Data, Disconnect, Frame, HaproxyHello, Head, Kind, Status};

/// The frame size that HAProxy offers by default.
pub(super) const OFFERED_BYTES: u32 = 16_380;

/// The length field before each frame.
pub(super) const LENGTH_BYTES: usize = 4;

pub(super) const ENGINE_ID: &[u8] = b"b2a7e1f0-5c5e-4a2b-9d3c-0f1e2d3c4b5a";

/// The hello of HAProxy 3.1 and later.
pub(super) const HELLO: HaproxyHello<'static> =
    HaproxyHello { engine_id: Some(ENGINE_ID), ..HaproxyHello::new(OFFERED_BYTES) };

/// A name and its value in a hello, or an argument of a message.
pub(super) type Item<'a> = (&'a [u8], Data<'a>);

pub(super) fn hello(hello: HaproxyHello<'_>) -> Vec<u8> {
    encoded(|out| hello.encode(out))
}

/// A frame of the connection with exactly these items.
pub(super) fn listing(kind: Kind, items: &[Item<'_>]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (name, value) in items {
        encode_string(name, &mut payload);
        value.encode(&mut payload);
    }
    frame(Head::of_connection(kind), &payload)
}

/// A hello of exactly these items.
pub(super) fn hello_of(items: &[Item<'_>]) -> Vec<u8> {
    listing(Kind::HAPROXY_HELLO, items)
}

pub(super) fn goodbye(code: u32) -> Vec<u8> {
    let goodbye = Disconnect { status: Status::new(code), message: b"slowlane-check spoa" };
    encoded(|out| goodbye.encode_as_haproxy(out))
}

pub(super) fn frame(head: Head, payload: &[u8]) -> Vec<u8> {
    encoded(|out| Frame { head, payload }.encode(out))
}

pub(super) fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes);
    bytes
}

/// The same frame with these flags, which come after the length and the type.
pub(super) fn flagged(mut bytes: Vec<u8>, flags: u32) -> Vec<u8> {
    bytes[5..9].copy_from_slice(&flags.to_be_bytes());
    bytes
}

/// A NOTIFY with any payload.
pub(super) fn notify_of(payload: &[u8]) -> Vec<u8> {
    frame(Head::new(Kind::NOTIFY, 1, 1), payload)
}
