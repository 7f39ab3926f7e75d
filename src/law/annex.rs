//! What a law remembers beside the row of an entry; most laws remember nothing there.

use crate::law::calendar::Calendar;
use crate::law::sliding_log::Log;

/// The annex of one entry, empty at first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Annex {
    /// Of `fair`.
    Calendar(Calendar),
    /// Of `sliding-log`.
    Log(Log),
}

impl Annex {
    /// The memory that it takes up beside itself.
    pub fn bytes(&self) -> usize {
        match self {
            Annex::Calendar(calendar) => calendar.bytes(),
            Annex::Log(log) => log.bytes(),
        }
    }
}
