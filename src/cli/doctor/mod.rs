//! `slowlane doctor`: looks for faults in an installation, and names the remedy for each.

mod agent;
mod machine;
mod policy;
mod proxies;

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use serde::Serialize;

use crate::cli::admin::Daemon;
use crate::cli::arguments::FileArguments;
use crate::cli::say;
use crate::config::{Config, Flags};
use proxies::Proxies;
use slowlane_core::base::shown;

#[derive(Debug, Args)]
pub(super) struct DoctorArguments {
    /// HAProxy's configuration, a file or a folder; may be repeated [default: /etc/haproxy/haproxy.cfg, if it exists]
    #[arg(long, value_name = "FILE")]
    haproxy: Vec<PathBuf>,
    /// nginx's configuration, a file or a folder; may be repeated [default: /etc/nginx/nginx.conf, if it exists]
    #[arg(long, value_name = "FILE")]
    nginx: Vec<PathBuf>,
    #[command(flatten)]
    daemon: Daemon,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// All findings, with the fields of `--json`.
#[derive(Debug, Serialize)]
struct DoctorReport {
    ok: bool,
    findings: Vec<DoctorFinding>,
}

#[derive(Debug, Serialize)]
struct DoctorFinding {
    state: Health,
    about: &'static str,
    text: String,
    /// The remedy.
    fix: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Health {
    Ok,
    /// Worth knowing, and perhaps intended.
    Note,
    /// Not checked, because this user lacks the rights.
    Unknown,
    Wrong,
}

/// The system's error message for a user who lacks the rights.
const DENIED: &str = "Permission denied";

impl DoctorReport {
    fn ok(&mut self, about: &'static str, text: impl Into<String>) {
        self.findings.push(DoctorFinding { state: Health::Ok, about, text: text.into(), fix: None });
    }

    fn note(&mut self, about: &'static str, text: impl Into<String>, fix: impl Into<String>) {
        self.add(Health::Note, about, text.into(), fix.into());
    }

    /// Adds a fault, or [`Health::Unknown`] if this user lacks the rights.
    fn wrong(&mut self, about: &'static str, text: impl Into<String>, fix: impl Into<String>) {
        let text = text.into();
        match text.contains(DENIED) {
            true => self.add(Health::Unknown, about, text, "run this as root".into()),
            false => self.add(Health::Wrong, about, text, fix.into()),
        }
    }

    fn add(&mut self, state: Health, about: &'static str, text: String, fix: String) {
        self.ok &= state == Health::Note;
        self.findings.push(DoctorFinding { state, about, text, fix: Some(fix) });
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for DoctorFinding { state, about, text: finding, fix } in &self.findings {
            text += &format!("{:7}  {about:7}  {}\n", format!("{state:?}"), shown(finding));
            text.extend(fix.iter().map(|fix| format!("{:18}fix: {}\n", "", shown(fix))));
        }
        let count = |state| self.findings.iter().filter(|finding| finding.state == state).count();
        match (count(Health::Wrong), count(Health::Unknown)) {
            (0, 0) => text + "all is well\n",
            (wrong, unknown) => text + &format!("{wrong} wrong, {unknown} unknown\n"),
        }
    }
}

pub(super) fn doctor(typed: DoctorArguments) -> anyhow::Result<()> {
    let DoctorArguments { haproxy, nginx, mut daemon, json } = typed;
    daemon.config = FileArguments { config: daemon.config.take(), policy: None }.or_of_service().config;
    let (config, errors) = Config::examine(daemon.config.as_deref(), Flags::default());
    let mut report = DoctorReport { ok: true, findings: Vec::new() };
    machine::of_config(&config, &errors, &mut report);
    if errors.is_empty() {
        agent::of_listeners(&config, &mut report);
    }
    let seen = agent::ask(daemon, &mut report);
    let proxies = Proxies::read(haproxy, nginx);
    // Without the daemon's status, assume that a proxy on another machine may query it.
    let may_be_asked =
        seen.as_ref().is_none_or(|seen| agent::of_requests(seen, proxies.are_attached(), &mut report));
    proxies.report(&config, may_be_asked, &mut report);
    if let Some(source) = &config.policy {
        policy::of_files(source, seen.as_ref(), &proxies, &mut report);
    }
    if let Some(seen) = &seen {
        policy::of_limits(&seen.status, &mut report);
        agent::of_cluster(&seen.status, &mut report);
        machine::of_clock(&seen.status, &mut report);
        machine::of_open_files(&config, seen, &mut report);
        machine::of_state(&config, seen, &mut report);
    }
    let text = if json { serde_json::to_string_pretty(&report)? + "\n" } else { report.text() };
    say(&text)?;
    // The report has been printed, so the error has no text.
    if report.ok { Ok(()) } else { Err(anyhow!("")) }
}
