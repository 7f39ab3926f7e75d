//! The cluster's law in virtual time: many nodes, one key, a store that is a round trip away.
//!
//! The loads and their results are those of the model that the law comes from.

use std::time::Duration;

use slowlane_core::base::Rate;
use slowlane_core::base::units::duration;
use slowlane_lab::simulate::{Cluster, Load, Phase, Scenario, report};

use crate::accuracy::runs;
use crate::accuracy::suite::{Suite, suite};
use crate::cli::{Ran, ran};
use crate::support::pages::{Page, assert_alike};

const NODES: u32 = 35;

/// 400 clients of 35 nodes share 2000/s.
fn scene() -> Scenario {
    Scenario {
        law: "pace".into(),
        options: vec![],
        rate: "2000/s".into(),
        burst: "200".into(),
        load: Load { clients: "400".parse().unwrap(), ..Load::default() },
        cluster: Cluster::new(NODES),
        seconds: 20,
        measured: vec![],
        seed: 1,
    }
}

fn nodes(scene: Scenario, change: impl Fn(Cluster) -> Cluster) -> Scenario {
    Scenario { cluster: change(scene.cluster), ..scene }
}

/// Four fifths of the load on one node.
fn skewed(scene: Scenario) -> Scenario {
    nodes(scene, |nodes| Cluster { skew: Some("80%".parse().unwrap()), ..nodes })
}

/// Each request goes to any node.
fn any(scene: Scenario) -> Scenario {
    nodes(scene, |nodes| Cluster { is_spread: true, ..nodes })
}

fn clients(counts: &str, scene: Scenario) -> Scenario {
    Scenario { load: Load { clients: counts.parse().unwrap(), ..Load::default() }, ..scene }
}

/// Requests come at a rate, whatever the answers.
fn open(rate: &str, scene: Scenario) -> Scenario {
    let load = Load { clients: "0".parse().unwrap(), attack: Some(rate.parse().unwrap()), ..Load::default() };
    measured("10s..20s", Scenario { load, ..scene })
}

fn measured(span: &str, scene: Scenario) -> Scenario {
    Scenario { measured: vec![span.parse().unwrap()], ..scene }
}

fn dead(span: &str, scene: Scenario) -> Scenario {
    nodes(scene, |nodes| Cluster { dead: Some(span.parse().unwrap()), ..nodes })
}

/// The outcome in percent of the rate: its error in the mean, and in the worst second.
#[derive(Debug)]
struct Found {
    name: String,
    round_trip_ms: u128,
    error: f64,
    worst: f64,
    jain: f64,
    phase: Phase,
}

/// The outcomes near the store and far from it, with two seeds.
fn found(scene: &Scenario) -> Vec<Found> {
    let each = [1, 50].into_iter().flat_map(|ms| (1..=2).map(move |seed| (Duration::from_millis(ms), seed)));
    each.flat_map(|(round_trip, seed)| {
        let scene = nodes(scene.clone(), |nodes| Cluster { round_trip, ..nodes });
        let per_s = scene.rate.parse::<Rate>().unwrap().per_second();
        let phases = Scenario { seed, ..scene }.run(|_| ()).unwrap().phases;
        phases.into_iter().map(move |phase| Found {
            name: format!("{round_trip:?}, seed {seed}, {} clients", phase.clients),
            round_trip_ms: round_trip.as_millis(),
            error: phase.all().error(per_s).unwrap() * 100.0,
            worst: phase.worst.unwrap() * 100.0,
            jain: phase.jain.unwrap(),
            phase,
        })
    })
    .collect()
}

/// 2000/s over 35 nodes: one percent in the mean, three in the worst second, and fair to every client.
#[track_caller]
fn is_shared_exactly(scene: &Scenario) {
    for found in found(scene) {
        let name = &found.name;
        assert!(found.error.abs() <= 1.0 && found.worst <= 3.0 && found.jain >= 0.95, "{name}: {found:?}");
    }
}

#[test]
fn clients_that_wait_share_one_rate_wherever_they_are() {
    is_shared_exactly(&scene());
    is_shared_exactly(&skewed(scene()));
    is_shared_exactly(&any(scene()));
}

#[test]
fn clients_that_do_not_wait_share_one_rate_wherever_they_are() {
    is_shared_exactly(&open("6000/s", scene()));
    is_shared_exactly(&skewed(open("6000/s", scene())));
}

#[test]
fn laws_that_refuse_share_one_rate_too() {
    for law in ["token-bucket", "leaky-bucket"] {
        let refusing = Scenario { law: law.into(), ..open("6000/s", scene()) };
        is_shared_exactly(&refusing);
        is_shared_exactly(&skewed(refusing.clone()));
        assert!(
            found(&refusing).iter().all(|found| found.phase.all().p99_ms == Some(0)),
            "{law} never delays"
        );
    }
}

#[test]
fn a_slow_rate_is_shared_by_many_nodes() {
    let (rate, burst) = ("50/s".into(), "50".into());
    let slow = measured("10s..60s", Scenario { rate, burst, seconds: 60, ..clients("50", scene()) });
    for scene in [slow.clone(), any(slow)] {
        for found in found(&scene) {
            assert!(found.error.abs() <= 1.0, "{found:?}");
        }
    }
}

/// Below the rate nobody is delayed for long, and nobody is refused.
#[test]
fn a_load_below_the_rate_is_let_through() {
    let below = measured("10s..60s", Scenario { seconds: 60, ..open("1800/s", scene()) });
    for scene in [below.clone(), skewed(below)] {
        for found in found(&scene) {
            assert!((-11.5..=-9.0).contains(&found.error) && found.jain > 0.999, "{found:?}");
            assert!(found.phase.all().denied == 0 && found.phase.all().p99_ms.unwrap() <= 100, "{found:?}");
        }
    }
}

#[test]
fn more_clients_and_fewer_are_shared_at_once() {
    for found in found(&Scenario { seconds: 60, ..clients("100-400-100", scene()) }) {
        assert!(found.error.abs() <= 1.0 && found.worst <= 3.0 && found.jain >= 0.95, "{found:?}");
        assert!(found.phase.settled_s.unwrap() <= 3.0, "{found:?}");
    }
}

#[test]
fn while_the_store_is_dead_each_node_keeps_its_share() {
    let open = || Scenario { measured: vec![], ..open("6000/s", scene()) };
    let scenes = [scene(), skewed(scene()), open(), skewed(open())];
    for scene in scenes {
        let dead = dead("20s..80s", Scenario { seconds: 95, ..scene });
        for found in found(&measured("20s..80s", dead.clone())) {
            assert!((-5.0..=10.0).contains(&found.error), "{found:?}");
            assert!(found.phase.messages_per_s < 0.001, "{found:?}");
        }
        for found in found(&measured("80s..93s", dead.clone())) {
            assert!(found.worst <= 15.0, "a second after it: {found:?}");
        }
        for found in found(&measured("83s..93s", dead.clone())) {
            assert!(found.error.abs() <= 2.0, "three seconds after it: {found:?}");
        }
    }
}

/// At 10/s, each of 35 nodes has a slot of its own every three seconds and a half, and each of 100 every ten.
#[test]
fn a_low_rate_outlives_its_store() {
    let (rate, burst) = ("10/s".into(), "10".into());
    let slow = Scenario { rate, burst, seconds: 75, ..scene() };
    for (count, loads) in [(3, ["40", "400"]), (10, ["40", "400"]), (35, ["40", "400"]), (100, ["40", "400"])]
    {
        let of_nodes = nodes(slow.clone(), |cluster| Cluster { nodes: count, ..cluster });
        for load in loads {
            let dead = dead("20s..40s", clients(load, of_nodes.clone()));
            let errors = |span| found(&measured(span, dead.clone())).into_iter().map(|found| found.error);
            let worst = |span| errors(span).fold(0.0_f64, |worst, error| worst.max(error.abs()));
            let (meanwhile, later, last) = (worst("20s..40s"), worst("43s..53s"), worst("53s..73s"));
            let name = format!("{count} nodes, {load} clients: {meanwhile}, {later}, {last}");
            assert!(meanwhile <= 15.0 && later <= 12.0 && last < 0.6, "{name}");
        }
    }
}

#[test]
fn nodes_that_never_reach_the_store_take_equal_shares() {
    let alone = dead("0s..60s", measured("5s..60s", Scenario { seconds: 60, ..scene() }));
    for found in found(&alone) {
        assert!(found.error.abs() <= 1.0, "{found:?}");
    }
    // Four fifths of the clients then have to share what one node gets.
    for found in found(&skewed(alone)) {
        assert!(found.error.abs() <= 1.0 && found.jain < 0.25, "{found:?}");
    }
}

#[test]
fn a_store_that_has_forgotten_everything_is_taught() {
    for count in ["400", "4000"] {
        let kept = measured("9s..13s", clients(count, scene()));
        let flushed = Some(Duration::from_secs(10));
        let lost = nodes(kept.clone(), |nodes| Cluster { flushed, ..nodes });
        for (lost, kept) in found(&lost).iter().zip(found(&kept)) {
            // At 50 ms, six seeds have a worst second of 12 to 17 % too much.
            let most = if lost.round_trip_ms == 1 { 6.0 } else { 20.0 };
            assert!(lost.worst <= most && lost.error.abs() <= 1.0, "{lost:?}");
            assert!(lost.worst > kept.worst + 1.0, "it costs something: {lost:?}, {kept:?}");
        }
    }
}

#[test]
fn a_seed_gives_the_same_numbers_of_many_nodes() {
    let run = |seed| report(&[Scenario { seed, seconds: 5, ..any(scene()) }.run(|_| ()).unwrap()]);
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

/// The figures of a run: its error in percent, in the mean and in the worst second, and its fairness.
type Figures = [f64; 3];

/// The table of many nodes among the benchmarks, within the noise of a run: a change of the law has to change the table.
#[test]
fn the_table_of_many_nodes_is_what_its_commands_make() {
    let section = Page::read("tests/bench/README.md").section("Many nodes in virtual time");
    let rows: Vec<Vec<&str>> =
        section.text.lines().filter(|line| line.starts_with("| ")).map(cells).collect();
    let flags = |load| {
        let row = rows.iter().find(|row| row.len() == 2 && row[0] == load);
        row.unwrap_or_else(|| panic!("no flags of {load}"))[1].trim_matches('`')
    };
    let (mut count, mut wrong) = (0, Vec::new());
    for row in rows.iter().filter(|row| row.len() == 4 && row[1].ends_with(" ms")) {
        for (seed, cell) in ["1", "2"].into_iter().zip(&row[2..]) {
            let round_trip = row[1].replace(' ', "");
            let typed = format!("simulate --nodes 35 {} --rtt {round_trip} --seed {seed}", flags(row[0]));
            let shown: Vec<f64> = cell.split('/').map(|figure| figure.parse().unwrap()).collect();
            let made = figures(&typed);
            if !is_close(&shown, &made) {
                wrong.push(format!("{typed}: {made:?} instead of {shown:?}"));
            }
            count += 1;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(count, 52, "runs");
}

fn cells(row: &str) -> Vec<&str> {
    row.trim_matches('|').split('|').map(str::trim).collect()
}

/// The columns of a report that the table shows.
const COLUMNS: [&str; 3] = ["error %", "worst s %", "Jain"];

fn figures(typed: &str) -> Figures {
    let args: Vec<&str> = typed.split_whitespace().collect();
    let Ran { out, problems, .. } = ran(&args);
    let (head, row) = out.split_once('\n').unwrap_or_else(|| panic!("{typed}: {problems:?}"));
    // Columns end where their headings end.
    COLUMNS.map(|name| {
        let end = head.find(name).expect(name) + name.len();
        row[..end].split_whitespace().next_back().unwrap().parse().unwrap()
    })
}

fn is_close(shown: &[f64], made: &Figures) -> bool {
    let [error, worst, jain] = *made;
    (shown[0] - error).abs() <= 1.0
        && (shown[1] - worst).abs() <= (worst.abs() / 2.0).max(1.5)
        && (shown[2] - jain).abs() <= 0.02
}

/// The report on accuracy.
const ACCURACY: &str = "doc/reports/cluster-accuracy.md";

/// The cheap cells of its tables: low rates, on few nodes.
#[test]
fn the_tables_of_accuracy_are_what_their_commands_make() {
    let page = Page::read(ACCURACY);
    let (mut count, mut wrong) = (0, Vec::new());
    for block in page.blocks("text") {
        let typed: Vec<&str> = block.text.split_whitespace().collect();
        let ["cargo", "bench", "--bench", "accuracy", "--", name, round_trip] = typed[..] else {
            panic!("{typed:?}")
        };
        let which = match name {
            "cluster" => Suite::Cluster,
            "steps" => Suite::Steps,
            _ => Suite::Others,
        };
        let is_cheap = |rate, column: &str| rate <= 10 && column.parse().is_ok_and(|nodes: u32| nodes <= 10);
        let is_wanted = |rate, column: &str| is_cheap(rate, column) || rate <= 10 && which == Suite::Others;
        let made = suite(which, duration(round_trip).unwrap(), 5, is_wanted, |_, _| ()).unwrap();
        let after = page.text.split_once(&format!("{}```\n\n", block.text)).unwrap().1;
        let shown: Vec<&str> = after.lines().take_while(|line| line.starts_with("| ")).collect();
        assert_eq!(made.lines().count(), shown.len(), "{name}");
        for (made, shown) in made.lines().map(cells).zip(shown.into_iter().map(cells)) {
            assert_eq!(made[..2], shown[..2], "{name}");
            for (made, cell) in made.iter().zip(&shown).skip(2).filter(|(made, _)| !made.is_empty()) {
                count += 1;
                if made != cell && !is_cell_close(cell, made, shown[1]) {
                    wrong.push(format!("{name} {round_trip}: {made} instead of {cell} in {shown:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(count, 258, "cells");
}

/// Cells like `+0.3 (+0.1), +20` and `0.5 %, 12 ms`. The fullest second may differ by a request.
fn is_cell_close(shown: &str, made: &str, rate: &str) -> bool {
    let worst = |figure: &str| figure.split(' ').next().unwrap().parse::<f64>();
    let figures = |cell: &str| cell.split(", ").map(worst).collect::<Result<Vec<f64>, _>>();
    let (Ok(shown), Ok(made)) = (figures(shown), figures(made)) else { return false };
    let request = 100.0 / rate.split('/').next().unwrap().parse::<f64>().unwrap();
    let allowed =
        [|made: f64, _| (made / 5.0).max(1.0), |made: f64, request: f64| (made / 2.0).max(request + 0.5)];
    shown.len() == made.len()
        && shown
            .iter()
            .zip(&made)
            .zip(allowed)
            .all(|((shown, made), allowed)| (shown - made).abs() <= allowed(made.abs(), request))
}

#[test]
fn the_runs_of_accuracy_are_what_their_commands_print() {
    let page = Page::read(ACCURACY);
    let blocks = page.blocks("sh");
    for (name, outcomes) in [("skew", runs::skew()), ("low", runs::low())] {
        let command = format!("$ cargo bench --bench accuracy -- {name}\n");
        let printed = blocks.iter().find_map(|block| block.text.strip_prefix(&command));
        assert_alike(printed.unwrap_or_else(|| panic!("no {command}")), &report(&outcomes), name);
    }
}
