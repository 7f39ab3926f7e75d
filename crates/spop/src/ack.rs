//! ACK, an agent's answer: actions on HAProxy's variables (SPOE.txt 3.2.7, 3.4).

use crate::frame::LENGTH_BYTES;
use crate::{Cursor, Data, Error, Frame, FrameWriter, Head, Kind, cursor, varint};

const SET_VAR: u8 = 1;
const SET_VAR_ARGUMENTS: u8 = 3;
const UNSET_VAR: u8 = 2;
const UNSET_VAR_ARGUMENTS: u8 = 2;

/// The scope of a variable (SPOE.txt 3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Scope {
    Proc = 0,
    Sess = 1,
    Txn = 2,
    Req = 3,
    Res = 4,
}

impl Scope {
    /// All scopes, in the order of their numbers.
    const ALL: [Scope; 5] = [Scope::Proc, Scope::Sess, Scope::Txn, Scope::Req, Scope::Res];

    fn decode(cursor: &mut Cursor<'_>) -> Result<Scope, Error> {
        let number = cursor.byte()?;
        Scope::ALL.get(usize::from(number)).copied().ok_or(Error::UnknownScope(number))
    }
}

/// A variable to set. The constant start of its action is encoded only once.
///
/// HAProxy puts the scope and its `option var-prefix` before the name: `verdict` in scope `Txn` becomes
/// `txn.slowlane.verdict`. The whole name may have up to 63 characters.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// All 16 bytes are copied in one instruction; the surplus is then cut off.
    opening: [u8; OPENING_BYTES],
    length: usize,
}

const OPENING_BYTES: usize = 16;

impl Variable {
    /// Panics if `name` is longer than 12 bytes.
    pub const fn new(scope: Scope, name: &[u8]) -> Variable {
        let mut opening = [0; OPENING_BYTES];
        [opening[0], opening[1], opening[2], opening[3]] =
            [SET_VAR, SET_VAR_ARGUMENTS, scope as u8, name.len() as u8];
        let (_, room) = opening.split_at_mut(4);
        room.split_at_mut(name.len()).0.copy_from_slice(name);
        Variable { opening, length: 4 + name.len() }
    }

    #[inline(always)]
    fn encode(&self, value: Data<'_>, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.opening);
        out.truncate(start + self.length);
        value.encode(out);
    }
}

/// A change to one of HAProxy's variables, as decoded from an ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// The value `Null` unsets the variable.
    SetVar {
        scope: Scope,
        name: &'a [u8],
        value: Data<'a>,
    },
    UnsetVar {
        scope: Scope,
        name: &'a [u8],
    },
}

impl<'a> Action<'a> {
    fn decode(cursor: &mut Cursor<'a>) -> Result<Action<'a>, Error> {
        match cursor.array()? {
            [SET_VAR, SET_VAR_ARGUMENTS] => Ok(Action::SetVar {
                scope: Scope::decode(cursor)?,
                name: cursor.string()?,
                value: Data::decode(cursor)?,
            }),
            [UNSET_VAR, UNSET_VAR_ARGUMENTS] => {
                Ok(Action::UnsetVar { scope: Scope::decode(cursor)?, name: cursor.string()? })
            }
            _ => Err(Error::UnknownAction),
        }
    }
}

/// An answer, with the stream-id and frame-id of its NOTIFY.
///
/// ```
/// use spop::{Ack, Action, Data, Error, Frame, Scope, Variable};
///
/// const VERDICT: Variable = Variable::new(Scope::Txn, b"verdict");
/// let mut out = Vec::new();
/// Ack::begin(&mut out, 7, 1).set(&VERDICT, Data::Str(b"pass")).finish();
///
/// let (frame, _) = Frame::cut(&out, 256)?.unwrap();
/// let ack = Ack::decode(frame)?;
/// assert_eq!((ack.stream_id, ack.frame_id), (7, 1));
/// let verdict = Action::SetVar { scope: Scope::Txn, name: b"verdict", value: Data::Str(b"pass") };
/// assert_eq!(ack.actions().collect::<Vec<_>>(), [Ok(verdict)]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack<'a> {
    pub stream_id: u64,
    pub frame_id: u64,
    payload: &'a [u8],
}

impl<'a> Ack<'a> {
    /// Starts an ACK at the end of `out`.
    ///
    /// An ACK must have an action before it is finished: after an ACK without an action, HAProxy 3.1 keeps
    /// the request waiting until the timeout.
    #[inline]
    pub fn begin(out: &mut Vec<u8>, stream_id: u64, frame_id: u64) -> EmptyAck<'_> {
        EmptyAck { frame: FrameWriter::begin(out, Head::new(Kind::ACK, stream_id, frame_id)) }
    }

    /// Decodes a frame of the kind `ACK`.
    ///
    /// # Errors
    /// The frame is fragmented. The frame's kind is not checked.
    pub fn decode(frame: Frame<'a>) -> Result<Ack<'a>, Error> {
        frame.head.expect_whole()?;
        let Head { stream_id, frame_id, .. } = frame.head;
        Ok(Ack { stream_id, frame_id, payload: frame.payload })
    }

    /// The actions. The iterator ends with the error of the first invalid action; as in HAProxy, the actions
    /// before it remain valid.
    pub fn actions(self) -> impl Iterator<Item = Result<Action<'a>, Error>> {
        cursor::each(self.payload, Action::decode)
    }
}

/// An ACK without an action.
#[derive(Debug)]
#[must_use = "a frame has no length until it is finished"]
pub struct EmptyAck<'o> {
    frame: FrameWriter<'o>,
}

impl<'o> EmptyAck<'o> {
    #[inline]
    pub fn set(self, variable: &Variable, value: Data<'_>) -> AckWriter<'o> {
        AckWriter { frame: self.frame }.set(variable, value)
    }
}

/// An unfinished ACK at the end of a buffer.
///
/// The ACK must not exceed the agreed frame size. A few short variables fit in the 256 bytes that are always accepted.
#[derive(Debug)]
#[must_use = "a frame has no length until it is finished"]
pub struct AckWriter<'o> {
    frame: FrameWriter<'o>,
}

impl AckWriter<'_> {
    #[inline]
    pub fn set(self, variable: &Variable, value: Data<'_>) -> Self {
        variable.encode(value, self.frame.out);
        self
    }

    #[inline]
    pub fn finish(self) {
        self.frame.finish();
    }
}

/// The maximum size of a short ACK. It is below the 256 bytes that every HAProxy accepts.
const BYTES_MAX: usize = 192;

/// An ACK that is built from constant bytes and numbers. This is faster than [`Ack::begin`], which encodes
/// each variable.
///
/// ```
/// use spop::{Ack, Data, Scope, ShortAck, Variable};
///
/// const DELAY: Variable = Variable::new(Scope::Txn, b"delay");
/// let (mut out, mut short) = (Vec::new(), Vec::new());
/// Ack::begin(&mut out, 7, 1).set(&DELAY, Data::Int64(250)).finish();
/// let mut ack = ShortAck::default();
/// ack.begin(7, 1);
/// ack.bytes(b"\x01\x03\x02\x05delay\x04");
/// ack.number(250);
/// ack.finish(&mut short);
/// assert_eq!(short, out);
/// ```
#[derive(Debug)]
#[must_use = "nothing is written until the ACK is finished"]
pub struct ShortAck {
    bytes: [u8; BYTES_MAX],
    length: usize,
}

impl Default for ShortAck {
    #[inline(always)]
    fn default() -> ShortAck {
        ShortAck { bytes: [0; BYTES_MAX], length: LENGTH_BYTES }
    }
}

impl ShortAck {
    /// Appends the head.
    #[inline(always)]
    pub fn begin(&mut self, stream_id: u64, frame_id: u64) {
        self.bytes(&[Kind::ACK.0, 0, 0, 0, Head::FIN as u8]);
        self.number(stream_id);
        self.number(frame_id);
    }

    /// Appends encoded bytes. Panics if the ACK becomes too long.
    #[inline(always)]
    pub fn bytes<const N: usize>(&mut self, bytes: &[u8; N]) {
        *self.bytes[self.length..].first_chunk_mut().expect("a short ACK has few variables") = *bytes;
        self.length += N;
    }

    /// Appends a variable-length integer. Panics if the ACK becomes too long.
    #[inline(always)]
    pub fn number(&mut self, number: u64) {
        let room = self.bytes[self.length..].first_chunk_mut().expect("a short ACK has few variables");
        self.length += varint::write(number, room);
    }

    /// Appends the frame to a buffer.
    #[inline(always)]
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        let length = (self.length - LENGTH_BYTES) as u32;
        self.bytes[..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&self.bytes[..self.length]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ReadError;
    use crate::data::tests::{any_bytes, any_data};
    use crate::hello::tests::cut;

    /// A variable, its value, and the action that sets it.
    fn any_set() -> impl Strategy<Value = (Variable, Data<'static>, Action<'static>)> {
        let name = any_bytes().prop_map(|name| &name[..name.len().min(OPENING_BYTES - 4)]);
        (prop::sample::select(Scope::ALL.to_vec()), name, any_data()).prop_map(|(scope, name, value)| {
            (Variable::new(scope, name), value, Action::SetVar { scope, name, value })
        })
    }

    fn actions(payload: &[u8]) -> Vec<Result<Action<'_>, Error>> {
        let ack = Ack::decode(Frame { head: Head::new(Kind::ACK, 1, 1), payload }).unwrap();
        ack.actions().collect()
    }

    #[test]
    fn it_has_these_bytes() {
        let mut out = b"before".to_vec();
        Ack::begin(&mut out, 0, 1)
            .set(&Variable::new(Scope::Txn, b"verdict"), Data::Str(b"delay"))
            .set(&Variable::new(Scope::Txn, b"delay"), Data::Int64(250))
            .set(&Variable::new(Scope::Sess, b"slo"), Data::Null)
            .finish();
        let bytes = b"before\x00\x00\x00\x2d\x67\x00\x00\x00\x01\x00\x01\
            \x01\x03\x02\x07verdict\x08\x05delay\
            \x01\x03\x02\x05delay\x04\xfa\x00\
            \x01\x03\x01\x03slo\x00";
        assert_eq!(out, bytes);
    }

    #[test]
    fn actions_end_at_the_first_that_is_wrong() {
        let unset = Ok(Action::UnsetVar { scope: Scope::Txn, name: b"a" });
        assert_eq!(actions(b""), []);
        assert_eq!(actions(b"\x02\x02\x02\x01a"), [unset]);
        assert_eq!(
            actions(b"\x02\x02\x02\x01a\x03\x01\x02\x02\x02\x01a"),
            [unset, Err(Error::UnknownAction)]
        );
        assert_eq!(
            actions(b"\x02\x03\x02\x01a\x00"),
            [Err(Error::UnknownAction)],
            "a wrong number of arguments"
        );
        assert_eq!(actions(b"\x02\x02\x05\x01a"), [Err(Error::UnknownScope(5))]);
        assert_eq!(actions(b"\x01\x03\x02\x01a"), [Err(Error::Read(ReadError::Truncated))]);
    }

    proptest! {
        #[test]
        fn it_reads_back(
            first in any_set(),
            more in prop::collection::vec(any_set(), 0..6),
            stream_id: u64,
            frame_id: u64,
        ) {
            let mut out = Vec::new();
            let ack = Ack::begin(&mut out, stream_id, frame_id).set(&first.0, first.1);
            more.iter().fold(ack, |ack, (variable, value, _)| ack.set(variable, *value)).finish();

            let ack = Ack::decode(cut(&out)).unwrap();
            prop_assert_eq!((ack.stream_id, ack.frame_id), (stream_id, frame_id));
            let actions: Result<Vec<_>, _> = ack.actions().collect();
            let sets = [vec![first], more].concat();
            prop_assert_eq!(actions, Ok(sets.into_iter().map(|(_, _, action)| action).collect()));
        }

        #[test]
        fn any_payload_comes_to_an_end(payload in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(actions(&payload).len() <= 300);
        }
    }
}
