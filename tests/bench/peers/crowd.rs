//! Closed-loop clients of one source at one proxy.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::passed::Passed;
use crate::support::effort::Effort;
use crate::support::programs::client::Client;

/// The longest warm-up, which uses up the bursts.
const FROM_MAX: Duration = Duration::from_secs(5);

/// A run. Requests that get through between the two times count for the rate.
#[derive(Clone, Copy)]
pub struct Run {
    pub start: Instant,
    pub from: Duration,
    pub until: Duration,
}

impl Run {
    pub fn start(effort: Effort) -> Run {
        let from = effort.time.min(FROM_MAX);
        Run { start: Instant::now(), from, until: from + effort.time }
    }

    /// One that lasts so long, without a warm-up.
    pub fn lasting(until: Duration) -> Run {
        Run { start: Instant::now(), from: Duration::ZERO, until }
    }
}

/// Clients at work.
pub struct Crowd {
    clients: Vec<JoinHandle<Passed>>,
    is_over: Arc<AtomicBool>,
}

impl Crowd {
    pub fn start(address: SocketAddr, source: &'static str, clients: usize, run: Run) -> Crowd {
        let is_over = Arc::new(AtomicBool::new(false));
        let client = |_| {
            let is_over = is_over.clone();
            thread::spawn(move || closed_loop(address, source, run, &is_over))
        };
        Crowd { clients: (0..clients).map(client).collect(), is_over }
    }

    /// Waits until all of them have their last answer.
    pub fn passed(self) -> Passed {
        let clients = self.clients.into_iter();
        let each = clients.map(|client| client.join().expect("no client met an error"));
        each.fold(Passed::default(), Passed::and)
    }

    /// The same before the end of the run.
    pub fn stopped(self) -> Passed {
        self.is_over.store(true, Relaxed);
        self.passed()
    }
}

fn closed_loop(address: SocketAddr, source: &str, run: Run, is_over: &AtomicBool) -> Passed {
    let (mut client, mut passed) = (Client::connect(address), Passed::default());
    while run.start.elapsed() < run.until && !is_over.load(Relaxed) {
        let response = client.request("GET", "/", &[("X-From", source)], "");
        match response.status {
            200 => passed.at.push(run.start.elapsed().as_secs_f64()),
            429 => {
                passed.denied += 1;
                let seconds = response.header("retry-after").and_then(|seconds| seconds.parse().ok());
                let pause = Duration::from_secs(seconds.expect("a 429 says when to come back"));
                thread::sleep(pause.min(run.until.saturating_sub(run.start.elapsed())));
            }
            status => panic!("status {status}"),
        }
    }
    passed
}
