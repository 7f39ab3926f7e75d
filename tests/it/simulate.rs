//! The simulator: the effect of each law on a load, and reproducible results.

use slowlane_core::base::Rate;
use slowlane_lab::simulate::{Cluster, Figures, Load, Phase, Scenario, SimulationOutcome, Who, report};

use crate::cli::{Ran, ran};
use crate::support::pages::{Page, assert_alike};

const SLO: &str = "50/s";

fn slo() -> Rate {
    SLO.parse().unwrap()
}

fn clients(counts: &str) -> Load {
    Load { clients: counts.parse().unwrap(), ..Load::default() }
}

/// `law`, and options after it, at 50/s with a burst of 100.
fn scenario(law: &str, load: Load) -> Scenario {
    let (law, options) = law.split_once(' ').unwrap_or((law, ""));
    let option = |option: &str| option.split_once('=').map(|(name, value)| (name.into(), value.into()));
    Scenario {
        law: law.to_owned(),
        options: options.split_whitespace().filter_map(option).collect(),
        rate: SLO.into(),
        burst: "100".into(),
        load,
        cluster: Cluster::new(1),
        seconds: 60,
        measured: vec![],
        seed: 1,
    }
}

fn outcome(law: &str, load: Load) -> SimulationOutcome {
    scenario(law, load).run(|_| ()).unwrap()
}

fn phase(law: &str, load: Load) -> Phase {
    outcome(law, load).phases.remove(0)
}

fn error(figures: &Figures) -> f64 {
    figures.error(slo().per_second()).unwrap()
}

fn group(phase: &Phase, who: Who) -> Figures {
    *phase.figures.iter().find(|figures| figures.who == who.name()).unwrap()
}

#[test]
fn pace_is_exact_from_one_client_to_two_hundred_and_refuses_nobody() {
    for law in ["pace max_delay=10s", "fair max_delay=10s"] {
        for (count, p50_ms) in [("1", 19), ("10", 199), ("50", 999), ("200", 3_999)] {
            let phase = phase(law, clients(count));
            assert!(error(&phase.all()).abs() <= 0.000_5, "{law}, {count} clients: {phase:?}");
            assert_eq!((phase.all().denied, phase.all().p50_ms), (0, Some(p50_ms)), "{law}, {count} clients");
            assert!(phase.all().p99_ms.unwrap() <= p50_ms + 1, "{law}, {count} clients: {phase:?}");
            assert!(phase.settled_s.unwrap() <= 1.0, "{law}, {count} clients: {phase:?}");
            assert!(phase.jain.is_none_or(|jain| jain >= 0.99), "{law}, {count} clients: {phase:?}");
        }
    }
}

#[test]
fn a_step_in_the_number_of_clients_is_settled_within_a_second() {
    for law in ["pace", "fair"] {
        let outcome = outcome(law, clients("5-50-5"));
        assert_eq!(outcome.phases.len(), 3);
        for phase in &outcome.phases {
            assert!(phase.settled_s.unwrap() <= 1.0, "{law}: {phase:?}");
            assert!(error(&phase.all()).abs() <= 0.005 && phase.all().denied == 0, "{law}: {phase:?}");
        }
    }
}

/// Every question raises the estimate of `adaptive`, denied ones too. It falls by at most one client per request, and
/// waiting clients send few requests.
#[test]
fn adaptive_takes_a_minute_where_pace_takes_none() {
    let ten = phase("adaptive", clients("10"));
    assert!((0.0..0.04).contains(&error(&ten.all())), "{ten:?}");
    let fifty = phase("adaptive", clients("50"));
    assert!(fifty.settled_s.is_none_or(|settled_s| settled_s > 10.0), "{fifty:?}");
    let two_hundred = phase("adaptive", clients("200"));
    assert!(error(&two_hundred.all()) < -0.5 && two_hundred.settled_s.is_none(), "{two_hundred:?}");
}

#[test]
fn an_attacker_takes_the_clients_share_under_pace_and_not_under_fair() {
    let attacked = || Load { attack: Some("500/s".parse().unwrap()), ..clients("10") };
    for (law, keeps) in [("fair", true), ("pace", false), ("token-bucket", false)] {
        let alone = phase(law, clients("10")).all().rate_per_s;
        let phase = phase(law, attacked());
        let kept = group(&phase, Who::Client).rate_per_s / alone;
        assert!(if keeps { kept >= 0.9 } else { kept < 0.1 }, "{law}: the clients keep {kept}");
        assert!(error(&phase.all()).abs() <= 0.01, "{law}: {phase:?}");
    }
}

#[test]
fn a_greedy_source_gets_one_share_under_fair_and_five_sixths_under_pace() {
    let mixed = || Load { greedy: 45, ..clients("9") };
    let alone = phase("fair", clients("9")).all().rate_per_s;
    for max_delay in ["max_delay=5s", "max_delay=2s"] {
        let phase = phase(&format!("fair {max_delay}"), mixed());
        let light = group(&phase, Who::Client);
        assert!(light.rate_per_s >= 0.9 * alone && light.denied == 0, "{phase:?}");
        assert!(phase.jain.unwrap() >= 0.99 && error(&phase.all()).abs() <= 0.01, "{phase:?}");
    }
    let pace = phase("pace", mixed());
    let greedy = group(&pace, Who::Greedy).rate_per_s / pace.all().rate_per_s;
    assert!((greedy - 45.0 / 54.0).abs() < 0.001 && pace.jain.unwrap() < 0.2, "{pace:?}");
}

#[test]
fn clients_that_have_left_spend_the_slots_of_those_who_stay() {
    // With fifty clients, each has to wait for a second.
    let patience = |ms| Load { patience: Some(std::time::Duration::from_millis(ms)), ..clients("50") };
    let impatient = phase("pace", patience(500));
    assert_eq!((impatient.all().let_through, impatient.all().left > 0), (0, true));
    // The clients do wait in a shorter queue.
    let shorter = phase("pace max_delay=500ms", patience(500));
    assert!(error(&shorter.all()).abs() <= 0.005 && shorter.all().left == 0, "{shorter:?}");
}

/// Two hundred crawlers of five networks, with two connections each, ask an application of eight workers. Twenty customers
/// pause for a second.
fn crowded() -> Load {
    let (think, service) = (std::time::Duration::from_secs(1), std::time::Duration::from_millis(73));
    let crowd = Some("200x2/5".parse().unwrap());
    Load { think, service: Some(service), crowd, workers: Some(8), ..clients("20") }
}

#[test]
fn protect_sees_the_networks_of_a_crowd() {
    let [by_network, by_source] =
        ["share=network+source", "share=source"].map(|share| phase(&format!("protect {share}"), crowded()));
    let customers = |phase: &Phase| group(phase, Who::Client);
    assert_eq!(customers(&by_network).denied, 0, "{by_network:?}");
    assert!(customers(&by_network).p50_ms < Some(200), "{by_network:?}");
    // With two hundred other groups, they wait for longer.
    assert!(customers(&by_source).p50_ms > customers(&by_network).p50_ms, "{by_source:?}");
    // Its workers are busy, and the crowd gets the rest.
    let rates = [by_network.all().rate_per_s, group(&by_network, Who::Crowd).rate_per_s];
    assert!(rates[0] > 0.9 * 8.0 / 0.073 && rates[1] > 80.0, "{rates:?}");
}

/// A request waits for one of two workers. None waits without that number.
#[test]
fn an_application_with_few_workers_has_a_queue() {
    let load =
        |workers| Load { workers, service: Some(std::time::Duration::from_millis(100)), ..clients("4") };
    let waits = |workers| phase("pace", load(workers)).all();
    let (few, all) = (waits(Some(2)), waits(None));
    assert!((19.0..=20.0).contains(&few.rate_per_s) && few.p50_ms > Some(90), "{few:?}");
    assert!(all.rate_per_s > 38.0 && all.p50_ms == Some(0), "{all:?}");
}

#[test]
fn concurrency_is_told_of_every_end() {
    let load = Load { service: Some(std::time::Duration::from_millis(100)), ..clients("20") };
    let phase = phase("concurrency max=10", load);
    // Ten at a time, a tenth of a second each: 100/s, less the millisecond before the next one asks.
    assert!((90.0..=100.0).contains(&phase.all().rate_per_s), "{phase:?}");
    assert!(phase.all().denied > 0);
}

/// Every request costs one token, and ends at once.
#[test]
fn a_unit_of_which_each_request_costs_one_is_the_request() {
    let load = Load { cost: Some("1,0".parse().unwrap()), ..clients("50") };
    let phase = phase("pace unit=tokens reserve=1", load);
    assert!(error(&phase.all()).abs() <= 0.000_5 && phase.jain.unwrap() >= 0.99, "{phase:?}");
    assert_eq!((phase.all().denied, phase.all().p50_ms, phase.settled_s.is_some()), (0, Some(999), true));
}

/// Requests take 0.66 s on average, and a tenth of them more than 1.4 s. p90 reserves that much for each, and still
/// nearly all of the rate is used: two requests at a time, on average. A single client cannot use more than one second
/// in a second.
#[test]
fn the_rate_of_work_is_used_however_much_is_reserved() {
    let work = |clients_count: &str, cost: &str| {
        let load = Load { cost: Some(cost.parse().unwrap()), ..clients(clients_count) };
        let scenario = scenario("pace unit=seconds max_delay=10m", load);
        let scenario = Scenario { rate: "2s/s".into(), burst: "10s".into(), seconds: 1_200, ..scenario };
        scenario.run(|_| ()).unwrap().phases.remove(0).all()
    };
    for (clients, cost) in [("10", "0.4"), ("50", "0.4"), ("50", "0.04"), ("10", "0.5,0")] {
        let figures = work(clients, cost);
        let error = figures.error(2.0).unwrap();
        assert!(error.abs() < 0.02 && figures.denied == 0, "{clients} clients, {cost}: {figures:?}");
    }
    let one = work("1", "0.5,0").rate_per_s;
    assert!((0.99..1.0).contains(&one), "{one}");
}

#[test]
fn the_measured_part_can_be_named() {
    let measured = |span: &str| {
        let scenario = scenario("pace", clients("10"));
        Scenario { measured: vec![span.parse().unwrap()], ..scenario }.run(|_| ()).unwrap().phases.remove(0)
    };
    assert_eq!(measured("15s..60s"), phase("pace", clients("10")), "the last three quarters");
    // A second of the rate, and the burst at once.
    let first = measured("0s..1s");
    assert_eq!(first.measured_s, [0.0, 1.0]);
    assert!((140..=151).contains(&first.all().let_through), "{first:?}");
    assert!(first.worst.unwrap() > 1.8 && measured("10s..20s").worst.unwrap() < 0.2, "{first:?}");
}

/// The attacker's requests of the last seconds wait for up to 5 s, so the clients have to wait after them.
#[test]
fn an_attack_begins_and_ends_and_each_part_has_its_figures() {
    let load = Load {
        attack: Some("750/s".parse().unwrap()),
        attack_during: Some("20s..30s".parse().unwrap()),
        ..clients("10")
    };
    let measured = ["10s..20s", "20s..30s", "35s..45s"].map(|span| span.parse().unwrap()).to_vec();
    let phases = Scenario { measured, ..scenario("pace", load) }.run(|_| ()).unwrap().phases;
    let rates = |who| phases.iter().map(move |phase| group(phase, who).rate_per_s).collect::<Vec<_>>();
    let (clients, attacker) = (rates(Who::Client), rates(Who::Attacker));
    assert_eq!((attacker[0], attacker[2]), (0.0, 0.0), "{phases:?}");
    assert!((clients[0] - 50.0).abs() < 0.2 && (clients[2] - 50.0).abs() < 0.2, "{clients:?}");
    assert!(clients[1] < 5.0 && (clients[1] + attacker[1] - 50.0).abs() < 0.2, "{clients:?}, {attacker:?}");
    assert!(phases.iter().all(|phase| phase.settled_s.unwrap() <= 1.0), "{phases:?}");
}

#[test]
fn each_measured_part_has_the_clients_of_its_phase() {
    let measured =
        ["10s..20s", "25s..30s", "30s..40s", "59s..60s"].map(|span| span.parse().unwrap()).to_vec();
    let phases = Scenario { measured, ..scenario("pace", clients("5-50-5")) }.run(|_| ()).unwrap().phases;
    let figures = phases.iter().map(|phase| (phase.clients, phase.all().p50_ms.unwrap()));
    assert_eq!(figures.collect::<Vec<_>>(), [(5, 99), (50, 999), (50, 999), (5, 99)]);
}

#[test]
fn a_seed_gives_the_same_numbers_to_the_last_digit() {
    let run = |law, seed| {
        let outcomes = [Scenario { seed, ..scenario(law, clients("10")) }.run(|_| ()).unwrap()];
        report(&outcomes)
    };
    for law in ["adaptive", "fair", "sliding-window"] {
        assert_eq!(run(law, 7), run(law, 7));
    }
    assert_ne!(run("adaptive", 7), run("adaptive", 8));
}

/// Runs the commands of a report, and compares what they print with what the report shows.
fn assert_page(page: &str, commands: usize, compare: fn(shown: &str, made: &str, command: &str)) {
    let page = Page::read(page);
    let blocks = page.blocks("sh");
    let shown: Vec<(&str, &str)> = blocks
        .iter()
        .filter_map(|block| block.text.strip_prefix("$ slowlane ")?.split_once('\n'))
        .filter(|(command, _)| command.starts_with("simulate"))
        .collect();
    assert_eq!(shown.len(), commands);
    for (command, printed) in shown {
        let Ran { code, out, problems } = ran(&command.split_whitespace().collect::<Vec<_>>());
        assert_eq!((code, problems), (0, vec![]), "{command}");
        compare(printed, &out, command);
    }
}

#[test]
fn the_tables_of_the_laws_are_what_their_commands_print() {
    assert_page("doc/reports/laws.md", 3, |shown, made, command| assert!(shown == made, "{command}"));
}

#[test]
fn the_tables_of_protection_are_what_its_commands_print() {
    assert_page("doc/reports/protect.md", 2, assert_alike);
}

#[test]
fn json_has_the_loads_that_are_named() {
    let typed = "simulate --protect crawler,crowd --runs 1 --json --seed 7";
    let args: Vec<&str> = typed.split(' ').collect();
    let Ran { out, problems, .. } = ran(&args);
    assert_eq!(out, ran(&args).out, "the same seed");
    let json: serde_json::Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{problems:?}"));
    let lines: Vec<String> =
        json.as_array().unwrap().iter().map(|run| format!("{} {}", run["load"], run["before"])).collect();
    assert_eq!(
        lines,
        [
            "\"crawler\" \"nothing\"",
            "\"crawler\" \"protect\"",
            "\"crowd\" \"nothing\"",
            "\"crowd\" \"protect\""
        ]
    );
    assert_eq!(json[0]["measured_s"][0], 15.0);
    assert!(json[0]["p50_ms"].as_f64() > json[1]["p50_ms"].as_f64(), "{json}");
    assert!(json[2]["failed_percent"].as_f64() > json[3]["failed_percent"].as_f64(), "{json}");
    assert_eq!(json[3]["crawlers_per_s"], 0.0);
    for (run, has_limit) in json.as_array().unwrap().iter().zip([false, true, false, true]) {
        let seconds = run["seconds"].as_array().unwrap();
        assert!(seconds.len() == 60 && seconds.iter().all(|of| of[1].is_u64() == has_limit), "{run}");
        assert!(seconds[1][0].as_f64().unwrap() > 50.0, "{run}");
    }
}

#[test]
fn each_flag_of_several_nodes_changes_the_run() {
    let table = |flag: &str| {
        let typed = format!("simulate --nodes 3 --rate 100/s --clients 30 --seconds 12 {flag}");
        let Ran { code, out, problems } = ran(&typed.split_whitespace().collect::<Vec<_>>());
        assert_eq!((code, problems), (0, vec![]), "{typed}");
        out
    };
    let mut tables: Vec<String> = [
        "",
        "--rtt 50ms",
        "--period 1s",
        "--spread any",
        "--skew 80%",
        "--store-dead 0s..12s",
        "--store-dead 0s..12s --skew 80%",
        "--store-flush 6s",
        "--measure 6s..12s",
    ]
    .map(table)
    .to_vec();
    assert!(tables.iter().all(|table| table.contains("worst s %") && table.contains("messages /s")));
    assert_eq!(table("--spread sticky --rtt 1ms --period 100ms"), tables[0], "the defaults");
    tables.sort();
    tables.dedup();
    assert_eq!(tables.len(), 9);
    let one = ran(&["simulate", "--nodes", "1"]).out;
    assert!(one == ran(&["simulate"]).out && !one.contains("worst s") && !one.contains("messages"));
}

#[test]
fn what_cannot_be_simulated_is_told_with_a_remedy() {
    for (args, problem) in [
        (&["--clients", "0"][..], "no load: expected clients, greedy connections, a crowd or an attacker"),
        (
            &["--clients", "6000", "--greedy", "6000"],
            "the clients, greedy clients and crowd have 12000 connections in all: expected at most 10000",
        ),
        (
            &["--think", "1us"],
            "a pause of 1µs: expected at least 100µs, or a refused client would retry forever",
        ),
        (
            &["--rate", "1/d", "--burst", "3661"],
            "pace: burst 3661 at 1/d takes longer than 10 years to refill: lower the burst",
        ),
        (
            &["--option", "unit=seconds", "--burst", "20s"],
            "pace: rate \"50/s\": expected a duration per period (s, m, h, d or month), like 2s/s",
        ),
        (
            &["--option", "unit=bytes"],
            "unit=bytes: the cost of a request is unknown: add --cost, like --cost 0.4",
        ),
        (
            &["--cost", "1"],
            "--cost: the SLO counts requests: give the SLO a unit, like --option unit=seconds --rate 2s/s \
             --burst 20s",
        ),
        (
            &["--cost", "1", "--option", "unit=tokens", "--nodes", "2"],
            "--cost: work is simulated on one node only: leave out --nodes",
        ),
        (&["--option", "window=1s"], "pace: unknown option \"window\": pace takes max_delay"),
        (
            &["--option", "fair:max_delay=1s"],
            "--option fair: the simulation does not run this law: add it \
                                              with --law",
        ),
        (&["--skew", "80%"], "--skew needs several nodes: set their number, for example with --nodes 35"),
        (
            &["--nodes", "1", "--rtt", "5ms"],
            "--rtt needs several nodes: set their number, for example with --nodes 35",
        ),
        (
            &["--nodes", "35", "--law", "fair"],
            "fair: several nodes can share only pace, token-bucket and leaky-bucket: choose one of these \
             laws, or simulate one node",
        ),
        (
            &["--nodes", "35", "--rate", "0/s"],
            "rate 0/s: there is nothing to share among nodes: expected a rate above 0",
        ),
        (
            &["--nodes", "35", "--rtt", "500ms"],
            "a round trip of 500ms: expected less than 500ms, or the store would count as silent",
        ),
        (
            &["--nodes", "35", "--period", "1us"],
            "with a period of 1us, the nodes would contact the store too often in this run: use a longer \
             period, or fewer seconds",
        ),
        (
            &["--nodes", "35", "--store-dead", "60s..90s"],
            "a fault of the store is planned for 1m, but the run ends too early: use more seconds",
        ),
        (
            &["--nodes", "35", "--store-flush", "2m"],
            "a fault of the store is planned for 2m, but the run ends too early: use more seconds",
        ),
        (
            &["--attack", "9/s", "--attack-during", "50s..70s"],
            "the attack is planned for 50s..70s, but the run ends too early: use more seconds",
        ),
        (
            &["--measure", "10s..20s,15s..30s"],
            "the measured part 15s..30s begins before the previous part ends: give the parts in order, \
             without overlap",
        ),
        (
            &["--measure", "50s..70s"],
            "a measurement is planned for 50s..70s, but the run ends too early: use more seconds",
        ),
        (
            &["--measure", "10s..20s,20s..41s", "--clients", "5-50-5"],
            "the number of clients, 5-50-5, changes during the measured part 20s..41s: split this part at \
             the change",
        ),
    ] {
        let Ran { code, out, problems } = ran(&[&["simulate"], args].concat());
        assert_eq!((code, out.as_str(), &problems[..]), (1, "", &[problem.to_owned()][..]), "{args:?}");
    }
    let of_several = ran(&["simulate", "--law", "pace,token-bucket", "--option", "max_delay=1s"]);
    assert_eq!(
        of_several.problems,
        [
            "token-bucket: unknown option \"max_delay\": token-bucket takes none",
            "to set an option for only one law, prefix it with the law's name, like pace:max_delay=10s",
        ]
    );
}

/// Ten clients, whose requests send 100 kB each and take 50 ms: they wait for 50 ms more.
#[test]
fn an_slo_in_bytes_has_its_rate_and_its_burst_as_on_its_line() {
    let typed =
        "simulate --json --option unit=bytes --rate 10MB/s --burst 1MB --cost 100000,0 --service 50ms";
    let Ran { out, problems, .. } = ran(&typed.split(' ').collect::<Vec<_>>());
    let json: serde_json::Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{problems:?}"));
    let run = &json[0];
    assert_eq!([&run["rate"], &run["burst"], &run["unit"]], ["10MB/s", "1MB", "bytes"]);
    let phase = &run["phases"][0];
    assert!(phase["error"].as_f64().unwrap().abs() < 0.01, "{phase}");
    let figures = &phase["figures"][0];
    assert!((45..=55).contains(&figures["p50_ms"].as_u64().unwrap()), "{figures}");
}

#[test]
fn json_has_the_numbers_of_the_table() {
    let args = [
        "simulate",
        "--law",
        "pace,token-bucket",
        "--clients",
        "5-50",
        "--attack",
        "90/s",
        "--seconds",
        "20",
    ];
    let table = ran(&args).out;
    let json: serde_json::Value = serde_json::from_str(&ran(&[&args[..], &["--json"]].concat()).out).unwrap();
    let mut rows = table.lines().skip(1);
    for (run, law) in json.as_array().unwrap().iter().zip(["pace", "token-bucket"]) {
        assert_eq!((run["law"].as_str(), run["rate"].as_str()), (Some(law), Some("50/s")));
        assert_eq!([&run["nodes"], &run["seed"]], [1, 1]);
        for (phase, clients) in run["phases"].as_array().unwrap().iter().zip([5, 50]) {
            assert_eq!(phase["clients"], clients);
            for figures in phase["figures"].as_array().unwrap() {
                let row = rows.next().unwrap();
                let cells: Vec<&str> = row.split_whitespace().collect();
                let rate = format!("{:.2}", figures["rate_per_s"].as_f64().unwrap());
                assert!(
                    cells.contains(&figures["who"].as_str().unwrap()) && cells.contains(&&*rate),
                    "{row}\n{figures}"
                );
            }
        }
    }
    assert_eq!(rows.next(), None);
}
