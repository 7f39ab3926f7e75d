//! `slowlane check`: prints every error in the config and the policy.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;
use serde::Serialize;

use crate::cli::arguments::{FileArguments, OF_SERVICE};
use crate::cli::service_user;
use crate::cli::{say, tell};
use crate::config::{Config, ConfigError, Flags};
use crate::sync::StoreUrl;
use slowlane_core::base::SloId;
use slowlane_core::policy::{self, Policy, PolicyErrors};

#[derive(Debug, Args)]
pub(super) struct CheckArguments {
    #[command(flatten)]
    files: FileArguments,
    /// Also exit with 1 if there are only warnings
    #[arg(long)]
    strict: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The checked files and the findings, with the fields of `--json`.
#[derive(Debug, Serialize)]
struct CheckReport {
    ok: bool,
    config: Option<PathBuf>,
    /// `None` means the built-in policy.
    policy: Option<PathBuf>,
    /// `None` if the policy has an error.
    summary: Option<String>,
    /// Whether no SLO has a limit, so nothing is throttled.
    unlimited: bool,
    errors: Vec<CheckFinding>,
    errors_total: usize,
    warnings: Vec<CheckFinding>,
    warnings_total: usize,
}

#[derive(Debug, Serialize)]
struct CheckFinding {
    file: Option<PathBuf>,
    line: Option<usize>,
    text: String,
}

pub(super) fn check(typed: CheckArguments) -> anyhow::Result<()> {
    let CheckArguments { files, strict, json } = typed;
    let is_bare = files.config.is_none() && files.policy.is_none();
    let FileArguments { config, policy } = files.or_of_service();
    let flags = Flags { policy, ..Flags::default() };
    let (read, mut errors) = Config::examine(config.as_deref(), flags);
    let (tls_errors, expired) = read.check_tls();
    errors.extend(tls_errors);
    errors.extend(service_user::unreadable(&read));
    let config_warnings = [read.warnings(), expired].concat();
    let policy = read.policy.as_ref().map_or_else(|| Ok(Policy::builtin()), |source| source.read());
    let dir = read.policy.as_ref().map(|source| source.dir.clone());
    let report = CheckReport::new((config, dir), &errors, config_warnings.clone(), policy.as_ref(), strict);
    if json {
        let text = serde_json::to_string_pretty(&report)? + "\n";
        say(&text)?;
        // The report has been printed, so the error has no text.
        return if report.ok { Ok(()) } else { Err(anyhow!("")) };
    }
    let warnings = policy.as_ref().map(|policy| policy.warnings().to_string()).unwrap_or_default();
    for warning in config_warnings.iter().map(String::as_str).chain(warnings.lines()) {
        tell(format_args!("warning: {warning}"));
    }
    let mut lines: Vec<String> = errors.iter().map(ConfigError::to_string).collect();
    lines.extend(policy.as_ref().err().map(PolicyErrors::to_string));
    let count = report.warnings_total;
    if lines.is_empty() && !report.ok {
        let noun = if count == 1 { "warning" } else { "warnings" };
        lines.push(format!("{count} {noun}, which --strict treats as an error"));
    }
    if !lines.is_empty() {
        return Err(anyhow!(lines.join("\n")));
    }
    say(&(report.ok_line(is_bare) + "\n"))?;
    if let (Some(cluster), Ok(policy)) = (&read.cluster, &policy) {
        say(&(cluster_line(&cluster.store, policy) + "\n"))?;
    }
    Ok(())
}

/// The mode of each SLO in a cluster.
fn cluster_line(store: &StoreUrl, policy: &Policy) -> String {
    let listed = |ids: &[SloId]| ids.iter().map(SloId::to_string).collect::<Vec<_>>().join(", ");
    let modes =
        policy.sharings().into_iter().map(|(sharing, ids)| format!("{} {}", sharing.name(), listed(&ids)));
    format!("cluster {store}: {}", modes.collect::<Vec<_>>().join("; "))
}

impl CheckReport {
    fn new(
        (config, dir): (Option<PathBuf>, Option<PathBuf>),
        errors: &[ConfigError],
        limits: Vec<String>,
        policy: Result<&Policy, &PolicyErrors>,
        strict: bool,
    ) -> CheckReport {
        let (problems, problems_total) = policy.err().map_or((&[][..], 0), |all| (all.listed(), all.count()));
        let warnings = policy.ok().map(Policy::warnings);
        let warnings_total = limits.len() + warnings.map_or(0, |all| all.count());
        let limit = |text| CheckFinding { file: config.clone(), line: None, text };
        let limits: Vec<CheckFinding> = limits.into_iter().map(limit).collect();
        let warnings = warnings.into_iter().flat_map(|all| all.listed()).map(CheckFinding::from);
        let errors_total = errors.len() + problems_total;
        CheckReport {
            ok: errors_total == 0 && !(strict && warnings_total > 0),
            config,
            policy: dir,
            summary: policy.ok().map(Policy::summary),
            unlimited: policy.is_ok_and(|policy| !policy.has_limits()),
            errors: errors
                .iter()
                .map(CheckFinding::from)
                .chain(problems.iter().map(CheckFinding::from))
                .collect(),
            errors_total,
            warnings: limits.into_iter().chain(warnings).collect(),
            warnings_total,
        }
    }

    fn ok_line(&self, is_bare: bool) -> String {
        let config = match &self.config {
            Some(path) => format!("config {}, ", path.display()),
            None if is_bare => format!("no config file ({OF_SERVICE} is missing), "),
            None => String::new(),
        };
        let policy = match &self.policy {
            Some(dir) => format!("policy {}", dir.display()),
            None => "the built-in policy".to_owned(),
        };
        let note = if self.unlimited { "; no SLO has a limit, so nothing is throttled" } else { "" };
        format!("ok: {config}{policy}: {}{note}", self.summary.as_deref().unwrap_or_default())
    }
}

impl From<&ConfigError> for CheckFinding {
    fn from(error: &ConfigError) -> CheckFinding {
        let (file, line, text) = error.place();
        CheckFinding { file: file.map(Path::to_owned), line, text }
    }
}

impl<K: Display> From<&policy::Finding<K>> for CheckFinding {
    fn from(policy::Finding { path, line, kind }: &policy::Finding<K>) -> CheckFinding {
        CheckFinding { file: Some(path.clone()), line: *line, text: kind.to_string() }
    }
}
