//! Connections that slowlane opens itself: HAProxy takes some seconds to reconnect, slowlane one.

use std::io;
use std::process;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncReadExt;
use tokio::time::{sleep, timeout};

use crate::observe::OncePerSecond;
use crate::server::peers::registry::{Peers, PeersConnection};
use crate::server::peers::session::{PATIENCE, Session, send};
use crate::server::{Agent, Shutdown, Stream};
use slowlane_core::base::Address;
use spop::peers::{Hello, HelloStatus};

/// Between two tries.
const PAUSE: Duration = Duration::from_secs(1);

/// Connects to the proxies listed in `[peers] dial`, in tasks of the caller's runtime.
pub(crate) fn dial(agent: &Arc<Agent>, shutdown: &Shutdown) {
    let Some(peers) = &agent.peers else { return };
    for (name, address) in peers.settings.dial.clone() {
        tokio::spawn(keep(peers.clone(), name, address, agent.clone(), shutdown.clone()));
    }
}

/// Keeps a connection to a proxy, unless the proxy has connected by itself. Two that dial each other at once would
/// both disconnect.
async fn keep(peers: Arc<Peers>, name: String, address: Address, agent: Arc<Agent>, shutdown: Shutdown) {
    let Ok(peer) = peers.peer(&name) else { return };
    let (line, mut is_reported) = (OncePerSecond::default(), false);
    loop {
        if !peer.is_connected() {
            let (peers, peer, agent) = (peers.clone(), peer.clone(), agent.clone());
            let connected = timeout(PATIENCE, connect(&peers, &name, &address));
            let Some(connected) = shutdown.signal.unless_begun(connected).await else { return };
            match connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                Ok((stream, unread)) => {
                    is_reported = false;
                    let connection = PeersConnection::new(stream.peer(), true, agent.clock.now());
                    let session = Session { peers, name: name.clone(), peer, agent, connection };
                    session.run(stream, unread, shutdown.clone()).await;
                }
                Err(error) if !is_reported && line.allow(agent.clock.now()).is_some() => {
                    is_reported = true;
                    tracing::warn!("peer {name} at {address} cannot be reached: {error}; retrying");
                }
                Err(_) => {}
            }
        }
        if shutdown.signal.unless_begun(sleep(PAUSE)).await.is_none() {
            return;
        }
    }
}

/// A connection after its handshake, and the bytes read beyond it.
async fn connect(peers: &Peers, name: &str, address: &Address) -> io::Result<(Stream, BytesMut)> {
    let (mut stream, mut out) = (Stream::connect(address).await?, Vec::new());
    Hello { to: name, from: &peers.settings.name, process: process::id() }.encode(&mut out);
    send(&mut stream, &mut out).await?;
    let mut unread = BytesMut::new();
    loop {
        if stream.read_buf(&mut unread).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match HelloStatus::cut(&unread).map_err(io::Error::other)? {
            Some((HelloStatus::OK, length)) => {
                drop(unread.split_to(length));
                return Ok((stream, unread));
            }
            Some((HelloStatus(status), _)) => return Err(io::Error::other(refused(status))),
            None => {}
        }
    }
}

fn refused(status: u16) -> String {
    match HelloStatus(status) {
        HelloStatus::WRONG_NAME => "it has another name: see its `localpeer`".into(),
        HelloStatus::UNKNOWN_PEER => "it knows no peer of this name: see its `peers` section".into(),
        _ => format!("it answers with status {status}"),
    }
}
