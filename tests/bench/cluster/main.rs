//! Many real nodes and a real Redis: how exactly they share one rate, and what the failures of the store cost.
//!
//! `cargo bench --bench cluster [-- SECONDS] [PART ...]`, or tests/cluster/run. 35 nodes by default, or as many as
//! CLUSTER_NODES says. CLUSTER_ONLY chooses lines of the part `silence` by a part of their name, like `stopped`. All
//! programs share the machine with their clients: CPU time is what bounds them. Delays are obeyed by the clients
//! (`/check?hold=off`), and a request counts at the moment at which it leaves. In the part `proxies`, delays are late
//! answers, and a request counts when its answer comes.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests and benches are the world outside"
)]
#![allow(unreachable_pub, reason = "nothing here is reachable from outside, and pub(crate) is noise")]

mod crowd;
mod fleet;
mod flood;
#[path = "../support/mod.rs"]
mod support;
mod tally;
mod visitors;

use std::ops::Range;
use std::time::Duration;

use crowd::{Load, Spread};
use fleet::Fleet;
use support::effort::{self, Effort, Part};
use support::programs::listeners::Listeners;
use support::programs::redis::Redis;
use support::programs::slowlane::Slowlane;
use support::programs::token_server::Pair;
use tally::{Figures, Tally};
use tokio::time::sleep;

const PARTS: [Part; 16] = [
    ("steady", steady),
    ("slow", slow),
    ("step", step),
    ("below", below),
    ("silence", silence),
    ("again", again),
    ("fresh", fresh),
    ("forget", forget),
    ("leave", leave),
    ("keys", keys),
    ("lease", lease),
    ("clocks", clocks),
    ("blocks", blocks),
    ("nodes", nodes),
    ("proxies", proxies),
    ("standby", standby),
];

const RATE: f64 = 2_000.0;
const SLO: &str = "burst=200 rate=2000/s";
const NEAR: Duration = Duration::ZERO;
const FAR: Duration = Duration::from_millis(50);

/// Begins a fault, and ends it.
type Fault = fn(&mut Fleet, bool);

/// A load of so much time.
type Offered = fn(Effort, Duration) -> Load;

const STOPPED: Fault =
    |fleet, begins| if begins { fleet.store.process.stop() } else { fleet.store.process.signal("CONT") };
const BLACK_HOLE: Fault = |fleet, begins| fleet.wire.swallow(begins);

fn main() {
    effort::run(&PARTS, Effort::from_arguments(20.0));
}

/// The number of nodes.
fn node_count(effort: Effort) -> usize {
    let asked = std::env::var("CLUSTER_NODES").ok().and_then(|count| count.parse().ok());
    asked.unwrap_or_else(|| (effort.count(35) as usize).max(2))
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap().block_on(work)
}

/// 400 clients that wait, as many as the short run allows.
fn closed(effort: Effort, spread: Spread, time: Duration) -> Load {
    Load { clients: effort.count(400) as usize, open_per_s: 0.0, spread, time, other_key_from: Duration::MAX }
}

fn open(per_s: f64, spread: Spread, time: Duration) -> Load {
    Load { clients: 0, open_per_s: per_s, spread, time, other_key_from: Duration::MAX }
}

fn header(title: &str, effort: Effort) {
    println!("{title}: {} nodes, {RATE}/s", node_count(effort));
    println!("{:<34}{}", "", Figures::HEADER);
}

fn line(name: &str, figures: &Figures) {
    println!("{name:<34}{figures}");
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

/// The time before a measurement, in which bursts are used up.
fn warm_up(effort: Effort) -> Duration {
    effort.time.min(Duration::from_secs(5))
}

/// Pass mark 1: loads that stay as they are, near and far.
fn steady(effort: Effort) {
    header("steady", effort);
    for (round_trip, distance) in [(NEAR, "near"), (FAR, "50 ms")] {
        let time = warm_up(effort) + effort.time;
        let loads = [
            ("400 clients, even", closed(effort, Spread::Even, time)),
            ("400 clients, 80 % on one", closed(effort, Spread::Skewed, time)),
            ("400 clients, any node", closed(effort, Spread::Any, time)),
            ("3 x the rate, even", open(3.0 * RATE, Spread::Even, time)),
            ("3 x the rate, 80 % on one", open(3.0 * RATE, Spread::Skewed, time)),
        ];
        for (name, load) in loads {
            block_on(async {
                let fleet = Fleet::start(node_count(effort), SLO, round_trip).await;
                let tally = crowd::run(load, fleet.addresses(), async {}).await;
                let range = seconds(warm_up(effort))..seconds(time);
                line(&format!("{name}, {distance}"), &tally.figures(range, RATE));
                let messages = fleet.metric("slowlane_cluster_messages_total") / seconds(time);
                let bytes =
                    fleet.wire.bytes.load(std::sync::atomic::Ordering::Relaxed) as f64 / seconds(time);
                println!("{:<34}{messages:>10.0} messages/s {:>8.0} kB/s, both ways", "", bytes / 1e3);
            });
        }
    }
}

/// Pass mark 2: a slow rate over many nodes.
fn slow(effort: Effort) {
    header("50/s, 50 clients", effort);
    for (name, spread) in [("even", Spread::Even), ("any node", Spread::Any)] {
        block_on(async {
            let fleet = Fleet::start(node_count(effort), "burst=50 rate=50/s", NEAR).await;
            let time = warm_up(effort) * 2 + effort.time * 3;
            let load = Load { clients: 50, ..closed(effort, spread, time) };
            let tally = crowd::run(load, fleet.addresses(), async {}).await;
            line(name, &tally.figures(2.0 * seconds(warm_up(effort))..seconds(time), 50.0));
        });
    }
}

/// Pass mark 3: all clients move to other nodes.
fn step(effort: Effort) {
    header("all clients move to other nodes at half time", effort);
    for (round_trip, distance) in [(NEAR, "near"), (FAR, "50 ms")] {
        block_on(async {
            let fleet = Fleet::start(node_count(effort), SLO, round_trip).await;
            let time = warm_up(effort) * 2 + effort.time;
            let tally = crowd::run(closed(effort, Spread::Moving, time), fleet.addresses(), async {}).await;
            let half = seconds(time) / 2.0;
            let after = tally.figures(half..half + 2.0, RATE);
            line(&format!("two seconds after, {distance}"), &after);
            println!(
                "{:<34}{:>+10.2} of a second's rate too much, in two seconds",
                "",
                after.error / 100.0 * 2.0
            );
            line(&format!("from then on, {distance}"), &tally.figures(half + 2.0..seconds(time), RATE));
        });
    }
}

/// Pass mark 4: a load below the rate is let through.
fn below(effort: Effort) {
    header("0.9 x the rate, 80 % on one node", effort);
    for (name, slo) in [("pace", SLO), ("token-bucket", "burst=500 rate=2000/s law=token-bucket")] {
        block_on(async {
            let fleet = Fleet::start(node_count(effort), slo, NEAR).await;
            let time = warm_up(effort) + effort.time;
            let load = open(0.9 * RATE, Spread::Skewed, time);
            let tally = crowd::run(load, fleet.addresses(), async {}).await;
            line(name, &tally.figures(seconds(warm_up(effort))..seconds(time), RATE));
        });
    }
}

/// Pass mark 5: the store is silent for three times the measured time, in four ways.
fn silence(effort: Effort) {
    header("a silent store", effort);
    let ways: [(&str, Fault); 4] = [
        ("stopped", STOPPED),
        ("killed", |fleet, begins| if begins { fleet.store.kill() } else { fleet.store.restart() }),
        ("paused", |fleet, begins| {
            fleet.store.ask(if begins {
                &["CLIENT", "PAUSE", "600000", "WRITE"]
            } else {
                &["CLIENT", "UNPAUSE"]
            });
        }),
        ("a black hole", BLACK_HOLE),
    ];
    let loads: [(&str, Offered); 3] = [
        ("clients, even", |effort, time| closed(effort, Spread::Even, time)),
        ("clients, 80 % on one", |effort, time| closed(effort, Spread::Skewed, time)),
        ("3 x the rate, even", |_, time| open(3.0 * RATE, Spread::Even, time)),
    ];
    for (way, fault) in ways {
        let wanted = std::env::var("CLUSTER_ONLY").unwrap_or_default();
        for (name, load) in loads.into_iter().filter(|(name, _)| format!("{way}: {name}").contains(&wanted)) {
            let (before, dead, after) = (warm_up(effort) * 2, effort.time * 3, warm_up(effort) * 3);
            let (tally, _) = with_fault(effort, load(effort, before + dead + after), before, dead, fault);
            let (from, to) = (seconds(before), seconds(before + dead));
            line(&format!("{way}: {name}"), &tally.figures(from..to, RATE));
            line("  before it", &tally.figures(seconds(warm_up(effort))..from, RATE));
            line("  three seconds after it", &tally.figures(to + 3.0..seconds(before + dead + after), RATE));
        }
    }
}

/// Pass mark 5: the store is silent twice in a row.
fn again(effort: Effort) {
    header("a store that is silent twice", effort);
    let (before, dead) = (warm_up(effort) * 2, effort.time * 3);
    for (way, fault) in [("stopped", STOPPED), ("a black hole", BLACK_HOLE)] {
        let load = closed(effort, Spread::Even, (before + dead) * 2 + before);
        let (tally, _) = with_faults(effort, load, (before, dead), 2, fault);
        line(&format!("{way}: before"), &tally.figures(seconds(warm_up(effort))..seconds(before), RATE));
        for (round, name) in [(1, "first"), (2, "second")] {
            let end = (before + dead) * round;
            line(&format!("  the {name} time"), &tally.figures(seconds(end - dead)..seconds(end), RATE));
            let after = seconds(end) + 3.0..seconds(end + before);
            line("  three seconds after it", &tally.figures(after, RATE));
        }
    }
}

/// Pass mark 6: while the store is silent, clients have a key that no node has seen, or move to other nodes.
fn fresh(effort: Effort) {
    header("a silent store, and what is new meanwhile", effort);
    let (before, dead, after) = (warm_up(effort) * 2, effort.time * 3, warm_up(effort) * 3);
    let (time, from) = (before + dead + after, before + Duration::from_secs(1));
    let loads = [
        ("a new key, even", Load { other_key_from: from, ..closed(effort, Spread::Even, time) }),
        ("a new key, 80 % on one", Load { other_key_from: from, ..closed(effort, Spread::Skewed, time) }),
        ("clients move", closed(effort, Spread::Moving, time)),
    ];
    for (name, load) in loads {
        let (tally, _) = with_fault(effort, load, before, dead, STOPPED);
        let (from, to) = (seconds(from), seconds(before + dead));
        line(name, &tally.figures(from..to, RATE));
        line("  three seconds after it", &tally.figures(to + 3.0..seconds(time), RATE));
    }
}

/// A load with a fault in its middle.
fn with_fault(effort: Effort, load: Load, before: Duration, dead: Duration, fault: Fault) -> (Tally, Fleet) {
    with_faults(effort, load, (before, dead), 1, fault)
}

/// A load with a fault several times, each after the same time without it.
fn with_faults(
    effort: Effort,
    load: Load,
    (before, dead): (Duration, Duration),
    times: usize,
    fault: Fault,
) -> (Tally, Fleet) {
    block_on(async {
        let mut fleet = Fleet::start(node_count(effort), SLO, NEAR).await;
        let addresses = fleet.addresses();
        let meanwhile = async {
            for _ in 0..times {
                sleep(before).await;
                tokio::task::block_in_place(|| fault(&mut fleet, true));
                sleep(dead).await;
                tokio::task::block_in_place(|| fault(&mut fleet, false));
            }
        };
        let tally = crowd::run(load, addresses, meanwhile).await;
        (tally, fleet)
    })
}

/// Pass mark 7: the store forgets, or has no memory.
fn forget(effort: Effort) {
    header("a store that forgets", effort);
    let ways: [(&str, Fault); 3] = [
        ("FLUSHALL", |fleet, begins| drop(begins.then(|| fleet.store.ask(&["FLUSHALL"])))),
        ("SCRIPT FLUSH", |fleet, begins| drop(begins.then(|| fleet.store.ask(&["SCRIPT", "FLUSH"])))),
        ("no memory", |fleet, begins| {
            fleet.store.ask(&["CONFIG", "SET", "maxmemory", if begins { "1" } else { "0" }]);
        }),
    ];
    for (way, fault) in ways {
        let (before, dead) = (warm_up(effort), warm_up(effort));
        let time = before + dead + warm_up(effort);
        let (tally, fleet) = with_fault(effort, closed(effort, Spread::Even, time), before, dead, fault);
        let range: Range<f64> = seconds(before) - 1.0..seconds(time);
        line(way, &tally.figures(range.start.max(0.0)..range.end, RATE));
        let lines: usize = fleet.nodes.iter().map(|node| node.process.log().len()).max().unwrap_or_default();
        println!("{:<34}{lines:>10} log lines at most in a node, with those of its start", "");
    }
}

/// Pass mark 9: nodes die, and others come. Pass mark 10: nothing stays in the store.
fn leave(effort: Effort) {
    header("one in seven nodes is killed, and comes back", effort);
    let (before, dead) = (warm_up(effort), warm_up(effort));
    let time = before + dead + warm_up(effort);
    let fault: Fault = |fleet, begins| {
        let count = fleet.nodes.len().div_ceil(7);
        for node in fleet.nodes.iter_mut().rev().take(count) {
            if begins { node.kill() } else { node.restart() }
        }
    };
    // Clients of a dead node go to any other, as a load balancer sends them.
    let (tally, fleet) = with_fault(effort, closed(effort, Spread::Any, time), before, dead, fault);
    line("all the time", &tally.figures(seconds(before)..seconds(time), RATE));
    line("three seconds after", &tally.figures(seconds(before + dead) + 3.0..seconds(time), RATE));
    let Fleet { store, mut nodes, .. } = fleet;
    // They die at once, some of them in the middle of a message.
    nodes.iter_mut().for_each(|node| node.kill());
    let rest = (effort.time * 8).min(Duration::from_secs(40));
    std::thread::sleep(rest);
    let keys = store.ask(&["KEYS", "*"]);
    let of_slos = keys.lines().filter(|key| !key.contains("{cluster}")).count();
    println!("{:<34}{of_slos:>10} keys of SLOs in the store {} s later", "", seconds(rest));
}

/// Pass mark 11: three nodes know a million keys each, of which a thousand are hot.
fn keys(effort: Effort) {
    let (nodes, hot, per_s) = (3, effort.count(1_000), 10);
    let cold = effort.count(1_000_000);
    println!("{nodes} nodes with {cold} keys each, and {hot} hot ones");
    let redis = Redis::start();
    let files =
        [("slo.map", "0 rate=unlimited\n3001 burst=20 rate=10/s\n"), ("source.map", "0.0.0.0/0 3001\n")];
    let config = |number| {
        let cluster = format!("store = \"redis://{}\"\nnode = \"node{number}\"", redis.address);
        format!("[table]\nsize = 1200000\nexpire = \"10m\"\n[cluster]\n{cluster}\n")
    };
    let fleet: Vec<Slowlane> =
        (0..nodes).map(|number| Slowlane::with_config(&files, &config(number))).collect();
    let addresses: Vec<_> = fleet.iter().map(|node| node.http).collect();
    let sum = |name: &str| -> f64 { fleet.iter().map(|node| node.metric(name, "")).sum() };
    flood::once(&addresses, hot..hot + cold);
    let outcome = sum("slowlane_cluster_messages_total");
    println!("{:<34}{:>10.0} entries, {outcome:.0} updates of cold keys", "", sum("slowlane_table_entries"));
    // The first seconds make the keys known.
    flood::again(&addresses, 0..hot, hot * per_s, warm_up(effort));
    let before = sum("slowlane_cluster_messages_total");
    let asked = flood::again(&addresses, 0..hot, hot * per_s, effort.time) / f64::from(hot);
    let outcome = (sum("slowlane_cluster_messages_total") - before) / seconds(effort.time);
    let formula = 10.0 * nodes as f64 * f64::from(hot);
    println!("{:<34}{asked:>10.1} requests of a hot key per second and node", "");
    println!("{:<34}{outcome:>10.0} updates/s, x{:.2} of the formula's {formula}", "", outcome / formula);
    println!("{:<34}{:>10} records in the store", "", redis.ask(&["DBSIZE"]).trim());
}

/// Pass mark 12: a quota that is handed out in parts.
fn lease(effort: Effort) {
    header("a quota of 20000 in an hour, by leases", effort);
    block_on(async {
        let slo = "burst=1 rate=20000/h law=fixed-window cluster=lease";
        let fleet = Fleet::start(node_count(effort), slo, NEAR).await;
        let load = closed(effort, Spread::Skewed, effort.time);
        let tally = crowd::run(load, fleet.addresses(), async {}).await;
        let passed = tally.figures(0.0..seconds(effort.time), RATE).per_s * seconds(effort.time);
        println!("{:<34}{passed:>10.0} of 20000 let through in {} s", "", seconds(effort.time));
    });
}

/// Pass mark 9: nodes whose clocks differ by up to an hour. Pass mark 8: a new master's clock differs by five seconds.
fn clocks(effort: Effort) {
    header("clocks apart", effort);
    block_on(async {
        let redis = Redis::start();
        let wire = ("redis", redis.address);
        let clock = |number: usize| Some(["-1h", "+0s", "+1h"][number % 3].to_owned());
        let fleet = Fleet::with_clocks(redis, wire, node_count(effort), (SLO, NEAR), clock).await;
        let time = warm_up(effort) + effort.time;
        let tally = crowd::run(closed(effort, Spread::Even, time), fleet.addresses(), async {}).await;
        line("nodes an hour apart", &tally.figures(seconds(warm_up(effort))..seconds(time), RATE));
    });
    let masters: [(&str, Fault); 2] = [
        ("behind", |fleet, begins| {
            if begins {
                fleet.store.was_ahead_by(5)
            }
        }),
        ("ahead", |fleet, begins| {
            if begins {
                fleet.store.was_ahead_by(-5)
            }
        }),
    ];
    for (clock, fault) in masters {
        let (before, after) = (warm_up(effort) * 2, warm_up(effort) * 2);
        let load = closed(effort, Spread::Even, before + after);
        let (tally, _) = with_fault(effort, load, before, Duration::ZERO, fault);
        let from = seconds(before);
        line(
            &format!("a new master's clock, 5 s {clock}"),
            &tally.figures(from - 1.0..seconds(before + after), RATE),
        );
        line("  two seconds after it", &tally.figures(from + 2.0..seconds(before + after), RATE));
    }
}

/// Pass mark 13: the time until a block holds on every node, and until its end does.
fn blocks(effort: Effort) {
    println!(
        "a block on all of {} nodes, in ms\n{:<34}{:>10}{:>10}",
        node_count(effort),
        "",
        "median",
        "worst"
    );
    for (round_trip, distance) in [(NEAR, "near"), (FAR, "50 ms")] {
        block_on(async {
            let fleet = Fleet::start(node_count(effort), SLO, round_trip).await;
            let took = tokio::task::block_in_place(|| {
                let rounds = effort.count(20).max(1);
                (0..rounds).flat_map(|round| fleet.block_and_unblock(round as usize)).collect::<Vec<_>>()
            });
            let mut ms: Vec<f64> = took.iter().map(|took| seconds(*took) * 1e3).collect();
            ms.sort_by(f64::total_cmp);
            println!("{distance:<34}{:>10.0}{:>10.0}", ms[ms.len() / 2], ms[ms.len() - 1]);
        });
    }
}

/// Pass mark 15: more and fewer nodes at 3000/s offered.
fn nodes(effort: Effort) {
    println!("3000/s offered to more and fewer nodes, {RATE}/s\n{:<34}{}", "", Figures::HEADER);
    for count in [10, 30, 60] {
        block_on(async {
            let count = (effort.count(count) as usize).max(2);
            let fleet = Fleet::start(count, SLO, NEAR).await;
            let time = warm_up(effort) * 2 + effort.time;
            let tally = crowd::run(open(3_000.0, Spread::Even, time), fleet.addresses(), async {}).await;
            line(
                &format!("{count} nodes"),
                &tally.figures(2.0 * seconds(warm_up(effort))..seconds(time), RATE),
            );
        });
    }
}

/// Two HAProxys 2.6 and an nginx, as they are shipped, each with its own slowlane.
fn proxies(effort: Effort) {
    println!("two HAProxys 2.6 and an nginx, 50/s together\n{:<34}{}", "", Figures::HEADER);
    let listeners = Listeners::open("burst=50 rate=50/s", |_, text| text);
    let (from, time) = (warm_up(effort) * 2, warm_up(effort) * 2 + effort.time * 3);
    let tally = visitors::run(effort.count(50) as usize, time, &listeners.addresses());
    line("50 clients, even", &tally.figures(seconds(from)..seconds(time), 50.0));
}

/// Pass mark 14: the nodes share by a token server. It is killed in the middle, and a standby takes over.
fn standby(effort: Effort) {
    header("a token server that is killed, and its standby", effort);
    let (before, after) = (warm_up(effort) * 2, warm_up(effort) * 2);
    let time = before + after;
    let (first, last) = (seconds(warm_up(effort))..seconds(before), seconds(before) - 1.0..seconds(time));
    for (name, spread) in [("400 clients, even", Spread::Even), ("400 clients, 80 % on one", Spread::Skewed)]
    {
        block_on(async {
            let pair = Pair::start(&[("slo.map", "0 rate=unlimited\n")]);
            let address = ("slowlane", pair.balancer.address);
            let mut fleet = Fleet::at(pair, address, node_count(effort), SLO, NEAR).await;
            let addresses = fleet.addresses();
            let meanwhile = async {
                sleep(before).await;
                tokio::task::block_in_place(|| fleet.store.first.slowlane.kill());
            };
            let tally = crowd::run(closed(effort, spread, time), addresses, meanwhile).await;
            line(&format!("{name}: before"), &tally.figures(first.clone(), RATE));
            line("  from a second before its end on", &tally.figures(last.clone(), RATE));
        });
    }
    println!("two HAProxys 2.6 and an nginx, 500/s together\n{:<34}{}", "", Figures::HEADER);
    let pair = Pair::start(&[("slo.map", "0 rate=unlimited\n")]);
    let url = pair.url();
    let mut listeners = Listeners::at(pair, &url, "burst=100 rate=500/s", |_, text| text);
    let addresses = listeners.addresses();
    let tally = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(before);
            listeners.store.first.slowlane.kill();
        });
        // A visitor ends with an error if an answer is neither 200 nor 429.
        visitors::run(effort.count(100) as usize, time, &addresses)
    });
    line("100 clients, even: before", &tally.figures(first, 500.0));
    line("  from a second before its end on", &tally.figures(last, 500.0));
}
