//! Errors of reading a value.

use thiserror::Error;

/// The bytes do not hold a whole value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    #[error("frame ends in the middle of a value")]
    Truncated,
    #[error("integer of more than 64 bits")]
    VarintRange,
}
