//! The clients: strangers who send a shot each, and a bystander who stays under its limit.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::time::timeout;

use crate::fronts::Front;
use crate::http2::Answers;
use crate::http3;
use crate::policies::BYSTANDER;
use crate::shot::Shot;

/// Connections at once.
const AT_ONCE: usize = 192;
/// How long a stranger waits for more of an answer.
const WAIT: Duration = Duration::from_millis(700);
/// How long the bystander waits, on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the bystander asks for, on a connection that stays.
const ASKS: &[u8] =
    b"GET /quiet HTTP/1.1\r\nHost: quiet.example\r\nX-Api-Key: quiet\r\nUser-Agent: quiet\r\n\r\n";

/// The address of a client: each has its own, in the lower half of the loopback network.
pub fn source(number: u64) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(u32::from_be_bytes([127, 1, 0, 0]) + number as u32))
}

/// Plays each shot from an address of its own, the first from that of this number.
pub fn play(front: &Front, first: u64, shots: &[Shot]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let clients = (first..).zip(shots).map(async |(number, shot)| {
        let from = source(number);
        match (shot.has_fields(), &front.http3) {
            (true, Some(client)) => http3::play(client, front.address, from, shot, WAIT).await,
            (true, None) => stranger(front.http2, from, shot).await,
            (false, _) => stranger(front.address, from, shot).await,
        }
    });
    runtime.block_on(stream::iter(clients).buffer_unordered(AT_ONCE).collect::<Vec<()>>());
}

async fn stranger(to: SocketAddr, from: IpAddr, shot: &Shot) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(from, 0)).unwrap();
    let Ok(mut stream) = socket.connect(to).await else { return };
    let bytes = shot.bytes();
    let write = timeout(WAIT, stream.write_all(&bytes)).await;
    if shot.leaves || write.is_err() {
        return;
    }
    let (mut answer, mut answers) = ([0; 4096], Answers::default());
    while let Ok(Ok(length @ 1..)) = timeout(WAIT, stream.read(&mut answer)).await {
        if !shot.has_fields() {
            continue;
        }
        let reply = answers.read(&answer[..length]);
        if stream.write_all(&reply).await.is_err() || answers.has_ended(shot.requests) {
            return;
        }
    }
}

/// A client who stays under its limit.
#[derive(Debug, Default)]
pub struct Bystander {
    connection: Option<TcpStream>,
}

impl Bystander {
    /// Asks so often: each second request on a new connection. Returns the statuses.
    pub fn ask(&mut self, to: SocketAddr, times: usize) -> Vec<String> {
        (0..times).map(|time| self.ask_once(to, time % 2 == 0)).collect()
    }

    fn ask_once(&mut self, to: SocketAddr, anew: bool) -> String {
        if anew {
            self.connection = None;
        }
        // An idle connection may end at any time.
        if let Some(status) = self.connection.as_mut().and_then(answer) {
            return status;
        }
        answer(self.connection.insert(connect(to))).unwrap_or_else(|| "no answer".to_owned())
    }
}

fn connect(to: SocketAddr) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let stream = runtime.block_on(async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(BYSTANDER.parse().unwrap(), 0)).unwrap();
        socket.connect(to).await.unwrap().into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// The status of the next answer, whose body is read, too.
fn answer(connection: &mut TcpStream) -> Option<String> {
    connection.write_all(ASKS).ok()?;
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    loop {
        let length = connection.read(&mut buffer).ok().filter(|length| *length > 0)?;
        text += &String::from_utf8_lossy(&buffer[..length]);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let lines = head.lines().map(str::to_ascii_lowercase);
        let length =
            lines.filter_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok()).next();
        let is_whole = match length {
            Some(length) => body.len() >= length,
            None => body.ends_with("0\r\n\r\n"),
        };
        if is_whole {
            return Some(head.split(' ').nth(1)?.to_owned());
        }
    }
}
