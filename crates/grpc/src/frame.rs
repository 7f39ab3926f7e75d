//! The frame of a message: a prefix that gives the message's compression and length.

use bytes::{Bytes, BytesMut};
use prost::Message;

use crate::{GrpcStatus, StatusCode};

/// The maximum length of a message. Envoy sends at most 60 KiB of headers by default, and a message with all of them
/// must fit: if the message were refused, its request would pass unchecked.
pub const MESSAGE_BYTES_MAX: usize = 256 * 1024;

/// The length of the prefix: one byte for the compression, and four for the length.
const PREFIX: usize = 5;

/// The maximum length of the body of a call.
pub const BODY_BYTES_MAX: usize = PREFIX + MESSAGE_BYTES_MAX;

/// Takes the only message from a body.
///
/// # Errors
/// The body is not exactly one message, or the message is compressed or too long.
pub fn unframed(body: &Bytes) -> Result<Bytes, GrpcStatus> {
    match announced(body)? {
        None => Err(GrpcStatus::new(StatusCode::Internal, "the request contains no message")),
        Some(length) if PREFIX + length == body.len() => Ok(body.slice(PREFIX..)),
        Some(_) => Err(GrpcStatus::new(StatusCode::Internal, "the request must contain one message")),
    }
}

/// Takes the next message from the unread bytes of a stream. `None` if the message has not arrived completely.
///
/// # Errors
/// The message is too long or compressed. In both cases, the start of the next message is unknown.
///
/// ```
/// let mut unread = [0, 0, 0, 0, 2, 0x08, 2, 0][..].into();
/// assert_eq!(grpc::next_message(&mut unread).unwrap().as_deref(), Some(&[0x08, 2][..]));
/// assert_eq!((grpc::next_message(&mut unread), unread.len()), (Ok(None), 1));
/// ```
pub fn next_message(unread: &mut BytesMut) -> Result<Option<Bytes>, GrpcStatus> {
    let whole = announced(unread)?.map(|length| PREFIX + length);
    let Some(whole) = whole.filter(|&whole| whole <= unread.len()) else { return Ok(None) };
    Ok(Some(unread.split_to(whole).freeze().slice(PREFIX..)))
}

/// The length of the message, from the prefix at the start of `bytes`. `None` if the prefix is incomplete.
fn announced(bytes: &[u8]) -> Result<Option<usize>, GrpcStatus> {
    let Some((&[compressed, length @ ..], _)) = bytes.split_first_chunk::<PREFIX>() else { return Ok(None) };
    if compressed != 0 {
        return Err(GrpcStatus::new(StatusCode::Unimplemented, "compressed messages are not supported"));
    }
    let length = u32::from_be_bytes(length) as usize;
    if length > MESSAGE_BYTES_MAX { Err(TOO_LARGE) } else { Ok(Some(length)) }
}

/// The status of a message above [`MESSAGE_BYTES_MAX`].
pub const TOO_LARGE: GrpcStatus =
    GrpcStatus::new(StatusCode::ResourceExhausted, "the message is larger than 256 KiB");

/// Reads a message.
///
/// # Errors
/// The bytes are not a message of this type.
pub fn decoded<M: Message + Default>(message: &Bytes) -> Result<M, GrpcStatus> {
    let unreadable = |_| GrpcStatus::new(StatusCode::Internal, "the message cannot be read");
    M::decode(message.clone()).map_err(unreadable)
}

/// The body of a response with this message.
pub fn framed(message: &impl Message) -> Vec<u8> {
    let length = message.encoded_len();
    let mut body = Vec::with_capacity(PREFIX + length);
    body.push(0);
    body.extend(u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    message.encode(&mut body).expect("a vector grows as needed");
    body
}
