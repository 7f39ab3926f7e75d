//! Clients of real proxies. They wait for each answer, and slowlane makes the answers late.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::programs::client::Client;
use crate::support::usage::CpuTime;
use crate::tally::Tally;

/// An answer: when it came, and the time that it took. None: refused.
type Answer = (Duration, Option<Duration>);

/// Lets clients ask for a time, spread evenly over the listeners. A request counts when its answer comes.
pub fn run(clients: usize, time: Duration, listeners: &[SocketAddr]) -> Tally {
    let (start, before) = (Instant::now(), CpuTime::now());
    let mut tally = Tally::new(clients);
    thread::scope(|scope| {
        let visitor = |&door| scope.spawn(move || visit(door, start, time));
        let visitors: Vec<_> = listeners.iter().cycle().take(clients).map(visitor).collect();
        for (client, visitor) in visitors.into_iter().enumerate() {
            for (at, took) in visitor.join().expect("no client met an error") {
                add(&mut tally, client, at, took);
            }
        }
    });
    tally.stolen = before.stolen_since();
    tally
}

fn add(tally: &mut Tally, client: usize, at: Duration, took: Option<Duration>) {
    match took {
        Some(took) => {
            tally.passed(at, took, client);
            tally.answered(at, took);
        }
        None => tally.refused(at),
    }
}

fn visit(door: SocketAddr, start: Instant, time: Duration) -> Vec<Answer> {
    let (mut client, mut answers) = (Client::connect(door), Vec::new());
    while start.elapsed() < time {
        let response = client.request("GET", "/", &[("Host", "shop.example")], "");
        let passes = response.status == 200;
        answers.push((start.elapsed(), passes.then_some(response.took)));
        if !passes {
            let seconds = response.header("retry-after").and_then(|seconds| seconds.parse().ok());
            thread::sleep(Duration::from_secs(seconds.expect("a 429 says when to come back")));
        }
    }
    answers
}
