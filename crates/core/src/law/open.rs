//! The law of `rate=unlimited`: every request passes, and is counted.

use crate::base::verdict::{UNCOUNTED, Verdict};
use crate::law::arrival::Arrival;
use crate::law::aux_state::AuxState;
use crate::law::judgement::Judgement;
use crate::law::objective::Objective;
use crate::law::rule::Rule;
use crate::table::Entry;

/// No line names it with `law=`: it belongs to the rate, as [`Closed`](crate::law::closed::Closed) belongs to 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open;

impl Open {
    pub(super) const NAME: &'static str = "unlimited";
}

impl Rule for Open {
    fn judge(&self, entry: &mut Entry, _: Option<&mut AuxState>, arrival: &Arrival) -> Judgement {
        entry.ask(arrival.cost, arrival.now);
        entry.gpt0 = 1_000;
        entry.let_through(arrival.cost, arrival.now);
        Judgement::new(Verdict::Pass, UNCOUNTED)
    }

    fn explain(&self, _: &Objective, _: &Entry, _: Option<&AuxState>, _: &Arrival) -> String {
        "every request passes, and is counted".into()
    }

    fn describe(&self, _: Objective) -> String {
        "unlimited".into()
    }
}
