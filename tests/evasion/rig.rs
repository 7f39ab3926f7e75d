//! The two readers of one request: what the application served, and what slowlane counted.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use futures_util::StreamExt;
use futures_util::stream;
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::time::timeout;

use crate::app::{App, Served};
use crate::fronts::{Front, Kind};
use crate::grammar::{Shot, shot};
use crate::policies::Policy;
use crate::support::eventually;
use crate::support::slowlane::Slowlane;

/// Connections at once, and between two looks at the logs.
const AT_ONCE: usize = 48;
const BATCH: usize = 400;
/// How long a client waits for an answer.
const WAIT: Duration = Duration::from_millis(700);
/// The most characters of a value in the decision log.
const LOGGED_CHARS: usize = 200;

/// A line of the decision log.
#[derive(Clone, Debug, Deserialize)]
struct Counted {
    fields: HashMap<String, serde_json::Value>,
}

impl Counted {
    fn field(&self, name: &str) -> String {
        match self.fields.get(name) {
            Some(serde_json::Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        }
    }
}

/// What became of all requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sums {
    pub sent: usize,
    pub counted: usize,
    pub served: usize,
    pub divergences: usize,
}

/// A front, its slowlane and its application.
pub struct Rig {
    kind: Kind,
    policy: Policy,
    _slowlane: Slowlane,
    _app: App,
    front: Front,
    random: Rng,
    decisions: Tail,
    requests: Tail,
    number: u64,
    pub sums: Sums,
}

impl Rig {
    /// None if the front is not installed.
    pub fn start(kind: Kind, policy: Policy, seed: u64) -> Option<Rig> {
        let app = App::start();
        let slowlane = Slowlane::with_config(&policy.files(), &policy.config());
        let front = Front::start(kind, &slowlane, &app)?;
        let decisions = Tail::of(slowlane.folder().join("decisions.json"));
        let requests = Tail::of(app.log());
        let random = Rng::with_seed(seed);
        let sums = Sums::default();
        let mut rig = Rig {
            kind,
            policy,
            _slowlane: slowlane,
            _app: app,
            front,
            random,
            decisions,
            requests,
            number: 0,
            sums,
        };
        rig.wait_for_the_agent();
        Some(rig)
    }

    /// HAProxy asks only when its check has found the agent.
    fn wait_for_the_agent(&mut self) {
        let plain = Shot {
            pieces: vec![b"GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n".to_vec()],
            requests: 1,
            leaves: false,
        };
        eventually("the proxy asks slowlane", || {
            self.play(std::slice::from_ref(&plain));
            (self.decisions.fresh > 0).then_some(())
        });
    }

    /// Sends so many connections from the grammar. Returns the shrunk shot and the reason of each divergence, up to five.
    pub fn run(&mut self, shots: usize) -> Vec<String> {
        let mut found = Vec::new();
        let mut done = 0;
        while done < shots && found.len() < 5 {
            let batch: Vec<Shot> = (0..BATCH.min(shots - done))
                .map(|place| shot(&mut self.random, self.number + place as u64, self.policy.headers))
                .collect();
            done += batch.len();
            let faults = self.play(&batch);
            self.sums.divergences += faults.len();
            let mut is_alone = false;
            for (place, fault) in faults.iter().take(3) {
                if let Some((small, fault)) = self.shrunk(&batch[*place]) {
                    is_alone = true;
                    found.push(format!("{fault}\n    {}", small.shown()));
                } else if !is_alone {
                    found.push(format!("among others: {fault}\n    {}", batch[*place].shown()));
                }
            }
        }
        found
    }

    /// The smallest shot that still fails alone; none if this one does not.
    fn shrunk(&mut self, shot: &Shot) -> Option<(Shot, String)> {
        let mut best = (shot.clone(), self.play(std::slice::from_ref(shot)).pop()?.1);
        let mut place = 0;
        while place < best.0.pieces.len() {
            let mut smaller = best.0.clone();
            smaller.pieces.remove(place);
            match self.play(std::slice::from_ref(&smaller)).pop() {
                Some((_, fault)) => best = (smaller, fault),
                None => place += 1,
            }
        }
        Some(best)
    }

    /// Plays shots, each from an address of its own, and returns those that were not counted as they were served.
    pub fn play(&mut self, shots: &[Shot]) -> Vec<(usize, String)> {
        let first = self.number;
        self.number += shots.len() as u64;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let to = self.front.address;
        let clients =
            shots.iter().enumerate().map(|(place, shot)| client(to, source(first + place as u64), shot));
        runtime.block_on(stream::iter(clients).buffer_unordered(AT_ONCE).collect::<Vec<()>>());
        let (served, counted) = self.read();
        let mut faults = Vec::new();
        for (place, shot) in shots.iter().enumerate() {
            let source = source(first + place as u64).to_string();
            let served = served.get(&source).map_or(&[][..], Vec::as_slice);
            let counted = counted.get(&source).map_or(&[][..], Vec::as_slice);
            self.sums.sent += shot.requests;
            self.sums.served += served.len();
            self.sums.counted += counted.len();
            if let Some(fault) = self.fault(shot, served, counted) {
                faults.push((place, fault));
            }
        }
        faults
    }

    /// Reads both logs to their end: until both are quiet.
    fn read(&mut self) -> (HashMap<String, Vec<Served>>, HashMap<String, Vec<Counted>>) {
        let (mut served, mut counted) = (Vec::new(), Vec::new());
        let mut quiet = Instant::now();
        while quiet.elapsed() < Duration::from_millis(150) {
            let before = served.len() + counted.len();
            served.extend(self.requests.lines());
            counted.extend(self.decisions.lines());
            if served.len() + counted.len() > before {
                quiet = Instant::now();
            }
            thread::sleep(Duration::from_millis(10));
        }
        self.decisions.fresh = counted.len();
        let served = served.iter().map(|line| {
            let served: Served = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            let source = served.source.rsplit(", ").next().unwrap().to_owned();
            (source, served)
        });
        let counted = counted.iter().map(|line| {
            let counted: Counted =
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            (counted.field("source"), counted)
        });
        (grouped(served.filter(|(_, served)| served.status == "200")), grouped(counted))
    }

    /// Whether a request was served that was not counted, or as another, or whether one was counted twice.
    fn fault(&self, shot: &Shot, served: &[Served], counted: &[Counted]) -> Option<String> {
        let mut left: Vec<&Counted> = counted.iter().collect();
        for served in served {
            let seen = self.as_seen(served);
            let same = |counted: &&Counted| {
                let compared = self.policy.compared();
                compared.iter().zip(&seen).all(|(name, seen)| self.is_same(name, seen, &counted.field(name)))
            };
            match left.iter().position(same) {
                Some(place) => drop(left.remove(place)),
                None => {
                    let told: Vec<_> = left.iter().map(|counted| &counted.fields).collect();
                    return Some(format!(
                        "{} {}: served {seen:?}, counted {told:?}",
                        self.kind, self.policy.name
                    ));
                }
            }
        }
        (counted.len() > shot.requests)
            .then(|| format!("{} {}: counted {} times", self.kind, self.policy.name, counted.len()))
    }

    /// The compared fields as the application saw them.
    fn as_seen(&self, served: &Served) -> Vec<String> {
        let path = || match self.kind {
            Kind::Haproxy(..) => normal(&served.uri),
            Kind::Nginx => served.uri.clone(),
        };
        let of = |name: &&str| match *name {
            "website" => served.host.clone(),
            "method" => served.method.clone(),
            "path" => path(),
            "base" => format!("{}{}", canonical(served.host.trim_start_matches('_')), path()),
            "url" if served.args.is_empty() => path(),
            "url" => format!("{}?{}", path(), served.args),
            "x_api_key" => served.x_api_key.trim().to_owned(),
            "user_agent" => served.user_agent.trim().to_owned(),
            other => panic!("no field {other}"),
        };
        self.policy.compared().iter().map(of).collect()
    }

    fn is_same(&self, name: &str, seen: &str, counted: &str) -> bool {
        match name {
            "website" => host(seen) == host(counted) || seen == "_" && counted.is_empty(),
            "base" => {
                // Cut within the host, it has no path.
                let Some(at) = counted.find('/') else {
                    return self.is_same("path", seen, &counted.to_lowercase());
                };
                let (of, path) = counted.split_at(at);
                self.is_same("path", seen, &format!("{}{path}", canonical(of)))
            }
            _ => match counted.strip_suffix("...") {
                Some(cut) if cut.chars().count() >= LOGGED_CHARS / 4 => seen.starts_with(cut),
                _ => seen == counted,
            },
        }
    }
}

/// A path as HAProxy's printed rules write it: without parameters, in lower case.
fn normal(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').map(|part| part.split(';').next().unwrap()).collect();
    let mut normal = parts.join("/").to_ascii_lowercase();
    while normal.contains("//") {
        normal = normal.replace("//", "/");
    }
    normal
}

/// A host in its one form: no port, no final dot, lower case.
fn canonical(text: &str) -> String {
    let address =
        |text: &str| text.trim_matches(['[', ']']).parse::<Ipv6Addr>().map(|address| address.to_string());
    if let Ok(address) = address(text) {
        return address;
    }
    let name = match text.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => text,
    };
    let name = name.strip_suffix('.').unwrap_or(name).to_lowercase();
    address(&name).unwrap_or(name)
}

/// The same, cut as in the log.
fn host(text: &str) -> String {
    canonical(text.strip_suffix("...").unwrap_or(text)).chars().take(LOGGED_CHARS).collect()
}

fn grouped<T>(items: impl Iterator<Item = (String, T)>) -> HashMap<String, Vec<T>> {
    let mut groups: HashMap<String, Vec<T>> = HashMap::new();
    for (name, item) in items {
        groups.entry(name).or_default().push(item);
    }
    groups
}

/// The address of a client: each has its own, in the lower half of the loopback network.
fn source(number: u64) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(u32::from_be_bytes([127, 1, 0, 0]) + number as u32))
}

async fn client(to: SocketAddr, from: IpAddr, shot: &Shot) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(from, 0)).unwrap();
    let Ok(mut stream) = socket.connect(to).await else { return };
    let write = timeout(WAIT, stream.write_all(&shot.bytes())).await;
    if shot.leaves || write.is_err() {
        return;
    }
    let mut answer = [0; 4096];
    while let Ok(Ok(1..)) = timeout(WAIT, stream.read(&mut answer)).await {}
}

/// A growing file, read line by line.
struct Tail {
    path: PathBuf,
    at: u64,
    rest: Vec<u8>,
    /// The lines of the last look.
    fresh: usize,
}

impl Tail {
    fn of(path: PathBuf) -> Tail {
        Tail { path, at: 0, rest: Vec::new(), fresh: 0 }
    }

    fn lines(&mut self) -> Vec<String> {
        let Ok(mut file) = File::open(&self.path) else { return Vec::new() };
        file.seek(SeekFrom::Start(self.at)).unwrap();
        self.at += file.read_to_end(&mut self.rest).unwrap() as u64;
        let end = self.rest.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let rest = self.rest.split_off(end);
        let lines = std::mem::replace(&mut self.rest, rest);
        String::from_utf8_lossy(&lines).lines().map(str::to_owned).collect()
    }
}
