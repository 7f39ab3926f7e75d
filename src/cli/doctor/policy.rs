//! Checks the policy: whether limits are in force, and whether they match the files.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::cli::doctor::agent::AgentSeen;
use crate::cli::doctor::proxies::Proxies;
use crate::cli::doctor::{DoctorReport, Health};
use crate::observe::status::{SloLine, Snapshot};
use crate::watch::Source;
use slowlane_core::law::Law;
use slowlane_core::policy::WarningKind;

/// The longest time until an edit is in force, even if a map has lost most of its lines.
const RELOAD_MAX: Duration = Duration::from_secs(30);

const CORRECT: &str = "correct the error; `slowlane check` lists up to 100 errors";

/// Reports errors and warnings in the policy's files, and edits that are not in force.
pub(super) fn of_files(
    source: &Source,
    seen: Option<&AgentSeen>,
    proxies: &Proxies,
    report: &mut DoctorReport,
) {
    match source.read() {
        Ok(policy) => {
            report.ok("policy", format!("{}: {}", source.dir.display(), policy.summary()));
            for finding in policy.warnings().listed() {
                let is_wrong = matches!(finding.kind, WarningKind::Ipv4Alone(_)) && proxies.have_ipv6();
                let add = if is_wrong { DoctorReport::wrong } else { DoctorReport::note };
                add(report, "policy", finding.to_string(), "change the line, then run `slowlane check`");
            }
        }
        Err(errors) => report.wrong("policy", errors.listed()[0].to_string(), CORRECT),
    }
    if let Some(seen) = seen {
        of_edits(source, &seen.status, report);
    }
}

/// Checks whether the files were edited after the last reload, or after startup if there was no reload.
fn of_edits(source: &Source, status: &Snapshot, report: &mut DoctorReport) {
    let read_ms_ago = match status.reloads.first() {
        Some(reload) => status.at_ms.saturating_sub(reload.at_ms),
        None => 1_000 * status.uptime_s,
    };
    let edited = |path: &Path| fs::metadata(path).ok()?.modified().ok()?.elapsed().ok();
    let files = source.layout.files(&source.dir);
    let newest = files.iter().filter_map(|path| Some((edited(path)?, path))).min();
    let Some((age, path)) = newest else { return };
    if age > RELOAD_MAX && age < Duration::from_millis(read_ms_ago) {
        let text =
            format!("{}: edited {} s ago, but the edit is not in force", path.display(), age.as_secs());
        let fix = "run `systemctl reload slowlane`; slowlane's log then names the policy directory that slowlane reads";
        report.wrong("policy", text, fix);
    }
}

/// Reports the limits that the daemon has in force, or that it has none.
pub(super) fn of_limits(status: &Snapshot, report: &mut DoctorReport) {
    if let Some(reload) = status.reloads.first().filter(|reload| !reload.ok) {
        let first = reload.problems.first().map(String::as_str).unwrap_or_default();
        // This is always a fault, because the rights that count here are the daemon's, not this user's.
        let text = format!("the last edit of the policy is not in force: {first}");
        report.add(Health::Wrong, "policy", text, CORRECT.into());
    }
    let listed = |is_listed: fn(&SloLine) -> bool| {
        let is_limited = |slo: &SloLine| slo.rate != "unlimited" || slo.law == Law::PROTECT;
        let ids = status.slos.iter().filter(|slo| is_limited(slo) && is_listed(slo));
        ids.map(|slo| slo.id.to_string()).collect::<Vec<_>>().join(", ")
    };
    let (live, dry) = (listed(|slo| !slo.dry_run), listed(|slo| slo.dry_run));
    if !live.is_empty() {
        report.ok("policy", format!("limits in force: SLO {live}"));
    }
    if !dry.is_empty() {
        let text = format!("dry runs, which throttle nothing: SLO {dry}");
        report.note("policy", text, "remove dry_run=yes to put a limit in force");
    }
    let unsettled = |slo: &&SloLine| slo.settled == Some(0.0) && slo.rates[0] + slo.rates[1] > 0.0;
    for SloLine { id, unit, .. } in status.slos.iter().filter(unsettled) {
        let unit = unit.as_deref().unwrap_or_default();
        let text = format!(
            "SLO {id} counts {unit}, but no proxy has reported the cost of any request: each request is \
             charged its reservation"
        );
        report.wrong(
            "policy",
            text,
            "make the proxy or the application report costs: see \"Limits in work and quotas\" in the manual",
        );
    }
    if live.is_empty() && dry.is_empty() {
        let fix =
            "add `3001 burst=20 rate=10/s` to slo.map, and `0.0.0.0/0 3001` and `::/0 3001` to source.map";
        report.wrong("policy", "no SLO has a limit: nothing is throttled", fix);
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::observe::status::ReloadLine;
    use slowlane_core::base::KeySecret;
    use slowlane_core::policy::Layout;

    #[test]
    fn an_edit_is_told_once_a_reload_would_have_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("slo.map");
        let source = Source {
            dir: dir.path().to_owned(),
            layout: Layout::default(),
            hold_max: Duration::ZERO,
            key_secret: KeySecret::KNOWN,
            period: None,
            has_peers: false,
        };
        let told = |edited_s_ago, uptime_s, reloaded_s_ago: Option<u64>| {
            fs::write(&path, "0 rate=unlimited\n").unwrap();
            let edited = SystemTime::now() - Duration::from_secs(edited_s_ago);
            fs::File::options().append(true).open(&path).unwrap().set_modified(edited).unwrap();
            // The clock of the daemon may be another one.
            let at_ms = 1_000_000;
            let reload =
                |ago_s: u64| ReloadLine { at_ms: at_ms - 1_000 * ago_s, ok: true, ..ReloadLine::default() };
            let reloads = reloaded_s_ago.map(reload).into_iter().collect();
            let mut report = DoctorReport { ok: true, findings: Vec::new() };
            of_edits(&source, &Snapshot { at_ms, uptime_s, reloads, ..Snapshot::default() }, &mut report);
            !report.ok
        };
        assert!(told(60, 90, None), "edited after the start");
        assert!(!told(60, 50, None), "edited before the start");
        assert!(!told(10, 90, None), "just edited");
        assert!(told(60, 900, Some(90)), "edited after the last reload");
        assert!(!told(60, 900, Some(50)), "edited before the last reload");
    }
}
