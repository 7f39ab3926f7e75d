//! NOTIFY, HAProxy's query: messages with named arguments (SPOE.txt 3.2.6).
//!
//! ```text
//!  payload:   message …
//!  message:   name │ nb-args │ argument …       name: string, nb-args: 1 byte
//!  argument:  name │ value                      value: typed data
//! ```

use std::iter;

use crate::data::{decode_item, encode_item};
use crate::{Cursor, Data, Error, Frame, FrameWriter, Head, Kind, Names, encode_string};

/// A query from HAProxy. It needs exactly one ACK with the same stream-id and frame-id.
///
/// ```
/// use spop::{Data, Error, Frame, Notify};
///
/// let mut bytes = Vec::new();
/// let arguments: [(&[u8], Data); 2] = [(b"website", Data::Str(b"shop.example")), (b"owner", Data::Null)];
/// Notify::begin(&mut bytes, 7, 1).message(b"request", &arguments).finish();
///
/// let (frame, _) = Frame::cut(&bytes, 256)?.unwrap();
/// let mut messages = Notify::decode(frame)?.messages();
/// while let Some(message) = messages.next_message()? {
///     assert_eq!(message.name, b"request");
///     let website = message.arguments().next().unwrap()?;
///     assert_eq!(website, (&b"website"[..], Data::Str(b"shop.example")));
/// }
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notify<'a> {
    pub stream_id: u64,
    pub frame_id: u64,
    payload: &'a [u8],
}

impl<'a> Notify<'a> {
    /// Decodes a frame of the kind `NOTIFY`. The payload is decoded later, by [`Messages`].
    ///
    /// # Errors
    /// The frame is fragmented. The frame's kind is not checked.
    #[inline]
    pub fn decode(frame: Frame<'a>) -> Result<Notify<'a>, Error> {
        frame.head.expect_whole()?;
        let Head { stream_id, frame_id, .. } = frame.head;
        Ok(Notify { stream_id, frame_id, payload: frame.payload })
    }

    /// A reader of the messages.
    #[inline]
    pub fn messages(self) -> Messages<'a> {
        Messages { rest: Cursor::new(self.payload), arguments_left: 0 }
    }

    /// Starts a NOTIFY at the end of `out`.
    pub fn begin(out: &mut Vec<u8>, stream_id: u64, frame_id: u64) -> NotifyWriter<'_> {
        NotifyWriter { frame: FrameWriter::begin(out, Head::new(Kind::NOTIFY, stream_id, frame_id)) }
    }
}

/// Reads the payload of a NOTIFY once, from start to end.
///
/// A message has no length field: the next message follows the last argument. An error may come after valid
/// arguments, so read the whole payload before you act on it.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    rest: Cursor<'a>,
    arguments_left: u8,
}

impl<'a> Messages<'a> {
    /// The next message. Unread arguments of the previous one are skipped.
    ///
    /// # Errors
    /// An unread argument of the previous message, or the start of the next message, is invalid.
    #[inline]
    pub fn next_message(&mut self) -> Result<Option<Message<'_, 'a>>, Error> {
        while let Some(argument) = self.next_argument() {
            argument?;
        }
        if self.rest.is_empty() {
            return Ok(None);
        }
        let name = self.rest.string()?;
        self.arguments_left = self.rest.byte()?;
        Ok(Some(Message { name, messages: self }))
    }

    /// Whether everything has been read. If not, more messages or an error may follow.
    #[inline]
    pub fn is_at_end(&self) -> bool {
        self.arguments_left == 0 && self.rest.is_empty()
    }

    #[inline]
    fn next_argument(&mut self) -> Option<Result<(&'a [u8], Data<'a>), Error>> {
        self.arguments_left = self.arguments_left.checked_sub(1)?;
        Some(decode_item(&mut self.rest))
    }
}

/// One message of a NOTIFY.
#[derive(Debug)]
pub struct Message<'m, 'a> {
    pub name: &'a [u8],
    messages: &'m mut Messages<'a>,
}

impl<'m, 'a> Message<'m, 'a> {
    /// The name and value of each argument. A name may be empty.
    pub fn arguments(self) -> impl Iterator<Item = Result<(&'a [u8], Data<'a>), Error>> {
        iter::from_fn(|| self.messages.next_argument())
    }

    /// Calls `each` with every argument; faster than [`arguments`](Message::arguments).
    ///
    /// # Errors
    /// An argument is unreadable. `each` has already been called for the arguments before it.
    #[inline(always)]
    pub fn each_argument(self, mut each: impl FnMut(&'a [u8], Data<'a>)) -> Result<(), Error> {
        let mut rest = self.messages.rest;
        for _ in 0..std::mem::take(&mut self.messages.arguments_left) {
            let (name, value) = decode_item(&mut rest)?;
            each(name, value);
        }
        self.messages.rest = rest;
        Ok(())
    }

    /// Calls `each` with every argument and its name's tag. Fastest if messages repeat the names of earlier messages.
    ///
    /// # Errors
    /// An argument is unreadable. `each` has already been called for the arguments before it.
    #[inline(always)]
    pub fn each_named<T: Copy>(
        self,
        names: &mut Names<T>,
        mut each: impl FnMut(&mut Option<T>, &'a [u8], Data<'a>),
    ) -> Result<(), Error> {
        let mut rest = self.messages.rest;
        for number in 0..usize::from(std::mem::take(&mut self.messages.arguments_left)) {
            let (name, tag) = names.read(number, &mut rest)?;
            each(tag, name, Data::decode(&mut rest)?);
        }
        self.messages.rest = rest;
        Ok(())
    }
}

/// An unfinished NOTIFY at the end of a buffer.
#[derive(Debug)]
#[must_use = "a frame has no length until it is finished"]
pub struct NotifyWriter<'o> {
    frame: FrameWriter<'o>,
}

impl NotifyWriter<'_> {
    /// Adds a message with at most 255 arguments. Panics if there are more.
    pub fn message(self, name: &[u8], arguments: &[(&[u8], Data<'_>)]) -> Self {
        let count = u8::try_from(arguments.len()).expect("a message has at most 255 arguments");
        encode_string(name, self.frame.out);
        self.frame.out.push(count);
        for &(name, value) in arguments {
            encode_item(name, value, self.frame.out);
        }
        self
    }

    pub fn finish(self) {
        self.frame.finish();
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ReadError;
    use crate::data::tests::{any_bytes, any_data};
    use crate::hello::tests::cut;

    pub(crate) type Spoken = Vec<(&'static [u8], Vec<(&'static [u8], Data<'static>)>)>;

    pub(crate) fn any_messages() -> impl Strategy<Value = Spoken> {
        let arguments = prop::collection::vec((any_bytes(), any_data()), 0..6);
        prop::collection::vec((any_bytes(), arguments), 0..4)
    }

    pub(crate) fn encode(messages: &Spoken, stream_id: u64, frame_id: u64, out: &mut Vec<u8>) {
        let notify = Notify::begin(out, stream_id, frame_id);
        messages.iter().fold(notify, |notify, (name, arguments)| notify.message(name, arguments)).finish();
    }

    fn of(payload: &[u8]) -> Notify<'_> {
        Notify::decode(Frame { head: Head::new(Kind::NOTIFY, 0, 1), payload }).unwrap()
    }

    type Received<'a> = Vec<(&'a [u8], Vec<(&'a [u8], Data<'a>)>)>;

    fn walk<'a>(notify: Notify<'a>) -> Result<Received<'a>, Error> {
        let mut received = Vec::new();
        let mut messages = notify.messages();
        while let Some(message) = messages.next_message()? {
            let name = message.name;
            received.push((name, message.arguments().collect::<Result<_, _>>()?));
        }
        Ok(received)
    }

    fn names<'a>(notify: Notify<'a>) -> Result<Vec<&'a [u8]>, Error> {
        let mut names = Vec::new();
        let mut messages = notify.messages();
        while let Some(message) = messages.next_message()? {
            names.push(message.name);
        }
        Ok(names)
    }

    #[test]
    fn it_has_these_bytes() {
        let mut out = Vec::new();
        Notify::begin(&mut out, 240, 1)
            .message(b"request", &[(b"source", Data::Ipv4([192, 0, 2, 1].into())), (b"", Data::Bool(true))])
            .message(b"hold", &[])
            .finish();
        let bytes = b"\x00\x00\x00\x25\x03\x00\x00\x00\x01\xf0\x00\x01\
            \x07request\x02\x06source\x06\xc0\x00\x02\x01\x00\x11\
            \x04hold\x00";
        assert_eq!(out, bytes);
    }

    #[test]
    fn messages_that_nobody_knows_are_walked_over() {
        let payload = b"\x01a\x02\x01x\x04\x07\x00\x08\x02hi\x01b\x00\x01c\x01\x01y\x00";
        assert_eq!(names(of(payload)), Ok(vec![&b"a"[..], b"b", b"c"]));
    }

    #[test]
    fn a_message_may_have_255_arguments() {
        let arguments = [(&b""[..], Data::Null); 255];
        let mut out = Vec::new();
        Notify::begin(&mut out, 1, 1).message(b"", &arguments).message(b"next", &[]).finish();
        let received = walk(Notify::decode(cut(&out)).unwrap()).unwrap();
        assert_eq!((received[0].1.len(), received[1].0), (255, &b"next"[..]));
    }

    #[test]
    fn a_walk_finds_what_is_missing_and_what_is_too_much() {
        assert_eq!(names(of(b"")), Ok(vec![]));
        assert_eq!(names(of(b"\x01a")), Err(Error::Read(ReadError::Truncated)), "no number of arguments");
        assert_eq!(names(of(b"\x01a\x01")), Err(Error::Read(ReadError::Truncated)), "an argument too few");
        assert_eq!(
            names(of(b"\x01a\x00\x09")),
            Err(Error::Read(ReadError::Truncated)),
            "bytes after the last message"
        );
        assert_eq!(names(of(b"\x01a\x01\x01x\x0a\x00")), Err(Error::ReservedType(10)));
        assert_eq!(
            names(of(b"\xff\xf0\xfe\xfe\xfe\xfe\xfe\xfe\xfe\x0e")),
            Err(Error::Read(ReadError::Truncated))
        );
    }

    #[test]
    fn reading_on_after_an_error_comes_to_an_end() {
        let mut messages = of(b"\x01a\xff\x01x\x0a").messages();
        let message = messages.next_message().unwrap().unwrap();
        assert_eq!(message.arguments().filter(Result::is_err).count(), 255);
        assert!(messages.next_message().unwrap().is_none());
    }

    #[test]
    fn a_fragment_is_refused_and_abort_on_a_whole_payload_is_ignored() {
        let head = Head::new(Kind::NOTIFY, 0, 1);
        let decode = |flags| Notify::decode(Frame { head: Head { flags, ..head }, payload: b"" });
        assert_eq!(decode(0), Err(Error::Fragmented));
        assert_eq!(decode(Head::ABORT), Err(Error::Fragmented));
        assert_eq!(decode(Head::FIN | Head::ABORT), Ok(of(b"")));
    }

    proptest! {
        #[test]
        fn it_reads_back(messages in any_messages(), stream_id: u64, frame_id: u64) {
            let mut bytes = Vec::new();
            encode(&messages, stream_id, frame_id, &mut bytes);
            let notify = Notify::decode(cut(&bytes)).unwrap();
            prop_assert_eq!((notify.stream_id, notify.frame_id), (stream_id, frame_id));
            prop_assert_eq!(walk(notify), Ok(messages.clone()));
            let spoken: Vec<&[u8]> = messages.iter().map(|message| message.0).collect();
            prop_assert_eq!(names(notify), Ok(spoken));
        }

        #[test]
        fn any_payload_comes_to_an_end(payload in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = walk(of(&payload));
            let mut messages = of(&payload).messages();
            let mut steps = 0;
            while !matches!(messages.next_message(), Ok(None)) {
                steps += 1;
                prop_assert!(steps <= 300 * 2);
            }
        }
    }
}
