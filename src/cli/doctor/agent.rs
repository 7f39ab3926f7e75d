//! The running agent: its listeners, and the queries of the proxies.

use crate::admin_client::Closed;
use crate::cli::admin::Daemon;
use crate::cli::doctor::{DoctorReport, Health};
use crate::cli::listening::{self, Taken};
use crate::config::Config;
use crate::observe::status::{ClusterUse, Crowd, Fault, FaultLine, REQUESTS_MIN, Snapshot};

const ATTACH: &str = "run `slowlane attach haproxy` or `slowlane attach nginx`";
const RELOAD: &str = "reload the proxy, for example with `systemctl reload haproxy`, and send it a request";
const SEND: &str = "send a request; if slowlane does not get it, a rule above slowlane's lines answers it";

/// The status and the metrics of a running daemon.
pub(super) struct AgentSeen {
    pub(super) status: Snapshot,
    metrics: String,
}

impl AgentSeen {
    /// The sum of a metric over all labels, or the value of one series; 0 if there is no such series.
    pub(super) fn metric(&self, name: &str) -> f64 {
        let series = self.metrics.lines().filter_map(|line| line.rsplit_once(' '));
        let values = series.filter(|(series, _)| *series == name || series.split('{').next() == Some(name));
        values.filter_map(|(_, value)| value.parse::<f64>().ok()).sum()
    }
}

/// Checks whether slowlane listens at the SPOP and HTTP addresses in the config.
pub(super) fn of_listeners(config: &Config, report: &mut DoctorReport) {
    for listen in [&config.spop, &config.http] {
        for address in &listen.addresses {
            let text = format!("{} at {address}", listen.name);
            match listening::taken(listen, address) {
                Ok(None) => report.ok("agent", format!("{text} accepts connections")),
                Ok(Some(Taken { text, fix })) => report.wrong("agent", text, fix),
                Err(error) => {
                    let fix =
                        format!("run `systemctl start slowlane`, or correct [{}] listen", listen.section);
                    report.wrong("agent", format!("{text}: {error}"), fix);
                }
            }
        }
    }
}

/// Asks the daemon for its status and its metrics.
pub(super) fn ask(daemon: Daemon, report: &mut DoctorReport) -> Option<AgentSeen> {
    let asked = daemon.client().and_then(|client| {
        let metrics = String::from_utf8_lossy(&client.get("/metrics")?).into_owned();
        Ok(AgentSeen { status: client.snapshot()?, metrics })
    });
    match &asked {
        Ok(seen) => {
            report.ok("agent", format!("the admin listener answers: slowlane {}", seen.status.version))
        }
        Err(error) if error.is::<Closed>() => {
            let fix = "run this as root, or name the token's file with --token-file";
            report.add(Health::Unknown, "agent", error.to_string(), fix.into());
        }
        Err(error) => report.wrong("agent", format!("no status: {error}"), "run `systemctl start slowlane`"),
    }
    asked.ok()
}

/// Checks whether proxies query slowlane, and with which fields. Returns whether any proxy does, or at least connects.
///
/// `attached` says whether a proxy on this machine is attached; `None` if there is no proxy.
pub(super) fn of_requests(seen: &AgentSeen, attached: Option<bool>, report: &mut DoctorReport) -> bool {
    let Snapshot { connections, peers, rates, fields_missing, field_faults, crowd, .. } = &seen.status;
    let decided = ["slowlane_verdicts_total", "slowlane_peers_admitted_total", "slowlane_peers_denied_total"];
    let requests = decided.iter().map(|name| seen.metric(name)).sum::<f64>() as u64;
    let open = |listener| seen.metric(&format!("slowlane_connections{{listener=\"{listener}\"}}"));
    let of_peers = peers.map_or(0, |peers| peers.connected as u64);
    let connected = connections.spop + connections.http + connections.grpc + of_peers;
    let rate = rates.iter().sum::<f64>();
    // A health check closes its connection at once, so earlier hellos also count.
    let connects = connected > 0 || seen.metric("slowlane_spop_frames_total{type=\"hello\"}") > 0.0;
    let is_attached = attached == Some(true);
    // The status is up to a second old. The metrics are current, but may count the doctor's own connections.
    let open: f64 = ["spop", "http", "peers"].map(open).iter().sum();
    let is_idle = connected == 0 && rate == 0.0 && open == 0.0;
    let is_gone = requests > 0 && attached == Some(false) && is_idle;
    match requests {
        0 if connects => report.wrong(
            "proxy",
            "a proxy connects, but sends no requests: only health checks arrive",
            if is_attached { SEND } else { ATTACH },
        ),
        0 => report.wrong(
            "proxy",
            "no proxy is connected, and no request has arrived",
            if is_attached { RELOAD } else { ATTACH },
        ),
        _ if is_gone => report.wrong(
            "proxy",
            format!("no proxy is connected any more; requests received earlier: {requests}"),
            ATTACH,
        ),
        _ => report.ok("proxy", format!("requests: {requests} since startup, {rate:.1}/s now")),
    }
    for line in fields_missing {
        let fix = "regenerate the proxy's files with `slowlane config haproxy` or `slowlane config nginx`";
        report.wrong("proxy", line.to_string(), fix);
    }
    for line in field_faults {
        let add = if line.is_much() { DoctorReport::wrong } else { DoctorReport::note };
        add(report, "proxy", line.text.clone(), fix(line));
    }
    let needed = seen.metrics.lines().filter_map(|line| line.strip_prefix("slowlane_field_missing{field=\""));
    let arrives = |field: &&str| {
        fields_missing.iter().all(|line| line.field != *field)
            && field_faults.iter().all(|line| line.field != *field || !line.is_much())
    };
    let arrive: Vec<&str> = needed.filter_map(|rest| rest.strip_suffix("\"} 0")).filter(arrives).collect();
    if requests < REQUESTS_MIN {
        let text = format!("requests: {requests}, too few to show which fields arrive");
        report.note("proxy", text, format!("run `slowlane doctor` again after {REQUESTS_MIN} requests"));
    } else if !arrive.is_empty() {
        report.ok("proxy", format!("fields that arrive: {}", arrive.join(", ")));
    }
    if let Some(Crowd { network, addresses, requests, of }) = crowd {
        let addresses = if *addresses == 1 { "1 address" } else { &format!("about {addresses} addresses") };
        let text = format!(
            "{requests} of {of} sampled requests come from {addresses} in {network}: is this network your CDN's?"
        );
        let fix = "if it is, all the CDN's clients share limits: take each client's address with `slowlane attach ... \
                   --trusted`, with [http] trusted, or as the manual's page \"Behind a CDN or a load balancer\" shows";
        report.note("proxy", text, fix);
    }
    !is_gone && (requests > 0 || connects)
}

/// The remedy for a fault.
fn fix(line: &FaultLine) -> &'static str {
    let is_list = line.example.as_deref().is_some_and(|example| example.contains(','));
    match (line.fault, line.field.as_str()) {
        (Fault::Absent, _) => {
            "send the field, or limit requests without the field through another map, like source.map, or through SLO 0"
        }
        (_, "cost") => "send a whole number, like `cost=int(5)`; without a cost, a request counts as 1",
        (_, "announced") => "send an amount, like 250 or 1.5",
        _ if is_list => {
            "send one address, not a list: [http] trusted takes the client's address from X-Forwarded-For, \
             and the manual's example \"A CDN in front\" shows how a proxy can send one address"
        }
        _ => {
            "send the client's address; `slowlane config haproxy` and `slowlane config nginx` print files that send it"
        }
    }
}

/// Checks whether the nodes of a cluster share their SLOs.
pub(super) fn of_cluster(status: &Snapshot, report: &mut DoctorReport) {
    let Some(ClusterUse { silent, since_s, nodes, other_slos, .. }) = &status.cluster else { return };
    match silent {
        // This reason comes from the daemon, so the rights of this user do not matter.
        Some(reason) => report.add(
            Health::Wrong,
            "cluster",
            format!("the store has been silent for {since_s} s: {reason}"),
            "start the store, or correct [cluster] store; until the store answers, each node follows on_silence".into(),
        ),
        None if *other_slos > 0 => report.wrong(
            "cluster",
            format!("nodes with different SLOs: {other_slos} of {nodes}"),
            "give all nodes the same policy; `slowlane status cluster` shows which nodes differ",
        ),
        None => report.ok("cluster", format!("the store answers; nodes: {nodes}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_on_the_way_to_an_attached_proxy_has_its_own_remedy() {
        let looked = |requests: u64, hellos: u64, rate: f64, attached| {
            let metrics = format!(
                "slowlane_verdicts_total{{verdict=\"pass\"}} {requests}\nslowlane_spop_frames_total{{type=\"hello\"}} \
                 {hellos}\nslowlane_spop_frames_total{{type=\"disconnect\"}} 7\n"
            );
            let status = Snapshot { rates: [rate, 0.0, 0.0], ..Snapshot::default() };
            let mut report = DoctorReport { ok: true, findings: Vec::new() };
            let may_be_asked = of_requests(&AgentSeen { status, metrics }, attached, &mut report);
            let first = report.findings.swap_remove(0);
            (may_be_asked, first.text, first.fix.unwrap_or_default())
        };
        let told = |may_be_asked, text: &str, fix: &str| (may_be_asked, text.to_owned(), fix.to_owned());
        let nobody = "no proxy is connected, and no request has arrived";
        assert_eq!(looked(0, 0, 0.0, None), told(false, nobody, ATTACH));
        assert_eq!(looked(0, 0, 0.0, Some(false)), told(false, nobody, ATTACH));
        assert_eq!(looked(0, 0, 0.0, Some(true)), told(false, nobody, RELOAD), "attached, not yet reloaded");
        let checks = "a proxy connects, but sends no requests: only health checks arrive";
        assert_eq!(looked(0, 9, 0.0, Some(false)), told(true, checks, ATTACH));
        assert_eq!(looked(0, 9, 0.0, Some(true)), told(true, checks, SEND), "reloaded, and no request yet");
        assert_eq!(looked(5, 9, 0.5, Some(false)).1, "requests: 5 since startup, 0.5/s now");
        assert_eq!(looked(5, 9, 0.0, Some(true)).1, "requests: 5 since startup, 0.0/s now", "an idle site");
        assert_eq!(looked(5, 9, 0.0, None).1, "requests: 5 since startup, 0.0/s now", "a proxy elsewhere");
        let gone = "no proxy is connected any more; requests received earlier: 5";
        assert_eq!(
            looked(5, 9, 0.0, Some(false)),
            told(false, gone, ATTACH),
            "a configuration without slowlane"
        );
    }
}
