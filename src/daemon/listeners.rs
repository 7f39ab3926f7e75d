//! The entrances of a daemon, each with the service behind it.

use std::iter;
use std::sync::Arc;
use std::thread;

use anyhow::Context;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::config::{AdminConfig, Config, ConfigFile, Listen, PeersConfig, TokenServerConfig};
use crate::daemon::access_lists::{AccessLists, Certificates};
use crate::daemon::rounds;
use crate::observe::clock::Clock;
use crate::observe::metrics::{ConnectionMetrics, Metrics};
use crate::server::Agent;
use crate::server::acceptor::Acceptor;
use crate::server::access_list::AccessList;
use crate::server::admin::{Admin, UpgradeRequests};
use crate::server::admin_socket;
use crate::server::http::Check;
use crate::server::inherited::Inherited;
use crate::server::listener::{Listener, OpenListener, UNIX_MODE};
use crate::server::peers::{self, Peers};
use crate::server::shutdown::Shutdown;
use crate::server::spoe::Spoe;
use crate::server::transfer::{State, Transfer};
use crate::sync::TokenServer;
use slowlane_core::base::address::Address;

/// The names of the entrances, for sockets from systemd and for an upgrade.
const SPOP: &str = "spop";
const HTTP: &str = "http";
const ADMIN: &str = "admin";
const ADMIN_SOCKET: &str = "admin socket";
const TOKEN_SERVER: &str = "cluster";
const PEERS: &str = "peers";

/// The entrances of a daemon, bound, each with the service behind it.
#[derive(Debug)]
pub(super) struct Listeners {
    spop: Acceptor,
    spoe: Arc<Spoe>,
    http: Acceptor,
    check: Check,
    admin: Acceptor,
    socket: Acceptor,
    page: Admin,
    admin_thread: SideThread,
    token_server: Option<TokenServerDoor>,
    /// None: no proxy enforces limits locally.
    peers: Option<PeersDoor>,
    certificates: Certificates,
    /// `None` without a config file.
    config: Option<ConfigFile>,
}

/// The listener of peers, in a thread of its own: a proxy may report a hundred thousand keys at once.
#[derive(Debug)]
struct PeersDoor {
    acceptor: Acceptor,
    thread: SideThread,
}

/// The listener of a token server, in a thread of its own.
#[derive(Debug)]
struct TokenServerDoor {
    acceptor: Acceptor,
    server: Arc<TokenServer>,
    thread: SideThread,
}

impl Listeners {
    /// Binds all listeners. None serves yet, so a failed start answers no request.
    pub(super) fn bind(
        config: &Config,
        mut inherited: Inherited,
        clock: Clock,
        metrics: &Metrics,
        upgrades: UpgradeRequests,
    ) -> anyhow::Result<Listeners> {
        let (mut access_lists, inherited) = (AccessLists::new(config, metrics, clock), &mut inherited);
        let access_list = access_lists.access_list(&config.spop.listen)?;
        let spop = acceptor(SPOP, &config.spop.listen, inherited, UNIX_MODE, access_list, &metrics.spop)?;
        let access_list = access_lists.access_list(&config.http.listen)?;
        let http = acceptor(HTTP, &config.http.listen, inherited, UNIX_MODE, access_list, &metrics.http)?;
        let mut token_server = None;
        if let Some(config) = &config.token_server {
            let access_list = access_lists.access_list(&config.listen)?;
            token_server = Some(TokenServerDoor::bind(config, access_list, inherited, clock, metrics)?);
        }
        let mut peers = None;
        if let Some(PeersConfig { listen, .. }) = &config.peers {
            let (thread, access_list) = (SideThread::start("peers")?, access_lists.access_list(listen)?);
            let bind =
                || acceptor(PEERS, listen, inherited, UNIX_MODE, access_list, &metrics.peer_connections);
            peers = Some(PeersDoor { acceptor: thread.enter(bind)?, thread });
        }
        let admin_thread = SideThread::start("admin")?;
        let access_list = access_lists.access_list(&config.admin.listen)?;
        let (admin, socket) =
            admin_thread.enter(|| bind_admin(&config.admin, access_list, inherited, &metrics.admin))?;
        Ok(Listeners {
            spop,
            spoe: Arc::new(Spoe::new(config.spop.frame_bytes_max, config.spop.timeout)),
            http,
            check: Check::new(config.http.idle_timeout),
            admin,
            socket,
            page: Admin::new(config.admin.token.clone(), config.admin.hosts.clone()).with_upgrades(upgrades),
            admin_thread,
            token_server,
            peers,
            certificates: access_lists.watch()?,
            config: config.file.clone(),
        })
    }

    /// Starts to serve, also the connections of an earlier process.
    pub(super) fn open(&self, agent: &Arc<Agent>, shutdown: &Shutdown, earlier: Vec<Transfer>) {
        let (mut spop, mut http) = (Vec::new(), Vec::new());
        for Transfer { stream, state } in earlier {
            match state {
                State::Spop(spop_state) => spop.push((stream, spop_state)),
                State::Http(unread) => http.push((stream, unread)),
            }
        }
        let (spoe, check, page) = (self.spoe.clone(), self.check.clone(), self.page.clone());
        self.spop.open(agent, shutdown, spop, move |stream, spop_state, agent, shutdown| {
            spoe.clone().serve(stream, spop_state, agent, shutdown)
        });
        self.http.open(agent, shutdown, http, move |stream, unread, agent, shutdown| {
            check.clone().serve(stream, unread, agent, shutdown)
        });
        if let (Some(own), Some(peers)) = (&self.peers, agent.peers()) {
            own.open(peers, agent, shutdown);
        }
        self.admin_thread.enter(|| {
            self.admin.open(agent, shutdown, Vec::new(), move |stream, (), agent, shutdown| {
                page.clone().serve(stream, agent, shutdown)
            });
            self.socket.open(agent, shutdown, Vec::new(), |stream, (), agent, shutdown| {
                admin_socket::serve(stream, agent, shutdown)
            });
            rounds::begin(agent, self.config.as_ref(), shutdown);
        });
        if let Some(TokenServerDoor { acceptor, server, thread }) = &self.token_server {
            thread.enter(|| {
                let (server, lobby) = (server.clone(), &server.lobby);
                acceptor.open_lobby(agent, shutdown, lobby, move |stream, guest, shutdown| {
                    server.clone().serve(stream, guest, shutdown)
                });
            });
        }
    }

    /// All listeners, each with the name of its listener.
    pub(super) fn listeners(&self) -> Vec<(&'static str, Arc<Listener>)> {
        let token_server = self.token_server.as_ref().map(|own| (TOKEN_SERVER, &own.acceptor));
        [(SPOP, &self.spop), (HTTP, &self.http), (ADMIN, &self.admin), (ADMIN_SOCKET, &self.socket)]
            .into_iter()
            .chain(token_server)
            .chain(self.peers.as_ref().map(|own| (PEERS, &own.acceptor)))
            .flat_map(|(name, acceptor)| acceptor.listeners().iter().map(move |one| (name, one.clone())))
            .collect()
    }

    /// `None`: this slowlane is no store of others.
    pub(super) fn token_server(&self) -> Option<Arc<TokenServer>> {
        self.token_server.as_ref().map(|own| own.server.clone())
    }

    pub(super) fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    /// The bound addresses for SPOP, the HTTP check and the admin pages.
    pub(super) fn addresses(&self) -> [Vec<String>; 3] {
        let addresses = |acceptor: &Acceptor| acceptor.listeners().iter().map(ToString::to_string).collect();
        [&self.spop, &self.http, &self.admin].map(addresses)
    }
}

impl PeersDoor {
    fn open(&self, peers: &Arc<Peers>, agent: &Arc<Agent>, shutdown: &Shutdown) {
        self.thread.enter(|| {
            let served = peers.clone();
            self.acceptor.open(agent, shutdown, Vec::new(), move |stream, (), agent, shutdown| {
                peers::serve(served.clone(), stream, agent, shutdown)
            });
            for (name, address) in peers.settings.dial.clone() {
                let (peers, agent, shutdown) = (peers.clone(), agent.clone(), shutdown.clone());
                tokio::spawn(peers::dial(peers, name, address, agent, shutdown));
            }
        });
    }
}

impl TokenServerDoor {
    fn bind(
        config: &TokenServerConfig,
        access_list: Arc<AccessList>,
        inherited: &mut Inherited,
        clock: Clock,
        metrics: &Metrics,
    ) -> anyhow::Result<TokenServerDoor> {
        let thread = SideThread::start("token server")?;
        let bind =
            || acceptor(TOKEN_SERVER, &config.listen, inherited, UNIX_MODE, access_list, &metrics.nodes);
        let acceptor = thread.enter(bind)?;
        if config.token.is_none() {
            unless_open("cluster", &acceptor)?;
        }
        let metrics = metrics.token_server.clone().unwrap_or_default();
        let server = TokenServer::new(config.token.clone(), clock, metrics);
        Ok(TokenServerDoor { acceptor, server, thread })
    }
}

/// Binds the admin listener and the admin socket.
fn bind_admin(
    config: &AdminConfig,
    access_list: Arc<AccessList>,
    inherited: &mut Inherited,
    metrics: &ConnectionMetrics,
) -> anyhow::Result<(Acceptor, Acceptor)> {
    let addresses = config.socket.iter().cloned().map(Address::Unix).collect();
    let socket = Listen { name: "admin socket", addresses, ..config.listen.clone() };
    let socket = acceptor(ADMIN_SOCKET, &socket, inherited, config.socket_mode, Arc::default(), metrics)?;
    let admin = acceptor(ADMIN, &config.listen, inherited, config.socket_mode, access_list, metrics)?;
    if config.token.is_none() {
        unless_open("admin", &admin)?;
    }
    Ok((admin, socket))
}

/// Refuses a listener that other machines can reach. Names are resolved now, and systemd may have opened it.
fn unless_open(section: &'static str, acceptor: &Acceptor) -> Result<(), OpenListener> {
    match acceptor.listeners().iter().find(|listener| !listener.is_local()) {
        Some(open) => Err(OpenListener { section, address: open.to_string() }),
        None => Ok(()),
    }
}

/// Binds the listeners of a protocol. Sockets from systemd replace the addresses in the config. A socket that the
/// process before an upgrade had for an address is used again.
fn acceptor(
    name: &str,
    listen: &Listen,
    inherited: &mut Inherited,
    unix_mode: u32,
    access_list: Arc<AccessList>,
    metrics: &ConnectionMetrics,
) -> anyhow::Result<Acceptor> {
    let mut listeners: Vec<Listener> = iter::from_fn(|| inherited.take(name, None)).collect();
    for listener in listeners.iter().filter(|listener| access_list.is_open() && !listener.is_local()) {
        tracing::warn!(
            "{} on {listener}, which systemd has opened, has no TLS and no list of networks",
            listen.name
        );
    }
    if listeners.is_empty() {
        for address in &listen.addresses {
            listeners.push(match inherited.take(name, Some(address)) {
                Some(listener) => listener,
                None => Listener::bind(address, unix_mode)?,
            });
        }
    }
    for listener in &listeners {
        tracing::info!("{} on {listener}", listen.name);
    }
    let listeners = listeners.into_iter().map(Arc::new).collect();
    Ok(Acceptor::new(listeners, listen.connections_max, access_list, metrics.clone()))
}

/// A thread for a listener beside those of the proxies, so that its load does not slow decisions down.
#[derive(Debug)]
pub(super) struct SideThread {
    handle: Handle,
    _end: oneshot::Sender<()>,
}

impl SideThread {
    pub(super) fn start(name: &str) -> anyhow::Result<SideThread> {
        let runtime =
            Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        let serve = move || drop(runtime.block_on(ended));
        thread::Builder::new().name(name.into()).spawn(serve).context("cannot start a thread")?;
        Ok(SideThread { handle, _end: end })
    }

    /// Calls `open`. Sockets that it binds and tasks that it spawns belong to the thread.
    pub(super) fn enter<T>(&self, open: impl FnOnce() -> T) -> T {
        let _entered = self.handle.enter();
        open()
    }
}
