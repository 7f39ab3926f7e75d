//! Clients that ask many nodes, and obey.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, sleep, sleep_until};

use crate::support::usage::CpuTime;
use crate::tally::Tally;

/// A load on many nodes.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Clients that wait for each answer.
    pub clients: usize,
    /// Requests per second that come whatever the answers.
    pub open_per_s: f64,
    pub spread: Spread,
    pub time: Duration,
    /// From this moment on, requests have a key that they did not have before.
    pub other_key_from: Duration,
}

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    Even,
    /// Four fifths to the first node.
    Skewed,
    /// Each request to any node.
    Any,
    /// The first half of the nodes, and from half of the time on the second.
    Moving,
}

const REQUEST: &[u8] = b"GET /check?hold=off HTTP/1.1\r\nHost: x\r\nX-Slowlane-Website: shop.example\r\n\r\n";
const OTHER: &[u8] = b"GET /check?hold=off HTTP/1.1\r\nHost: x\r\nX-Slowlane-Website: other.example\r\n\r\n";

/// Runs a load, and hands out its tally. `meanwhile` runs beside it.
pub async fn run(load: Load, addresses: Vec<SocketAddr>, meanwhile: impl Future<Output = ()>) -> Tally {
    let crowd = Rc::new(Crowd {
        load,
        pools: addresses.iter().map(|_| RefCell::default()).collect(),
        addresses,
        start: Instant::now(),
        tally: RefCell::new(Tally::new(load.clients)),
    });
    let local = LocalSet::new();
    let asking = {
        let crowd = crowd.clone();
        local.run_until(async move {
            let mut tasks = JoinSet::new();
            for client in 0..load.clients {
                tasks.spawn_local(crowd.clone().client(client));
            }
            if load.open_per_s > 0.0 {
                tasks.spawn_local(crowd.clone().open());
            }
            tasks.join_all().await;
        })
    };
    let before = CpuTime::now();
    tokio::join!(asking, meanwhile);
    drop(local);
    let mut tally = Rc::into_inner(crowd).expect("every task has ended").tally.into_inner();
    tally.stolen = before.stolen_since();
    tally
}

struct Crowd {
    load: Load,
    addresses: Vec<SocketAddr>,
    /// Idle connections to each node.
    pools: Vec<RefCell<Vec<TcpStream>>>,
    start: Instant,
    tally: RefCell<Tally>,
}

impl Crowd {
    /// A client that waits for each answer.
    async fn client(self: Rc<Crowd>, client: usize) {
        let mut rng = Rng::with_seed(client as u64);
        let nodes = self.addresses.len();
        let home = match self.load.spread {
            Spread::Skewed if rng.f64() < 0.8 => 0,
            Spread::Skewed => rng.usize(1.min(nodes - 1)..nodes),
            _ => client % nodes,
        };
        sleep(Duration::from_secs_f64(rng.f64() * 0.05)).await;
        while self.start.elapsed() < self.load.time {
            let node = match self.load.spread {
                Spread::Any => rng.usize(0..nodes),
                Spread::Moving => self.moved(home),
                _ => home,
            };
            match self.ask(node).await {
                Some(delay) => {
                    self.tally.borrow_mut().passed(self.start.elapsed() + delay, delay, client);
                    sleep(delay + Duration::from_secs_f64(-0.001 * rng.f64().max(1e-12).ln())).await;
                }
                None => {
                    self.tally.borrow_mut().refused(self.start.elapsed());
                    sleep(Duration::from_secs_f64(0.5 + rng.f64())).await;
                }
            }
        }
    }

    fn moved(&self, home: usize) -> usize {
        let half = (self.addresses.len() / 2).max(1);
        let is_late = self.start.elapsed() * 2 > self.load.time;
        if is_late { (half + home % half).min(self.addresses.len() - 1) } else { home % half }
    }

    /// Requests that come whatever the answers.
    async fn open(self: Rc<Crowd>) {
        let (mut rng, mut due) = (Rng::with_seed(7), self.start);
        let nodes = self.addresses.len();
        while self.start.elapsed() < self.load.time {
            due += Duration::from_secs_f64(-rng.f64().max(1e-12).ln() / self.load.open_per_s);
            sleep_until(due).await;
            let node = match self.load.spread {
                Spread::Skewed if rng.f64() < 0.8 => 0,
                Spread::Skewed => rng.usize(1.min(nodes - 1)..nodes),
                Spread::Moving => self.moved(rng.usize(0..nodes)),
                _ => rng.usize(0..nodes),
            };
            let crowd = self.clone();
            tokio::task::spawn_local(async move {
                let at = crowd.start.elapsed();
                match crowd.ask(node).await {
                    Some(delay) => crowd.tally.borrow_mut().passed(at + delay, delay, usize::MAX),
                    None => crowd.tally.borrow_mut().refused(at),
                }
            });
        }
        sleep(Duration::from_millis(200)).await;
    }

    /// The delay of a request; none if it is refused, or if the node does not answer.
    async fn ask(&self, node: usize) -> Option<Duration> {
        let pooled = self.pools[node].borrow_mut().pop();
        let mut stream = match pooled {
            Some(stream) => stream,
            None => TcpStream::connect(self.addresses[node]).await.ok()?,
        };
        let asked = Instant::now();
        let is_late = self.start.elapsed() >= self.load.other_key_from;
        stream.write_all(if is_late { OTHER } else { REQUEST }).await.ok()?;
        let (mut answer, mut length) = ([0; 1_024], 0);
        while !answer[..length].ends_with(b"\r\n\r\n") {
            match stream.read(&mut answer[length..]).await {
                Ok(count @ 1..) => length += count,
                _ => return None,
            }
        }
        self.tally.borrow_mut().answered(self.start.elapsed(), asked.elapsed());
        self.pools[node].borrow_mut().push(stream);
        let answer = std::str::from_utf8(&answer[..length]).ok()?;
        if !answer.starts_with("HTTP/1.1 204") {
            return None;
        }
        let delay = answer.lines().find_map(|line| line.strip_prefix("x-slowlane-delay: "));
        Some(Duration::from_millis(delay.map_or(0, |ms| ms.parse().expect("a delay is a number"))))
    }
}
