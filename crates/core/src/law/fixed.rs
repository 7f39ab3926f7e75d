//! The laws for the rates 0 and `unlimited`: at 0, no request passes; at `unlimited`, every request does.

use crate::base::{Quota, UNCOUNTED, Verdict};
use crate::law::{Arrival, AuxState, Judgement, Objective, Rule, Scale};
use crate::table::Entry;

/// A law with one verdict for all requests. The rate selects this law: no SLO line names it with `law=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    pub(super) name: &'static str,
    passes: bool,
}

impl Fixed {
    pub(super) const OPEN: Fixed = Fixed { name: "unlimited", passes: true };

    /// At a rate of 0, this law replaces the law that the SLO names, but reports that law's name.
    pub(super) const fn closed(name: &'static str) -> Fixed {
        Fixed { name, passes: false }
    }
}

impl Rule for Fixed {
    fn judge(&self, entry: &mut Entry, _: Option<&mut AuxState>, arrival: &Arrival) -> Judgement {
        entry.ask(arrival.cost, arrival.now);
        entry.gpt0 = 1_000;
        if !self.passes {
            return Judgement::never(0);
        }
        entry.let_through(arrival.cost, arrival.now);
        Judgement::new(Verdict::Pass, UNCOUNTED)
    }

    fn explain(&self, _: &Scale, _: &Entry, _: Option<&AuxState>, _: &Arrival) -> String {
        let text = if self.passes {
            "every request passes and is counted"
        } else {
            "rate 0: every request is denied"
        };
        text.into()
    }

    fn quota(&self, Objective { burst, rate }: Objective) -> Option<Quota> {
        (!self.passes).then(|| Quota::of_bucket(burst, rate))
    }

    fn describe(&self, _: Objective) -> String {
        if self.passes { "unlimited" } else { "nothing" }.into()
    }
}
