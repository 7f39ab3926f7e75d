//! Stands in for HAProxy: asks the agent for the verdict and the hold, then asks the application.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::demo::http::{Half, WEBSITE};
use spop::{Ack, Action, AgentHello, Data, Frame, HaproxyHello, Kind, Notify};

/// HAProxy's default max-frame-size.
const FRAME_BYTES_MAX: u32 = 16_380;

/// The connections of one client: one to the agent and one to the application.
pub(super) struct StandIn {
    agent: TcpStream,
    unread: Vec<u8>,
    app: Half,
    source: Ipv4Addr,
    asked: u64,
}

/// The agent's answer about a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reported {
    is_denied: bool,
    delay_ms: i64,
}

impl StandIn {
    pub(super) async fn connect(agent: SocketAddr, app: SocketAddr, source: Ipv4Addr) -> io::Result<StandIn> {
        let agent = TcpStream::connect(agent).await?;
        agent.set_nodelay(true)?;
        let app = Half::connect(app, source).await?;
        let mut stand_in = StandIn { agent, unread: Vec::new(), app, source, asked: 0 };
        stand_in.greet().await?;
        Ok(stand_in)
    }

    pub(super) async fn get(&mut self) -> io::Result<u16> {
        let source = Data::Ipv4(self.source);
        let fields = [
            (&b"source"[..], source),
            (b"website", Data::Str(WEBSITE.as_bytes())),
            (b"method", Data::Str(b"GET")),
        ];
        let Reported { is_denied, delay_ms } = self.ask(b"request", &fields).await?;
        if is_denied {
            return Ok(429);
        }
        if delay_ms > 0 {
            self.ask(b"hold", &[(b"delay", Data::Int64(delay_ms))]).await?;
        }
        self.app.get().await
    }

    async fn greet(&mut self) -> io::Result<()> {
        let mut bytes = Vec::new();
        let hello = HaproxyHello {
            supported_versions: b"2.0",
            frame_bytes_max: FRAME_BYTES_MAX,
            capabilities: b"pipelining",
            engine_id: None,
            healthcheck: false,
        };
        hello.encode(&mut bytes);
        self.agent.write_all(&bytes).await?;
        self.receive(|frame| AgentHello::decode(frame).is_ok().then_some(())).await
    }

    async fn ask(&mut self, message: &[u8], arguments: &[(&[u8], Data<'_>)]) -> io::Result<Reported> {
        let mut bytes = Vec::new();
        self.asked += 1;
        Notify::begin(&mut bytes, self.asked, 1).message(message, arguments).finish();
        self.agent.write_all(&bytes).await?;
        self.receive(reported).await
    }

    /// The next frame from the agent. An unreadable frame is an error.
    async fn receive<T>(&mut self, understand: impl Fn(Frame<'_>) -> Option<T>) -> io::Result<T> {
        loop {
            let cut = Frame::cut(&self.unread, FRAME_BYTES_MAX).map_err(|_| ErrorKind::InvalidData)?;
            if let Some((frame, bytes)) = cut {
                let understood = understand(frame).ok_or(ErrorKind::InvalidData)?;
                self.unread.drain(..bytes);
                return Ok(understood);
            }
            if self.agent.read_buf(&mut self.unread).await? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// The variables of an ACK.
fn reported(frame: Frame<'_>) -> Option<Reported> {
    if frame.head.kind != Kind::ACK {
        return None;
    }
    let mut reported = Reported::default();
    for action in Ack::decode(frame).ok()?.actions() {
        match action.ok()? {
            Action::SetVar { name: b"verdict", value, .. } => {
                reported.is_denied = value == Data::Str(b"deny")
            }
            Action::SetVar { name: b"delay", value, .. } => reported.delay_ms = value.to_i64()?,
            _ => {}
        }
    }
    Some(reported)
}
