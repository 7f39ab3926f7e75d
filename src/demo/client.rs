//! The clients: a crawler and a customer.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::HOST;
use hyper::{HeaderMap, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpSocket;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::demo::tally::{AnswerTally, TimedAnswer, Who};

/// All of 127.0.0.0/8 is loopback, so clients can have different addresses without a real network.
pub(super) const CRAWLER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const CUSTOMER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

/// The website that all clients request.
const WEBSITE: &str = "shop.example";

pub(super) const CUSTOMER_PER_S: u32 = 5;

/// The header that contains the ticket with which a client reports the end of its request to slowlane.
const TICKET: &str = "x-slowlane-ticket";

/// The pause after a missing or unexpected answer.
const PAUSE: Duration = Duration::from_millis(100);

/// The route of a client to the application.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    /// HAProxy, or the application itself.
    pub(super) site: SocketAddr,
    /// The HTTP check, which the client queries before each request if there is no proxy.
    pub(super) check: Option<SocketAddr>,
}

/// The connections of a client.
struct ClientConnection {
    site: HttpClient,
    check: Option<HttpClient>,
    source: String,
}

impl ClientConnection {
    async fn open(target: Target, source: Ipv4Addr) -> anyhow::Result<ClientConnection> {
        let check = match target.check {
            Some(check) => Some(HttpClient::connect(check, source).await?),
            None => None,
        };
        let site = HttpClient::connect(target.site, source).await?;
        Ok(ClientConnection { site, check, source: source.to_string() })
    }

    /// Sends one request, and returns the status of its answer.
    async fn ask(&mut self) -> anyhow::Result<u16> {
        let Some(check) = &mut self.check else { return Ok(self.site.get("/", &[]).await?.0.as_u16()) };
        let fields = [("x-slowlane-source", self.source.as_str()), ("x-slowlane-website", WEBSITE)];
        // slowlane delays this answer if the request has to wait.
        let (status, headers) = check.get("/check?deny=429", &fields).await?;
        if status != StatusCode::NO_CONTENT {
            return Ok(status.as_u16());
        }
        let (status, _) = self.site.get("/", &[]).await?;
        if let Some(ticket) = headers.get(TICKET) {
            check.get("/done", &[(TICKET, ticket.to_str()?)]).await?;
        }
        Ok(status.as_u16())
    }
}

/// One connection of the crawler, which sends the next request after each answer.
pub(super) async fn crawl(target: Target, source: Ipv4Addr, tally: Arc<AnswerTally>) {
    let mut client = Client { target, source, who: Who::Crawler, connection: None, tally };
    loop {
        if client.ask().await != Some(200) {
            sleep(PAUSE).await;
        }
    }
}

/// The customer, who sends up to `CUSTOMER_PER_S` requests per second, one after the other.
pub(super) async fn visit(target: Target, tally: Arc<AnswerTally>) {
    let mut client = Client { target, source: CUSTOMER, who: Who::Customer, connection: None, tally };
    let mut tick = interval(Duration::from_secs(1) / CUSTOMER_PER_S);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        client.ask().await;
    }
}

struct Client {
    target: Target,
    source: Ipv4Addr,
    who: Who,
    connection: Option<ClientConnection>,
    tally: Arc<AnswerTally>,
}

impl Client {
    /// Sends a request, counts its answer, and returns its status, or `None` if there was no answer.
    async fn ask(&mut self) -> Option<u16> {
        let asked = Instant::now();
        let answer = self.try_ask().await.ok();
        if answer != Some(200) {
            self.connection = None;
        }
        self.tally.add(TimedAnswer { who: self.who, status: answer, took: asked.elapsed() });
        answer
    }

    async fn try_ask(&mut self) -> anyhow::Result<u16> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(ClientConnection::open(self.target, self.source).await?),
        };
        connection.ask().await
    }
}

/// A connection to an HTTP server. Dropping this value closes the connection.
struct HttpClient(SendRequest<Empty<Bytes>>);

impl HttpClient {
    async fn connect(address: SocketAddr, source: Ipv4Addr) -> anyhow::Result<HttpClient> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((source, 0).into())?;
        let stream = socket.connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(HttpClient(sender))
    }

    /// Requests a path with additional headers, and returns the status and the headers of the answer.
    async fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> anyhow::Result<(StatusCode, HeaderMap)> {
        let mut request = Request::get(path).header(HOST, WEBSITE);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.0.ready().await?;
        let answer = self.0.send_request(request.body(Empty::new())?).await?;
        let (head, body) = answer.into_parts();
        body.collect().await?;
        Ok((head.status, head.headers))
    }
}
