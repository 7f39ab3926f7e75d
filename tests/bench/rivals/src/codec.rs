//! The byte protocols of the servers: how a question is written, and how an answer is read.

use std::io::Write;

use spop::{Ack, Action, Data, Frame, HaproxyHello, Kind, Notify};

use crate::support::{Key, Limit};

/// The largest frame of HAProxy.
const FRAME_BYTES_MAX: u32 = 16_380;

#[derive(Clone, Copy)]
pub struct Codec {
    /// Appends the client's greeting, if there is one.
    pub greet: fn(&mut Vec<u8>),
    /// Appends a question. Its number is new on its connection.
    pub write: fn(Key, Limit, number: u64, &mut Vec<u8>),
    /// The length of the first answer, once it is complete, and whether the request is admitted.
    pub read: fn(&[u8]) -> Option<(usize, bool)>,
}

/// slowlane's check, and servers that answer 204 to everything.
pub const CHECK: Codec = Codec {
    greet: |_| {},
    write: |Key { text, .. }, _, _, out| {
        write!(out, "GET /check HTTP/1.1\r\nHost: slowlane\r\nX-Slowlane-Source: {text}\r\n\r\n").unwrap();
    },
    read: |bytes| {
        let (head, _) = http(bytes)?;
        let is_admitted = head.starts_with("HTTP/1.1 204 ");
        assert!(is_admitted || head.starts_with("HTTP/1.1 403 "), "{head}");
        Some((head.len(), is_admitted))
    },
};

/// throttlecrab over HTTP: JSON.
pub const JSON: Codec = Codec {
    greet: |_| {},
    write: |Key { text, .. }, Limit { burst, count, period_s }, _, out| {
        let body = format_args!(
            r#"{{"key":"{text}","max_burst":{burst},"count_per_period":{count},"period":{period_s}}}"#
        );
        let length = body.to_string().len();
        write!(
            out,
            "POST /throttle HTTP/1.1\r\nHost: throttlecrab\r\nContent-Type: application/json\r\n\
            Content-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
    },
    read: |bytes| {
        let (head, body) = http(bytes)?;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        let length = head.split_once("content-length: ").and_then(|(_, rest)| rest.lines().next());
        let length: usize = length.and_then(|length| length.parse().ok()).expect("a length");
        let body = std::str::from_utf8(body.get(..length)?).expect("JSON is text");
        Some((head.len() + length, body.contains("\"allowed\":true")))
    },
};

/// The head of an HTTP answer with its blank line, and the bytes behind it.
fn http(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let end = bytes.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    let (head, rest) = bytes.split_at(end + 4);
    Some((std::str::from_utf8(head).expect("a head is text"), rest))
}

/// throttlecrab's Redis protocol.
pub const RESP: Codec = Codec {
    greet: |_| {},
    write: |Key { text, .. }, limit, _, out| {
        out.extend_from_slice(b"*5\r\n$8\r\nTHROTTLE\r\n");
        write!(out, "${}\r\n{text}\r\n", text.len()).unwrap();
        for number in [limit.burst, limit.count, limit.period_s] {
            let digits = number.checked_ilog10().unwrap_or(0) + 1;
            write!(out, "${digits}\r\n{number}\r\n").unwrap();
        }
    },
    read: |bytes| {
        let mut ends = bytes.iter().enumerate().filter(|&(_, &byte)| byte == b'\n');
        // A line with the length of the array, and five numbers.
        let (last, _) = ends.nth(5)?;
        assert!(bytes.starts_with(b"*5\r\n:"), "{}", String::from_utf8_lossy(bytes));
        Some((last + 1, bytes[5] == b'1'))
    },
};

/// HAProxy's side of SPOP.
pub const SPOP: Codec = Codec {
    greet: |out| HaproxyHello::new(FRAME_BYTES_MAX).encode(out),
    write: |key, _, number, out| {
        let source: [(&[u8], Data); 1] = [(b"source", Data::Ipv4(key.address))];
        Notify::begin(out, number, 1).message(b"request", &source).finish();
    },
    read: |bytes| {
        let (frame, length) = Frame::cut(bytes, FRAME_BYTES_MAX).expect("a frame")?;
        if frame.head.kind == Kind::AGENT_HELLO {
            return Some((length, true));
        }
        let ack = Ack::decode(frame).expect("an ACK");
        let verdict = ack.actions().find_map(|action| match action {
            Ok(Action::SetVar { name: b"verdict", value: Data::Str(value), .. }) => Some(value == b"pass"),
            _ => None,
        });
        Some((length, verdict.expect("a verdict")))
    },
};
