//! `slowlane check`: prints every mistake of the config and the policy.

use std::io::{self, Write};

use crate::config::Config;
use crate::policy::Policy;

pub(super) fn check(config: Config) -> anyhow::Result<()> {
    let policy = match &config.policy {
        Some(source) => source.read()?,
        None => Policy::builtin(),
    };
    for warning in policy.warnings().to_string().lines() {
        eprintln!("slowlane: warning: {warning}");
    }
    let note = if policy.has_limits() { "" } else { "; every rate is unlimited, so nothing is throttled" };
    Ok(writeln!(io::stdout(), "ok: {}{note}", policy.summary())?)
}
