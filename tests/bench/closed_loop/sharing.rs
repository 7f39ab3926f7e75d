//! Sources that share one key: light ones beside a greedy one, and beside an attacker.
//!
//! Light sources have one connection each, in a closed loop. Their demand is the rate that they get alone, with another
//! website in the same run.

use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::support::effort::Effort;
use crate::support::programs::backend::Backend;
use crate::support::programs::client::Client;
use crate::support::programs::haproxy::{Delivery, Haproxy, Version, showing_verdicts};
use crate::support::programs::slowlane::Slowlane;
use crate::support::{median, percentile};
use crate::{Answer, RATE, Run, closed_loop, delays, rate, refused};

/// The other source of the key.
#[derive(Clone, Copy)]
enum Other {
    Nobody,
    /// The number of its closed-loop connections.
    Greedy(usize),
    /// Its requests per second, answered or not.
    Attacker(u32),
}

/// The id of an SLO with burst 100 and rate 50/s, its law, the number of light sources, and the other source.
const SCENARIOS: [(u16, &str, usize, Other); 6] = [
    (2001, "fair", 9, Other::Nobody),
    (2002, "fair", 9, Other::Greedy(45)),
    (2003, "pace", 9, Other::Greedy(45)),
    (2004, "fair", 10, Other::Nobody),
    (2005, "fair", 10, Other::Attacker(500)),
    (2006, "pace", 10, Other::Attacker(500)),
];

/// The most requests of an attacker that wait at once under any law here: 5 s at 50/s, and some more.
const ATTACKER_CONNECTIONS: usize = 300;

const GREEDY: &str = "203.0.113.1";

/// The figures of one scenario in one run; rates per second.
struct Figures {
    total: f64,
    light: f64,
    light_least: f64,
    light_refused: f64,
    light_p50_ms: f64,
    other: f64,
}

pub fn print(effort: Effort) {
    let mut figures: Vec<Vec<Figures>> = SCENARIOS.iter().map(|_| Vec::new()).collect();
    for run in 1..=effort.turns() {
        eprintln!("sharing, run {run} of {}", effort.turns());
        for (scenario, measured) in figures.iter_mut().zip(measure(effort)) {
            scenario.push(measured);
        }
    }
    println!(
        "law   beside            total   error   light sources   of alone   least of them   refused   delay p50   other"
    );
    let mut alone = 0.0;
    for (&(_, law, sources, other), runs) in SCENARIOS.iter().zip(&figures) {
        let median = |figure: fn(&Figures) -> f64| median(runs.iter().map(figure));
        let (total, light) = (median(|figures| figures.total), median(|figures| figures.light));
        let beside = match other {
            Other::Nobody => "nobody".to_owned(),
            Other::Greedy(connections) => format!("{connections} connections"),
            Other::Attacker(rate) => format!("{rate}/s"),
        };
        if let Other::Nobody = other {
            alone = light;
        }
        println!(
            "{law:<5} {beside:<14} {total:>6.2}/s {:>+6.2} %  {sources:>2}: {light:>6.2}/s {:>8.1} % {:>13.2}/s {:>7.1} % {:>8.0} ms {:>5.2}/s",
            (total / RATE - 1.0) * 100.0,
            light / alone * 100.0,
            median(|figures| figures.light_least),
            median(|figures| figures.light_refused),
            median(|figures| figures.light_p50_ms),
            median(|figures| figures.other),
        );
    }
}

/// The answers to each light source, and to the other source.
struct Heard {
    light: Vec<Vec<Answer>>,
    other: Vec<Answer>,
}

/// One run of all scenarios.
fn measure(effort: Effort) -> Vec<Figures> {
    let slo_map: String =
        SCENARIOS.iter().map(|(id, law, ..)| format!("{id} burst=100 rate=50/s law={law}\n")).collect();
    let website_map: String = SCENARIOS.iter().map(|(id, ..)| format!("{id}.example {id}\n")).collect();
    let slo_map = format!("0 burst=10000 rate=5000/s\n{slo_map}");
    let slowlane = Slowlane::with_policy(&[("slo.map", &slo_map), ("website.map", &website_map)]);
    let app = Backend::start();
    let agent = slowlane.spop.to_string();
    let mut haproxy = Haproxy::with(Version::V2_6, Delivery::Hold, &agent, app.address, showing_verdicts)
        .expect("it is installed");
    haproxy.wait_for_agent("UP");

    let (run, address) = (Run::start(effort), haproxy.address);
    let scenarios = SCENARIOS.map(|(id, _, sources, other)| {
        let website = format!("{id}.example");
        let light = |number| client(address, website.clone(), format!("192.0.2.{number}"), run);
        let light: Vec<_> = (1..=sources).map(light).collect();
        let other: Vec<_> = match other {
            Other::Nobody => Vec::new(),
            Other::Greedy(connections) => {
                (0..connections).map(|_| client(address, website.clone(), GREEDY.to_owned(), run)).collect()
            }
            Other::Attacker(rate) => attack(address, &website, rate, run),
        };
        (light, other)
    });
    let join = |client: JoinHandle<Vec<Answer>>| client.join().expect("no client met an error");
    let heard = scenarios.map(|(light, other)| Heard {
        light: light.into_iter().map(join).collect(),
        other: other.into_iter().flat_map(join).collect(),
    });
    heard.iter().map(|heard| figures(heard, run)).collect()
}

fn client(address: SocketAddr, website: String, source: String, run: Run) -> JoinHandle<Vec<Answer>> {
    thread::spawn(move || closed_loop(address, &[("Host", &website), ("X-From", &source)], run))
}

/// Asks at a fixed rate. Each question uses a free connection.
fn attack(address: SocketAddr, website: &str, rate: u32, run: Run) -> Vec<JoinHandle<Vec<Answer>>> {
    let (ask, asked) = mpsc::channel();
    let asked = Arc::new(Mutex::new(asked));
    thread::spawn(move || {
        for number in 0.. {
            let due = run.start + Duration::from_secs(1) * number / rate;
            if due >= run.start + run.until {
                return;
            }
            thread::sleep(due.saturating_duration_since(Instant::now()));
            ask.send(()).expect("the connections last as long as the attack");
        }
    });
    let connection = |_| {
        let (asked, website) = (asked.clone(), website.to_owned());
        thread::spawn(move || answer_all(address, &website, &asked, run))
    };
    (0..ATTACKER_CONNECTIONS).map(connection).collect()
}

fn answer_all(address: SocketAddr, website: &str, asked: &Mutex<Receiver<()>>, run: Run) -> Vec<Answer> {
    let mut connection = None;
    let mut answers = Vec::new();
    loop {
        let question = asked.lock().expect("nobody panics while listening").recv();
        if question.is_err() {
            return answers;
        }
        // HAProxy closes idle connections.
        let client = connection.take().filter(|(_, since): &(_, Instant)| since.elapsed() < KEPT);
        let mut client = client.map_or_else(|| Client::connect(address), |(client, _)| client);
        let response = client.request("GET", "/", &[("Host", website), ("X-From", GREEDY)], "");
        answers.push(Answer::of(&response, run.start));
        connection = Some((client, Instant::now()));
    }
}

/// Less than HAProxy's `timeout http-keep-alive`.
const KEPT: Duration = Duration::from_secs(3);

fn figures(heard: &Heard, run: Run) -> Figures {
    let light = || heard.light.iter().flatten();
    let delays = delays(light(), run);
    let (light_rate, other) = (rate(light(), run), rate(&heard.other, run));
    Figures {
        total: light_rate + other,
        light: light_rate,
        light_least: heard.light.iter().map(|answers| rate(answers, run)).fold(f64::INFINITY, f64::min),
        light_refused: refused(light()),
        light_p50_ms: percentile(&delays, 50),
        other,
    }
}
