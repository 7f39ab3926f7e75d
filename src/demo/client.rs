//! Who asks: the crawler and the customer.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::demo::stand_in::StandIn;
use crate::demo::tally::{Tally, Who};

/// All of 127.0.0.0/8 is loopback: two sources that need no network.
const CRAWLER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const CUSTOMER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

pub(super) const CUSTOMER_PER_S: u32 = 5;

/// What is asked.
pub(super) const WEBSITE: &str = "shop.example";

/// After an answer that should not have been, or none.
const PAUSE: Duration = Duration::from_millis(100);

/// An answer's head is no longer than this.
const HEAD_BYTES_MAX: usize = 8192;

/// Where a client gets in.
#[derive(Clone, Copy, Debug)]
pub(super) enum Door {
    Haproxy(SocketAddr),
    /// Nobody there: the client's own connections to the agent and to the application.
    StandIn {
        agent: SocketAddr,
        app: SocketAddr,
    },
}

/// A connection of a client, whoever is at the door.
enum Connection {
    Haproxy(Half),
    StandIn(StandIn),
}

impl Connection {
    async fn open(door: Door, source: Ipv4Addr) -> io::Result<Connection> {
        match door {
            Door::Haproxy(address) => Ok(Connection::Haproxy(Half::connect(address, source).await?)),
            Door::StandIn { agent, app } => {
                Ok(Connection::StandIn(StandIn::connect(agent, app, source).await?))
            }
        }
    }

    /// One request; the status of its answer.
    async fn ask(&mut self) -> io::Result<u16> {
        match self {
            Connection::Haproxy(half) => half.get().await,
            Connection::StandIn(stand_in) => stand_in.get().await,
        }
    }
}

/// One connection of the crawler: asks again as soon as it is answered.
pub(super) async fn crawl(door: Door, tally: Arc<Tally>) {
    let mut client = Client { door, source: CRAWLER, who: Who::Crawler, connection: None, tally };
    loop {
        if client.ask().await != Some(200) {
            sleep(PAUSE).await;
        }
    }
}

/// The customer: asks now and then.
pub(super) struct Customer(Client);

impl Customer {
    pub(super) fn new(door: Door, tally: Arc<Tally>) -> Customer {
        Customer(Client { door, source: CUSTOMER, who: Who::Customer, connection: None, tally })
    }

    pub(super) async fn come(mut self) {
        let mut tick = interval(Duration::from_secs(1) / CUSTOMER_PER_S);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            self.0.ask().await;
        }
    }
}

struct Client {
    door: Door,
    source: Ipv4Addr,
    who: Who,
    connection: Option<Connection>,
    tally: Arc<Tally>,
}

impl Client {
    /// The status of the answer, which is told to the tally. None: there was none.
    async fn ask(&mut self) -> Option<u16> {
        let asked = Instant::now();
        let answer = self.try_ask().await.ok();
        if answer != Some(200) {
            self.connection = None;
        }
        self.tally.count(self.who, answer, asked.elapsed());
        answer
    }

    async fn try_ask(&mut self) -> io::Result<u16> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(Connection::open(self.door, self.source).await?),
        };
        connection.ask().await
    }
}

/// One side of an HTTP connection.
pub(super) struct Half {
    pub(super) stream: TcpStream,
    unread: Vec<u8>,
}

impl Half {
    pub(super) fn new(stream: TcpStream) -> Half {
        Half { stream, unread: Vec::new() }
    }

    pub(super) async fn connect(address: SocketAddr, source: Ipv4Addr) -> io::Result<Half> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((source, 0).into())?;
        let stream = socket.connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Half::new(stream))
    }

    pub(super) async fn get(&mut self) -> io::Result<u16> {
        self.stream.write_all(format!("GET / HTTP/1.1\r\nhost: {WEBSITE}\r\n\r\n").as_bytes()).await?;
        let head = self.head().await?.ok_or(ErrorKind::UnexpectedEof)?;
        let (status, length) = status_and_length(&head).ok_or(ErrorKind::InvalidData)?;
        while self.unread.len() < length {
            self.read().await?;
        }
        self.unread.drain(..length);
        Ok(status)
    }

    /// Up to and with the empty line. None: the connection was closed instead.
    pub(super) async fn head(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(end) = self.unread.windows(4).position(|four| four == b"\r\n\r\n") {
                let head: Vec<u8> = self.unread.drain(..end + 4).collect();
                return Ok(Some(String::from_utf8_lossy(&head).into_owned()));
            }
            if self.unread.len() > HEAD_BYTES_MAX {
                return Err(ErrorKind::InvalidData.into());
            }
            match self.read().await {
                Err(error) if error.kind() == ErrorKind::UnexpectedEof && self.unread.is_empty() => {
                    return Ok(None);
                }
                read => read?,
            }
        }
    }

    async fn read(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.unread).await? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

/// Of an answer, which says how long its body is.
fn status_and_length(head: &str) -> Option<(u16, usize)> {
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let value = |line: &str| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    };
    let length = lines.find_map(value).unwrap_or(0);
    (length <= HEAD_BYTES_MAX).then_some((status, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_its_status_and_how_long_it_is() {
        let head = "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 117\r\nretry-after: 1\r\n\r\n";
        assert_eq!(status_and_length(head), Some((429, 117)));
        assert_eq!(status_and_length("HTTP/1.1 204 No Content\r\n\r\n"), Some((204, 0)));
        for head in
            ["", "\r\n", "HTTP/1.1\r\n", "HTTP/1.1 x\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 9999999\r\n"]
        {
            assert_eq!(status_and_length(head), None, "{head:?}");
        }
    }
}
