//! Asks which program listens at an address.

use std::io;
use std::time::Duration;

use httparse::{EMPTY_HEADER, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Builder;
use tokio::time::timeout;

use crate::config::Listen;
use crate::proxy::nginx::VERSION;
use crate::server::Stream;
use crate::server::spoe::NAME;
use slowlane_core::base::{Address, shown};
use spop::{AgentHello, Disconnect, Frame, HaproxyHello, Kind};

/// The time limit for a connection and for an answer: a program on this machine accepts and answers immediately.
const PATIENCE: Duration = Duration::from_secs(1);

/// The longest answer that is kept: enough for a frame, or for the head of an HTTP answer.
const ANSWER_BYTES_MAX: u64 = 2_048;

/// The maximum number of headers in an HTTP answer.
const HEADERS_MAX: usize = 64;

/// The maximum frame size that the hello offers.
const FRAME_BYTES_MAX: u32 = 16_380;

/// The maximum number of bytes of another program's text to show.
const SHOWN_BYTES_MAX: usize = 60;

/// A query for the values of a FastCGI application: version 1, FCGI_GET_VALUES (FastCGI specification, section 4.1).
const FASTCGI_VALUES: &[u8] = &[1, 9, 0, 0, 0, 0, 0, 0];

/// The first bytes of the answer: version 1, FCGI_GET_VALUES_RESULT.
const FASTCGI_RESULT: &[u8] = &[1, 10];

/// The message that another program listens at one of slowlane's addresses, and the remedy.
pub(super) struct Taken {
    pub(super) text: String,
    pub(super) fix: String,
}

/// Probes the address of a listener. Returns `None` if slowlane answers, or if TLS hides which program answers.
///
/// # Errors
/// No program accepts a connection at the address.
pub(super) fn taken(listen: &Listen, address: &Address) -> io::Result<Option<Taken>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    // The protocol of the listener is tried first, because slowlane would log a query in another protocol as an error.
    let tried = if listen.section == "spop" { [SPOP, HTTP, FASTCGI] } else { [HTTP, SPOP, FASTCGI] };
    let found = runtime.block_on(async {
        timeout(PATIENCE, Stream::connect(address)).await??;
        let is_hidden = listen.tls.is_some() && matches!(address, Address::Tcp(_));
        Ok::<_, io::Error>(if is_hidden { None } else { foreign(address, &tried).await })
    })?;
    Ok(found.map(|what| Taken {
        text: format!("{} at {address}: something else listens there: {what}", listen.name),
        fix: format!("use a free address for slowlane and in the proxy: {}", free(listen)),
    }))
}

/// Describes the program at an address. `None` if the program is slowlane and speaks the first protocol.
async fn foreign(address: &Address, tried: &[Protocol]) -> Option<String> {
    let (belongs, mut said) = (tried[0].name, Vec::new());
    for protocol in tried {
        let answer = answer(address, protocol).await;
        match (protocol.program)(&answer) {
            Some(Speaker::Slowlane) if protocol.name == belongs => return None,
            Some(Speaker::Slowlane) => return Some(format!("slowlane's own {} listener", protocol.name)),
            Some(Speaker::Other(what)) => return Some(what),
            None if said.is_empty() => said = answer,
            None => {}
        }
    }
    Some(match &said[..] {
        [] => format!("a program that does not speak {belongs} and sends no answer"),
        [0x15, 3, ..] => format!("a program that speaks TLS, not {belongs}"),
        said => {
            let line = said.split(|byte| *byte == b'\n').next().unwrap_or_default();
            format!("a program that does not speak {belongs} and answers \"{}\"", cut(line))
        }
    })
}

/// A protocol to try at an address.
struct Protocol {
    name: &'static str,
    /// A query that changes nothing.
    question: fn() -> Vec<u8>,
    /// Recognises the program by its answer. Returns `None` if the answer is incomplete or not in this protocol.
    program: fn(&[u8]) -> Option<Speaker>,
}

/// A program that speaks a protocol.
enum Speaker {
    Slowlane,
    Other(String),
}

const SPOP: Protocol = Protocol { name: "SPOP", question: hello, program: agent };

const HTTP: Protocol = Protocol {
    name: "HTTP",
    question: || b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".to_vec(),
    program: server,
};

const FASTCGI: Protocol = Protocol {
    name: "FastCGI",
    question: || FASTCGI_VALUES.to_vec(),
    program: |answer| {
        let is_it = answer.starts_with(FASTCGI_RESULT);
        is_it.then(|| Speaker::Other("a program that speaks FastCGI, like php-fpm".to_owned()))
    },
};

/// HAProxy's hello, as its health check sends it.
fn hello() -> Vec<u8> {
    let hello = HaproxyHello { capabilities: NAME.as_bytes(), ..HaproxyHello::new(FRAME_BYTES_MAX) };
    let mut bytes = Vec::new();
    HaproxyHello { healthcheck: true, ..hello }.encode(&mut bytes);
    bytes
}

/// The HTTP server that gave this answer.
fn server(answer: &[u8]) -> Option<Speaker> {
    let mut headers = [EMPTY_HEADER; HEADERS_MAX];
    let mut response = Response::new(&mut headers);
    response.parse(answer).ok().filter(|parsed| parsed.is_complete())?;
    let header = |name| response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
    if header(VERSION).is_some() {
        return Some(Speaker::Slowlane);
    }
    let server = header("server").map_or(String::new(), |server| format!(" ({})", cut(server.value)));
    Some(Speaker::Other(format!("an HTTP server that is not slowlane{server}")))
}

/// The agent that gave this answer to a hello.
fn agent(answer: &[u8]) -> Option<Speaker> {
    let (frame, _) = Frame::cut(answer, FRAME_BYTES_MAX).ok()??;
    match frame.head.kind {
        Kind::AGENT_HELLO => {
            let hello = AgentHello::decode(frame).ok()?;
            let is_named = hello.capabilities.split(|byte| *byte == b',').any(|name| name == NAME.as_bytes());
            let other = || Speaker::Other("an SPOE agent that is not slowlane".to_owned());
            Some(if is_named { Speaker::Slowlane } else { other() })
        }
        Kind::AGENT_DISCONNECT => {
            let reason = cut(Disconnect::decode(frame).ok()?.message);
            Some(Speaker::Other(format!("an SPOE agent that refuses the handshake: \"{reason}\"")))
        }
        _ => None,
    }
}

/// The answer to the protocol's query: the bytes until the program is recognised, closes the connection or times out.
async fn answer(address: &Address, protocol: &Protocol) -> Vec<u8> {
    let mut bytes = Vec::new();
    let asked = async {
        let mut stream = Stream::connect(address).await?;
        stream.write_all(&(protocol.question)()).await?;
        let mut stream = stream.take(ANSWER_BYTES_MAX);
        while (protocol.program)(&bytes).is_none() && stream.read_buf(&mut bytes).await? > 0 {}
        Ok::<_, io::Error>(())
    };
    // Bytes that have arrived count, even if an error or silence follows.
    let _ = timeout(PATIENCE, asked).await;
    bytes
}

/// Another program's text, escaped and shortened.
fn cut(text: &[u8]) -> String {
    shown(&text[..text.len().min(SHOWN_BYTES_MAX)])
}

/// A line for slowlane's config with an address that is currently free.
fn free(listen: &Listen) -> String {
    let port = (9_010..9_100).find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok());
    let port = port.map_or("PORT".to_owned(), |port| port.to_string());
    format!(
        "write `listen = [\"127.0.0.1:{port}\"]` under [{}] in slowlane.toml, start slowlane, and attach the proxy to this address",
        listen.section
    )
}
