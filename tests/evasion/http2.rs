//! HTTP/2 as a stranger may write it: frames with header fields that no encoder has looked at (RFC 9113, RFC 7541).

use fastrand::Rng;

use crate::grammar::{METHODS, body, chance, host, one, path, value};
use crate::shot::{Piece, Shot};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The types of frames (RFC 9113, section 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;

/// Flags of frames.
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The bytes before the payload of a frame.
const HEAD_BYTES: usize = 9;
/// The longest payload that every reader takes.
const PAYLOAD_MAX: usize = 16_384;

/// The bytes of a connection with these requests.
pub fn connection(pieces: &[Piece]) -> Vec<u8> {
    let mut bytes = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    let last = pieces.iter().map(request_of).max().unwrap_or(0);
    for request in 0..=last {
        let (mut block, mut body) = (Vec::new(), None);
        for piece in pieces.iter().filter(|piece| request_of(piece) == request) {
            match piece {
                Piece::Field { name, value, .. } => block.extend(literal(name, value)),
                Piece::Body { bytes, .. } => body = Some(bytes),
                Piece::Text(_) => unreachable!("HTTP/2 has no text"),
            }
        }
        if block.is_empty() {
            continue;
        }
        bytes.extend(headers(request as u32 * 2 + 1, &block, body.is_none()));
        if let Some(body) = body {
            bytes.extend(frame(DATA, END_STREAM, request as u32 * 2 + 1, body));
        }
    }
    bytes
}

pub fn request_of(piece: &Piece) -> usize {
    match piece {
        Piece::Field { request, .. } | Piece::Body { request, .. } => *request,
        Piece::Text(_) => unreachable!("HTTP/2 has no text"),
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u32;
    [&length.to_be_bytes()[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A block of header fields, in as many frames as it needs.
fn headers(stream: u32, block: &[u8], is_all: bool) -> Vec<u8> {
    let parts: Vec<&[u8]> = block.chunks(PAYLOAD_MAX).collect();
    let mut bytes = Vec::new();
    for (place, part) in parts.iter().enumerate() {
        let kind = if place == 0 { HEADERS } else { CONTINUATION };
        let ends = if place + 1 == parts.len() { END_HEADERS } else { 0 };
        let all = if place == 0 && is_all { END_STREAM } else { 0 };
        bytes.extend(frame(kind, ends | all, stream, part));
    }
    bytes
}

/// A literal header field without indexing, its name new (RFC 7541, section 6.2.2).
fn literal(name: &[u8], value: &[u8]) -> Vec<u8> {
    [&[0][..], &integer(0, 7, name.len()), name, &integer(0, 7, value.len()), value].concat()
}

/// An integer with a prefix of so many bits, after the other bits of its first byte (RFC 7541, section 5.1).
pub fn integer(first: u8, bits: u32, mut value: usize) -> Vec<u8> {
    let prefix = (1 << bits) - 1;
    if value < prefix {
        return vec![first | value as u8];
    }
    let mut bytes = vec![first | prefix as u8];
    value -= prefix;
    while value >= 128 {
        bytes.push(value as u8 | 128);
        value /= 128;
    }
    bytes.push(value as u8);
    bytes
}

/// What a client has read, frame by frame.
#[derive(Debug, Default)]
pub struct Answers {
    bytes: Vec<u8>,
    ended: usize,
    is_over: bool,
}

impl Answers {
    /// Reads more bytes. Returns those that have to be answered.
    pub fn read(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.bytes.extend_from_slice(bytes);
        let mut answer = Vec::new();
        while let Some((&[a, b, c, kind, flags, _, _, _, _], rest)) =
            self.bytes.split_first_chunk::<HEAD_BYTES>()
        {
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            let Some(payload) = rest.get(..length) else { break };
            match (kind, flags) {
                (SETTINGS, 0) => answer.extend(frame(SETTINGS, ACK, 0, &[])),
                (PING, 0) => answer.extend(frame(PING, ACK, 0, payload)),
                (DATA | HEADERS, flags) if flags & END_STREAM > 0 => self.ended += 1,
                (RST_STREAM, _) => self.ended += 1,
                (GOAWAY, _) => self.is_over = true,
                _ => {}
            }
            self.bytes.drain(..HEAD_BYTES + length);
        }
        answer
    }

    /// Whether so many requests have their answers, or no more will come.
    pub fn has_ended(&self, requests: usize) -> bool {
        self.is_over || self.ended >= requests
    }
}

/// The names of one field, more of them in lower case, as the version demands.
fn name(random: &mut Rng, title: &str) -> Vec<u8> {
    let title = if chance(random, 2) { title.to_owned() } else { title.to_lowercase() };
    if chance(random, 3) { title.replace('-', "_").into_bytes() } else { title.into_bytes() }
}

/// A value that would be more than one line of HTTP/1, now and then.
fn line(random: &mut Rng, value: Vec<u8>) -> Vec<u8> {
    let more: &[u8] = match random.u32(..300) {
        0 => b"\r\nHost: victim.example",
        1 => b"\r\nX-Api-Key: bob",
        2 => b"\nx",
        3 => b"\0",
        4 => b" HTTP/1.1\r\n\r\n",
        _ => b"",
    };
    [&value[..], more].concat()
}

/// A connection with one request, or a few at once. `titles` are the headers of the policy.
pub fn shot(random: &mut Rng, number: u64, titles: &[&str]) -> Shot {
    let requests = if chance(random, 12) { 2 + random.usize(..2) } else { 1 };
    let mut shot = Shot { pieces: Vec::new(), requests, leaves: chance(random, 2) };
    for request in 0..requests {
        let id = format!("{number}-{request}");
        let mut fields = fields(random, &id, titles);
        let field = |(name, value)| Piece::Field { request, name, value };
        if chance(random, 8) {
            let bytes = body(random);
            if chance(random, 60) {
                let length = if chance(random, 90) { bytes.len() } else { bytes.len() + 1 };
                fields.push((b"content-length".to_vec(), length.to_string().into_bytes()));
            }
            shot.pieces.extend(fields.into_iter().map(field));
            shot.pieces.push(Piece::Body { request, bytes });
        } else {
            shot.pieces.extend(fields.into_iter().map(field));
        }
    }
    shot
}

type Field = (Vec<u8>, Vec<u8>);

fn fields(random: &mut Rng, id: &str, titles: &[&str]) -> Vec<Field> {
    let method = if chance(random, 70) { METHODS[0] } else { one(random, &METHODS) };
    let scheme = one(random, &[b"http", b"http", b"http", b"https", b"ftp", b"HTTP", b""]);
    let path = match random.u32(..20) {
        0 => b"*".to_vec(),
        1 => [&b"http://"[..], &host(random), &path(random, id)].concat(),
        2 => one(random, &[b"", b"login", b"?rig=x", b"/log in"]).to_vec(),
        _ => path(random, id),
    };
    let authority = host(random);
    let mut fields: Vec<Field> = Vec::new();
    for (name, value) in [
        (&b":method"[..], method.to_vec()),
        (b":scheme", scheme.to_vec()),
        (b":authority", authority.clone()),
        (b":path", path),
    ] {
        for _ in 0..times(random) {
            let value = line(random, value.clone());
            fields.push((name.to_vec(), value));
        }
    }
    if chance(random, 5) {
        random.shuffle(&mut fields);
    }
    for _ in 0..[0, 0, 0, 0, 0, 0, 1, 1, 1, 2][random.usize(..10)] {
        let value = if chance(random, 60) { authority.clone() } else { host(random) };
        fields.push((name(random, "Host"), line(random, value)));
    }
    fields.push((b"x-rig".to_vec(), id.as_bytes().to_vec()));
    for title in titles {
        for _ in 0..[0, 1, 1, 1, 1, 2][random.usize(..6)] {
            let value = value(random);
            fields.push((name(random, title), line(random, value)));
        }
    }
    for (title, value) in [
        ("X-Forwarded-For", &b"127.9.9.9"[..]),
        ("X-Forwarded-Host", b"victim.example"),
        ("X-Forwarded-Method", b"BREW"),
        ("X-Slowlane-Website", b"victim.example"),
        ("X-Slowlane-Source", b"127.9.9.9"),
        ("X-Slowlane-Method", b""),
        ("Connection", b"x-forwarded-for, host, x-slowlane-source, x-slowlane-website"),
        ("Transfer-Encoding", b"chunked"),
        ("TE", b"trailers"),
        ("Cookie", b"a=1"),
        (":path", b"/late"),
        ("X\r\nHost", b"victim.example"),
    ] {
        if chance(random, 2) {
            fields.push((name(random, title), value.to_vec()));
        }
    }
    fields
}

/// How often a field that belongs there once is there.
fn times(random: &mut Rng) -> usize {
    match random.u32(..60) {
        0 | 1 => 0,
        2 => 2,
        _ => 1,
    }
}
