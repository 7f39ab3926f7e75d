//! HTTP/3 as a stranger may write it: the same header fields as over HTTP/2, unchecked, over QUIC (RFC 9114, RFC 9204).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, Endpoint};
use tokio::time::timeout;

use crate::http2::{integer, request_of};
use crate::shot::{Piece, Shot};
use crate::support::tls::{Authority, NAME};

/// The types of frames, and of the stream for settings (RFC 9114, sections 7.2 and 6.2).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const CONTROL: u8 = 0;

/// The first byte of a literal field line with a literal name, before the length of its name (RFC 9204, section 4.5.6).
const LITERAL: u8 = 0x20;

/// A client that trusts this authority.
pub fn client(authority: &Authority) -> ClientConfig {
    let mut tls = (*authority.client(None)).clone();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()))
}

/// Plays a shot from this address. `wait` is the longest time for more of an answer.
pub async fn play(client: &ClientConfig, to: SocketAddr, from: IpAddr, shot: &Shot, wait: Duration) {
    let endpoint = Endpoint::client(SocketAddr::new(from, 0)).unwrap();
    let Ok(connection) = endpoint.connect_with(client.clone(), to, NAME).unwrap().await else { return };
    // A connection may end at any time.
    let Ok(mut control) = connection.open_uni().await else { return };
    let _ = control.write_all(&[CONTROL, SETTINGS, 0]).await;
    let requests = requests(&shot.pieces);
    join_all(requests.iter().map(|bytes| ask(&connection, bytes, shot.leaves, wait))).await;
    connection.close(0_u32.into(), b"");
    endpoint.wait_idle().await;
}

async fn ask(connection: &Connection, bytes: &[u8], leaves: bool, wait: Duration) -> Option<()> {
    let (mut request, mut answer) = connection.open_bi().await.ok()?;
    timeout(wait, request.write_all(bytes)).await.ok()?.ok()?;
    request.finish().ok()?;
    if leaves {
        // Until the proxy has all of it.
        return timeout(wait, request.stopped()).await.ok().map(|_| ());
    }
    while let Ok(Ok(Some(_))) = timeout(wait, answer.read_chunk(usize::MAX, true)).await {}
    Some(())
}

/// The bytes of each request's stream.
fn requests(pieces: &[Piece]) -> Vec<Vec<u8>> {
    let last = pieces.iter().map(request_of).max().unwrap_or(0);
    let of = |request| pieces.iter().filter(move |piece| request_of(piece) == request);
    (0..=last).filter(|&request| of(request).next().is_some()).map(|request| stream(of(request))).collect()
}

fn stream<'p>(pieces: impl Iterator<Item = &'p Piece>) -> Vec<u8> {
    // It refers to no table.
    let (mut block, mut data) = (vec![0, 0], Vec::new());
    for piece in pieces {
        match piece {
            Piece::Field { name, value, .. } => {
                let (name_length, value_length) =
                    (integer(LITERAL, 3, name.len()), integer(0, 7, value.len()));
                block.extend([&name_length, &name[..], &value_length, value].concat());
            }
            Piece::Body { bytes, .. } => data = frame(DATA, bytes),
            Piece::Text(_) => unreachable!("HTTP/3 has no text"),
        }
    }
    [frame(HEADERS, &block), data].concat()
}

/// A frame, its length in four bytes (RFC 9000, section 16).
fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    const FOUR_BYTES: u32 = 0b10 << 30;
    [&[kind][..], &(FOUR_BYTES | payload.len() as u32).to_be_bytes(), payload].concat()
}
