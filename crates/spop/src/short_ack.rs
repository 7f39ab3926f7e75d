//! A short ACK, whose constant parts are encoded beforehand: the answer to most queries.

use crate::frame::LENGTH_BYTES;
use crate::{Head, Kind, varint};

/// It fits the 256 bytes that every HAProxy accepts.
const BYTES_MAX: usize = 192;

/// An ACK that is built from constant bytes and numbers. It is faster than an [`Ack`](crate::Ack), which encodes each
/// variable.
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
#[must_use = "nothing is written until it is finished"]
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

    /// Appends encoded bytes. Panics if the ACK is no longer short.
    #[inline(always)]
    pub fn bytes<const N: usize>(&mut self, bytes: &[u8; N]) {
        *self.bytes[self.length..].first_chunk_mut().expect("a short ACK has few variables") = *bytes;
        self.length += N;
    }

    /// Appends a variable-length integer. Panics if the ACK is no longer short.
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
