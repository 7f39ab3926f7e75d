//! Asks an address which program listens there.

use std::time::Duration;
use std::{fmt, io};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Builder;
use tokio::time::timeout;

use crate::config::Listen;
use crate::proxy::nginx::VERSION;
use crate::server::Stream;
use crate::server::spoe::NAME;
use slowlane_core::base::{Address, shown};
use spop::{AgentHello, Disconnect, Frame, HaproxyHello, Kind};

/// A program of this machine connects and answers at once.
const PATIENCE: Duration = Duration::from_secs(1);

/// The longest answer that is kept: enough for a frame, or for the head of an HTTP answer.
const ANSWER_BYTES_MAX: u64 = 2_048;

/// The longest frame of a hello.
const FRAME_BYTES_MAX: u32 = 16_380;

/// The longest part of a foreign text that is shown.
const SHOWN_BYTES_MAX: usize = 60;

/// A question for the values of a FastCGI application: version 1, FCGI_GET_VALUES (FastCGI specification, section 4.1).
const FASTCGI_VALUES: &[u8] = &[1, 9, 0, 0, 0, 0, 0, 0];

/// The first bytes of the answer: version 1, FCGI_GET_VALUES_RESULT.
const FASTCGI_RESULT: &[u8] = &[1, 10];

/// What is told of the address of a listener at which another program listens, and the remedy.
pub(super) struct Taken {
    pub(super) text: String,
    pub(super) fix: String,
}

/// Asks the address of a listener. None: slowlane answers, or its TLS hides what does.
///
/// # Errors
/// Nothing listens there.
pub(super) fn taken(listen: &Listen, address: &Address) -> io::Result<Option<Taken>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let belongs = if listen.section == "spop" { Protocol::Spop } else { Protocol::Http };
    let found = runtime.block_on(async {
        timeout(PATIENCE, Stream::connect(address)).await??;
        let is_hidden = listen.tls.is_some() && matches!(address, Address::Tcp(_));
        Ok::<_, io::Error>(if is_hidden { None } else { foreign(address, belongs).await })
    })?;
    Ok(found.map(|what| Taken {
        text: format!("{} at {address}: another program listens there, {what}", listen.name),
        fix: format!("a free address for both sides: {}", free(listen)),
    }))
}

/// The program at an address, in words, unless it is the listener of slowlane that belongs there.
async fn foreign(address: &Address, belongs: Protocol) -> Option<String> {
    // What belongs there is asked first: slowlane would log the others as mistakes.
    let others = [Protocol::Http, Protocol::Spop, Protocol::FastCgi];
    let mut said = Vec::new();
    for protocol in [belongs].into_iter().chain(others.into_iter().filter(|other| *other != belongs)) {
        let answer = answer(address, protocol).await;
        match protocol.program(&answer) {
            Some(Speaker::Slowlane) if protocol == belongs => return None,
            Some(Speaker::Slowlane) => return Some(format!("slowlane's own {protocol}")),
            Some(Speaker::Other(what)) => return Some(what),
            None if said.is_empty() => said = answer,
            None => {}
        }
    }
    Some(match &said[..] {
        [] => format!("which does not speak {belongs}: it answers nothing"),
        [0x15, 3, ..] => format!("which does not speak {belongs}, but TLS"),
        said => {
            let line = said.split(|byte| *byte == b'\n').next().unwrap_or_default();
            format!("which does not speak {belongs}: it answers \"{}\"", cut(line))
        }
    })
}

/// A protocol that is tried.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Spop,
    Http,
    FastCgi,
}

/// A program that speaks a protocol.
enum Speaker {
    Slowlane,
    Other(String),
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Spop => "SPOP",
            Protocol::Http => "HTTP",
            Protocol::FastCgi => "FastCGI",
        })
    }
}

impl Protocol {
    /// A question that changes nothing.
    fn question(self) -> Vec<u8> {
        match self {
            Protocol::Spop => {
                let hello =
                    HaproxyHello { capabilities: NAME.as_bytes(), ..HaproxyHello::new(FRAME_BYTES_MAX) };
                let mut bytes = Vec::new();
                HaproxyHello { healthcheck: true, ..hello }.encode(&mut bytes);
                bytes
            }
            Protocol::Http => b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".to_vec(),
            Protocol::FastCgi => FASTCGI_VALUES.to_vec(),
        }
    }

    /// The program that gives this answer. None: it does not speak this protocol, or has not said enough.
    fn program(self, answer: &[u8]) -> Option<Speaker> {
        match self {
            Protocol::Spop => agent(answer),
            Protocol::Http => {
                let is_whole = answer.windows(4).any(|end| end == b"\r\n\r\n");
                if !answer.starts_with(b"HTTP/") || !is_whole {
                    return None;
                }
                let server = header(answer, "server").map_or(String::new(), |server| format!(" ({server})"));
                let other = format!("an HTTP server that is not slowlane{server}");
                Some(header(answer, VERSION).map_or(Speaker::Other(other), |_| Speaker::Slowlane))
            }
            Protocol::FastCgi => answer
                .starts_with(FASTCGI_RESULT)
                .then(|| Speaker::Other("which speaks FastCGI, like php-fpm".to_owned())),
        }
    }
}

/// The agent that has answered a hello.
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

/// What a program answers to these bytes until it closes, or within the time. Empty: nothing.
async fn answer(address: &Address, protocol: Protocol) -> Vec<u8> {
    let mut bytes = Vec::new();
    let asked = async {
        let mut stream = Stream::connect(address).await?;
        stream.write_all(&protocol.question()).await?;
        let mut stream = stream.take(ANSWER_BYTES_MAX);
        while protocol.program(&bytes).is_none() && stream.read_buf(&mut bytes).await? > 0 {}
        Ok::<_, io::Error>(())
    };
    // Bytes that have arrived count, even if an error or silence follows.
    let _ = timeout(PATIENCE, asked).await;
    bytes
}

/// The value of a header.
fn header(answer: &[u8], name: &str) -> Option<String> {
    let mut lines = answer.split(|byte| *byte == b'\n').map(|line| line.trim_ascii());
    lines.find_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        line[..colon].eq_ignore_ascii_case(name.as_bytes()).then(|| cut(line[colon + 1..].trim_ascii()))
    })
}

/// A foreign text, safe and short.
fn cut(text: &[u8]) -> String {
    shown(&text[..text.len().min(SHOWN_BYTES_MAX)])
}

/// A line for slowlane's config with an address that is free now.
fn free(listen: &Listen) -> String {
    let port = (9_010..9_100).find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok());
    let port = port.map_or("PORT".to_owned(), |port| port.to_string());
    format!(
        "`listen = [\"127.0.0.1:{port}\"]` under [{}] in slowlane.toml, start slowlane, and attach the proxy again",
        listen.section
    )
}
