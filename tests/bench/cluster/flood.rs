//! Requests of many keys, pipelined to every node at once.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

/// Requests on their way to a node.
const PIPELINED: u32 = 64;

/// Asks each node about each source once.
pub fn once(nodes: &[SocketAddr], sources: Range<u32>) {
    each(nodes, |node| {
        for first in sources.clone().step_by(PIPELINED as usize) {
            node.ask(first, sources.end);
        }
    });
}

/// Asks each node about the sources in turn, so many requests a second, for some time. Returns the requests of a
/// node per second.
pub fn again(nodes: &[SocketAddr], sources: Range<u32>, per_s: u32, time: Duration) -> f64 {
    let asked: u32 = each(nodes, |node| {
        let (start, mut asked) = (Instant::now(), 0);
        while start.elapsed() < time {
            let first = sources.start + asked % (sources.end - sources.start);
            asked += node.ask(first, sources.end);
            thread::sleep((Duration::from_secs(1) * asked / per_s).saturating_sub(start.elapsed()));
        }
        asked
    })
    .into_iter()
    .sum();
    f64::from(asked) / nodes.len() as f64 / time.as_secs_f64()
}

fn each<T: Send>(nodes: &[SocketAddr], ask: impl Fn(&mut Node) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let ask = &ask;
        let of_node = |&address| scope.spawn(move || ask(&mut Node::connect(address)));
        let threads: Vec<_> = nodes.iter().map(of_node).collect();
        threads.into_iter().map(|thread| thread.join().expect("no node met an error")).collect()
    })
}

struct Node {
    stream: TcpStream,
    requests: Vec<u8>,
    answers: Vec<u8>,
}

impl Node {
    fn connect(address: SocketAddr) -> Node {
        let stream = TcpStream::connect(address).expect("a node accepts connections");
        stream.set_nodelay(true).expect("TCP has the option");
        Node { stream, requests: Vec::new(), answers: Vec::new() }
    }

    /// Asks about the next sources, and waits for the answers. Returns how many there were.
    fn ask(&mut self, first: u32, end: u32) -> u32 {
        self.requests.clear();
        self.answers.clear();
        let sources = first..end.min(first + PIPELINED);
        let count = sources.end - sources.start;
        for source in sources {
            let source = Ipv4Addr::from_bits(source);
            let head = "GET /check?hold=off HTTP/1.1\r\nHost: x\r\nX-Slowlane-Source:";
            write!(self.requests, "{head} {source}\r\n\r\n").expect("memory takes all that is written");
        }
        self.stream.write_all(&self.requests).expect("a node reads");
        let (mut buffer, mut answered) = ([0; 65_536], 0);
        while answered < count {
            let length = self.stream.read(&mut buffer).expect("a node answers");
            assert!(length > 0, "a node closed the connection");
            let from = self.answers.len().saturating_sub(3);
            self.answers.extend_from_slice(&buffer[..length]);
            let ends = self.answers[from..].windows(4).filter(|bytes| bytes == b"\r\n\r\n").count();
            answered += u32::try_from(ends).expect("few answers are on their way");
        }
        count
    }
}
