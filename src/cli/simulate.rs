//! `slowlane simulate`: runs a law under a simulated load.

use std::time::Duration;

use anyhow::bail;
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};

use crate::cli::progress::Progress;
use crate::cli::say;
use slowlane_core::base::{Rate, units};
use slowlane_core::law::Law;
use slowlane_lab::protect::{Played, ProtectLoad, json_protected, report_protected};
use slowlane_lab::simulate::{
    self, Cluster, Costs, CrowdLoad, Load, NODES_MAX, Phases, SECONDS_MAX, Scenario, Skew, Span,
};

#[derive(Debug, Args)]
pub(super) struct SimulateArguments {
    #[command(flatten)]
    of_laws: LawArguments,
    /// Overload an application with all loads or only the named loads, both without slowlane and with law=protect
    #[arg(long, value_name = "LOAD", num_args = 0..=1, value_delimiter = ',', conflicts_with = "LawArguments",
          value_parser = PossibleValuesParser::new(ProtectLoad::names()))]
    protect: Option<Vec<String>>,
    /// Number of runs of each load, each with its own seed; the table has the medians of the runs
    #[arg(long, value_name = "N", default_value_t = 9, requires = "protect",
          value_parser = clap::value_parser!(u8).range(1..=99))]
    runs: u8,
    /// Seed of the random numbers; with --protect, each later run uses the next seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Options that apply only to the simulation of laws with a rate.
#[derive(Debug, Args)]
struct LawArguments {
    /// The laws to run; `all` leaves out concurrency and protect
    #[arg(long, value_name = "LAW", value_delimiter = ',', default_value = Law::DEFAULT_NAME,
          value_parser = PossibleValuesParser::new(Law::NAMES.iter().copied().chain([Law::PROTECT, ALL])))]
    law: Vec<String>,
    /// Rate of the SLO, like 50/s, or 2s/s with --option unit=seconds
    #[arg(long, value_name = "RATE", default_value = "50/s")]
    rate: String,
    /// Burst of the SLO
    #[arg(long, value_name = "AMOUNT", default_value = "100")]
    burst: String,
    /// An option as in slo.map, for every law or for one law; may be repeated
    #[arg(long, value_name = "[LAW:]NAME=VALUE", value_parser = law_option)]
    option: Vec<LawOption>,
    /// Numbers of clients, with one run for each number; 5-50-5 changes the number within one run, in equal parts
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "10")]
    clients: Vec<Phases>,
    /// Number of connections of an additional greedy client, all from one source
    #[arg(long, value_name = "N", default_value_t = 0)]
    greedy: u32,
    /// Rate of an attacker that sends from one source, regardless of the responses
    #[arg(long, value_name = "RATE")]
    attack: Option<Rate>,
    /// Part of the run in which the attacker sends, like 20s..30s [default: the whole run]
    #[arg(long, value_name = "FROM..TO", requires = "attack")]
    attack_during: Option<Span>,
    /// Crowd that sends without pauses; 200x2/5 means 200 sources with 2 connections each, in 5 networks
    #[arg(long, value_name = "SxC/N")]
    crowd: Option<CrowdLoad>,
    /// Number of requests that the application serves at once; delays include the wait for a worker [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    workers: Option<u32>,
    /// How long a client pauses between a response and its next request; each pause is 0.5 to 1.5 times this value
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = units::duration)]
    think: Duration,
    /// Costs of requests in the SLO's unit: median and sigma of a log-normal distribution; 0.4,0 makes every request
    /// cost 0.4 [default sigma: 1]
    #[arg(long, value_name = "MEDIAN[,SIGMA]")]
    cost: Option<Costs>,
    /// Time that the application takes for a request [default: the request's cost in seconds; else 20ms under
    /// concurrency, under protect and with --workers; else 0ms]
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    service: Option<Duration>,
    /// Time after which a waiting client times out and loses its place in the queue
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    patience: Option<Duration>,
    /// When clients retry after a 429
    #[arg(long, value_name = "WHEN", default_value = "retry-after")]
    retry: When,
    /// Number of nodes that share the SLO
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(NODES_MAX)))]
    nodes: u32,
    /// Round-trip time between a node and the store [default: 1ms]
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    rtt: Option<Duration>,
    /// How often each node exchanges messages with the store [default: 100ms]
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    period: Option<Duration>,
    /// How the node for a request is chosen [default: sticky]
    #[arg(long, value_name = "WHERE")]
    spread: Option<Where>,
    /// The first node's share of the load, or zipf: node n's share is proportional to 1/n [default: equal shares]
    #[arg(long, value_name = "PERCENT")]
    skew: Option<Skew>,
    /// Who delays a request: slowlane or the proxy [default: hold]
    #[arg(long, value_name = "BY")]
    delivery: Option<By>,
    /// Part of the run in which no message reaches the store, like 20s..80s
    #[arg(long, value_name = "FROM..TO")]
    store_dead: Option<Span>,
    /// Time at which the store loses all its data
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    store_flush: Option<Duration>,
    /// Length of each run, in seconds of virtual time
    #[arg(long, value_name = "N", default_value_t = 60,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(SECONDS_MAX)))]
    seconds: u32,
    /// Parts of the run that the table covers, with a row for each part [default: the last three quarters of the run]
    #[arg(long, value_name = "FROM..TO", value_delimiter = ',')]
    measure: Vec<Span>,
}

const ALL: &str = "all";

#[derive(Clone, Copy, Debug, ValueEnum)]
enum When {
    /// After the time in Retry-After
    RetryAfter,
    /// After --think, as after any other answer
    Now,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum By {
    /// slowlane holds the answer, so a request's turn may still change
    Hold,
    /// The proxy waits, so a delay is final
    Proxy,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Where {
    /// A connection stays on one node; each of an attacker's requests goes to any node
    Sticky,
    /// Each request goes to any node
    Any,
}

/// `name=value`, or `law:name=value` for one law.
#[derive(Clone, Debug)]
struct LawOption {
    law: Option<String>,
    name: String,
    value: String,
}

fn law_option(text: &str) -> Result<LawOption, &'static str> {
    let expected =
        "expected an option, like max_delay=10s, or an option for one law, like pace:max_delay=10s";
    let (name, value) = text.split_once('=').ok_or(expected)?;
    let (law, name) = name.split_once(':').map_or((None, name), |(law, name)| (Some(law), name));
    if name.is_empty()
        || text.contains(char::is_whitespace)
        || law.is_some_and(|law| law != Law::PROTECT && !Law::NAMES.contains(&law))
    {
        return Err(expected);
    }
    Ok(LawOption { law: law.map(str::to_owned), name: name.to_owned(), value: value.to_owned() })
}

pub(super) fn simulate(typed: SimulateArguments) -> anyhow::Result<()> {
    if let Some(names) = &typed.protect {
        return protect(&typed, names);
    }
    let scenarios = scenarios(&typed.of_laws, typed.seed)?;
    let mut progress = Progress::begin();
    let run = |scenario: &Scenario| scenario.run(|passed| progress.report(|| far(scenario, passed)));
    let outcomes = scenarios.iter().map(run).collect::<Result<Vec<_>, _>>();
    progress.end();
    let form = if typed.json { simulate::json } else { simulate::report };
    say(&form(&outcomes?))
}

/// Simulates an overloaded application, without slowlane and with law=protect.
fn protect(typed: &SimulateArguments, names: &[String]) -> anyhow::Result<()> {
    let mut loads: Vec<ProtectLoad> = names.iter().filter_map(|name| ProtectLoad::named(name)).collect();
    if loads.is_empty() {
        loads.extend(ProtectLoad::names().filter_map(ProtectLoad::named));
    }
    let seeds: Vec<u64> = (0..u64::from(typed.runs)).map(|run| typed.seed.wrapping_add(run)).collect();
    let mut progress = Progress::begin();
    let play = |load: ProtectLoad| {
        progress.report(|| load.name.to_owned());
        Played::of(load, &seeds)
    };
    let played: Vec<Played> = loads.into_iter().map(play).collect();
    progress.end();
    let form = if typed.json { json_protected } else { report_protected };
    say(&form(&played))
}

fn far(Scenario { law, load, seconds, .. }: &Scenario, passed: Duration) -> String {
    let (clients, passed_s) = (&load.clients, passed.as_secs());
    format!("{law}, {clients} clients: {passed_s} of {seconds} s ")
}

/// Builds a scenario for each law and number of clients, and checks all of them.
fn scenarios(typed: &LawArguments, seed: u64) -> anyhow::Result<Vec<Scenario>> {
    let laws: Vec<String> = match typed.law.iter().any(|law| law == ALL) {
        true => Scenario::laws_of_rates().map(str::to_owned).collect(),
        false => typed.law.clone(),
    };
    if let Some(idle) =
        typed.option.iter().filter_map(|option| option.law.as_ref()).find(|law| !laws.contains(law))
    {
        bail!("--option {idle}: the simulation does not run this law: add it with --law");
    }
    let cluster = cluster(typed)?;
    let mut scenarios = Vec::new();
    for law in &laws {
        for clients in &typed.clients {
            scenarios.push(scenario(typed, law, clients, cluster, seed));
        }
        let first = &scenarios[scenarios.len() - typed.clients.len()];
        if let Err(error) = first.check() {
            let remedy =
                "\nto set an option for only one law, prefix it with the law's name, like pace:max_delay=10s";
            let is_of_all = laws.len() > 1 && typed.option.iter().any(|option| option.law.is_none());
            bail!("{error}{}", if is_of_all { remedy } else { "" });
        }
    }
    scenarios.iter().try_for_each(Scenario::check)?;
    Ok(scenarios)
}

fn scenario(typed: &LawArguments, law: &str, clients: &Phases, cluster: Cluster, seed: u64) -> Scenario {
    let is_for_it = |option: &&LawOption| option.law.as_ref().is_none_or(|of| of == law);
    let options = typed.option.iter().filter(is_for_it);
    Scenario {
        law: law.to_owned(),
        options: options.map(|option| (option.name.clone(), option.value.clone())).collect(),
        rate: typed.rate.clone(),
        burst: typed.burst.clone(),
        load: Load {
            clients: clients.clone(),
            greedy: typed.greedy,
            attack: typed.attack,
            attack_during: typed.attack_during,
            crowd: typed.crowd,
            workers: typed.workers,
            think: typed.think,
            service: typed.service,
            cost: typed.cost,
            patience: typed.patience,
            ignores_retry_after: matches!(typed.retry, When::Now),
        },
        cluster,
        seconds: typed.seconds,
        measured: typed.measure.clone(),
        seed,
    }
}

fn cluster(typed: &LawArguments) -> anyhow::Result<Cluster> {
    let flags = [
        ("--rtt", typed.rtt.is_some()),
        ("--period", typed.period.is_some()),
        ("--spread", typed.spread.is_some()),
        ("--skew", typed.skew.is_some()),
        ("--delivery", typed.delivery.is_some()),
        ("--store-dead", typed.store_dead.is_some()),
        ("--store-flush", typed.store_flush.is_some()),
    ];
    if let Some((flag, _)) = flags.iter().find(|(_, is_typed)| typed.nodes == 1 && *is_typed) {
        bail!("{flag} needs several nodes: set their number, for example with --nodes 35");
    }
    let usual = Cluster::new(typed.nodes);
    Ok(Cluster {
        round_trip: typed.rtt.unwrap_or(usual.round_trip),
        period: typed.period.unwrap_or(usual.period),
        is_spread: matches!(typed.spread, Some(Where::Any)),
        skew: typed.skew,
        holds: !matches!(typed.delivery, Some(By::Proxy)),
        dead: typed.store_dead,
        flushed: typed.store_flush,
        ..usual
    })
}
