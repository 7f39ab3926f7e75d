//! Protocol errors that the other side makes, and the status codes of a DISCONNECT.

use std::fmt;

use thiserror::Error;

/// An error made by the sender. The error's text and status code are sent back in a DISCONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Error {
    #[error("frame of {bytes} bytes: at most {bytes_max} are allowed")]
    TooBig { bytes: u32, bytes_max: u32 },
    #[error("this is {0}, not SPOP: this port is for HAProxy's SPOE only")]
    Foreign(&'static str),
    #[error("frame of {bytes} bytes: at least 7 are required")]
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
    #[error("frame that only an agent may send")]
    AgentFrame,
    #[error("hello without supported-versions or version")]
    NoVersion,
    #[error("hello without max-frame-size")]
    NoFrameSize,
    #[error("hello without version 2.0")]
    BadVersion,
    #[error("hello with a max-frame-size that is below 256 or not a number")]
    BadFrameSize,
    #[error("action that is neither set-var nor unset-var")]
    UnknownAction,
    #[error("timeout: a frame or the hello is incomplete")]
    TimedOut,
    #[error("variable scope {0} does not exist")]
    UnknownScope(u8),
}

impl Error {
    /// The status code for the error, from SPOE.txt 3.5.
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
            _ => Status::INVALID,
        }
    }
}

/// The bytes do not hold a whole, valid value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    #[error("frame ends in the middle of a value")]
    Truncated,
    #[error("integer of more than 64 bits")]
    VarintRange,
}

/// A status code, usually one that SPOE.txt 3.5 defines. Other codes may arrive, because agents may define their own.
///
/// ```
/// use spop::Status;
/// assert_eq!(Status::INVALID.code(), 4);
/// assert_eq!(Status::TOO_BIG.to_string(), "frame is too big (3)");
/// assert_eq!(Status::new(77).to_string(), "unassigned status (77)");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Status(u32);

impl Status {
    pub const NORMAL: Status = Status(0);
    pub const TIMEOUT: Status = Status(2);
    pub const TOO_BIG: Status = Status(3);
    pub const INVALID: Status = Status(4);
    pub const NO_VERSION: Status = Status(5);
    pub const NO_FRAME_SIZE: Status = Status(6);
    pub const BAD_VERSION: Status = Status(8);
    pub const BAD_FRAME_SIZE: Status = Status(9);
    pub const FRAGMENTED: Status = Status(10);
    pub const UNKNOWN: Status = Status(99);

    pub const fn new(code: u32) -> Status {
        Status(code)
    }

    pub const fn code(self) -> u32 {
        self.0
    }

    /// The status itself if SPOE.txt 3.5 defines it, otherwise 99 (unknown).
    ///
    /// Use the result for metric labels, because the sender can choose any number as its status.
    ///
    /// ```
    /// use spop::Status;
    /// assert_eq!(Status::INVALID.assigned(), Status::INVALID);
    /// assert_eq!(Status::new(77).assigned(), Status::UNKNOWN);
    /// ```
    pub const fn assigned(self) -> Status {
        match self.0 {
            0..=13 => self,
            _ => Status::UNKNOWN,
        }
    }

    /// The meaning of the code in the words of SPOE.txt 3.5, or `unassigned status`.
    pub const fn description(self) -> &'static str {
        match self.0 {
            0 => "normal",
            1 => "I/O error",
            2 => "a timeout occurred",
            3 => "frame is too big",
            4 => "invalid frame received",
            5 => "version value not found",
            6 => "max-frame-size value not found",
            7 => "capabilities value not found",
            8 => "unsupported version",
            9 => "max-frame-size too big or too small",
            10 => "payload fragmentation is not supported",
            11 => "invalid interlaced frames",
            12 => "frame-id not found",
            13 => "resource allocation error",
            99 => "an unknown error occurred",
            _ => "unassigned status",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.description(), self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SPOE.txt 3.5 has a text for each code up to 13, and for 99.
    #[test]
    fn each_assigned_code_has_a_text_of_its_own() {
        let texts: Vec<&str> = (0..=13).chain([99]).map(|code| Status(code).description()).collect();
        for (place, text) in texts.iter().enumerate() {
            assert!(*text != "unassigned status" && !texts[..place].contains(text), "{text}");
        }
        assert_eq!([texts[1], texts[13]], ["I/O error", "resource allocation error"]);
        assert_eq!(Status(14).description(), "unassigned status");
    }
}
