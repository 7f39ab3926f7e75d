//! The bytes of one connection, in pieces that a failure can be shrunk by.

use crate::http2;

/// The bytes of one connection.
#[derive(Clone, Debug)]
pub struct Shot {
    /// Parts of the bytes, in order. Without some of them it is a shot still.
    pub pieces: Vec<Piece>,
    /// The most requests that a reader may see in it.
    pub requests: usize,
    /// Whether the client leaves without an answer.
    pub leaves: bool,
}

/// A part of a shot. All parts of a shot are of one version of HTTP.
#[derive(Clone, Debug)]
pub enum Piece {
    /// Bytes of HTTP/1.
    Text(Vec<u8>),
    /// A header field of HTTP/2 or HTTP/3, of the request with this number.
    Field { request: usize, name: Vec<u8>, value: Vec<u8> },
    /// The body of this request.
    Body { request: usize, bytes: Vec<u8> },
}

impl Shot {
    /// A shot of HTTP/1.
    pub fn of(text: &str) -> Shot {
        Shot { pieces: vec![Piece::Text(text.as_bytes().to_vec())], requests: 1, leaves: false }
    }

    /// A shot of HTTP/2 or HTTP/3 with one request.
    pub fn of_fields(fields: &[(&str, &str)]) -> Shot {
        let field = |&(name, value): &(&str, &str)| Piece::Field {
            request: 0,
            name: name.as_bytes().to_vec(),
            value: value.as_bytes().to_vec(),
        };
        Shot { pieces: fields.iter().map(field).collect(), requests: 1, leaves: false }
    }

    /// Whether it is one of HTTP/2 or HTTP/3.
    pub fn has_fields(&self) -> bool {
        self.pieces.iter().any(|piece| !matches!(piece, Piece::Text(_)))
    }

    /// Over TCP.
    pub fn bytes(&self) -> Vec<u8> {
        if self.has_fields() {
            return http2::connection(&self.pieces);
        }
        let text = |piece: &Piece| match piece {
            Piece::Text(bytes) => bytes.clone(),
            Piece::Field { .. } | Piece::Body { .. } => unreachable!("it has no text"),
        };
        self.pieces.iter().flat_map(text).collect()
    }

    /// The bytes as literals of Rust, long runs of one byte told by their length.
    pub fn shown(&self) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Text(bytes) => shown(bytes),
            Piece::Field { request, name, value } => format!("[{request} {}: {}]", shown(name), shown(value)),
            Piece::Body { request, bytes } => format!("[{request} body {}]", shown(bytes)),
        };
        self.pieces.iter().map(piece).collect()
    }
}

fn shown(bytes: &[u8]) -> String {
    let mut shown = String::new();
    for run in bytes.chunk_by(|a, b| a == b) {
        match run.len() {
            1..16 => run.iter().for_each(|byte| shown += &byte.escape_ascii().to_string()),
            length => shown += &format!("<{} x {length}>", run[0].escape_ascii()),
        }
    }
    shown
}
