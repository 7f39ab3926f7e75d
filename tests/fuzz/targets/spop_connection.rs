//! An agent listens to any bytes: it comes to an end, says whole frames only, and does not mind how the
//! bytes arrive.

use slowlane::wire::spop::{Ack, Close, Connection, Data, Error, Frame, HaproxyHello, Notify, Scope, Step};

const FRAME_BYTES_MAX: u32 = 4_096;

// The first byte is the length of the chunks that the others arrive in.
pub fn run(bytes: &[u8]) {
    let Some((&chunk_bytes, bytes)) = bytes.split_first() else { return };
    let mut greeted = Vec::new();
    HaproxyHello::new(FRAME_BYTES_MAX).encode(&mut greeted);
    greeted.extend_from_slice(bytes);
    for bytes in [bytes, &greeted] {
        let (said, close) = listen([bytes]);
        let chunks = bytes.chunks(usize::from(chunk_bytes).max(1));
        assert_eq!(listen(chunks), (said.clone(), close));
        expect_whole_frames(&said);
    }
}

fn listen<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> (Vec<u8>, Option<Close>) {
    let (mut connection, mut unread, mut said) = (Connection::new(FRAME_BYTES_MAX), Vec::new(), Vec::new());
    for chunk in chunks {
        unread.extend_from_slice(chunk);
        let mut consumed = 0;
        loop {
            let close = match Frame::cut(&unread[consumed..], connection.frame_bytes_max()) {
                Ok(None) => break,
                Err(error) => Some(connection.refuse(error, &mut said)),
                Ok(Some((frame, length))) => {
                    consumed += length;
                    hear(&mut connection, frame, &mut said)
                }
            };
            if close.is_some() {
                return (said, close);
            }
        }
        unread.drain(..consumed);
    }
    (said, None)
}

fn hear(connection: &mut Connection, frame: Frame, said: &mut Vec<u8>) -> Option<Close> {
    match connection.receive(frame, said) {
        Step::Continue => None,
        Step::Close(close) => Some(close),
        Step::Notify(notify) => match answer(notify, said) {
            Ok(()) => None,
            Err(error) => Some(connection.refuse(error, said)),
        },
    }
}

fn answer(notify: Notify, said: &mut Vec<u8>) -> Result<(), Error> {
    let mut numbers = 0_i64;
    let mut messages = notify.messages();
    while let Some(message) = messages.next_message()? {
        for argument in message.arguments() {
            numbers = numbers.wrapping_add(argument?.1.to_i64().unwrap_or_default());
        }
    }
    let ack = Ack::begin(said, notify.stream_id, notify.frame_id);
    ack.set_var(Scope::Txn, b"numbers", Data::Int64(numbers)).finish();
    Ok(())
}

fn expect_whole_frames(mut said: &[u8]) {
    while !said.is_empty() {
        let (_, length) = Frame::cut(said, FRAME_BYTES_MAX).expect("a frame of ours").expect("a whole one");
        said = &said[length..];
    }
}
