//! The two faults that a peer tells the other of.

/// Messages that tell of an error, and end the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    Protocol = 0,
    SizeLimit = 1,
}

impl Fault {
    pub(super) const ALL: [Fault; 2] = [Fault::Protocol, Fault::SizeLimit];
}
