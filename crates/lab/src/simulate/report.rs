//! The outcomes as a text table, and as JSON.

use serde_json::{Value, json};

use crate::columns::{NONE, ReportCell, columns, or_none, percent};
use crate::simulate::{Figures, Phase, Record, Scenario, SimulationOutcome};
use slowlane_core::base::plural;

const LEFT: &str = "left %";
const WORST: &str = "worst s %";
const MESSAGES: &str = "messages /s";

/// A line for each phase of each run, followed by a line for each group if there are several groups.
///
/// `measured s` is the part of the run that most other columns cover; `settled s` counts from the end of the previous
/// part. `share` is relative to all admitted requests, `429` and `left` to all requests of the row. `p50` and `p99` are
/// delays. With several nodes, `worst s` is the error of the fullest second, and `messages` counts the key updates that
/// reach the store.
pub fn report(outcomes: &[SimulationOutcome]) -> String {
    let mut rows = Vec::new();
    for outcome in outcomes {
        for phase in &outcome.phases {
            rows.extend(phase.figures.iter().map(|figures| row(outcome, phase, figures)));
        }
    }
    let has_left = outcomes.iter().flat_map(|outcome| &outcome.phases).any(|phase| phase.all().left > 0);
    let is_many = outcomes.iter().any(|outcome| outcome.scenario.cluster.nodes > 1);
    rows.iter_mut().for_each(|row| {
        row.retain(|(heading, _)| match *heading {
            LEFT => has_left,
            WORST | MESSAGES => is_many,
            _ => true,
        });
    });
    let mut text = columns(&rows, &["law", "who"]);
    for outcome in outcomes.iter().filter(|outcome| outcome.record.fallbacks > 0) {
        text += &format!(
            "{}, clients {}: auxiliary memory ran out, so a simpler law judged {}\n",
            outcome.scenario.law,
            outcome.scenario.load.clients,
            plural(outcome.record.fallbacks, "request")
        );
    }
    text
}

/// The outcomes for programs, as JSON: one run for each law and load, with the run's phases and their groups.
pub fn json(outcomes: &[SimulationOutcome]) -> String {
    let run = |SimulationOutcome { scenario, phases, record }: &SimulationOutcome| {
        let Scenario { law, burst, cluster, seed, .. } = scenario;
        let Record { rate, unit, fallbacks, .. } = record;
        let burst = burst.parse::<u32>().map_or_else(|_| json!(burst), |burst| json!(burst));
        let mut run = json!({
            "law": law, "rate": rate, "burst": burst, "nodes": cluster.nodes, "seed": seed, "fallbacks": fallbacks,
            "phases": phases,
        });
        if let Some(unit) = unit {
            run["unit"] = unit.name().into();
        }
        run
    };
    Value::from_iter(outcomes.iter().map(run)).to_string() + "\n"
}

fn row(outcome: &SimulationOutcome, phase: &Phase, figures: &Figures) -> Vec<ReportCell> {
    let Figures { who, let_through, denied, left, p50_ms, p99_ms, .. } = *figures;
    let is_all = who == Figures::ALL;
    let of_rate = is_all && outcome.record.aims_at_rate;
    let part = |count: u64, of: u64| percent(count as f64, of as f64);
    let asked = let_through + denied + left;
    let error = |error: Option<f64>| or_none(error.filter(|_| of_rate).map(signed_percent));
    let settled = phase.settled_s.map_or("never".into(), |settled_s| format!("{settled_s:.1}"));
    let [from_s, to_s] = phase.measured_s.map(seconds);
    vec![
        ("law", outcome.scenario.law.clone()),
        ("clients", phase.clients.to_string()),
        ("measured s", format!("{from_s}-{to_s}")),
        ("who", who.to_owned()),
        ("rate /s", format!("{:.2}", figures.rate_per_s)),
        ("share %", part(let_through, phase.all().let_through)),
        ("error %", error(figures.error(outcome.record.per_s))),
        (WORST, error(phase.worst)),
        ("429 %", part(denied, asked)),
        (LEFT, part(left, asked)),
        ("p50 ms", or_none(p50_ms)),
        ("p99 ms", or_none(p99_ms)),
        ("settled s", if of_rate { settled } else { NONE.into() }),
        ("Jain", or_none(phase.jain.filter(|_| is_all).map(|jain| format!("{jain:.3}")))),
        (MESSAGES, if is_all { format!("{:.0}", phase.messages_per_s) } else { NONE.into() }),
    ]
}

/// A fraction as a percentage with its sign. Zero never has a minus sign.
fn signed_percent(part: f64) -> String {
    let hundredths = (part * 10_000.0).round();
    format!("{:+.2}", if hundredths == 0.0 { 0.0 } else { hundredths / 100.0 })
}

/// Seconds with up to two decimal places, without trailing zeros.
fn seconds(seconds: f64) -> String {
    let text = format!("{seconds:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_short_as_they_can_be() {
        assert_eq!([15.0, 2.5, 1.25, 20.0].map(seconds), ["15", "2.5", "1.25", "20"]);
        assert_eq!([-0.00004, 0.139, -1.0].map(signed_percent), ["+0.00", "+13.90", "-100.00"]);
    }
}
