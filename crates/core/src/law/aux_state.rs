//! The auxiliary state of a key: the memory of its law, or its open tickets. Most keys have none.

use serde::{Deserialize, Serialize};

use crate::law::calendar::Calendar;
use crate::law::log::Log;
use crate::law::{OpenTickets, Reservations};

/// The auxiliary state of one key. A new one is empty and allocates nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum AuxState {
    /// The coming slots of a `fair` bucket.
    Calendar(Calendar),
    /// The admissions under `sliding-log`.
    Log(Log),
    /// The open tickets of a key whose law counts ends.
    Tickets(OpenTickets),
    /// The open tickets of a key whose SLO counts work, and what its requests have cost.
    Work(Reservations),
}

impl AuxState {
    /// Its heap memory.
    pub fn bytes(&self) -> usize {
        match self {
            AuxState::Calendar(calendar) => calendar.bytes(),
            AuxState::Log(log) => log.bytes(),
            AuxState::Tickets(tickets) => tickets.bytes(),
            AuxState::Work(work) => work.tickets.bytes(),
        }
    }

    /// Whether a law could have written it.
    pub fn is_sound(&self) -> bool {
        match self {
            AuxState::Calendar(calendar) => calendar.is_whole(),
            AuxState::Log(log) => log.is_sound(),
            AuxState::Tickets(tickets) => tickets.is_sound(),
            AuxState::Work(work) => work.tickets.is_sound() && work.costs.is_sound(),
        }
    }

    pub(super) fn calendar(aux: Option<&mut AuxState>) -> Option<&mut Calendar> {
        match aux {
            Some(AuxState::Calendar(calendar)) => Some(calendar),
            _ => None,
        }
    }

    pub(super) fn log(aux: Option<&mut AuxState>) -> Option<&mut Log> {
        match aux {
            Some(AuxState::Log(log)) => Some(log),
            _ => None,
        }
    }

    pub(crate) fn tickets(&mut self) -> Option<&mut OpenTickets> {
        match self {
            AuxState::Tickets(tickets) => Some(tickets),
            AuxState::Work(work) => Some(&mut work.tickets),
            _ => None,
        }
    }
}
