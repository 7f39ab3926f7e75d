//! The protected applications, for operators.

use serde::{Deserialize, Serialize};

use slowlane_core::throttle::{Group, Protected, Throttle};

/// A protected application.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProtectedLine {
    pub slo: u32,
    pub key: String,
    pub limit: usize,
    pub inside: usize,
    pub waiting: usize,
    /// How long a page takes, as a multiple of the time that it takes when nothing queues.
    pub slowdown: f64,
    /// How long a new request would wait at the end of the queue.
    pub queue_ms: u64,
    /// Whether slowlane is measuring how long pages take when nothing queues.
    pub is_measuring: bool,
    /// Whether the proxy reports when requests end. If it does not, all requests pass.
    pub sees_ends: bool,
    /// The groups with the most requests, among the groups with waiting requests.
    #[serde(default)]
    pub groups: Vec<Group>,
}

impl ProtectedLine {
    /// The applications that have received requests lately.
    pub fn all(throttle: &Throttle) -> Vec<ProtectedLine> {
        let line = |Protected { slo, key, view, groups }| ProtectedLine {
            slo: slo.number(),
            key: key.to_string(),
            limit: view.limit,
            inside: view.inside,
            waiting: view.waiting,
            slowdown: (view.slow_down * 100.0).round() / 100.0,
            queue_ms: view.queue.as_millis() as u64,
            is_measuring: view.is_probing,
            sees_ends: view.sees_ends,
            groups,
        };
        throttle.protected().into_iter().map(line).collect()
    }

    /// The application's state in words.
    pub fn state(&self) -> String {
        let ProtectedLine { limit, inside, waiting, slowdown, .. } = self;
        match self.sees_ends {
            true => {
                let groups: String = self
                    .groups
                    .iter()
                    .take(3)
                    .map(|Group { name, requests }| format!(", {name}: {requests}"))
                    .collect();
                format!("{inside} inside of {limit}, {waiting} waiting, slow-down {slowdown:.2}{groups}")
            }
            false => format!("everything passes, because {NO_ENDS}"),
        }
    }
}

/// The reason that is shown if an application is not protected.
pub const NO_ENDS: &str = "the proxy does not report when requests end";
