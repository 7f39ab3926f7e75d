//! The connection of a peer: the dialling, the handshake, the socket and its timers.

use std::sync::Arc;
use std::time::Duration;
use std::{io, process};

use bytes::BytesMut;
use fastrand::Rng;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::observe::{Clock, OncePerSecond};
use crate::server::peers::registry::{Peer, Peers, PeersConnection};
use crate::server::{Accepted, Agent, Service, Shutdown, Stream};
use slowlane_core::base::{Address, Timestamp};
use slowlane_core::peers::{LimitPush, Moment, faults};
use spop::peers::{Column, Error, Hello, HelloStatus, Link, News};

/// The longest handshake, and the longest wait for a peer that does not read.
const PATIENCE: Duration = Duration::from_secs(5);

/// The interval at which limit updates and heartbeats are sent if due. Peers get an edited limit within this time.
const TICK: Duration = Duration::from_millis(200);

/// The pause between two attempts to connect. HAProxy takes some seconds to reconnect; slowlane takes one.
const PAUSE: Duration = Duration::from_secs(1);

/// The room for one read, in bytes. Every message is shorter.
const READ_BYTES: usize = 64 << 10;

impl Service for Peers {
    fn call(self: Arc<Self>, Accepted { stream, agent, shutdown, .. }: Accepted) -> BoxFuture<'static, ()> {
        Box::pin(serve(self, stream, agent, shutdown))
    }
}

/// Serves a peer that has connected.
async fn serve(peers: Arc<Peers>, mut stream: Stream, agent: Arc<Agent>, shutdown: Shutdown) {
    let mut unread = BytesMut::new();
    let greeted = timeout(PATIENCE, greet(&peers, &mut stream, &mut unread, agent.clock.now()));
    let Some(greeted) = shutdown.signal.unless_begun(greeted).await else { return };
    match greeted {
        Ok(Ok(Some((name, peer)))) => {
            let connection = PeersConnection::new(stream.peer(), false, agent.clock.now());
            let session = Session { peers, name, peer, agent, connection };
            session.run(stream, unread, shutdown).await;
        }
        Ok(Ok(None)) => {
            peers.metrics.malformed.inc();
        }
        Ok(Err(_)) | Err(_) => {}
    }
}

/// Reads the hello, and answers it. `None` if the peer is refused or has disconnected.
async fn greet(
    peers: &Peers,
    stream: &mut Stream,
    unread: &mut BytesMut,
    now: Timestamp,
) -> io::Result<Option<(String, Arc<Peer>)>> {
    let answer = loop {
        match Hello::cut(unread) {
            Ok(Some((hello, _))) if hello.to != peers.settings.name => {
                let (from, to, name) = (hello.from, hello.to, &peers.settings.name);
                let text = || {
                    format!(
                        "peer {from} expects a peer named {to}, but this slowlane is named {name}: see [peers] name"
                    )
                };
                peers.refused_line.warn(now, text);
                break Err(HelloStatus::WRONG_NAME);
            }
            Ok(Some((hello, length))) => match peers.peer(hello.from) {
                Ok(peer) => {
                    let name = hello.from.to_owned();
                    drop(unread.split_to(length));
                    break Ok((name, peer));
                }
                Err(status) => {
                    let text = || format!("refused peer {}: see [peers] allow", hello.from);
                    peers.refused_line.warn(now, text);
                    break Err(status);
                }
            },
            Ok(None) => {}
            Err(status) => break Err(status),
        }
        if stream.read_buf(unread).await? == 0 {
            return Ok(None);
        }
    };
    let mut out = Vec::new();
    answer.as_ref().map_or_else(|status| *status, |_| HelloStatus::OK).encode(&mut out);
    send(stream, &mut out).await?;
    Ok(answer.ok())
}

/// Connects to the proxies listed in `[peers] dial`, in tasks of the caller's runtime.
pub(crate) fn dial(agent: &Arc<Agent>, shutdown: &Shutdown) {
    let Some(peers) = &agent.peers else { return };
    for (name, address) in peers.settings.dial.clone() {
        tokio::spawn(keep(peers.clone(), name, address, agent.clone(), shutdown.clone()));
    }
}

/// Keeps a connection to a proxy open, unless the proxy has connected by itself. If both sides dialled each other at
/// the same time, both would disconnect.
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

/// Connects, and performs the handshake. Also returns the bytes that were read after the handshake.
async fn connect(peers: &Peers, name: &str, address: &Address) -> io::Result<(Stream, BytesMut)> {
    let (mut stream, mut out) = (Stream::connect(address).await?, Vec::new());
    Hello { to: name, from: &peers.settings.name, process: process::id() }.encode(&mut out);
    send(&mut stream, &mut out).await?;
    let mut unread = BytesMut::new();
    loop {
        if stream.read_buf(&mut unread).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let Some((status, length)) = HelloStatus::cut(&unread).map_err(io::Error::other)? else { continue };
        let refused = match status {
            HelloStatus::OK => {
                drop(unread.split_to(length));
                return Ok((stream, unread));
            }
            HelloStatus::WRONG_NAME => "the proxy has a different name: see the proxy's `localpeer`".into(),
            HelloStatus::UNKNOWN_PEER => {
                "the proxy knows no peer with slowlane's name: see the proxy's `peers` section".into()
            }
            HelloStatus(status) => format!("the proxy answered with status {status}"),
        };
        return Err(io::Error::other(refused));
    }
}

/// A connection after its handshake.
struct Session {
    peers: Arc<Peers>,
    name: String,
    peer: Arc<Peer>,
    agent: Arc<Agent>,
    connection: Arc<PeersConnection>,
}

/// The reason for the end of a connection.
enum End {
    /// The peer closed the connection, or the shutdown began.
    Closed,
    Replaced,
    Silent(Duration),
    Io(io::Error),
    Broken(Error),
}

impl Session {
    async fn run(self, stream: Stream, unread: BytesMut, shutdown: Shutdown) {
        self.peer.connect(&self.connection);
        self.peers.metrics.sessions.inc();
        if let Some(suppressed) = self.peer.lines.connected.allow(self.agent.clock.now()) {
            tracing::info!(suppressed, "peer {} connected", self.name);
        }
        let end = self.converse(stream, unread, &shutdown).await;
        self.peer.disconnect(&self.connection);
        self.peers.metrics.behind(self.connection.status.lock().acks_behind, 0);
        self.peers.metrics.sessions.dec();
        if matches!(end, End::Broken(_)) {
            self.peers.metrics.malformed.inc();
        }
        // If a peer reconnects many times a second, its disconnections are logged only once a second.
        let Some(suppressed) = self.peer.lines.ended.allow(self.agent.clock.now()) else { return };
        let name = &self.name;
        match end {
            End::Broken(error) => tracing::warn!(suppressed, "peer {name} disconnected: {error}"),
            End::Silent(silence) => {
                let seconds = silence.as_secs();
                tracing::warn!(suppressed, "peer {name} disconnected: it was silent for {seconds} s");
            }
            End::Io(error) => tracing::info!(suppressed, "peer {name} disconnected: {error}"),
            End::Replaced => tracing::info!(suppressed, "peer {name} connected again"),
            End::Closed => tracing::info!(suppressed, "peer {name} disconnected"),
        }
    }

    async fn converse(&self, mut stream: Stream, mut unread: BytesMut, shutdown: &Shutdown) -> End {
        let mut out = Vec::new();
        let mut link = Link::begin(self.agent.clock.now().since_epoch(), &mut out);
        self.peer.proxy().begin();
        let (mut tick, mut rng) = (interval(TICK), Rng::new());
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if let Err(error) = self.receive(&mut link, &mut unread, &mut out, &mut rng) {
                error.encode(&mut out);
                let _ = send(&mut stream, &mut out).await;
                return End::Broken(error);
            }
            if !out.is_empty() {
                link.sent(self.agent.clock.now().since_epoch());
                if let Err(error) = send(&mut stream, &mut out).await {
                    return End::Io(error);
                }
            }
            unread.reserve(READ_BYTES);
            tokio::select! {
                read = stream.read_buf(&mut unread) => match read {
                    Ok(0) => return End::Closed,
                    Ok(_) => {}
                    Err(error) => return End::Io(error),
                },
                _ = tick.tick() => {
                    if let Err(silence) = self.tick(&mut link, &mut out) {
                        return End::Silent(silence);
                    }
                }
                () = self.connection.is_replaced.notified() => return End::Replaced,
                () = shutdown.signal.begun() => return End::Closed,
            }
        }
    }

    /// Processes the bytes read, and appends the answers and the limit updates.
    fn receive(
        &self,
        link: &mut Link,
        unread: &mut BytesMut,
        out: &mut Vec<u8>,
        rng: &mut Rng,
    ) -> Result<(), Error> {
        if unread.is_empty() {
            return Ok(());
        }
        let Session { peers, peer, agent, .. } = self;
        let mut pushes = Vec::new();
        let moment = self.moment();
        let policy = agent.throttle.policy();
        let (mut updates, mut counts, mut has_defined_all) = (0, [0_u64; 2], false);
        let mut proxy = peer.proxy();
        let read = link.receive(unread, moment.now.since_epoch(), out, &mut |news| match news {
            News::Defined(table) => proxy.defined(&table.name, table.expire),
            News::Updated(table, update) => {
                updates += 1;
                let [admitted, denied] = [0, 1].map(|place| {
                    let value = update.column(table, Column::GPC).get(place);
                    value.map_or(0, |&value| value as u32)
                });
                let Some(count) = proxy.counted(
                    &agent.throttle,
                    &table.name,
                    update.key,
                    [admitted, denied],
                    moment,
                    &mut pushes,
                ) else {
                    return;
                };
                counts[0] += u64::from(count.admitted);
                counts[1] += u64::from(count.denied);
                if let Some(decision) = count.throttled
                    && let Some(request) = proxy.request(&table.name, update.key)
                {
                    agent.observer.throttled_elsewhere(&policy, &request, &decision, rng);
                }
            }
            News::Synced => {
                proxy.has_reported_all();
                has_defined_all = true;
            }
            News::Asked => {
                peers.metrics.resyncs.inc();
                proxy.forget_updates();
            }
        });
        peers.metrics.left_out.inc_by(proxy.take_left_out());
        drop(proxy);
        drop(unread.split_to(read?));
        peers.metrics.updates.inc_by(updates);
        peers.metrics.admitted.inc_by(counts[0]);
        peers.metrics.denied.inc_by(counts[1]);
        let faults = if has_defined_all { faults(link.tables()) } else { Vec::new() };
        if !faults.is_empty() {
            peer.lines.tables.warn(moment.now, || format!("peer {}: {}", self.name, faults.join("; ")));
        }
        self.push(link, &pushes, out, updates);
        Ok(())
    }

    /// Appends the messages that are due now. The error tells how long the peer has been silent.
    fn tick(&self, link: &mut Link, out: &mut Vec<u8>) -> Result<(), Duration> {
        let moment = self.moment();
        link.tick(moment.now.since_epoch(), out)?;
        let mut pushes = Vec::new();
        self.peer.proxy().due(&self.agent.throttle, moment, &mut pushes);
        self.push(link, &pushes, out, 0);
        Ok(())
    }

    fn push(&self, link: &mut Link, pushes: &[LimitPush], out: &mut Vec<u8>, updates: u64) {
        let pushed = |push: &&LimitPush| {
            let LimitPush { table, key, numbers } = push;
            link.push(table, key, numbers, out)
        };
        let pushes = pushes.iter().filter(pushed).count() as u64;
        self.peers.metrics.pushes.inc_by(pushes);
        let mut status = self.connection.status.lock();
        status.updates += updates;
        status.pushes += pushes;
        self.peers.metrics.behind(status.acks_behind, link.unacknowledged());
        (status.acks_behind, status.is_synced) = (link.unacknowledged(), link.has_all());
    }

    fn moment(&self) -> Moment {
        Moment { now: self.agent.clock.now(), wall: Clock::wall() }
    }
}

/// Sends the pending bytes. Fails if the peer does not read them in time.
async fn send(stream: &mut Stream, out: &mut Vec<u8>) -> io::Result<()> {
    timeout(PATIENCE, async {
        stream.write_all(out).await?;
        stream.flush().await
    })
    .await??;
    out.clear();
    Ok(())
}
