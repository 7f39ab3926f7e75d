//! The end of a connection whose peer may still be sending.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, copy, sink};
use tokio::time::timeout;

/// The longest wait for the peer to close.
const LINGER: Duration = Duration::from_secs(1);

/// The most bytes that are read meanwhile.
const BYTES_MAX: u64 = 16 << 20;

/// Reads and drops bytes until the peer closes, for a second at most.
///
/// A close with unread bytes resets the connection, and the peer may lose the last answer. To a proxy that is no answer,
/// and the request passes.
pub(crate) async fn linger(stream: impl AsyncRead + Unpin) {
    let (mut rest, mut nowhere) = (stream.take(BYTES_MAX), sink());
    // A peer that is gone, or that goes on sending, has had its answer.
    let _ = timeout(LINGER, copy(&mut rest, &mut nowhere)).await;
}
