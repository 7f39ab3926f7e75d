//! The formula of a shared key, with the numbers of a request.

use std::time::Duration;

use crate::cluster::{LocalView, Plan, Situation, Stats};
use crate::law::Arrival;

/// The formula of a request of a shared key.
pub(super) fn explain(local_view: LocalView, situation: &Situation<'_>, arrival: &Arrival) -> String {
    let left = local_view.remaining(situation, arrival.now);
    match local_view {
        LocalView::Rate((gcra, view)) => {
            let plan = situation.plan(&gcra);
            of_rate(&view.stats(&plan, arrival.now), &plan, arrival.cost)
        }
        LocalView::Count((windowed, _)) => {
            format!("room for {left} of {} in the window, as last reported by all nodes", windowed.limit)
        }
        LocalView::Lease((windowed, _)) => {
            format!("this node holds {left} of {} of the window", windowed.limit)
        }
    }
}

fn of_rate(stats: &Stats, plan: &Plan, cost: u32) -> String {
    let cost_s = f64::from(cost) * plan.slot_s();
    let tokens = (-stats.ahead_s * plan.rate_per_s).max(0.0);
    let wait = match stats.ahead_s + cost_s {
        wait_s if wait_s > 0.0 => format!("wait {} behind the requests of all nodes", ms(wait_s)),
        _ => format!("tokens {tokens:.0} of burst {:.0} >= cost {cost}", plan.burst),
    };
    format!("{wait}; {}", known(stats, plan))
}

/// The node's view of the others.
fn known(stats: &Stats, plan: &Plan) -> String {
    let &Stats { own_per_s, others_per_s, share, replied, silent, .. } = stats;
    match (share, silent) {
        (share, Some(silent)) => {
            let part = share.unwrap_or(1.0 / f64::from(plan.nodes.max(1)));
            format!(
                "the store has been silent for {}: this node takes {:.1} % of the rate",
                ms(silent.as_secs_f64()),
                part * 100.0
            )
        }
        (None, None) => {
            format!("no reply from the store yet: each request counts for all {} nodes", plan.nodes)
        }
        (Some(share), None) => format!(
            "share {:.1} % of the demand: {own_per_s:.1}/s here, {others_per_s:.1}/s elsewhere, as of {} ago",
            share * 100.0,
            ms(replied.unwrap_or(Duration::ZERO).as_secs_f64()),
        ),
    }
}

fn ms(seconds: f64) -> String {
    if seconds < 10.0 { format!("{:.0} ms", seconds * 1e3) } else { format!("{seconds:.0} s") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::plan::tests::plan;

    /// At 10/s, with a burst of 20, on two nodes.
    #[test]
    fn a_request_waits_for_what_is_missing_and_passes_when_nothing_is() {
        let plan = plan(10.0, 20.0);
        let of = |ahead_s, cost| {
            let (own_per_s, others_per_s, share, replied, silent) = (0.0, 0.0, None, None, None);
            of_rate(&Stats { ahead_s, own_per_s, others_per_s, share, replied, silent }, &plan, cost)
        };
        let ignorant = "; no reply from the store yet: each request counts for all 2 nodes";
        assert_eq!(of(0.4, 1), format!("wait 500 ms behind the requests of all nodes{ignorant}"));
        assert_eq!(of(-0.5, 6), format!("wait 100 ms behind the requests of all nodes{ignorant}"));
        assert_eq!(of(-0.5, 5), format!("tokens 5 of burst 20 >= cost 5{ignorant}"));
    }
}
