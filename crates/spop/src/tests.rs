//! Properties of whole conversations, for any bytes in any chunks.

use proptest::prelude::*;
use proptest::sample::Index;

use crate::hello::tests::{HAPROXY_2_6, HAPROXY_3_2, HEALTH_CHECK};
use crate::notify::tests::{Spoken, any_messages, encode};
use crate::{Ack, Close, Connection, Data, Disconnect, Error, Frame, Notify, Scope, Step, Variable};

const FRAME_BYTES_MAX: u32 = 16_380;

const ARGUMENTS: Variable = Variable::new(Scope::Txn, b"arguments");

/// The messages that an agent received and sent, and how the conversation ended.
#[derive(Debug, Default, PartialEq)]
struct Transcript {
    /// Stream-id, and number of arguments, of each NOTIFY.
    received: Vec<(u64, usize)>,
    said: Vec<u8>,
    close: Option<Close>,
}

/// Feeds the chunks to an agent that answers every NOTIFY at once.
fn listen<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Transcript {
    let (mut connection, mut unread) = (Connection::new(FRAME_BYTES_MAX), Vec::new());
    let mut transcript = Transcript::default();
    for chunk in chunks {
        unread.extend_from_slice(chunk);
        let mut consumed = 0;
        while transcript.close.is_none() {
            match Frame::cut(&unread[consumed..], connection.frame_bytes_max()) {
                Ok(None) => break,
                Ok(Some((frame, length))) => {
                    consumed += length;
                    transcript.close = receive(&mut connection, frame, &mut transcript);
                }
                Err(error) => transcript.close = Some(connection.refuse(error, &mut transcript.said)),
            }
        }
        unread.drain(..consumed);
    }
    transcript
}

fn receive(connection: &mut Connection, frame: Frame<'_>, transcript: &mut Transcript) -> Option<Close> {
    match connection.receive(frame, &mut transcript.said) {
        Step::Continue => None,
        Step::Close(close) => Some(close),
        Step::Notify(notify) => match count(notify) {
            Err(error) => Some(connection.refuse(error, &mut transcript.said)),
            Ok(arguments) => {
                transcript.received.push((notify.stream_id, arguments));
                let ack = Ack::begin(&mut transcript.said, notify.stream_id, notify.frame_id);
                ack.set(&ARGUMENTS, Data::Int64(arguments as i64)).finish();
                None
            }
        },
    }
}

fn count(notify: Notify<'_>) -> Result<usize, Error> {
    let mut arguments = 0;
    let mut messages = notify.messages();
    while let Some(message) = messages.next_message()? {
        for argument in message.arguments() {
            argument?;
            arguments += 1;
        }
    }
    Ok(arguments)
}

/// A possible conversation of HAProxy.
fn any_conversation() -> impl Strategy<Value = (Vec<u8>, Vec<Spoken>)> {
    let hello = prop::sample::select(vec![HAPROXY_2_6, HAPROXY_3_2]);
    (hello, prop::collection::vec(any_messages(), 0..5), any::<bool>()).prop_map(
        |(hello, notifies, leaves)| {
            let mut bytes = hello.to_vec();
            for (stream_id, messages) in notifies.iter().enumerate() {
                encode(messages, stream_id as u64, 1, &mut bytes);
            }
            if leaves {
                Disconnect::NORMAL.encode_as_haproxy(&mut bytes);
            }
            (bytes, notifies)
        },
    )
}

#[test]
fn a_health_check_ends_with_a_hello_alone() {
    let transcript = listen([HEALTH_CHECK]);
    assert!(transcript.close.is_some_and(|close| close.error.is_none()));
    assert!(transcript.said.ends_with(b"\x0ccapabilities\x08\x0apipelining"));
}

proptest! {
    #[test]
    fn every_notify_is_received_once_and_in_order((bytes, notifies) in any_conversation()) {
        let arguments = |spoken: &Spoken| spoken.iter().map(|(_, arguments)| arguments.len()).sum();
        let spoken: Vec<(u64, usize)> = (0..).zip(notifies.iter().map(arguments)).collect();
        let transcript = listen([&bytes[..]]);
        prop_assert_eq!(transcript.received, spoken);
        prop_assert!(transcript.close.is_none_or(|close| close.error.is_none()));
    }

    #[test]
    fn it_does_not_matter_how_bytes_arrive((bytes, _) in any_conversation(), cuts: Vec<Index>) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let chunks = cuts.windows(2).map(|ends| &bytes[ends[0]..ends[1]]);
        prop_assert_eq!(listen(chunks), listen([&bytes[..]]));
        prop_assert_eq!(listen(bytes.chunks(1)), listen([&bytes[..]]));
    }

    #[test]
    fn one_wrong_byte_does_no_harm((mut bytes, _) in any_conversation(), at: Index, byte: u8) {
        let at = at.index(bytes.len());
        bytes[at] = byte;
        prop_assert_eq!(listen(bytes.chunks(7)), listen([&bytes[..]]));
    }

    #[test]
    fn any_bytes_come_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..2_000), after_hello: bool) {
        let hello = if after_hello { HAPROXY_3_2 } else { b"" };
        let transcript = listen([hello, &bytes]);
        prop_assert!(transcript.received.len() <= bytes.len() / 11);
    }

    /// Frames of any kind with any payload: more of them are valid than among random bytes.
    #[test]
    fn any_frames_come_to_an_end(
        frames in prop::collection::vec((0_u8..5, 0_u32..4, prop::collection::vec(any::<u8>(), 0..40)), 0..20),
    ) {
        let mut bytes = HAPROXY_3_2.to_vec();
        for (kind, flags, payload) in &frames {
            bytes.extend_from_slice(&(payload.len() as u32 + 7).to_be_bytes());
            bytes.push(*kind);
            bytes.extend_from_slice(&flags.to_be_bytes());
            bytes.extend_from_slice(&[0, 0]);
            bytes.extend_from_slice(payload);
        }
        let transcript = listen([&bytes[..]]);
        prop_assert!(transcript.received.len() <= frames.len());
    }
}
