//! Clients in a closed loop that keep all answers.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::client::{Client, Response};
use super::eventually;

/// The pause between two requests of a client: the tests share a small machine.
const PAUSE: Duration = Duration::from_millis(10);

/// The answers to each client, in order.
pub type Heard = Vec<Vec<io::Result<Response>>>;

/// Clients at work.
pub struct Load {
    ended: Arc<AtomicBool>,
    answers: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<Vec<io::Result<Response>>>>,
}

impl Load {
    /// Starts clients that ask for these hosts in turn.
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

    /// Waits for this number of further answers.
    pub fn wait_for(&self, answers: usize) {
        let enough = self.answers.load(Relaxed) + answers;
        eventually("answers come in", || (self.answers.load(Relaxed) >= enough).then_some(()));
    }

    pub fn end(self) -> Heard {
        self.ended.store(true, Relaxed);
        self.clients.into_iter().map(|client| client.join().unwrap()).collect()
    }

    /// Ends the load, and checks that every request was answered.
    pub fn end_well(self) -> Vec<Response> {
        let responses: Vec<_> = self.end().into_iter().flatten().map(Result::unwrap).collect();
        for response in &responses {
            assert_eq!(response.status, 200, "{response:?}");
        }
        responses
    }
}

/// Asks in a loop, with a new connection only after the proxy has closed the old one.
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
