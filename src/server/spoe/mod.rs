//! The SPOE agent: serves SPOP connections.

mod conversation;
mod link;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

pub use conversation::{Conversation, Used};

use crate::observe::log::OncePerSecond;
use crate::server::acceptor::{Accepted, Service};
use crate::server::agent::Agent;
use crate::server::shutdown::Shutdown;
use crate::server::spop_state::SpopState;
use crate::server::stream::Stream;
use crate::server::transfer::State;
use link::{Link, Settings};

/// The SPOP service, shared by all its connections.
#[derive(Debug)]
pub struct Spoe {
    settings: Arc<Settings>,
}

impl Spoe {
    /// `frame_bytes_max` is the longest frame to accept.
    ///
    /// `timeout` limits the wait for HAProxy to send its hello, to finish a frame, or to accept an answer.
    pub fn new(frame_bytes_max: u32, timeout: Duration) -> Spoe {
        let settings = Settings { frame_bytes_max, timeout, error_line: OncePerSecond::default() };
        Spoe { settings: Arc::new(settings) }
    }

    /// Serves a connection. `spop_state` is its state in an earlier process.
    pub async fn serve(
        self: Arc<Spoe>,
        stream: Stream,
        spop_state: SpopState,
        agent: Arc<Agent>,
        shutdown: Shutdown,
    ) {
        if let Err(error) = Link::new(stream, spop_state, self.settings.clone(), agent, shutdown).run().await
        {
            tracing::debug!("spop connection lost: {error}");
        }
    }
}

impl Service for Spoe {
    fn call(self: Arc<Self>, accepted: Accepted) -> BoxFuture<'static, ()> {
        let Accepted { stream, earlier, agent, shutdown, .. } = accepted;
        let spop_state = match earlier {
            Some(State::Spop(spop_state)) => spop_state,
            _ => SpopState::default(),
        };
        Box::pin(self.serve(stream, spop_state, agent, shutdown))
    }
}
