//! What concerns slowlane in the configuration of a proxy: its frontends or servers.

/// The parts of a configuration that concern slowlane.
#[derive(Default)]
pub(super) struct Read {
    /// The frontends or servers of HTTP.
    pub(super) sites: Vec<Site>,
    /// The addresses by which the proxy reaches slowlane.
    pub(super) agents: Vec<String>,
    /// nginx's connections of each worker.
    pub(super) worker_connections: Option<u64>,
}

/// A frontend of HAProxy, or a server of nginx.
pub(super) struct Site {
    pub(super) name: String,
    /// The line that it lacks to query slowlane; none if it has all.
    pub(super) lacks: Option<&'static str>,
    /// It accepts connections over IPv6.
    pub(super) has_ipv6: bool,
    /// The query of a client that disconnects ends, and its request may pass uncounted.
    pub(super) ends_queries: bool,
}
