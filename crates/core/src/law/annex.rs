//! A law's memory beside the row of an entry. Most laws have none.

use serde::{Deserialize, Serialize};

use crate::law::calendar::Calendar;
use crate::law::log::Log;

/// The annex of one entry. A new one is empty and allocates nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Annex {
    /// The coming slots of a `fair` bucket.
    Calendar(Calendar),
    /// The admissions under `sliding-log`.
    Log(Log),
}

impl Annex {
    /// Its memory on the heap.
    pub fn bytes(&self) -> usize {
        match self {
            Annex::Calendar(calendar) => calendar.bytes(),
            Annex::Log(log) => log.bytes(),
        }
    }

    /// Whether a law could have written it.
    pub fn is_sound(&self) -> bool {
        match self {
            Annex::Calendar(calendar) => calendar.is_whole(),
            Annex::Log(log) => log.is_sound(),
        }
    }

    pub(super) fn calendar(annex: Option<&mut Annex>) -> Option<&mut Calendar> {
        match annex {
            Some(Annex::Calendar(calendar)) => Some(calendar),
            _ => None,
        }
    }

    pub(super) fn log(annex: Option<&mut Annex>) -> Option<&mut Log> {
        match annex {
            Some(Annex::Log(log)) => Some(log),
            _ => None,
        }
    }
}
