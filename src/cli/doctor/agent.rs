//! The running agent: its listeners, and what the proxies ask it.

use std::io;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::timeout;

use crate::admin_client::AskError;
use crate::cli::admin::Daemon;
use crate::cli::doctor::{Report, State};
use crate::config::Config;
use crate::observe::status::{REQUESTS_MIN, Snapshot};
use crate::server::Stream;
use slowlane_core::base::Address;

/// A listener of this machine answers at once.
const CONNECT_MAX: Duration = Duration::from_secs(2);

const ATTACH: &str = "run `slowlane attach haproxy` or `slowlane attach nginx`";

/// What a running daemon says of itself.
pub(super) struct Seen {
    pub(super) status: Snapshot,
    metrics: String,
}

impl Seen {
    /// The sum of a metric over all labels; 0 without it.
    pub(super) fn metric(&self, name: &str) -> f64 {
        let series = self.metrics.lines().filter_map(|line| line.rsplit_once(' '));
        let values = series.filter(|(series, _)| series.split('{').next() == Some(name));
        values.filter_map(|(_, value)| value.parse::<f64>().ok()).sum()
    }
}

/// Whether something accepts connections at the addresses of the config.
pub(super) fn of_listeners(config: &Config, report: &mut Report) {
    for listen in [&config.spop.listen, &config.http.listen] {
        for address in &listen.addresses {
            let text = format!("{} at {address}", listen.name);
            match connect(address) {
                Ok(()) => report.ok("agent", format!("{text} accepts connections")),
                Err(error) => {
                    let fix = format!("systemctl start slowlane, or correct [{}] listen", listen.section);
                    report.wrong("agent", format!("{text}: {error}"), fix);
                }
            }
        }
    }
}

fn connect(address: &Address) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { timeout(CONNECT_MAX, Stream::connect(address)).await })?.map(drop)
}

/// Asks the daemon for its status and its metrics.
pub(super) fn ask(daemon: Daemon, report: &mut Report) -> Option<Seen> {
    let asked = daemon.client().and_then(|client| {
        let metrics = String::from_utf8_lossy(&client.get("/metrics")?).into_owned();
        Ok(Seen { status: client.snapshot()?, metrics })
    });
    match &asked {
        Ok(seen) => report.ok("agent", format!("admin answers: slowlane {}", seen.status.version)),
        Err(error) if matches!(error.downcast_ref(), Some(AskError::Closed { .. })) => {
            report.add(
                State::Unknown,
                "agent",
                error.to_string(),
                "run as root, or name the token's file with --token-file".into(),
            );
        }
        Err(error) => report.wrong("agent", format!("no status: {error}"), "systemctl start slowlane"),
    }
    asked.ok()
}

/// Whether proxies ask, and with which fields. Returns whether there is a proxy at all.
pub(super) fn of_requests(seen: &Seen, report: &mut Report) -> bool {
    let Snapshot { connections, peers, rates, fields_missing, .. } = &seen.status;
    let decided = ["slowlane_verdicts_total", "slowlane_peers_admitted_total", "slowlane_peers_denied_total"];
    let requests = decided.iter().map(|name| seen.metric(name)).sum::<f64>() as u64;
    let connected = connections.spop + connections.http + peers.map_or(0, |peers| peers.connected as u64);
    match requests {
        0 if connected == 0 => report.wrong("proxy", "no proxy is connected, and none has asked", ATTACH),
        0 => report.wrong(
            "proxy",
            "a proxy is connected, and has not asked: only health checks arrive",
            ATTACH,
        ),
        _ => report.ok(
            "proxy",
            format!("requests: {requests} since the start, {:.1}/s now", rates.iter().sum::<f64>()),
        ),
    }
    for line in fields_missing {
        let fix = "print the proxy's files again: `slowlane config haproxy`, `slowlane config nginx`";
        report.wrong("proxy", line.to_string(), fix);
    }
    let needed = seen.metrics.lines().filter_map(|line| line.strip_prefix("slowlane_field_missing{field=\""));
    let arrives = |field: &&str| fields_missing.iter().all(|line| line.field != *field);
    let arrive: Vec<&str> = needed.filter_map(|rest| rest.strip_suffix("\"} 0")).filter(arrives).collect();
    if requests < REQUESTS_MIN {
        let text = format!("requests: {requests}, too few to say which fields arrive");
        report.note("proxy", text, format!("ask again after {REQUESTS_MIN} requests"));
    } else if !arrive.is_empty() {
        report.ok("proxy", format!("fields that arrive: {}", arrive.join(", ")));
    }
    requests > 0 || connected > 0
}
