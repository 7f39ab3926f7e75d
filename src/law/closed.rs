//! An SLO with a rate of 0: every request is denied, whatever its law.

use crate::base::units::{Period, Rate};
use crate::law::{Arrival, Judgement, Objective};
use crate::table::Entry;

/// Stands in for the law that the SLO names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    name: &'static str,
}

const STAND_IN: Rate = match Rate::new(1, Period::Second) {
    Ok(rate) => rate,
    Err(_) => unreachable!(),
};

impl Closed {
    /// Whether an objective is one, and what a law's options can be read with in any case.
    pub(super) fn or_open(objective: Objective) -> (bool, Objective) {
        match objective.rate.is_zero() {
            true => (true, Objective { rate: STAND_IN, ..objective }),
            false => (false, objective),
        }
    }

    pub(super) const fn instead_of(name: &'static str) -> Closed {
        Closed { name }
    }

    /// The law that the SLO names.
    pub(super) const fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn explain(&self) -> String {
        "rate 0: every request is denied".into()
    }

    pub fn judge(&self, entry: &mut Entry, arrival: &Arrival) -> Judgement {
        entry.ask(arrival.cost, arrival.now);
        entry.gpt0 = 1_000;
        Judgement::never(0)
    }
}
