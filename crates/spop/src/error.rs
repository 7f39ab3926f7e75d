//! Protocol errors of the other side.

use thiserror::Error;

use crate::Status;

/// An error of the sender. Its text and status code are sent back in a DISCONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Error {
    #[error("frame of {bytes} bytes: at most {bytes_max} are allowed")]
    TooBig { bytes: u32, bytes_max: u32 },
    #[error("this is {0}, not SPOP: this port is for HAProxy's SPOE only")]
    Foreign(&'static str),
    #[error("frame of {bytes} bytes: a head has at least 7")]
    TooSmall { bytes: u32 },
    #[error(transparent)]
    Read(#[from] ReadError),
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
    #[error("hello with a max-frame-size below 256 or not a number")]
    BadFrameSize,
    #[error("action that is neither set-var nor unset-var")]
    UnknownAction,
    #[error("timeout: a frame or the hello is incomplete")]
    TimedOut,
    #[error("variable scope {0} does not exist")]
    UnknownScope(u8),
}

impl Error {
    /// The status code of SPOE.txt 3.5.
    ///
    /// ```
    /// use spop::{Error, ReadError, Status};
    /// assert_eq!(Error::TooBig { bytes: 20_000, bytes_max: 16_380 }.status(), Status::TOO_BIG);
    /// assert_eq!(Error::Read(ReadError::Truncated).status(), Status::INVALID);
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
            | Error::Read(_)
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

/// The bytes do not hold a whole value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    #[error("frame ends in the middle of a value")]
    Truncated,
    #[error("integer of more than 64 bits")]
    VarintRange,
}
