//! Judges: a transcript is in order, or the reason why not.

pub(super) mod acks;
pub(super) mod ends;
pub(super) mod greeting;
mod item;
#[cfg(test)]
mod spoken;
