//! The outcomes as a text table.

use serde_json::{Value, json};

use crate::simulate::{Figures, Phase, Record, Scenario, SimulationOutcome};
use slowlane_core::base::aligned;

const NONE: &str = "-";

const LEFT: &str = "left %";
const WORST: &str = "worst s %";
const MESSAGES: &str = "messages /s";

/// The columns that contain words.
const WORDS: [&str; 2] = ["law", "who"];

/// A line for each phase of each run, and one for each group if there are several.
///
/// `measured s` is the part of the run that the other columns cover. `share` is relative to all admitted requests,
/// `429` and `left` to all requests. `p50` and `p99` are delays. With several nodes, `worst s` is the error of the
/// fullest second, and `messages` is the traffic of the store.
pub fn report(outcomes: &[SimulationOutcome]) -> String {
    let mut cells = Vec::new();
    for outcome in outcomes {
        for phase in &outcome.phases {
            cells.push(row(outcome, phase, "all", &phase.all));
            let groups = phase.groups.iter();
            cells.extend(groups.map(|(who, figures)| row(outcome, phase, who.name(), figures)));
        }
    }
    let has_left = outcomes.iter().flat_map(|outcome| &outcome.phases).any(|phase| phase.all.left > 0);
    let is_many = outcomes.iter().any(|outcome| outcome.scenario.cluster.is_some());
    cells.iter_mut().for_each(|row| {
        row.retain(|(heading, _)| match *heading {
            LEFT => has_left,
            WORST | MESSAGES => is_many,
            _ => true,
        });
    });
    let headings = cells.first().into_iter().map(|row| row.iter().map(|(heading, _)| (*heading).to_owned()));
    let rows = cells.iter().map(|row| row.iter().map(|(_, cell)| cell.clone()).collect());
    let rows: Vec<Vec<String>> = headings.map(Iterator::collect).chain(rows).collect();
    let mut text = aligned(&rows, "  ", |_, heading| WORDS.contains(&heading));
    for outcome in outcomes.iter().filter(|outcome| outcome.record.fallbacks > 0) {
        text += &format!(
            "{} with {} clients: out of memory, a simpler law decided {} requests\n",
            outcome.scenario.law, outcome.scenario.load.clients, outcome.record.fallbacks
        );
    }
    text
}

/// The same for programs: a run for each law and load, with its phases and their groups.
pub fn json(outcomes: &[SimulationOutcome]) -> String {
    let runs: Vec<Value> = outcomes
        .iter()
        .map(|outcome| {
            let Scenario { law, burst, cluster, seed, .. } = &outcome.scenario;
            let Record { rate, per_s, unit, fallbacks, .. } = &outcome.record;
            let phases: Vec<Value> = outcome.phases.iter().map(|phase| phase_json(phase, *per_s)).collect();
            let burst = burst.parse::<u32>().map_or_else(|_| json!(burst), |burst| json!(burst));
            let nodes = cluster.map_or(1, |cluster| cluster.nodes);
            let mut run = json!({
                "law": law, "rate": rate, "burst": burst, "nodes": nodes, "seed": seed, "fallbacks": fallbacks,
                "phases": phases,
            });
            if let Some(unit) = unit {
                run["unit"] = unit.name().into();
            }
            run
        })
        .collect();
    Value::from(runs).to_string() + "\n"
}

fn phase_json(phase: &Phase, per_s: f64) -> Value {
    let all = figures_json("all", &phase.all);
    let groups = phase.groups.iter().map(|(who, figures)| figures_json(who.name(), figures));
    json!({
        "clients": phase.clients,
        "measured_s": [phase.measured_s.start, phase.measured_s.end],
        "error": phase.all.error(per_s),
        "worst": phase.worst,
        "settled_s": phase.settled_s,
        "jain": phase.jain,
        "messages_per_s": phase.messages_per_s,
        "figures": std::iter::once(all).chain(groups).collect::<Vec<_>>(),
    })
}

fn figures_json(who: &str, figures: &Figures) -> Value {
    let Figures { rate_per_s, let_through, denied, left, p50_ms, p99_ms } = figures;
    json!({
        "who": who, "rate_per_s": rate_per_s, "let_through": let_through, "denied": denied, "left": left,
        "p50_ms": p50_ms, "p99_ms": p99_ms,
    })
}

/// The cells of a row with their headings.
fn row(
    outcome: &SimulationOutcome,
    phase: &Phase,
    who: &str,
    figures: &Figures,
) -> Vec<(&'static str, String)> {
    let is_all = who == "all";
    let of_rate = is_all && outcome.record.aims_at_rate;
    let ms = |ms: Option<u64>| ms.map_or(NONE.into(), |ms| ms.to_string());
    let part = |count: u64, of: u64| match of {
        0 => NONE.to_owned(),
        of => format!("{:.1}", count as f64 / of as f64 * 100.0),
    };
    let asked = figures.let_through + figures.denied + figures.left;
    let error = |error: Option<f64>| error.filter(|_| of_rate).map_or(NONE.into(), signed_percent);
    let settled = phase.settled_s.map_or("never".into(), |settled_s| format!("{settled_s:.1}"));
    vec![
        ("law", outcome.scenario.law.clone()),
        ("clients", phase.clients.to_string()),
        ("measured s", format!("{}-{}", seconds(phase.measured_s.start), seconds(phase.measured_s.end))),
        ("who", who.to_owned()),
        ("rate /s", format!("{:.2}", figures.rate_per_s)),
        ("share %", part(figures.let_through, phase.all.let_through)),
        ("error %", error(figures.error(outcome.record.per_s))),
        (WORST, error(phase.worst)),
        ("429 %", part(figures.denied, asked)),
        (LEFT, part(figures.left, asked)),
        ("p50 ms", ms(figures.p50_ms)),
        ("p99 ms", ms(figures.p99_ms)),
        ("settled s", if of_rate { settled } else { NONE.into() }),
        ("Jain", phase.jain.filter(|_| is_all).map_or(NONE.into(), |jain| format!("{jain:.3}"))),
        (MESSAGES, if is_all { format!("{:.0}", phase.messages_per_s) } else { NONE.into() }),
    ]
}

/// Zero never has a minus sign.
fn signed_percent(part: f64) -> String {
    let hundredths = (part * 10_000.0).round();
    format!("{:+.2}", if hundredths == 0.0 { 0.0 } else { hundredths / 100.0 })
}

/// Up to two decimal places, without trailing zeros.
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
