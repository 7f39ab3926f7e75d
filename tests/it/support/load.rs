//! Clients that ask without end, each waiting for its answer, and keep all that they hear.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::client::{Client, Response};
use super::eventually;

/// Between two requests of one client: the tests share a small machine.
const PAUSE: Duration = Duration::from_millis(10);

/// What each client heard, in order.
pub type Heard = Vec<Vec<io::Result<Response>>>;

/// Clients at work.
pub struct Load {
    ended: Arc<AtomicBool>,
    answers: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<Vec<io::Result<Response>>>>,
}

impl Load {
    /// So many clients, each asking for these hosts in turn.
    pub fn start(clients: usize, address: SocketAddr, hosts: &[&str]) -> Load {
        let (ended, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let client = |_| {
            let (ended, answers) = (ended.clone(), answers.clone());
            let hosts: Vec<_> = hosts.iter().map(|&host| host.to_owned()).collect();
            thread::spawn(move || ask(address, &hosts, &ended, &answers))
        };
        let clients = (0..clients).map(client).collect();
        Load { ended, answers, clients }
    }

    /// Returns once so many more answers have come in.
    pub fn wait_for(&self, answers: usize) {
        let enough = self.answers.load(Relaxed) + answers;
        eventually("answers come in", || (self.answers.load(Relaxed) >= enough).then_some(()));
    }

    pub fn end(self) -> Heard {
        self.ended.store(true, Relaxed);
        self.clients.into_iter().map(|client| client.join().unwrap()).collect()
    }

    /// Ends it. Every answer must have been a good one.
    pub fn end_well(self) -> Vec<Response> {
        let responses: Vec<_> = self.end().into_iter().flatten().map(Result::unwrap).collect();
        for response in &responses {
            assert_eq!(response.status, 200, "{response:?}");
        }
        responses
    }
}

/// Keeps its connection as long as the proxy does, and opens another one when it is told that this is over.
fn ask(
    address: SocketAddr,
    hosts: &[String],
    ended: &AtomicBool,
    answers: &AtomicUsize,
) -> Vec<io::Result<Response>> {
    let mut heard = Vec::new();
    let mut connection = None;
    for host in hosts.iter().cycle() {
        if ended.load(Relaxed) {
            break;
        }
        let client = connection.get_or_insert_with(|| Client::connect(address));
        let response = client.try_request("GET", "/", &[("Host", host)], "");
        let is_over = |response: &Response| response.header("connection") == Some("close");
        if response.as_ref().map_or(true, is_over) {
            connection = None;
        }
        heard.push(response);
        answers.fetch_add(1, Relaxed);
        thread::sleep(PAUSE);
    }
    heard
}
