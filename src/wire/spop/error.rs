//! Why a frame is refused.

use thiserror::Error;

use crate::wire::error::ReadError;
use crate::wire::spop::status::Status;

/// A fault of the sender. Its text becomes the message of our DISCONNECT, and its status the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Error {
    #[error("frame of {bytes} bytes: at most {bytes_max} are taken")]
    TooBig { bytes: u32, bytes_max: u32 },
    #[error("begins as {0} does, not as SPOP does: this port is for HAProxy's SPOE alone")]
    Foreign(&'static str),
    #[error("frame of {bytes} bytes: a head alone is 7")]
    TooSmall { bytes: u32 },
    #[error("frame ends in the middle of a value")]
    Truncated,
    #[error("integer of more than 64 bits")]
    VarintRange,
    #[error("32-bit integer of more than 32 bits")]
    Int32Range,
    #[error("data type {0} is reserved")]
    ReservedType(u8),
    #[error("payload in more than one frame")]
    Fragmented,
    #[error("hello or disconnect with a stream-id or frame-id")]
    UnexpectedId,
    #[error("frame before hello")]
    BeforeHello,
    #[error("second hello")]
    SecondHello,
    #[error("frame that only an agent sends")]
    AgentFrame,
    #[error("hello without supported-versions or version")]
    NoVersion,
    #[error("hello without max-frame-size")]
    NoFrameSize,
    #[error("hello without version 2.0")]
    BadVersion,
    #[error("hello with a max-frame-size that is no number of at least 256")]
    BadFrameSize,
    #[error("action that is neither set-var nor unset-var")]
    UnknownAction,
    #[error("not all was said in time")]
    TimedOut,
    #[error("variable scope {0} does not exist")]
    UnknownScope(u8),
}

impl Error {
    /// The code that SPOE.txt 3.5 has for it.
    ///
    /// ```
    /// use slowlane::wire::spop::{Error, Status};
    /// assert_eq!(Error::TooBig { bytes: 20_000, bytes_max: 16_380 }.status(), Status::TOO_BIG);
    /// assert_eq!(Error::Truncated.status(), Status::INVALID);
    /// ```
    pub const fn status(self) -> Status {
        match self {
            Error::TimedOut => Status::TIMEOUT,
            Error::TooBig { .. } => Status::TOO_BIG,
            Error::Fragmented => Status::FRAGMENTED,
            Error::NoVersion => Status::NO_VERSION,
            Error::NoFrameSize => Status::NO_FRAME_SIZE,
            Error::BadVersion => Status::BAD_VERSION,
            Error::BadFrameSize => Status::BAD_FRAME_SIZE,
            Error::TooSmall { .. }
            | Error::Foreign(_)
            | Error::Truncated
            | Error::VarintRange
            | Error::Int32Range
            | Error::ReservedType(_)
            | Error::UnexpectedId
            | Error::BeforeHello
            | Error::SecondHello
            | Error::AgentFrame
            | Error::UnknownAction
            | Error::UnknownScope(_) => Status::INVALID,
        }
    }
}

impl From<ReadError> for Error {
    fn from(error: ReadError) -> Error {
        match error {
            ReadError::Truncated => Error::Truncated,
            ReadError::VarintRange => Error::VarintRange,
        }
    }
}
