//! The agent's config and the machine around it: unreadable files, the clock, open files and the state file.

use std::process::Command;

use crate::cli::doctor::DoctorReport;
use crate::cli::doctor::agent::AgentSeen;
use crate::cli::service_user;
use crate::config::{Config, ConfigError};
use crate::observe::Clock;
use crate::observe::status::Snapshot;

/// The smallest jump of the clock to report. The time in the status is up to a second old, and arrives with a delay.
const JUMP_MIN_S: u64 = 10;

/// The allowance for open files other than connections, as on the page "Sizing".
const OTHER_FILES: usize = 2_000;

/// A state file counts as old after this many periods without a write.
const PERIODS_MAX: u32 = 3;

/// Reports the errors in the config, and the files that the service's user cannot read.
pub(super) fn of_config(config: &Config, errors: &[ConfigError], report: &mut DoctorReport) {
    let (tls_errors, expired) = config.check_tls();
    for error in errors.iter().chain(&tls_errors).chain(&service_user::unreadable(config)) {
        report.wrong("config", error.to_string(), "correct the error; `slowlane check` lists all errors");
    }
    for warning in config.warnings().into_iter().chain(expired) {
        report.note("config", warning, "`slowlane check` lists all warnings");
    }
}

/// Checks whether a time service synchronises the clock, and whether the clock has jumped since the daemon started.
pub(super) fn of_clock(status: &Snapshot, report: &mut DoctorReport) {
    let jump_s = Clock::wall().as_secs().abs_diff(status.at_ms / 1_000);
    if jump_s > JUMP_MIN_S {
        let text = format!("the clock has jumped by {jump_s} s since slowlane started");
        let fix = "no action is needed: calendar quotas follow the clock within a second, and a restart \
                   corrects all other times";
        report.note("clock", text, fix);
    }
    let asked = Command::new("timedatectl").args(["show", "--property=NTPSynchronized", "--value"]).output();
    match asked.map(|output| output.stdout).unwrap_or_default().trim_ascii() {
        b"yes" => report.ok("clock", "synchronised"),
        b"no" => {
            // Without a cluster, only calendar quotas follow the wall clock.
            let add = if status.cluster.is_some() { DoctorReport::wrong } else { DoctorReport::note };
            add(report, "clock", "time is not synchronised", "run `timedatectl set-ntp true`, or use chrony");
        }
        _ => report.note(
            "clock",
            "timedatectl does not say whether the clock is synchronised",
            "query your time service, for example with `chronyc tracking`",
        ),
    }
}

/// Checks whether the limit on open files leaves room for all connections of proxies.
pub(super) fn of_open_files(config: &Config, seen: &AgentSeen, report: &mut DoctorReport) {
    let used = [&config.spop, &config.http, &config.grpc].into_iter().filter(|of| !of.addresses.is_empty());
    let needed = used.map(|of| of.connections_max).sum::<usize>() + OTHER_FILES;
    let max = seen.metric("process_max_fds");
    let text = format!("the daemon may open {max} files, and its connections_max values require {needed}");
    // 0: the daemon reports no limit.
    match max >= needed as f64 || max == 0.0 {
        true => report.ok("files", text),
        false => {
            let fix = "raise the daemon's hard limit (`LimitNOFILE=` in its systemd unit, or its container's \
                       limit), or lower connections_max";
            report.wrong("files", text, fix);
        }
    }
}

/// Checks whether a restart will find a recent state file.
pub(super) fn of_state(config: &Config, seen: &AgentSeen, report: &mut DoctorReport) {
    let Some(state) = &config.state else {
        return report.note(
            "state",
            "no state file: a restart forgets all counts",
            "set [state] file in the config",
        );
    };
    let old_s = (state.every * PERIODS_MAX).as_secs_f64();
    let written_s = seen.metric("slowlane_state_written_timestamp_seconds");
    let age_s = Clock::wall().as_secs_f64() - written_s;
    let last = if written_s == 0.0 { "never".to_owned() } else { format!("{age_s:.0} s ago") };
    let (bytes, failures) =
        (seen.metric("slowlane_state_file_bytes"), seen.metric("slowlane_state_failures_total"));
    let text = format!("{}: {bytes} bytes, written {last}, failures: {failures}", state.path.display());
    match age_s > old_s && (failures > 0.0 || seen.status.uptime_s as f64 > old_s) {
        true => report.wrong(
            "state",
            text,
            "let the daemon's user write to the file's directory, and check that the disk is not full",
        ),
        false => report.ok("state", text),
    }
}
