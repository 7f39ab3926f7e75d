//! The tables of the manual: shared rates under many loads, at the worst and the median of several seeds.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use slowlane_core::base::Rate;
use slowlane_lab::simulate::{
    Cluster, Load, Phase, Scenario, ScenarioError, SimulationOutcome, Skew, Span, Who,
};

use super::models::{MODELS, run};

/// A table of the manual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// `pace` under eight loads at six rates, on 1 to 300 nodes.
    Cluster,
    /// An attack at 15 times the rate begins and ends, on 1 to 300 nodes.
    Steps,
    /// Two laws beside the models of how others share a rate.
    Others,
}

const NODES: [u32; 6] = [1, 3, 10, 35, 100, 300];
const RATES: [u32; 6] = [1, 10, 50, 500, 2_000, 20_000];

/// From this rate on, ten seconds are enough.
const HIGH: u32 = 500;

/// A limit of an API key, and that of Adobe's own measurement.
const OTHERS: [(u32, u32); 2] = [(10, 10), (2_000, 35)];

/// A load of the suite.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    clients: &'static str,
    /// The rate of requests whose sender waits for no answer, in tenths of the SLO's.
    open: u32,
    is_spread: bool,
    skew: Option<Skew>,
}

const fn closed(name: &'static str, clients: &'static str, is_spread: bool, skew: Option<Skew>) -> Case {
    Case { name, clients, open: 0, is_spread, skew }
}

const fn open(name: &'static str, open: u32, skew: Option<Skew>) -> Case {
    Case { name, clients: "0", open, is_spread: true, skew }
}

const fn attacked(name: &'static str, clients: &'static str) -> Case {
    Case { name, clients, open: 150, is_spread: false, skew: None }
}

const CASES: [Case; 8] = [
    closed("400 clients", "400", false, None),
    closed("40 clients", "40", false, None),
    closed("400 clients, any node", "400", true, None),
    closed("40 clients, any node", "40", true, None),
    closed("400 clients, Zipf", "400", false, Some(Skew::Zipf)),
    open("3 x the rate", 30, None),
    open("3 x the rate, Zipf", 30, Some(Skew::Zipf)),
    open("0.9 x the rate", 9, None),
];

const STEPS: [Case; 2] = [attacked("400 clients", "400"), attacked("40 clients", "40")];

/// The columns of a table: a heading, a law, and the number of nodes if it is not that of the row.
type Column = (String, &'static str, Option<u32>);

impl Suite {
    fn columns(self) -> Vec<Column> {
        match self {
            Suite::Cluster | Suite::Steps => {
                NODES.map(|nodes| (nodes.to_string(), "pace", Some(nodes))).to_vec()
            }
            Suite::Others => {
                let laws = ["pace", "token-bucket"].into_iter().chain(MODELS.map(|(name, _)| name));
                laws.map(|law| (format!("`{law}`"), law, None)).collect()
            }
        }
    }

    /// The loads of the rows, with their rates and numbers of nodes.
    fn rows(self) -> Vec<(Case, u32, u32)> {
        let each = |cases: &[Case], rates: &[(u32, u32)]| {
            let rows =
                cases.iter().flat_map(|&case| rates.iter().map(move |&(rate, nodes)| (case, rate, nodes)));
            rows.collect()
        };
        match self {
            Suite::Cluster => each(&CASES, &RATES.map(|rate| (rate, 1))),
            Suite::Steps => each(&STEPS, &RATES[1..5].iter().map(|&rate| (rate, 1)).collect::<Vec<_>>()),
            Suite::Others => [each(&CASES, &OTHERS), each(&STEPS[..1], &OTHERS)].concat(),
        }
    }
}

/// A figure of a run. Errors are in percent of the rate.
#[derive(Clone, Copy, Debug)]
enum Figure {
    Mean(f64),
    FullestSecond(f64),
    /// The refused part of the requests, in percent.
    Refused(f64),
    P99Ms(f64),
    /// The part of the rate that the clients keep, in percent.
    Kept(f64),
}

impl Figure {
    fn badness(self) -> f64 {
        match self {
            Figure::Mean(error) => error.abs(),
            Figure::Kept(part) => -part,
            Figure::FullestSecond(figure) | Figure::Refused(figure) | Figure::P99Ms(figure) => figure,
        }
    }

    /// Zero never has a minus sign.
    fn text(self) -> String {
        match self {
            Figure::Mean(error) => format!("{:+.1}", (error * 10.0).round() / 10.0 + 0.0),
            Figure::FullestSecond(error) => format!("{:+.0}", error.round() + 0.0),
            Figure::Refused(part) => format!("{part:.1} %"),
            Figure::P99Ms(ms) => format!("{ms} ms"),
            Figure::Kept(part) => format!("{part:.0} %"),
        }
    }
}

impl Case {
    fn has_steps(&self) -> bool {
        self.open > 0 && self.clients != "0"
    }

    /// The names of the lines that a run of this load fills.
    fn lines(&self) -> Vec<String> {
        let lines: &[&str] = match self.has_steps() {
            true => &[", an attack begins", ", the attack ends", ", the clients during it"],
            false => &[""],
        };
        lines.iter().map(|line| format!("{}{line}", self.name)).collect()
    }

    fn scenario(&self, law: &str, rate: u32, nodes: u32, round_trip: Duration, seed: u64) -> Scenario {
        let span = |from_s, to_s| Span { from: Duration::from_secs(from_s), to: Duration::from_secs(to_s) };
        let measured = match (self.has_steps(), rate < HIGH) {
            (true, _) => vec![span(20, 30), span(30, 40)],
            (false, true) => vec![span(30, 130)],
            (false, false) => vec![span(10, 20)],
        };
        let cluster =
            Cluster { round_trip, is_spread: self.is_spread, skew: self.skew, ..Cluster::new(nodes) };
        Scenario {
            law: law.into(),
            options: vec![],
            rate: per_day(u64::from(rate) * 86_400).to_string(),
            burst: rate.max(10).to_string(),
            load: Load {
                clients: self.clients.parse().expect("a number of clients"),
                attack: (self.open > 0).then(|| per_day(u64::from(rate * self.open) * 8_640)),
                attack_during: self.has_steps().then(|| measured[0]),
                ..Load::default()
            },
            cluster,
            seconds: measured.last().expect("there is one").to.as_secs() as u32,
            measured,
            seed,
        }
    }

    /// The figures of one run, for each of its lines.
    fn figures(&self, scenario: &Scenario) -> Result<Vec<Vec<Figure>>, ScenarioError> {
        let SimulationOutcome { phases, .. } = run(scenario)?;
        let per_s = scenario.rate.parse::<Rate>().expect("a rate").per_second();
        let errors = |phase: &Phase| {
            let mean = phase.all().error(per_s).unwrap_or_default();
            vec![Figure::Mean(100.0 * mean), Figure::FullestSecond(100.0 * phase.worst.unwrap_or_default())]
        };
        let phase = &phases[0];
        if self.has_steps() {
            let clients = phase.figures.iter().find(|figures| figures.who == Who::Client.name());
            let rate = clients.map_or(0.0, |figures| figures.rate_per_s);
            let kept = Figure::Kept(100.0 * rate / per_s);
            return Ok(vec![errors(phase), errors(&phases[1]), vec![kept]]);
        }
        if self.open >= 10 || self.open == 0 {
            return Ok(vec![errors(phase)]);
        }
        let all = (phase.all().denied + phase.all().let_through).max(1);
        let refused = Figure::Refused(100.0 * phase.all().denied as f64 / all as f64);
        Ok(vec![vec![refused, Figure::P99Ms(phase.all().p99_ms.unwrap_or_default() as f64)]])
    }

    /// The worst of all seeds, for each line, with the median in brackets if it reads differently.
    fn cells(
        &self,
        law: &str,
        rate: u32,
        nodes: u32,
        round_trip: Duration,
        seeds: u64,
    ) -> Result<Vec<String>, ScenarioError> {
        let run = |seed| self.figures(&self.scenario(law, rate, nodes, round_trip, seed));
        let runs = (1..=seeds).map(run).collect::<Result<Vec<_>, _>>()?;
        let figure = |line: usize, figure: usize| {
            let mut of_seeds: Vec<Figure> = runs.iter().map(|run| run[line][figure]).collect();
            of_seeds.sort_by(|one, other| one.badness().total_cmp(&other.badness()));
            let (worst, median) = (of_seeds[of_seeds.len() - 1].text(), of_seeds[of_seeds.len() / 2].text());
            if worst == median { worst } else { format!("{worst} ({median})") }
        };
        let line = |line: usize| {
            (0..runs[0][line].len()).map(|number| figure(line, number)).collect::<Vec<_>>().join(", ")
        };
        Ok((0..self.lines().len()).map(line).collect())
    }
}

/// A table in Markdown. `is_wanted` gets a rate and a column's heading; other cells stay empty. `progress` gets the
/// finished and all cells.
///
/// # Errors
/// A scenario exceeds a limit.
pub fn suite(
    suite: Suite,
    round_trip: Duration,
    seeds: u64,
    is_wanted: impl Fn(u32, &str) -> bool + Sync,
    progress: impl Fn(usize, usize) + Sync,
) -> Result<String, ScenarioError> {
    let (columns, rows) = (suite.columns(), suite.rows());
    let all = rows.len() * columns.len();
    let (next, cells) = (AtomicUsize::new(0), Mutex::new(vec![Vec::new(); all]));
    let work = || -> Result<(), ScenarioError> {
        loop {
            let place = next.fetch_add(1, Relaxed);
            let Some((case, rate, of_row)) = rows.get(place / columns.len()) else { return Ok(()) };
            let (heading, law, nodes) = &columns[place % columns.len()];
            let found = match is_wanted(*rate, heading) {
                true => case.cells(law, *rate, nodes.unwrap_or(*of_row), round_trip, seeds)?,
                false => vec![String::new(); case.lines().len()],
            };
            cells.lock().unwrap_or_else(PoisonError::into_inner)[place] = found;
            progress(place, all);
        }
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running.into_iter().try_for_each(|thread| thread.join().expect("a run does not panic"))
    })?;
    let cells = cells.into_inner().unwrap_or_else(PoisonError::into_inner);
    let headings: Vec<&str> = columns.iter().map(|(heading, ..)| heading.as_str()).collect();
    let mut text = format!("| load | rate | {} |\n", headings.join(" | "));
    text += &format!("| --- | --- |{}\n", " --- |".repeat(columns.len()));
    for ((case, rate, nodes), cells) in rows.iter().zip(cells.chunks(columns.len())) {
        let on = if suite == Suite::Others { format!(", {nodes} nodes") } else { String::new() };
        for (line, name) in case.lines().iter().enumerate() {
            let of_line: Vec<&str> = cells.iter().map(|cell| cell[line].as_str()).collect();
            text += &format!("| {name} | {rate}/s{on} | {} |\n", of_line.join(" | "));
        }
    }
    Ok(text)
}

fn per_day(requests: u64) -> Rate {
    format!("{requests}/d").parse().expect("a rate")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAR: Duration = Duration::from_millis(50);

    #[test]
    fn each_cell_is_a_scenario() {
        for suite in [Suite::Cluster, Suite::Steps, Suite::Others] {
            for (case, rate, _) in suite.rows() {
                for (_, law, _) in suite.columns() {
                    let of = if MODELS.iter().any(|(name, _)| *name == law) { "token-bucket" } else { law };
                    assert_eq!(case.scenario(of, rate, 300, FAR, 1).check(), Ok(()), "{law}, {}", case.name);
                }
            }
        }
    }

    #[test]
    fn a_cell_says_the_worst_of_its_seeds_and_their_median() {
        // 40 clients at 1/s on three nodes, and nine tenths of 50/s on one.
        let cells = |case: &Case, law, rate, nodes| case.cells(law, rate, nodes, FAR, 3).unwrap();
        assert_eq!(cells(&CASES[1], "pace", 1, 3), ["+0.0, +0"]);
        assert_eq!(cells(&CASES[7], "pace", 50, 1), ["0.0 %, 0 ms"]);
        // Of three seeds, the chance of drops has three errors, and the cell has two of them.
        let case = &CASES[5];
        let mut errors: Vec<Figure> = (1..=3)
            .map(|seed| case.figures(&case.scenario("drop-rate", 10, 10, FAR, seed)).unwrap()[0][0])
            .collect();
        errors.sort_by(|one, other| one.badness().total_cmp(&other.badness()));
        let expected = format!("{} ({}), ", errors[2].text(), errors[1].text());
        let cell = &cells(case, "drop-rate", 10, 10)[0];
        assert!(cell.starts_with(&expected), "{cell} instead of {expected}");
    }

    #[test]
    fn zero_has_no_sign_of_its_own() {
        assert_eq!([Figure::Mean(-0.04).text(), Figure::FullestSecond(-0.4).text()], ["+0.0", "+0"]);
    }
}
