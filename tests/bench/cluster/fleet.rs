//! Many slowlanes, one store, and a wire between them that can be long or broken.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use crate::support::programs::client::Client;
use crate::support::programs::redis::Redis;
use crate::support::programs::slowlane::Slowlane;
use crate::support::programs::{eventually, own_address};

/// Nodes that share SLOs by one store.
pub struct Fleet<S = Redis> {
    pub store: S,
    pub wire: Wire,
    pub nodes: Vec<Slowlane>,
}

impl Fleet {
    /// `slo`: the SLO of the websites `shop.example` and `other.example`, of each alone.
    pub async fn start(count: usize, slo: &str, round_trip: Duration) -> Fleet {
        let redis = Redis::start();
        let address = redis.address;
        Fleet::at(redis, ("redis", address), count, slo, round_trip).await
    }
}

impl<S> Fleet<S> {
    /// The same with another store, at an address with this scheme.
    pub async fn at(
        store: S,
        (scheme, address): (&str, SocketAddr),
        count: usize,
        slo: &str,
        round_trip: Duration,
    ) -> Fleet<S> {
        Fleet::with_clocks(store, (scheme, address), count, (slo, round_trip), |_| None).await
    }

    /// The same, and nodes may have wall clocks of their own.
    pub async fn with_clocks(
        store: S,
        (scheme, address): (&str, SocketAddr),
        count: usize,
        (slo, round_trip): (&str, Duration),
        clock: impl Fn(usize) -> Option<String>,
    ) -> Fleet<S> {
        let wire = Wire::lay(address, round_trip / 2).await;
        let node = |number: usize| {
            let slo_map = format!("0 rate=unlimited\n2001 {slo}\n");
            let files =
                [("slo.map", slo_map.as_str()), ("website.map", "shop.example 2001\nother.example 2001\n")];
            let cluster = format!("store = \"{scheme}://{}\"\nnode = \"node{number}\"", wire.address);
            let config = format!("[table]\nsize = 20000\n[cluster]\n{cluster}\n");
            match clock(number) {
                Some(offset) => Slowlane::with_clock(&files, &config, &offset),
                None => Slowlane::with_config(&files, &config),
            }
        };
        let nodes = tokio::task::block_in_place(|| (0..count).map(node).collect());
        let fleet = Fleet { store, wire, nodes };
        fleet.is_joined(count);
        fleet
    }

    /// Waits until the nodes know each other.
    pub fn is_joined(&self, count: usize) {
        tokio::task::block_in_place(|| {
            for node in &self.nodes {
                eventually("all nodes know each other", || {
                    (node.metric("slowlane_cluster_nodes", "") == count as f64).then_some(())
                });
            }
        });
    }

    /// Blocks a source at one node, and ends the block at another. Returns the times until all nodes do so.
    pub fn block_and_unblock(&self, round: usize) -> [Duration; 2] {
        let source = format!("192.0.2.{}", round % 250 + 1);
        let node = |number: usize| &self.nodes[number % self.nodes.len()];
        let post = |node: &Slowlane, path: &str, body: &str| {
            let path = format!("{path}?source={source}");
            let answer = Client::connect(node.admin).request("POST", &path, &[], body);
            assert_eq!(answer.status, 200, "{}", answer.body);
        };
        let until = |blocked: bool| {
            let begun = Instant::now();
            let is_so = |node: &Slowlane| {
                let status = node.check("?hold=off", &[("X-Slowlane-Source", &source)]).status;
                (status == 403) == blocked
            };
            for node in &self.nodes {
                while !is_so(node) {
                    assert!(begun.elapsed() < Duration::from_secs(60), "a node does not know of the block");
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
            begun.elapsed()
        };
        post(node(round), "/api/block", "for=10m");
        let begins = until(true);
        post(node(round + 1), "/api/unblock", "");
        [begins, until(false)]
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.http).collect()
    }

    /// The sum of a metric over all nodes.
    pub fn metric(&self, name: &str) -> f64 {
        tokio::task::block_in_place(|| self.nodes.iter().map(|node| node.metric(name, "")).sum())
    }
}

/// A TCP proxy that takes its time in both directions, or swallows everything.
#[derive(Clone)]
pub struct Wire {
    pub address: SocketAddr,
    swallows: Arc<AtomicBool>,
    pub bytes: Arc<AtomicU64>,
}

impl Wire {
    async fn lay(target: SocketAddr, one_way: Duration) -> Wire {
        let listener = TcpListener::bind(own_address()).await.unwrap();
        let wire =
            Wire { address: listener.local_addr().unwrap(), swallows: Arc::default(), bytes: Arc::default() };
        let laid = wire.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(laid.clone().join(stream, target, one_way));
            }
        });
        wire
    }

    /// From now on nothing arrives, and nothing is refused: a black hole.
    pub fn swallow(&self, does: bool) {
        self.swallows.store(does, Relaxed);
    }

    async fn join(self, stream: TcpStream, target: SocketAddr, one_way: Duration) {
        let Ok(other) = TcpStream::connect(target).await else { return };
        stream.set_nodelay(true).unwrap();
        other.set_nodelay(true).unwrap();
        let ((read, write), (other_read, other_write)) = (stream.into_split(), other.into_split());
        tokio::join!(self.carry(read, other_write, one_way), self.carry(other_read, write, one_way));
    }

    async fn carry(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, one_way: Duration) {
        let (put, mut taken) = mpsc::channel::<(Instant, Vec<u8>)>(1_000);
        let arrive = async move {
            while let Some((at, bytes)) = taken.recv().await {
                if !one_way.is_zero() {
                    sleep_until(at).await;
                }
                if to.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        };
        let leave = async move {
            let mut buffer = vec![0; 65_536];
            loop {
                let Ok(count @ 1..) = from.read(&mut buffer).await else { return };
                while self.swallows.load(Relaxed) {
                    sleep(Duration::from_millis(10)).await;
                }
                self.bytes.fetch_add(count as u64, Relaxed);
                if put.send((Instant::now() + one_way, buffer[..count].to_vec())).await.is_err() {
                    return;
                }
            }
        };
        tokio::join!(arrive, leave);
    }
}
