//! The protected applications, as the admin listener shows them.

use std::collections::HashSet;
use std::fmt::Write;

use serde::Serialize;

use crate::server::Agent;
use slowlane_core::base::Key;
use slowlane_core::throttle::Protected;

/// One application. Its fields are documented for users of `/api/protect`.
#[derive(Debug, Serialize)]
struct Application {
    slo: u16,
    key: String,
    limit: usize,
    inside: usize,
    waiting: usize,
    /// How many times as long a page takes as when nothing queues.
    slowdown: f64,
    /// How long a request would wait as the last of all.
    queue_ms: u64,
    /// It measures how long pages take when nothing queues.
    is_measuring: bool,
    /// Ends of requests are reported. Otherwise everything passes.
    sees_ends: bool,
}

/// Answers `/api/protect` as JSON.
pub(super) fn json(agent: &Agent) -> String {
    let application = |Protected { slo, key, view }| Application {
        slo: slo.number(),
        key: key.to_string(),
        limit: view.limit,
        inside: view.inside,
        waiting: view.waiting,
        slowdown: (view.slow_down * 100.0).round() / 100.0,
        queue_ms: view.queue.as_millis() as u64,
        is_measuring: view.is_probing,
        sees_ends: view.sees_ends,
    };
    let applications: Vec<Application> = agent.throttle.protected().into_iter().map(application).collect();
    serde_json::to_string(&applications).expect("it is plain data")
}

/// Answers `/api/protect` as text.
pub(super) fn text(agent: &Agent) -> String {
    let mut text = String::new();
    for Protected { slo, key, view } in agent.throttle.protected() {
        let (inside, limit, waiting) = (view.inside, view.limit, view.waiting);
        _ = match view.sees_ends {
            true => writeln!(
                text,
                "slo {slo} key {key}: {inside} inside of {limit}, {waiting} wait, slow-down {:.2}",
                view.slow_down
            ),
            false => writeln!(text, "slo {slo} key {key}: everything passes, because {NO_ENDS}"),
        };
    }
    if text.is_empty() { "no application with law=protect has had a request lately\n".into() } else { text }
}

const NO_ENDS: &str = "the proxy reports no end of a request";

/// Applications whose proxies report no ends, and which of them have been logged.
#[derive(Debug, Default)]
pub(crate) struct Blind {
    before: HashSet<Key>,
    logged: HashSet<Key>,
}

impl Blind {
    /// Warns once of each application to which requests have come for this long without an end. To be called about
    /// twice a minute.
    pub(crate) fn look(&mut self, agent: &Agent) {
        let is_blind = |of: &Protected| !of.view.sees_ends && of.view.inside > 0;
        let blind: Vec<Protected> = agent.throttle.protected().into_iter().filter(is_blind).collect();
        let now: HashSet<Key> = blind.iter().map(|of| of.key).collect();
        for Protected { slo, key, .. } in blind.iter().filter(|of| self.before.contains(&of.key)) {
            if self.logged.insert(*key) {
                tracing::warn!(
                    "SLO {slo} protects nothing: {NO_ENDS}, so everything passes; HAProxy reports ends with the \
                     message `response`, nginx with `post_action /slowlane-done`"
                );
            }
        }
        self.logged.retain(|key| now.contains(key));
        self.before = now;
    }
}
