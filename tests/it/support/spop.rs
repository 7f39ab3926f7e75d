//! HAProxy's side of SPOP, for frames that a real HAProxy never sends.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use spop::varint;
use spop::{Ack, Action, AgentHello, Data, Disconnect, Frame, HaproxyHello, Head, Kind, Notify};

use super::PATIENCE;

/// A decoded frame from the agent.
#[derive(Clone, Debug, PartialEq)]
pub enum Heard {
    Hello,
    Ack {
        stream_id: u64,
        frame_id: u64,
        variables: Vec<(String, String)>,
    },
    Disconnect {
        status: u32,
        message: String,
    },
    /// The agent has closed the connection.
    Closed,
}

impl Heard {
    /// The value of a variable, as text.
    pub fn variable(&self, name: &str) -> Option<&str> {
        let Heard::Ack { variables, .. } = self else { panic!("no ACK but {self:?}") };
        variables.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }
}

/// One connection.
pub struct Line {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Line {
    /// A connection without a HELLO.
    pub fn silent(agent: SocketAddr) -> Line {
        Line::try_silent(agent).unwrap()
    }

    /// The same, if the agent may have ended.
    pub fn try_silent(agent: SocketAddr) -> std::io::Result<Line> {
        let stream = TcpStream::connect(agent)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Line { stream, unread: Vec::new() })
    }

    /// A connection after the handshake.
    pub fn greeted(agent: SocketAddr) -> Line {
        let mut line = Line::silent(agent);
        line.say(&hello());
        assert_eq!(line.hear(), Heard::Hello);
        line
    }

    /// The same connection for another thread: one writes, the other reads.
    pub fn again(&self) -> Line {
        Line { stream: self.stream.try_clone().unwrap(), unread: self.unread.clone() }
    }

    pub fn say(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The same, if the agent may already have closed.
    pub fn try_say(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Asks for a verdict by source and website, and waits for it.
    pub fn ask(&mut self, stream_id: u64, source: &str, website: &str) -> Heard {
        self.say(&request(stream_id, source, website));
        self.hear()
    }

    pub fn hear(&mut self) -> Heard {
        self.frame().map_or(Heard::Closed, |bytes| taken_apart(cut(&bytes)))
    }

    /// Reads the agent's HELLO: its frame size and capabilities.
    pub fn hear_hello(&mut self) -> (u32, String) {
        let bytes = self.frame().expect("the agent greets");
        let hello = AgentHello::decode(cut(&bytes)).unwrap();
        (hello.frame_bytes_max, text(hello.capabilities))
    }

    /// Reads the agent's DISCONNECT, waits for the close, and returns the status.
    pub fn hear_goodbye(&mut self) -> u32 {
        let Heard::Disconnect { status, message } = self.hear() else { panic!("no DISCONNECT") };
        assert!(!message.is_empty());
        assert_eq!(self.hear(), Heard::Closed);
        status
    }

    /// The bytes of the next frame; `None` if the agent has closed.
    fn frame(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some((_, bytes)) = Frame::cut(&self.unread, u32::MAX).unwrap() {
                return Some(self.unread.drain(..bytes).collect());
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => self.unread.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("waited in vain for a frame: {error}"),
            }
        }
    }

    /// Checks that nothing has arrived. First wait for an event that comes after the unwanted frame would.
    pub fn has_heard_nothing(&mut self) {
        self.stream.set_nonblocking(true).unwrap();
        let heard = self.stream.read(&mut [0]);
        self.stream.set_nonblocking(false).unwrap();
        assert!(heard.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "{heard:?}");
    }
}

pub fn hello() -> Vec<u8> {
    let mut bytes = Vec::new();
    let hello = HaproxyHello {
        supported_versions: b"2.0",
        frame_bytes_max: 16_380,
        capabilities: b"pipelining",
        engine_id: None,
        healthcheck: false,
    };
    hello.encode(&mut bytes);
    bytes
}

/// A HELLO with exactly these items.
pub fn hello_of(items: &[(&[u8], Data<'_>)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (name, value) in items {
        varint::encode(name.len() as u64, &mut payload);
        payload.extend_from_slice(name);
        value.encode(&mut payload);
    }
    frame(Head::of_connection(Kind::HAPROXY_HELLO), &payload)
}

/// Any frame.
pub fn frame(head: Head, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Frame { head, payload }.encode(&mut bytes);
    bytes
}

pub fn goodbye() -> Vec<u8> {
    let mut bytes = Vec::new();
    Disconnect::NORMAL.encode_as_haproxy(&mut bytes);
    bytes
}

/// A NOTIFY with the message `request`.
pub fn request(stream_id: u64, source: &str, website: &str) -> Vec<u8> {
    let source = match source.parse().unwrap() {
        std::net::IpAddr::V4(v4) => Data::Ipv4(v4),
        std::net::IpAddr::V6(v6) => Data::Ipv6(v6),
    };
    message(stream_id, b"request", &[(b"source", source), (b"website", Data::Str(website.as_bytes()))])
}

/// A NOTIFY with the message `hold`.
pub fn hold(stream_id: u64, delay_ms: i64) -> Vec<u8> {
    message(stream_id, b"hold", &[(b"delay", Data::Int64(delay_ms))])
}

/// A NOTIFY with the message `hold` for a turn.
pub fn hold_turn(stream_id: u64, key: Data<'_>, turn: Data<'_>) -> Vec<u8> {
    message(stream_id, b"hold", &[(b"delay", Data::Int64(0)), (b"key", key), (b"turn", turn)])
}

/// A request for a website, of an HAProxy that can hold it.
pub fn request_held(stream_id: u64, website: &str) -> Vec<u8> {
    let arguments = [(&b"website"[..], Data::Str(website.as_bytes())), (b"hold", Data::Bool(true))];
    message(stream_id, b"request", &arguments)
}

pub fn message(stream_id: u64, name: &[u8], arguments: &[(&[u8], Data<'_>)]) -> Vec<u8> {
    notify(stream_id, &[(name, arguments)])
}

/// A message: its name and its arguments.
type Spoken<'a> = (&'a [u8], &'a [(&'a [u8], Data<'a>)]);

/// A NOTIFY with any number of messages.
pub fn notify(stream_id: u64, messages: &[Spoken<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let notify = Notify::begin(&mut bytes, stream_id, 1);
    messages.iter().fold(notify, |notify, (name, arguments)| notify.message(name, arguments)).finish();
    bytes
}

fn cut(bytes: &[u8]) -> Frame<'_> {
    Frame::cut(bytes, u32::MAX).unwrap().expect("a whole frame").0
}

fn taken_apart(frame: Frame<'_>) -> Heard {
    match frame.head.kind {
        Kind::AGENT_HELLO => Heard::Hello,
        Kind::AGENT_DISCONNECT => {
            let Disconnect { status, message } = Disconnect::decode(frame).unwrap();
            Heard::Disconnect { status: status.code(), message: String::from_utf8_lossy(message).into() }
        }
        Kind::ACK => {
            let ack = Ack::decode(frame).unwrap();
            let variables = ack.actions().map(|action| match action.unwrap() {
                Action::SetVar { name, value, .. } => (text(name), shown(value)),
                Action::UnsetVar { name, .. } => (text(name), String::new()),
            });
            Heard::Ack { stream_id: ack.stream_id, frame_id: ack.frame_id, variables: variables.collect() }
        }
        kind => panic!("an agent never sends {kind:?}"),
    }
}

fn shown(value: Data<'_>) -> String {
    match value {
        Data::Str(bytes) => text(bytes),
        Data::Int64(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
