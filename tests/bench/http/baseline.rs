//! The baseline: a minimal HTTP server. It reads to the blank line and answers a constant.

use crate::support::plain_server;

/// Makes this binary the baseline server.
pub const ARGUMENT: &str = "--http-baseline";

/// An answer with as many headers as slowlane's.
const ANSWER: &[u8] = b"HTTP/1.1 204 No Content\r\nx-slowlane-verdict: pass\r\nx-slowlane-slo: 3001\r\n\
    x-slowlane-remaining: 999\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\n";

const BLANK_LINE: &[u8] = b"\r\n\r\n";

/// Serves at `host:port`.
pub fn run(at: &str) {
    plain_server::serve("HTTP", at, || answer);
}

fn answer(bytes: &[u8], out: &mut Vec<u8>) -> usize {
    let mut used = 0;
    while let Some(end) = bytes[used..].windows(BLANK_LINE.len()).position(|bytes| bytes == BLANK_LINE) {
        used += end + BLANK_LINE.len();
        out.extend_from_slice(ANSWER);
    }
    used
}
