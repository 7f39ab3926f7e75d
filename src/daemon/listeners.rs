//! The listeners of a daemon, each with the service behind it.

use std::iter;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, anyhow};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Semaphore, oneshot};

use crate::config::{Config, ConfigFile, Listen, PeersConfig, Sections};
use crate::daemon::rounds;
use crate::observe::{ConnectionMetrics, OncePerSecond};
use crate::proxy::envoy::Origins;
use crate::server::admin::{Admin, UpgradeRequests};
use crate::server::admin_socket::AdminSocket;
use crate::server::grpc::Grpc;
use crate::server::http::Check;
use crate::server::listener::{Listener, OpenListener, UNIX_MODE};
use crate::server::spoe::Spoe;
use crate::server::{
    Acceptor, AccessList, Agent, Ends, FollowedLog, Inherited, Service, Shutdown, Tls, Transfer, peers,
};
use crate::sync::TokenServer;
use crate::watch::FileState;
use slowlane_core::base::Address;

/// The bound listeners of a daemon, each with the service behind it.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    acceptors: Vec<Arc<Acceptor>>,
    ends: Vec<Arc<Ends>>,
    followed: Vec<Arc<FollowedLog>>,
    /// Each sender keeps the thread of some listeners running until the sender is dropped.
    threads: Vec<oneshot::Sender<()>>,
    /// `None` if this slowlane is not a store for others.
    pub(super) token_server: Option<Arc<TokenServer>>,
    /// The certificates of all listeners.
    pub(super) certificates: Vec<Arc<Tls>>,
    /// The state of the certificate files before they were read.
    files: FileState,
    /// `None` without a config file.
    pub(super) config: Option<ConfigFile>,
}

impl Listeners {
    /// Binds all listeners. No listener serves yet, so a failed start answers no request.
    pub(super) fn bind(
        config: &Config,
        inherited: Inherited,
        agent: &Arc<Agent>,
        upgrades: UpgradeRequests,
    ) -> anyhow::Result<Listeners> {
        let (files, file) = (FileState::taken(config.tls_files()), config.file.clone());
        let bound = Listeners { files, config: file, ..Listeners::default() };
        let mut binder = Binder { inherited, agent, bound };
        let metrics = &agent.metrics;
        let Sections { spop, http, grpc, admin, .. } = &config.sections;
        let spoe = Arc::new(Spoe { frame_bytes_max: spop.frame_bytes_max, timeout: spop.timeout });
        binder.bind(&config.spop, UNIX_MODE, &metrics.spop, spoe)?;
        let check = Arc::new(Check::new(http.idle_timeout, http.trusted.clone()));
        binder.bind(&config.http, UNIX_MODE, &metrics.http, check)?;
        let origins = Origins(grpc.fields.clone().into_iter().collect());
        let grpc = Arc::new(Grpc { origins });
        binder.bind(&config.grpc, UNIX_MODE, &metrics.grpc, grpc)?;
        if let Some(listen) = &config.token_server {
            let token = &config.node_token;
            let own = metrics.token_server.clone().unwrap_or_default();
            let server = TokenServer::new(token.clone(), agent.clock, own);
            let service = server.clone();
            binder.on_own_thread("token server", |binder| {
                binder.bind(listen, UNIX_MODE, &metrics.nodes, service)
            })?;
            binder.unless_open(token.is_some())?;
            binder.bound.token_server = Some(server);
        }
        if let (Some(PeersConfig { listen, .. }), Some(peers)) = (&config.peers, &agent.peers) {
            let (metrics, peers) = (&metrics.peer_connections, peers.clone());
            binder.on_own_thread("peers", |binder| binder.bind(listen, UNIX_MODE, metrics, peers))?;
        }
        let follow = &config.sections.ends.follow;
        if !(config.ends.addresses.is_empty() && follow.is_empty()) {
            let log = |path: &PathBuf| Arc::new(FollowedLog::at_end(path.clone(), agent.clone()));
            binder.on_own_thread("ends", |binder| {
                binder.bound.followed = follow.iter().map(log).collect();
                binder.bind_ends(&config.ends)
            })?;
        }
        let (listen, token, hosts) = (&config.admin, &config.admin_token, config.admin_hosts.clone());
        let addresses = admin.socket.iter().cloned().map(Address::Unix).collect();
        let socket =
            Listen { name: "admin socket", section: "admin socket", addresses, tls: None, ..listen.clone() };
        let page = Admin { token: token.clone(), hosts, upgrades };
        binder.on_own_thread("admin", |binder| {
            binder.bind(&socket, admin.socket_mode, &metrics.admin, Arc::new(AdminSocket))?;
            binder.bind(listen, admin.socket_mode, &metrics.admin, Arc::new(page))
        })?;
        binder.unless_open(token.is_some())?;
        Ok(binder.bound)
    }

    /// Starts serving, and continues the connections that stopped for a handover.
    pub(super) fn open(&self, agent: &Arc<Agent>, shutdown: &Shutdown, mut earlier: Vec<Transfer>) {
        for acceptor in &self.acceptors {
            let is_ours = |transfer: &mut Transfer| transfer.state.acceptor() == acceptor.name;
            acceptor.open(shutdown, earlier.extract_if(.., is_ours));
            let _entered = acceptor.runtime.enter();
            match acceptor.name {
                "peers" => peers::dial(agent, shutdown),
                "admin" => {
                    rounds::begin(agent, self.config.as_ref(), shutdown);
                    let (certificates, files) = (self.certificates.clone(), self.files.clone());
                    rounds::watch_certificates(certificates, files, agent.clock, shutdown);
                }
                _ => {}
            }
        }
        self.ends.iter().for_each(|ends| ends.open(shutdown));
        self.followed.iter().for_each(|log| log.open(shutdown));
    }

    /// All listeners, each with the name of its acceptor.
    pub(super) fn listeners(&self) -> Vec<(&'static str, Arc<Listener>)> {
        let of = |acceptor: &Arc<Acceptor>| {
            let name = acceptor.name;
            acceptor.listeners.clone().into_iter().map(move |listener| (name, listener))
        };
        let ends = self.ends.iter().map(|ends| ("ends", ends.listener.clone()));
        self.acceptors.iter().flat_map(of).chain(ends).collect()
    }

    /// The bound addresses for SPOP, the HTTP check and the admin pages.
    pub(super) fn addresses(&self) -> [Vec<String>; 3] {
        ["spop", "http", "admin"].map(|of| {
            let listeners = self.listeners().into_iter().filter(|(name, _)| *name == of);
            listeners.map(|(_, listener)| listener.to_string()).collect()
        })
    }
}

/// Binds the listeners of a daemon.
struct Binder<'a> {
    inherited: Inherited,
    agent: &'a Arc<Agent>,
    bound: Listeners,
}

impl Binder<'_> {
    /// Calls `bind` in the runtime of a new thread, so that these listeners do not slow decisions down.
    fn on_own_thread(
        &mut self,
        name: &str,
        bind: impl FnOnce(&mut Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let runtime =
            Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        let serve = move || drop(runtime.block_on(ended));
        thread::Builder::new().name(name.into()).spawn(serve).context("cannot start a thread")?;
        self.bound.threads.push(end);
        let _entered = handle.enter();
        bind(self)
    }

    /// Binds the listeners of a service, in the runtime of the caller. Sockets from systemd replace the addresses in
    /// the config. After an upgrade, the sockets of the old process are used again.
    fn bind(
        &mut self,
        listen: &Listen,
        unix_mode: u32,
        metrics: &ConnectionMetrics,
        service: Arc<dyn Service>,
    ) -> anyhow::Result<()> {
        let access_list = self.access_list(listen)?;
        let (name, inherited) = (listen.section, &mut self.inherited);
        let mut listeners: Vec<Listener> = iter::from_fn(|| inherited.take(name, None)).collect();
        for listener in listeners.iter().filter(|listener| access_list.is_open() && !listener.is_local()) {
            tracing::warn!(
                "{} on {listener}, which systemd has opened, is open to others: add [{name}.tls] or [{name}] allow",
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
        self.bound.acceptors.push(Arc::new(Acceptor {
            name,
            listeners: listeners.into_iter().map(Arc::new).collect(),
            access_list: Arc::new(access_list),
            places: Arc::new(Semaphore::new(listen.connections_max)),
            metrics: metrics.clone(),
            service,
            agent: self.agent.clone(),
            runtime: Handle::current(),
            error_line: OncePerSecond::default(),
            full_line: OncePerSecond::default(),
        }));
        Ok(())
    }

    /// Binds the listeners for log lines, in the runtime of the caller.
    fn bind_ends(&mut self, listen: &Listen) -> anyhow::Result<()> {
        for address in &listen.addresses {
            let inherited = self.inherited.take(listen.section, Some(address));
            let listener = inherited.map_or_else(|| Listener::bind_udp(address), Ok)?;
            tracing::info!("{} on {listener}", listen.name);
            let (access_list, agent) = (self.access_list(listen)?, self.agent.clone());
            let runtime = Handle::current();
            // An inherited socket may have lost lines that the previous process has already counted.
            let lost = listener.lost().unwrap_or(0).into();
            let ends = Ends { listener: listener.into(), access_list, agent, lost, runtime };
            self.bound.ends.push(Arc::new(ends));
        }
        Ok(())
    }

    /// The access list of a listener, with its TLS settings. If a TLS file cannot be used, the start fails.
    fn access_list(&mut self, listen: &Listen) -> anyhow::Result<AccessList> {
        let mut tls = None;
        if let (Some(files), Some(metrics)) = (&listen.tls, &self.agent.metrics.tls) {
            let loaded = Tls::load(listen.secured(), files.clone(), metrics.clone(), self.agent.clock);
            let loaded = Arc::new(loaded.map_err(|error| anyhow!("[{}.tls] {error}", listen.section))?);
            self.bound.certificates.push(loaded.clone());
            tls = Some(loaded);
        }
        Ok(AccessList { allow: listen.allow.clone(), tls, ..AccessList::default() })
    }

    /// Fails if other machines can reach the last acceptor without a token. The bound sockets are checked, because the
    /// config does not show the addresses behind host names and sockets from systemd.
    fn unless_open(&self, has_token: bool) -> Result<(), OpenListener> {
        let open = |acceptor: &Arc<Acceptor>| {
            let address = acceptor.listeners.iter().find(|listener| !listener.is_local())?.to_string();
            Some(OpenListener { section: acceptor.name, address })
        };
        match self.bound.acceptors.last().filter(|_| !has_token).and_then(open) {
            Some(open) => Err(open),
            None => Ok(()),
        }
    }
}
