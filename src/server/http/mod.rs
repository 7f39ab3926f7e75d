//! The HTTP check: serves connections of nginx, and of other proxies that ask over HTTP.

mod conversation;
mod link;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::server::acceptor::{Accepted, Service};
use crate::server::agent::Agent;
use crate::server::shutdown::Shutdown;
use crate::server::stream::Stream;
use crate::server::transfer::State;
use conversation::{Conversation, Shared};
use link::Link;

/// The service of the HTTP check, shared by all its connections.
#[derive(Clone, Debug)]
pub struct Check {
    shared: Arc<Shared>,
    idle_timeout: Duration,
}

impl Check {
    /// `idle_timeout` limits the wait for a whole request, and for a proxy that does not read its answers.
    ///
    /// It must be longer than the proxy keeps idle connections open (nginx: 60 s). Otherwise the proxy may send a
    /// question over a connection that is just being closed.
    pub fn new(idle_timeout: Duration) -> Check {
        Check { shared: Arc::default(), idle_timeout }
    }

    /// Serves a connection. `unread` is what an earlier process read of it and did not use.
    pub async fn serve(self, stream: Stream, unread: Vec<u8>, agent: Arc<Agent>, shutdown: Shutdown) {
        let conversation = Conversation::new(self.shared, agent.clone());
        let link = Link::new(stream, &unread, conversation, self.idle_timeout, agent, shutdown);
        if let Err(error) = link.run().await {
            tracing::debug!("http connection lost: {error}");
        }
    }
}

impl Service for Check {
    fn call(self: Arc<Self>, accepted: Accepted) -> BoxFuture<'static, ()> {
        let Accepted { stream, earlier, agent, shutdown, .. } = accepted;
        let unread = match earlier {
            Some(State::Http(unread)) => unread,
            _ => Vec::new(),
        };
        Box::pin(Check::clone(&self).serve(stream, unread, agent, shutdown))
    }
}
