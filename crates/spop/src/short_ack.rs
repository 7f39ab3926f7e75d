//! A short ACK, whose constant parts are encoded beforehand: the answer to most queries.

use crate::{Head, Kind, varint};

/// It fits the 256 bytes that every HAProxy accepts.
const BYTES_MAX: usize = 192;

const LENGTH_BYTES: usize = 4;

/// An ACK that is built from constant bytes and numbers. It is faster than an [`Ack`](crate::Ack), which encodes each
/// variable.
///
/// ```
/// use spop::{Ack, Data, Scope, ShortAck, Variable};
///
/// const DELAY: Variable = Variable::new(Scope::Txn, b"delay");
/// let (mut out, mut short) = (Vec::new(), Vec::new());
/// Ack::begin(&mut out, 7, 1).set(&DELAY, Data::Int64(250)).finish();
/// ShortAck::begin(7, 1).bytes(b"\x01\x03\x02\x05delay\x04").number(250).finish(&mut short);
/// assert_eq!(short, out);
/// ```
#[derive(Debug)]
#[must_use = "nothing is written until it is finished"]
pub struct ShortAck {
    bytes: [u8; BYTES_MAX],
    length: usize,
}

impl ShortAck {
    #[inline(always)]
    pub fn begin(stream_id: u64, frame_id: u64) -> ShortAck {
        const { assert!(Head::FIN == 1) };
        ShortAck { bytes: [0; BYTES_MAX], length: LENGTH_BYTES }
            .bytes(&[Kind::ACK.0, 0, 0, 0, 1])
            .number(stream_id)
            .number(frame_id)
    }

    /// Appends encoded bytes. Panics if the ACK is no longer short.
    #[inline(always)]
    pub fn bytes<const N: usize>(mut self, bytes: &[u8; N]) -> ShortAck {
        *self.bytes[self.length..].first_chunk_mut().expect("a short ACK has few variables") = *bytes;
        self.length += N;
        self
    }

    /// Appends a variable-length integer. Panics if the ACK is no longer short.
    #[inline(always)]
    pub fn number(mut self, number: u64) -> ShortAck {
        let room = self.bytes[self.length..].first_chunk_mut().expect("a short ACK has few variables");
        self.length += varint::write(number, room);
        self
    }

    /// Appends the frame to a buffer.
    #[inline(always)]
    pub fn finish(mut self, out: &mut Vec<u8>) {
        let length = (self.length - LENGTH_BYTES) as u32;
        self.bytes[..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&self.bytes[..self.length]);
    }
}
