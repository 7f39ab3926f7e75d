//! The outcomes as a text table.

use crate::simulate::outcome::{Figures, Outcome, Phase};
use slowlane_core::base::columns::aligned;

const NONE: &str = "-";

const HEADINGS: [&str; 15] = [
    "law",
    "clients",
    "measured s",
    "who",
    "rate /s",
    "share %",
    "error %",
    WORST,
    "429 %",
    LEFT,
    "p50 ms",
    "p99 ms",
    "settled s",
    "Jain",
    MESSAGES,
];

const LEFT: &str = "left %";
const WORST: &str = "worst s %";
const MESSAGES: &str = "messages /s";

/// The columns that hold words.
const WORDS: [&str; 2] = ["law", "who"];

/// A line for each phase of each run, and one for each group if there are several.
///
/// `measured s` is the part of the run that the other columns cover. `share` is relative to all requests let through,
/// `429` and `left` to all requests. `p50` and `p99` are delays. With several nodes, `worst s` is the error of the
/// fullest second, and `messages` is the traffic of the store.
pub fn report(outcomes: &[Outcome]) -> String {
    let has_left = outcomes.iter().flat_map(|outcome| &outcome.phases).any(|phase| phase.all.left > 0);
    let mut rows: Vec<Vec<String>> = vec![HEADINGS.map(str::to_owned).to_vec()];
    for outcome in outcomes {
        for phase in &outcome.phases {
            rows.push(row(outcome, phase, "all", &phase.all));
            let groups = phase.groups.iter();
            rows.extend(groups.map(|(who, figures)| row(outcome, phase, who.name(), figures)));
        }
    }
    let is_many = outcomes.iter().any(|outcome| outcome.nodes > 1);
    let is_shown = [(LEFT, has_left), (WORST, is_many), (MESSAGES, is_many)];
    for (heading, _) in is_shown.into_iter().filter(|&(_, is_shown)| !is_shown) {
        let column = rows[0].iter().position(|cell| cell == heading).expect("it is one of them");
        rows.iter_mut().for_each(|row| drop(row.remove(column)));
    }
    let mut text = aligned(&rows, "  ", |_, heading| WORDS.contains(&heading));
    for outcome in outcomes.iter().filter(|outcome| outcome.fallbacks > 0) {
        text += &format!(
            "{} with {} clients: out of memory, a simpler law decided {} requests\n",
            outcome.law, outcome.clients, outcome.fallbacks
        );
    }
    text
}

fn row(outcome: &Outcome, phase: &Phase, who: &str, figures: &Figures) -> Vec<String> {
    let is_all = who == "all";
    let of_rate = is_all && outcome.aims_at_rate;
    let percent = |share: Option<f64>| share.map_or(NONE.into(), |share| format!("{:.1}", share * 100.0));
    let ms = |ms: Option<u64>| ms.map_or(NONE.into(), |ms| ms.to_string());
    let total = phase.all.let_through;
    let share = (total > 0).then(|| figures.let_through as f64 / total as f64);
    let settled = phase.settled_s.map_or("never".into(), |settled_s| format!("{settled_s:.1}"));
    let error = figures.error(outcome.rate).filter(|_| of_rate);
    vec![
        outcome.law.clone(),
        phase.clients.to_string(),
        format!("{}-{}", seconds(phase.measured_s.start), seconds(phase.measured_s.end)),
        who.to_owned(),
        format!("{:.2}", figures.rate_per_s),
        percent(share),
        error.map_or(NONE.into(), signed_percent),
        phase.worst.filter(|_| of_rate).map_or(NONE.into(), signed_percent),
        percent(figures.denied_share()),
        percent(figures.left_share()),
        ms(figures.p50_ms),
        ms(figures.p99_ms),
        if of_rate { settled } else { NONE.into() },
        phase.jain.filter(|_| is_all).map_or(NONE.into(), |jain| format!("{jain:.3}")),
        if is_all { format!("{:.0}", phase.messages_per_s) } else { NONE.into() },
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
