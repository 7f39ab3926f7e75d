//! The law of a rate of 0: every request is denied.

use crate::base::units::{Period, Rate};
use crate::law::arrival::Arrival;
use crate::law::aux_state::AuxState;
use crate::law::judgement::Judgement;
use crate::law::objective::Objective;
use crate::law::rule::Rule;
use crate::table::Entry;

/// Stands in for the law that the SLO names, and goes by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    name: &'static str,
}

/// Any rate but 0: options are checked with it.
const STAND_IN: Rate = match Rate::new(1, Period::Second) {
    Ok(rate) => rate,
    Err(_) => unreachable!(),
};

impl Closed {
    /// Whether the rate is 0, and an objective that the law's options can be checked with.
    pub(super) fn or_open(objective: Objective) -> (bool, Objective) {
        match objective.rate.is_zero() {
            true => (true, Objective { rate: STAND_IN, ..objective }),
            false => (false, objective),
        }
    }

    pub(super) const fn instead_of(name: &'static str) -> Closed {
        Closed { name }
    }

    /// The name of the law that it stands in for.
    pub(super) const fn name(&self) -> &'static str {
        self.name
    }
}

impl Rule for Closed {
    fn judge(&self, entry: &mut Entry, _: Option<&mut AuxState>, arrival: &Arrival) -> Judgement {
        entry.ask(arrival.cost, arrival.now);
        entry.gpt0 = 1_000;
        Judgement::never(0)
    }

    fn explain(&self, _: &Objective, _: &Entry, _: Option<&AuxState>, _: &Arrival) -> String {
        "rate 0: every request is denied".into()
    }

    fn describe(&self, _: Objective) -> String {
        "nothing".into()
    }
}
