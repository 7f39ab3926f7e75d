//! slowlane beside other programs that limit rates: servers under load, libraries in process, memory and accuracy.
//!
//! `tests/bench/rivals/run [TURNS [SECONDS]]`. Each server is alone on the first core, and the load on the last. They take
//! turns, and the tables have the medians.

mod accuracy;
mod codec;
mod grpc;
mod libraries;
mod load;
mod memory;
mod nbari;
mod servers;
mod support;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use accuracy::{BURSTS, STEADY};
use libraries::LIBRARIES;
use load::Figures;
use servers::{CONSTANTS, DECIDERS, LOADS, Programs, Rival};
use support::{Key, Limit, cores, http_baseline, median, spop_baseline};

/// Before a measurement.
const WARM_UP: Duration = Duration::from_millis(300);

/// The runs of each server under each load: by the places of both.
type Runs = BTreeMap<(usize, usize), Vec<Figures>>;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [http_baseline::ARGUMENT, at] => http_baseline::run(at),
        [spop_baseline::ARGUMENT, at] => spop_baseline::run(at, spop_baseline::Answer::Verdict),
        [nbari::ARGUMENT, at] => nbari::run(at),
        [grpc::ARGUMENT, at] => grpc::run(at),
        [memory::ARGUMENT, library] => memory::print(library),
        [slowlane, throttlecrab, ref effort @ ..] => {
            let programs = Programs { slowlane: slowlane.into(), throttlecrab: throttlecrab.into() };
            let turns = effort.first().map_or(3, |turns| turns.parse().expect("a number of turns"));
            let seconds = effort.get(1).map_or(3.0, |seconds| seconds.parse().expect("seconds"));
            compare(&programs, turns, Duration::from_secs_f64(seconds));
        }
        _ => eprintln!("usage: tests/bench/rivals/run [TURNS [SECONDS]]"),
    }
}

fn compare(programs: &Programs, turns: usize, time: Duration) {
    cores::stay_on_last();
    println!("{turns} turns of {} s\n", time.as_secs_f64());
    let (keys, rivals) = (Key::random(), Vec::from_iter(CONSTANTS.iter().chain(&DECIDERS)));
    let (mut servers, mut libraries) = (Runs::new(), LIBRARIES.each_ref().map(|_| Vec::new()));
    for _ in 0..turns {
        for (number, rival) in rivals.iter().enumerate() {
            let server = rival.start(programs, Limit::NEVER);
            for &place in rival.loads {
                let run = |time| server.load(&LOADS[place], &mut random(&keys, time));
                run(WARM_UP);
                servers.entry((place, number)).or_default().push(run(time));
            }
        }
        for (library, runs) in LIBRARIES.iter().zip(&mut libraries) {
            runs.push(cores::on_first(|| library.load(&keys, time)));
        }
    }
    print_servers(&servers, &rivals);
    print_waits(&servers);
    print_libraries(&libraries);
    print_memory_and_accuracy(programs);
}

/// Keys at random, until the time is over.
fn random(keys: &[Key], time: Duration) -> impl FnMut(Instant) -> Option<Key> {
    let (mut rng, end) = (fastrand::Rng::new(), Instant::now() + time);
    move |now| (now < end).then(|| keys[rng.usize(..keys.len())])
}

fn medians<const N: usize>(runs: &[[f64; N]]) -> [f64; N] {
    std::array::from_fn(|place| median(runs.iter().map(|run| run[place])))
}

fn print_servers(runs: &Runs, rivals: &[&Rival]) {
    println!("| load | server | requests/s | CPU per decision | of the baseline | p99 |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for (&(place, number), of_one) in runs {
        let [per_second, cpu_us, p99_us, _] = medians(of_one);
        let baseline = CONSTANTS.iter().position(|rival| rival.loads.contains(&place));
        let ratio = baseline.map_or(String::new(), |baseline| {
            let [_, baseline_us, ..] = medians(&runs[&(place, baseline)]);
            format!("x{:.2}", cpu_us / baseline_us)
        });
        let (load, name, p99_ms) = (LOADS[place].name, rivals[number].name, p99_us / 1e3);
        println!("| {load} | {name} | {per_second:.0} | {cpu_us:.2} µs | {ratio} | {p99_ms:.2} ms |");
    }
}

/// If others used the core of the servers, only the CPU figures are right.
fn print_waits(runs: &Runs) {
    let waited = median(runs.values().flatten().map(|&[.., waited]| waited));
    println!("\nThe servers waited for their core {:.1} % of the time.", 100.0 * waited);
}

fn print_libraries(runs: &[Vec<[f64; 4]>]) {
    println!("\n| library | decisions/s | CPU per decision | p99 | refused |");
    println!("| --- | --- | --- | --- | --- |");
    for (library, runs) in LIBRARIES.iter().zip(runs) {
        let [per_second, cpu_us, p99_us, refused] = medians(runs);
        let [cpu_ns, p99_ns, percent] = [cpu_us * 1e3, p99_us * 1e3, refused * 100.0];
        println!("| {} | {per_second:.0} | {cpu_ns:.0} ns | {p99_ns:.0} ns | {percent:.0} % |", library.name);
    }
}

fn print_memory_and_accuracy(programs: &Programs) {
    let memory = BTreeMap::from_iter(memory::measure(programs));
    let [steady, bursts] = [STEADY, BURSTS].map(|pattern| accuracy::measure(programs, pattern));
    println!(
        "\n| program | memory of a million keys | steady: admitted | error | bursts: admitted | error |"
    );
    println!("| --- | --- | --- | --- | --- | --- |");
    println!("| an exact token bucket | | {} | | {} | |", steady[0].1.exact, bursts[0].1.exact);
    for ((name, steady), (_, bursts)) in steady.iter().zip(&bursts) {
        let bytes = memory.get(name).map_or(String::new(), |&bytes| format!("{:.0} MB", bytes as f64 / 1e6));
        let [steady, bursts] =
            [steady, bursts].map(|trial| format!("{} | {:+.1} %", trial.admitted, trial.error_percent()));
        println!("| {name} | {bytes} | {steady} | {bursts} |");
    }
}
