//! The agent's side of one SPOP connection, from hello to disconnect.
//!
//! ```text
//!                   hello               leave, health check,
//!  AwaitingHello ─────────▶ Established ────────────────────▶ Closing
//!        │                   │      ▲ │   HAPROXY-DISCONNECT,    ▲
//!        │                   └──────┘ │   anything refused       │
//!        │                    notify  └──────────────────────────┤
//!        └───────────────────────────────────────────────────────┘
//! ```
//! In `Closing` the agent sends nothing more and ignores all frames but a HAPROXY-DISCONNECT.

use crate::{AgentHello, Disconnect, Error, FRAME_BYTES_MIN, Frame, HaproxyHello, Kind, Notify, Status};

/// The capabilities that the agent announces.
///
/// `async` would allow an ACK on another connection, but this agent always answers on the connection of the
/// NOTIFY. `fragmentation` is for messages longer than a frame, which this agent does not need.
const CAPABILITIES: &str = "pipelining";

/// The state of one connection, without a socket: it takes frames, and appends the bytes to send to a buffer.
///
/// ```
/// use spop::{Connection, Disconnect, Frame, HaproxyHello, Status, Step};
///
/// let mut bytes = Vec::new();
/// HaproxyHello::new(16_380).encode(&mut bytes);
/// Disconnect::NORMAL.encode_as_haproxy(&mut bytes);
///
/// let (mut connection, mut out) = (Connection::new(65_536), Vec::new());
/// let (hello, consumed) = Frame::cut(&bytes, connection.frame_bytes_max()).unwrap().unwrap();
/// assert_eq!(connection.receive(hello, &mut out), Step::Continue);
/// assert_eq!(connection.frame_bytes_max(), 16_380);
///
/// let (goodbye, _) = Frame::cut(&bytes[consumed..], connection.frame_bytes_max()).unwrap().unwrap();
/// let Step::Close(close) = connection.receive(goodbye, &mut out) else { panic!() };
/// assert_eq!((close.status, close.error), (Status::NORMAL, None));
/// ```
#[derive(Clone, Debug)]
pub struct Connection {
    state: ConnectionState,
    frame_bytes_max: u32,
    greeting: Option<Greeting>,
    name: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionState {
    AwaitingHello,
    Established,
    Closing,
}

/// The caller's next step. Whatever the step, the caller also sends the bytes in `out`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Continue with the next frame.
    Continue,
    /// Answer with exactly one ACK, now or later.
    Notify(Notify<'a>),
    /// Send `out` and close.
    Close(Close),
}

/// The reason to close a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Close {
    /// The status that the closing side gave.
    pub status: Status,
    /// The handshake failed: send `out`, and close the connection after about a second.
    ///
    /// If the agent closed the connection sooner, HAProxy up to 3.0 would retry at once, thousands of times a
    /// second, while a request waits.
    pub late: bool,
    /// The error that HAProxy made. `None` after HAProxy's DISCONNECT, whatever the status, and after a health check.
    pub error: Option<Error>,
}

/// The properties that the other side announces in its hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    pub healthcheck: bool,
    /// Whether the other side asks for the [name](Connection::named) of the agent, and so is not HAProxy.
    pub asks_for_name: bool,
}

impl Connection {
    /// A connection before its handshake.
    ///
    /// A `frame_bytes_max` below 256 is raised to 256, the size that every agent must accept (SPOE.txt 3.2).
    pub fn new(frame_bytes_max: u32) -> Connection {
        let frame_bytes_max = frame_bytes_max.max(FRAME_BYTES_MIN);
        Connection { state: ConnectionState::AwaitingHello, frame_bytes_max, greeting: None, name: "" }
    }

    /// A connection after its handshake, with the agreed frame size.
    pub fn established(frame_bytes_max: u32) -> Connection {
        let greeting = Some(Greeting { healthcheck: false, asks_for_name: false });
        Connection { state: ConnectionState::Established, frame_bytes_max, greeting, name: "" }
    }

    /// The maximum length of a frame, in bytes: the agent's limit before the handshake, the agreed limit after it.
    pub fn frame_bytes_max(&self) -> u32 {
        self.frame_bytes_max
    }

    /// The properties that the other side announced in its hello. None before the handshake.
    pub fn hello(&self) -> Option<Greeting> {
        self.greeting
    }

    /// Processes the next frame, and appends the answer, if any, to `out`. The caller writes the ACKs.
    #[inline]
    pub fn receive<'a>(&mut self, frame: Frame<'a>, out: &mut Vec<u8>) -> Step<'a> {
        match self.step(frame, out) {
            Ok(step) => step,
            Err(error) => Step::Close(self.refuse(error, out)),
        }
    }

    /// Adds `name` to the capabilities of the answer if the other side's hello offers it, too, as a tool that
    /// looks for this agent does. HAProxy never offers it, and ignores unknown capabilities (SPOE.txt 3.2.4).
    #[must_use]
    pub fn named(self, name: &'static str) -> Connection {
        Connection { name, ..self }
    }

    /// Ends the connection after an error from `Frame::cut`, an error in a NOTIFY, or a timeout.
    #[cold]
    pub fn refuse(&mut self, error: Error, out: &mut Vec<u8>) -> Close {
        let late = self.state == ConnectionState::AwaitingHello;
        let (status, message) = (error.status(), error.to_string());
        self.disconnect(Disconnect { status, message: message.as_bytes() }, out);
        Close { status, late, error: Some(error) }
    }

    /// Ends the connection from the agent's side.
    ///
    /// Call this after the last answer. HAProxy then closes the connection, and any later messages are ignored.
    pub fn leave(&mut self, out: &mut Vec<u8>) {
        self.disconnect(Disconnect::NORMAL, out);
    }

    #[inline]
    fn step<'a>(&mut self, frame: Frame<'a>, out: &mut Vec<u8>) -> Result<Step<'a>, Error> {
        match (self.state, frame.head.kind) {
            (_, Kind::HAPROXY_DISCONNECT) => self.goodbye(frame, out),

            // A side that has sent its DISCONNECT ignores all frames except the other side's DISCONNECT (3.2.8).
            (ConnectionState::Closing, _) => Ok(Step::Continue),

            // Only agents send these frames (3.2.2).
            (_, Kind::AGENT_HELLO | Kind::AGENT_DISCONNECT | Kind::ACK) => Err(Error::AgentFrame),

            // There is only one HELLO, the first frame (3.2.4).
            (ConnectionState::AwaitingHello, Kind::HAPROXY_HELLO) => self.greet(frame, out),
            (ConnectionState::AwaitingHello, Kind::NOTIFY | Kind::UNSET) => Err(Error::BeforeHello),
            (ConnectionState::Established, Kind::HAPROXY_HELLO) => Err(Error::SecondHello),

            (ConnectionState::Established, Kind::NOTIFY) => Notify::decode(frame).map(Step::Notify),

            // Another part of a fragmented payload, which only agents that announce `fragmentation` receive (3.2.1).
            (ConnectionState::Established, Kind::UNSET) => Err(Error::Fragmented),

            // Unknown frames may be skipped (3.2.2).
            _ => Ok(Step::Continue),
        }
    }

    /// Answers a hello with the lower of the two frame sizes, the agent's version and its capabilities (3.2.4).
    #[cold]
    fn greet<'a>(&mut self, frame: Frame<'_>, out: &mut Vec<u8>) -> Result<Step<'a>, Error> {
        let hello = HaproxyHello::decode(frame)?;
        self.frame_bytes_max = self.frame_bytes_max.min(hello.frame_bytes_max);
        let is_name = |capability: &[u8]| capability.trim_ascii() == self.name.as_bytes();
        let asks_for_name =
            !self.name.is_empty() && hello.capabilities.split(|byte| *byte == b',').any(is_name);
        self.greeting = Some(Greeting { healthcheck: hello.healthcheck, asks_for_name });
        let named = format!("{CAPABILITIES},{}", self.name);
        let capabilities = if asks_for_name { named.as_bytes() } else { CAPABILITIES.as_bytes() };
        AgentHello { frame_bytes_max: self.frame_bytes_max, capabilities }.encode(out);
        if hello.healthcheck {
            // After a health check, the agent may close without a DISCONNECT (3.2.5).
            self.state = ConnectionState::Closing;
            return Ok(Step::Close(Close { status: Status::NORMAL, late: false, error: None }));
        }
        self.state = ConnectionState::Established;
        Ok(Step::Continue)
    }

    /// Answers a HAPROXY-DISCONNECT: HAProxy waits for an AGENT-DISCONNECT, and then for the agent to close (3.2.8).
    #[cold]
    fn goodbye<'a>(&mut self, frame: Frame<'_>, out: &mut Vec<u8>) -> Result<Step<'a>, Error> {
        let status = Disconnect::decode(frame)?.status;
        self.disconnect(Disconnect::NORMAL, out);
        Ok(Step::Close(Close { status, late: false, error: None }))
    }

    /// Appends a DISCONNECT, unless the connection is already closing.
    fn disconnect(&mut self, disconnect: Disconnect<'_>, out: &mut Vec<u8>) {
        if self.state != ConnectionState::Closing {
            disconnect.encode_as_agent(out);
        }
        self.state = ConnectionState::Closing;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hello::tests::{HAPROXY_2_6, HAPROXY_3_2, HEALTH_CHECK, HELLO, cut, hello_of};
    use crate::{Data, Head, ReadError};

    const OURS: u32 = 65_536;

    /// The appended frames, decoded.
    fn said(out: &[u8]) -> Vec<Frame<'_>> {
        let (mut frames, mut rest) = (Vec::new(), out);
        while let Some((frame, consumed)) = Frame::cut(rest, u32::MAX).unwrap() {
            frames.push(frame);
            rest = &rest[consumed..];
        }
        assert!(rest.is_empty());
        frames
    }

    fn agent_hello(out: &[u8]) -> AgentHello<'_> {
        let [frame] = said(out)[..] else { panic!("{out:?}") };
        assert_eq!(frame.head, Head::of_connection(Kind::AGENT_HELLO));
        AgentHello::decode(frame).unwrap()
    }

    fn agent_disconnect(out: &[u8]) -> Disconnect<'_> {
        let [frame] = said(out)[..] else { panic!("{out:?}") };
        assert_eq!(frame.head, Head::of_connection(Kind::AGENT_DISCONNECT));
        Disconnect::decode(frame).unwrap()
    }

    fn refused(error: Error, late: bool) -> Step<'static> {
        Step::Close(Close { status: error.status(), late, error: Some(error) })
    }

    fn established() -> Connection {
        let mut connection = Connection::new(OURS);
        assert_eq!(connection.receive(cut(HAPROXY_3_2), &mut Vec::new()), Step::Continue);
        connection
    }

    fn frame(kind: Kind) -> Frame<'static> {
        Frame { head: Head::new(kind, 5, 1), payload: b"\x07request\x00" }
    }

    fn goodbye(status: Status) -> Vec<u8> {
        let mut bytes = Vec::new();
        Disconnect { status, message: b"" }.encode_as_haproxy(&mut bytes);
        bytes
    }

    #[test]
    fn every_haproxy_is_greeted_with_its_own_frame_size() {
        for hello in [HAPROXY_2_6, HAPROXY_3_2] {
            let (mut connection, mut out) = (Connection::new(OURS), Vec::new());
            assert_eq!(connection.frame_bytes_max(), OURS);
            assert_eq!(connection.receive(cut(hello), &mut out), Step::Continue);
            let answer = AgentHello { frame_bytes_max: 16_380, capabilities: b"pipelining" };
            assert_eq!(agent_hello(&out), answer);
            assert_eq!(connection.frame_bytes_max(), 16_380);
            assert_eq!(connection.hello(), Some(Greeting { healthcheck: false, asks_for_name: false }));
        }
    }

    #[test]
    fn a_haproxy_that_offers_more_gets_less() {
        let (mut connection, mut out) = (Connection::new(1_000), Vec::new());
        connection.receive(cut(HAPROXY_3_2), &mut out);
        assert_eq!(agent_hello(&out).frame_bytes_max, 1_000);
        assert_eq!(connection.frame_bytes_max(), 1_000);
        assert_eq!(Connection::new(100).frame_bytes_max(), 256);
    }

    #[test]
    fn a_health_check_is_greeted_and_closed() {
        let (mut connection, mut out) = (Connection::new(OURS), Vec::new());
        let close = Close { status: Status::NORMAL, late: false, error: None };
        assert_eq!(connection.receive(cut(HEALTH_CHECK), &mut out), Step::Close(close));
        assert_eq!(agent_hello(&out).frame_bytes_max, 16_380);
        assert!(connection.hello().unwrap().healthcheck);
    }

    #[test]
    fn a_refused_handshake_is_refused_late() {
        let version = (&b"supported-versions"[..], Data::Str(b"2.0"));
        let size = (&b"max-frame-size"[..], Data::Uint32(16_380));
        let old = (version.0, Data::Str(b"1.0"));
        let small = (size.0, Data::Uint32(255));
        for (items, error, code) in [
            ([size, size], Error::NoVersion, 5),
            ([version, version], Error::NoFrameSize, 6),
            ([old, size], Error::BadVersion, 8),
            ([version, small], Error::BadFrameSize, 9),
        ] {
            let (mut connection, mut out) = (Connection::new(OURS), Vec::new());
            assert_eq!(connection.receive(cut(&hello_of(&items)), &mut out), refused(error, true));
            assert_eq!(agent_disconnect(&out).status, Status::new(code));
            assert_eq!(agent_disconnect(&out).message, error.to_string().as_bytes());
            assert_eq!(connection.hello(), None);
        }
        let (mut connection, mut out) = (Connection::new(OURS), Vec::new());
        let garbled = Frame { payload: b"\xff", ..cut(HAPROXY_3_2) };
        assert_eq!(connection.receive(garbled, &mut out), refused(Error::Read(ReadError::Truncated), true));
        assert_eq!(agent_disconnect(&out).status, Status::INVALID);
    }

    #[test]
    fn a_first_frame_that_is_too_big_is_refused_late_too() {
        let (mut connection, mut out) = (Connection::new(256), Vec::new());
        let error = Frame::cut(b"\x00\x00\x01\x01", connection.frame_bytes_max()).unwrap_err();
        let close = connection.refuse(error, &mut out);
        assert_eq!((close.status, close.late), (Status::TOO_BIG, true));
        let message = b"frame of 257 bytes: at most 256 are allowed";
        assert_eq!(agent_disconnect(&out), Disconnect { status: Status::TOO_BIG, message });
    }

    #[test]
    fn before_hello_nothing_else_is_taken() {
        for kind in [Kind::NOTIFY, Kind::UNSET] {
            let step = Connection::new(OURS).receive(frame(kind), &mut Vec::new());
            assert_eq!(step, refused(Error::BeforeHello, true));
        }
    }

    #[test]
    fn a_second_hello_is_refused() {
        let (mut connection, mut out) = (established(), Vec::new());
        assert_eq!(connection.receive(cut(HAPROXY_3_2), &mut out), refused(Error::SecondHello, false));
        assert_eq!(agent_disconnect(&out).status, Status::INVALID);
    }

    #[test]
    fn a_notify_is_handed_on_and_nothing_is_said() {
        let (mut connection, mut out) = (established(), Vec::new());
        for stream_id in [0, 1, u64::MAX] {
            let head = Head::new(Kind::NOTIFY, stream_id, 1);
            let step = connection.receive(Frame { head, ..frame(Kind::NOTIFY) }, &mut out);
            let Step::Notify(notify) = step else { panic!("{step:?}") };
            assert_eq!((notify.stream_id, notify.frame_id), (stream_id, 1));
        }
        assert!(out.is_empty());
    }

    #[test]
    fn fragments_are_refused_with_their_own_status() {
        let part = Frame { head: Head { flags: 0, ..frame(Kind::NOTIFY).head }, payload: b"" };
        for frame in [part, frame(Kind::UNSET)] {
            let (mut connection, mut out) = (established(), Vec::new());
            assert_eq!(connection.receive(frame, &mut out), refused(Error::Fragmented, false));
            assert_eq!(agent_disconnect(&out).status.code(), 10);
        }
    }

    #[test]
    fn what_agents_send_is_refused_and_what_nobody_knows_is_skipped() {
        for connection in [established(), Connection::new(OURS)] {
            let late = connection.state == ConnectionState::AwaitingHello;
            for kind in [Kind::AGENT_HELLO, Kind::AGENT_DISCONNECT, Kind::ACK] {
                let step = connection.clone().receive(frame(kind), &mut Vec::new());
                assert_eq!(step, refused(Error::AgentFrame, late));
            }
            for byte in [4, 100, 104, 255] {
                let mut out = Vec::new();
                let step = connection.clone().receive(frame(Kind(byte)), &mut out);
                assert_eq!((step, out), (Step::Continue, vec![]));
            }
        }
    }

    #[test]
    fn a_goodbye_is_answered_and_closes() {
        for mut connection in [established(), Connection::new(OURS)] {
            let mut out = Vec::new();
            let close = Close { status: Status::TIMEOUT, late: false, error: None };
            assert_eq!(connection.receive(cut(&goodbye(Status::TIMEOUT)), &mut out), Step::Close(close));
            assert_eq!(agent_disconnect(&out), Disconnect::NORMAL);
        }
    }

    #[test]
    fn a_garbled_goodbye_closes_too() {
        let (mut connection, mut out) = (established(), Vec::new());
        let bytes = goodbye(Status::NORMAL);
        let garbled = Frame { payload: b"\x0bstatus", ..cut(&bytes) };
        assert_eq!(connection.receive(garbled, &mut out), refused(Error::Read(ReadError::Truncated), false));
        assert_eq!(agent_disconnect(&out).status, Status::INVALID);
    }

    #[test]
    fn an_agent_that_has_taken_leave_takes_nothing_but_a_goodbye() {
        let (mut connection, mut out) = (established(), Vec::new());
        connection.leave(&mut out);
        assert_eq!(agent_disconnect(&out), Disconnect::NORMAL);

        out.clear();
        connection.leave(&mut out);
        for kind in [Kind::NOTIFY, Kind::UNSET, Kind::HAPROXY_HELLO, Kind::ACK, Kind(9)] {
            assert_eq!(connection.receive(frame(kind), &mut out), Step::Continue);
        }
        let close = Close { status: Status::NORMAL, late: false, error: None };
        assert_eq!(connection.receive(cut(&goodbye(Status::NORMAL)), &mut out), Step::Close(close));
        assert!(out.is_empty(), "there is only one DISCONNECT");
    }

    /// HAProxy's own hellos are answered as ever, whatever the agent's name.
    #[test]
    fn a_tool_that_offers_the_name_is_told_it() {
        for (offered, told) in [
            (&b"agent"[..], &b"pipelining,agent"[..]),
            (b"async, agent", b"pipelining,agent"),
            (b"", b"pipelining"),
            (b"pipelining,agents", b"pipelining"),
        ] {
            let (mut bytes, mut out) = (Vec::new(), Vec::new());
            HaproxyHello { capabilities: offered, healthcheck: true, ..HELLO }.encode(&mut bytes);
            let mut connection = Connection::new(OURS).named("agent");
            connection.receive(cut(&bytes), &mut out);
            assert_eq!(AgentHello::decode(cut(&out)).unwrap().capabilities, told);
            assert_eq!(connection.hello().unwrap().asks_for_name, told != b"pipelining");
        }
        let mut out = Vec::new();
        Connection::new(OURS).receive(cut(HEALTH_CHECK), &mut out);
        assert_eq!(AgentHello::decode(cut(&out)).unwrap().capabilities, b"pipelining", "it has no name");
    }
}
