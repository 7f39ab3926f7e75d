//! The protected applications: the answer of `/api/protect`, and a warning where no end of a request is reported.

use std::collections::HashSet;

use crate::observe::status::{NO_ENDS, ProtectedLine};
use crate::server::Agent;
use slowlane_core::base::Key;
use slowlane_core::throttle::Protected;

/// Answers `/api/protect` as JSON.
pub(super) fn json(agent: &Agent) -> String {
    serde_json::to_string(&ProtectedLine::all(&agent.throttle)).expect("it is plain data")
}

/// Answers `/api/protect` as text.
pub(super) fn text(agent: &Agent) -> String {
    let line = |of: &ProtectedLine| format!("slo {} key {}: {}\n", of.slo, of.key, of.state());
    let text: String = ProtectedLine::all(&agent.throttle).iter().map(line).collect();
    if text.is_empty() { "no application with law=protect has had a request lately\n".into() } else { text }
}

/// Applications whose proxies report no ends, and which of them have been logged.
#[derive(Debug, Default)]
pub(crate) struct Blind {
    before: HashSet<Key>,
    logged: HashSet<Key>,
}

impl Blind {
    /// Warns once about each application that has received requests since the last call, but no report of an end. Call
    /// it about twice a minute.
    pub(crate) fn look(&mut self, agent: &Agent) {
        let is_blind = |of: &Protected| !of.view.sees_ends && of.view.inside > 0;
        let blind: Vec<Protected> = agent.throttle.protected().into_iter().filter(is_blind).collect();
        let now: HashSet<Key> = blind.iter().map(|of| of.key).collect();
        for Protected { slo, key, .. } in blind.iter().filter(|of| self.before.contains(&of.key)) {
            if self.logged.insert(*key) {
                tracing::warn!(
                    "SLO {slo} protects nothing: {NO_ENDS}, so everything passes; HAProxy reports ends with the \
                     message `response`, nginx with `post_action /slowlane-done`, Envoy with its access log, Caddy and \
                     Traefik with `[ends] follow`"
                );
            }
        }
        self.logged.retain(|key| now.contains(key));
        self.before = now;
    }
}
