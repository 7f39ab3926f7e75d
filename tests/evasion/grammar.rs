//! Requests of HTTP/1 as a stranger may write them: raw bytes from a grammar.

use fastrand::Rng;

use crate::shot::{Piece, Shot};

const HOSTS: [&[u8]; 28] = [
    b"shop.example",
    b"shop.example",
    b"shop.example",
    b"victim.example",
    b"SHOP.example",
    b"shop.example.",
    b"shop.example..",
    b"shop.example:80",
    b"shop.example:010",
    b"shop.example:",
    b"shop.example:80x",
    b"shop.example.:8443",
    b"ann@shop.example",
    b"ann:secret@shop.example:80",
    b"192.0.2.1",
    b"[2001:db8::1]",
    b"[2001:DB8:0::1]:80",
    b"[fe80::1%25eth0]",
    b"2001:db8::1",
    b"xn--bcher-kva.example",
    b"b\xfccher.example",
    b"shop.example,victim.example",
    b"shop.example victim.example",
    b"shop..example",
    b"shop.example/",
    b"shop%2eexample",
    b"shop_1.example",
    b"",
];

const PATHS: [&[u8]; 26] = [
    b"/",
    b"/login",
    b"/LOGIN",
    b"/%6cogin",
    b"/%6Cogin",
    b"//login",
    b"/login/",
    b"/./login",
    b"/x/../login",
    b"/%2e%2e/login",
    b"/x/%2e%2e/login",
    b"/login;x=1",
    b"/;x/login",
    b"/x%2flogin",
    b"/login%00",
    b"/login%zz",
    b"/login%3fx",
    b"/login%23x",
    b"/login#x",
    b"/login+x",
    b"/login%2bx",
    b"/%256cogin",
    b"/log\xefin",
    b"/a\\b",
    b"//victim.example/login",
    b"/http://victim.example/login",
];

pub const METHODS: [&[u8]; 16] = [
    b"GET",
    b"GET",
    b"GET",
    b"GET",
    b"POST",
    b"HEAD",
    b"PUT",
    b"DELETE",
    b"OPTIONS",
    b"PATCH",
    b"get",
    b"GETT",
    b"BREW",
    b"TRACE",
    b"CONNECT",
    b"M-SEARCH",
];

const VERSIONS: [&[u8]; 8] =
    [b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/1.0", b"HTTP/1.2", b"http/1.1", b"HTTP/0.9"];

/// Lengths around each limit of a reader.
const LENGTHS: [usize; 14] =
    [200, 253, 255, 256, 257, 1_000, 1_024, 4_096, 7_900, 8_192, 12_000, 15_000, 16_384, 65_536];

pub fn one<'a>(random: &mut Rng, of: &[&'a [u8]]) -> &'a [u8] {
    of[random.usize(..of.len())]
}

pub fn chance(random: &mut Rng, percent: u32) -> bool {
    random.u32(..100) < percent
}

fn length(random: &mut Rng) -> usize {
    LENGTHS[random.usize(..LENGTHS.len())] + random.usize(..3) - 1
}

pub fn host(random: &mut Rng) -> Vec<u8> {
    if chance(random, 50) {
        return one(random, &HOSTS[..4]).to_vec();
    }
    if !chance(random, 4) {
        return one(random, &HOSTS).to_vec();
    }
    let length = length(random);
    let label = [&b"a"[..]; 62].concat();
    let mut host = [&label[..], b"."].concat().repeat(length / 63 + 1);
    host.truncate(length);
    host
}

pub fn path(random: &mut Rng, id: &str) -> Vec<u8> {
    let mut path = one(random, &PATHS).to_vec();
    if chance(random, 4) {
        path.push(b'/');
        path.extend(std::iter::repeat_n(b'p', length(random)));
    }
    if chance(random, 70) {
        path.extend(format!("?rig={id}").bytes());
        if chance(random, 3) {
            path.extend(std::iter::repeat_n(b'q', length(random)));
        }
    }
    path
}

fn target(random: &mut Rng, id: &str) -> Vec<u8> {
    match random.u32(..100) {
        0..70 => path(random, id),
        70..88 => {
            let scheme = one(random, &[b"http://", b"http://", b"HTTP://", b"https://", b"ftp://"]);
            [scheme, &host(random), &path(random, id)].concat()
        }
        88..91 => [&host(random)[..], b":80"].concat(),
        91..93 => host(random),
        93..95 => b"*".to_vec(),
        95..97 => [&b"http://"[..], &host(random)].concat(),
        97..98 => [&b"http://"[..], &host(random), b"?rig=x"].concat(),
        98..99 => [&b"login?rig="[..], id.as_bytes()].concat(),
        _ => Vec::new(),
    }
}

/// The spelling of a header's name.
fn name(random: &mut Rng, name: &str) -> Vec<u8> {
    match random.u32(..40) {
        0 | 1 => name.to_uppercase().into_bytes(),
        2 | 3 => name.to_lowercase().into_bytes(),
        4 => name.replace('-', "_").into_bytes(),
        5 => name.replacen('-', "_", 1).into_bytes(),
        _ => name.as_bytes().to_vec(),
    }
}

fn header(random: &mut Rng, title: &str, value: &[u8]) -> Vec<u8> {
    let title = name(random, title);
    let (colon, end): (&[u8], &[u8]) = match random.u32(..200) {
        0 => (b" : ", b"\r\n"),
        1 => (b":", b"\r\n"),
        2 => (b":\t", b" \r\n"),
        3 => (b": ", b"\n"),
        4 => (b":\r\n ", b"\r\n"),
        5 => (b": ", b"\r\n x\r\n"),
        6 => (b": ", b"\0\r\n"),
        _ => (b": ", b"\r\n"),
    };
    [&title[..], colon, value, end].concat()
}

pub fn value(random: &mut Rng) -> Vec<u8> {
    match random.u32(..20) {
        0 | 1 => Vec::new(),
        2 => b"alice,bob".to_vec(),
        3 => b"bob, alice".to_vec(),
        4 => b" alice\t".to_vec(),
        5 => b"ALICE".to_vec(),
        6 => b"al\xefce".to_vec(),
        7 => vec![b'v'; length(random)],
        8 => b"alice|bob".to_vec(),
        9..14 => b"bob".to_vec(),
        _ => b"alice".to_vec(),
    }
}

/// A body of HTTP/2: bytes, or a request for those who read it as the next one.
pub fn body(random: &mut Rng) -> Vec<u8> {
    match random.u32(..3) {
        0 => b"12345".to_vec(),
        1 => b"0\r\n\r\nGET /inner HTTP/1.1\r\nHost: inner.example\r\n\r\n".to_vec(),
        _ => b"GET /inner HTTP/1.1\r\nHost: inner.example\r\n\r\n".to_vec(),
    }
}

/// One request, and how many a reader may see in it.
fn request(random: &mut Rng, id: &str, headers: &[&str], is_last: bool) -> (Vec<Vec<u8>>, usize) {
    let (mut pieces, mut requests) = (Vec::new(), 1);
    let method = if chance(random, 70) { METHODS[0] } else { one(random, &METHODS) };
    let (space, end): (&[u8], &[u8]) = match random.u32(..200) {
        0 => (b"  ", b"\r\n"),
        1 => (b"\t", b"\r\n"),
        2 => (b" ", b"\n"),
        3 => (b" ", b" \r\n"),
        _ => (b" ", b"\r\n"),
    };
    let version = if chance(random, 70) { VERSIONS[0] } else { one(random, &VERSIONS) };
    pieces.push([method, space, &target(random, id), space, version, end].concat());
    for _ in 0..[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 2][random.usize(..12)] {
        let value = host(random);
        pieces.push(header(random, "Host", &value));
    }
    pieces.push(format!("X-Rig: {id}\r\n").into_bytes());
    for title in headers {
        for _ in 0..[0, 1, 1, 1, 1, 2][random.usize(..6)] {
            let value = value(random);
            pieces.push(header(random, title, &value));
        }
    }
    for (title, odds) in [
        ("X-Forwarded-For", 3),
        ("X-Forwarded-Host", 3),
        ("X-Forwarded-Method", 2),
        ("X-Slowlane-Website", 3),
        ("X-Slowlane-Source", 3),
        ("X-Slowlane-Method", 2),
        ("X-Slowlane-Cost", 3),
        ("X-Request-Id", 3),
        ("Cookie", 2),
    ] {
        if chance(random, odds) {
            let value = if chance(random, 60) { b"127.9.9.9".to_vec() } else { host(random) };
            pieces.push(header(random, title, &value));
        }
    }
    if chance(random, 3) {
        pieces.push(b"Expect: 100-continue\r\n".to_vec());
    }
    if chance(random, 2) {
        pieces.push(b"Connection: x-forwarded-for, host, x-slowlane-source, x-slowlane-website\r\n".to_vec());
    }
    let inner = format!("GET /inner?rig={id} HTTP/1.1\r\nHost: inner.example\r\nX-Rig: {id}\r\n\r\n");
    let body = match random.u32(..24) {
        0 | 1 => {
            pieces.push(b"Content-Length: 5\r\n".to_vec());
            b"12345".to_vec()
        }
        2 => {
            pieces.push(format!("Content-Length: {}\r\n", inner.len()).into_bytes());
            requests += 1;
            inner.into_bytes()
        }
        3 => {
            pieces.push(b"Transfer-Encoding: chunked\r\n".to_vec());
            b"5\r\n12345\r\n0\r\n\r\n".to_vec()
        }
        4 => {
            pieces.push(b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n".to_vec());
            requests += 1;
            [b"0\r\n\r\n", inner.as_bytes()].concat()
        }
        5 => {
            pieces.push(b"Transfer-Encoding: xchunked\r\n".to_vec());
            requests += 1;
            [b"0\r\n\r\n", inner.as_bytes()].concat()
        }
        6 => {
            pieces.push(b"Content-Length: 0\r\nContent-Length: 0\r\n".to_vec());
            Vec::new()
        }
        _ => Vec::new(),
    };
    if is_last {
        pieces.push(b"Connection: close\r\n".to_vec());
    }
    pieces.push(if chance(random, 2) { b"\n".to_vec() } else { b"\r\n".to_vec() });
    pieces.push(body);
    (pieces, requests)
}

/// A connection with one request, or a few in a row. `headers` are those of the policy.
pub fn shot(random: &mut Rng, number: u64, headers: &[&str]) -> Shot {
    let count = if chance(random, 12) { 2 + random.usize(..2) } else { 1 };
    let mut shot = Shot { pieces: Vec::new(), requests: 0, leaves: chance(random, 2) };
    for place in 0..count {
        let (pieces, requests) = request(random, &format!("{number}-{place}"), headers, place + 1 == count);
        shot.pieces.extend(pieces.into_iter().map(Piece::Text));
        shot.requests += requests;
    }
    shot
}
