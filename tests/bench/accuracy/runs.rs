//! Runs of slowlane beside the models, under one load each.

use slowlane_lab::simulate::{Cluster, Load, Scenario, SimulationOutcome};

use super::models::{MODELS, run};

/// Requests at 3 x the rate of 2000/s, from the fifth second to the 25th. Of 35 nodes, the first gets 80 % of them.
pub fn skew() -> Vec<SimulationOutcome> {
    let laws = ["pace"].into_iter().chain(MODELS.map(|(name, _)| name));
    let load = Load { attack_during: Some("5s..25s".parse().unwrap()), ..open("6000/s") };
    let cluster = Cluster { skew: Some("80%".parse().unwrap()), ..Cluster::new(35) };
    let measured = vec!["10s..25s".parse().unwrap()];
    outcomes(
        laws,
        Scenario { rate: "2000/s".into(), burst: "200".into(), measured, seconds: 30, ..of(load, cluster) },
    )
}

/// Ten nodes get 3 x the rate of 10/s.
pub fn low() -> Vec<SimulationOutcome> {
    let laws = ["pace", "token-bucket"].into_iter().chain(MODELS[..3].iter().map(|(name, _)| *name));
    outcomes(laws, of(open("30/s"), Cluster::new(10)))
}

fn of(load: Load, cluster: Cluster) -> Scenario {
    Scenario {
        law: String::new(),
        options: vec![],
        rate: "10/s".into(),
        burst: "10".into(),
        load,
        cluster,
        seconds: 60,
        measured: vec![],
        seed: 1,
    }
}

fn open(rate: &str) -> Load {
    let (clients, attack) = ("0".parse().unwrap(), Some(rate.parse().unwrap()));
    Load { clients, attack, ..Load::default() }
}

fn outcomes<'l>(laws: impl Iterator<Item = &'l str>, scenario: Scenario) -> Vec<SimulationOutcome> {
    laws.map(|law| run(&Scenario { law: law.into(), ..scenario.clone() }).unwrap()).collect()
}
