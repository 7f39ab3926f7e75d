//! Periodic work: samples for the status, expiry, checks of files and clocks, and warnings for the operator.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::interval;

use crate::config::ConfigFile;
use crate::observe::status::{NO_ENDS, News};
use crate::observe::{Clock, revived_task, systemd};
use crate::server::{Agent, Shutdown, Tls};
use crate::watch::FileState;
use slowlane_core::base::{Key, Timestamp};
use slowlane_core::law::TICK;
use slowlane_core::throttle::{KEY_BLOCKS_MAX, Protected};

/// The time between two checks of the certificates.
const CERTIFICATES: Duration = Duration::from_millis(200);

/// The time between two checks of whether proxies report the ends of requests.
const ENDS: Duration = Duration::from_secs(20);

/// Starts the periodic tasks, except the watchdog and the check of certificates, in the caller's runtime. This runtime
/// must not decide requests, because some tasks wait for readers of the status.
pub(super) fn begin(agent: &Arc<Agent>, config: Option<&ConfigFile>, shutdown: &Shutdown) {
    keep_status(agent.clone(), shutdown);
    watch_fields(agent.clone(), shutdown);
    watch_table(agent.clone(), shutdown);
    sweep(agent.clone(), shutdown);
    wake_gates(agent.clone(), shutdown);
    watch_clock(agent.clock, shutdown);
    config.iter().for_each(|file| watch_config(agent.clone(), Look::at(file), shutdown));
}

/// Notifies the watchdog of systemd, if it is enabled.
pub(super) fn watchdog(shutdown: &Shutdown) {
    systemd::watchdog().into_iter().for_each(|often| every(often, "the watchdog", shutdown, systemd::alive));
}

/// Reads certificates again when their files change. `files` is the state of the files before they were last read.
pub(super) fn watch_certificates(
    certificates: Vec<Arc<Tls>>,
    mut files: FileState,
    clock: Clock,
    shutdown: &Shutdown,
) {
    every(CERTIFICATES, "the certificate check", shutdown, move || {
        if files.has_settled(clock.now()) {
            certificates.iter().for_each(|tls| tls.reload());
        }
    });
}

fn each_second(name: &'static str, shutdown: &Shutdown, work: impl FnMut() + Send + 'static) {
    every(Duration::from_secs(1), name, shutdown, work);
}

/// Does the work at once, and again after each period, until the shutdown begins.
fn every(period: Duration, name: &'static str, shutdown: &Shutdown, work: impl FnMut() + Send + 'static) {
    let (shutdown, work) = (shutdown.clone(), Arc::new(Mutex::new(work)));
    let go_on = move || {
        let (signal, work) = (shutdown.signal.clone(), work.clone());
        async move {
            let mut look = interval(period);
            while signal.unless_begun(look.tick()).await.is_some() {
                work.lock()();
            }
        }
    };
    tokio::spawn(revived_task(name, go_on));
}

/// Warns once a second while the table evicts live entries.
fn watch_table(agent: Arc<Agent>, shutdown: &Shutdown) {
    let mut before = 0;
    each_second("the table check", shutdown, move || {
        let evictions = agent.throttle.usage().evictions;
        if evictions > before {
            tracing::warn!(
                "the table is full: it evicted {} of its live entries; raise [table] size",
                evictions - before
            );
        }
        before = evictions;
    });
}

/// Removes expired state, so that no request has to. Warns once when keys can no longer be blocked.
fn sweep(agent: Arc<Agent>, shutdown: &Shutdown) {
    let (mut before, mut is_reported) = (0, false);
    each_second("the sweep", shutdown, move || {
        let now = agent.clock.now();
        agent.throttle.sweep(now);
        agent.dedup.sweep(now);
        let refused = agent.throttle.block_usage(now).refused;
        if refused > before && !is_reported {
            tracing::warn!(
                "{KEY_BLOCKS_MAX} keys are blocked, which is the maximum: block= blocks no more keys until \
                 some blocks end; shorten the time in block="
            );
        }
        is_reported = refused > before;
        before = refused;
    });
}

/// Advances the queues of protected applications when no request does so, and warns if proxies never report ends.
fn wake_gates(agent: Arc<Agent>, shutdown: &Shutdown) {
    let waking = agent.clone();
    every(TICK, "the queues of protect", shutdown, move || waking.throttle.wake_gates(waking.clock.now()));
    let mut blind = Blind::default();
    every(ENDS, "the check for finished requests", shutdown, move || blind.look(&agent));
}

/// Makes calendar quotas follow a wall clock that is set by hand, by a late time service, or after a suspension.
fn watch_clock(clock: Clock, shutdown: &Shutdown) {
    each_second("the wall clock check", shutdown, move || {
        if let Some(step) = clock.follow_wall() {
            let (sign, step) =
                (if step < 0 { "back" } else { "forward" }, step.unsigned_abs() / 1_000_000_000);
            tracing::warn!(
                "the system's clock was set {sign} by {step} s: calendar quotas follow it, but rates do not"
            );
        }
    });
}

/// Reports that the config file was edited. Only an upgrade or a restart puts an edit in force.
fn watch_config(agent: Arc<Agent>, mut look: Look, shutdown: &Shutdown) {
    each_second("the config file check", shutdown, move || {
        let Some(news) = look.again(agent.clock.now()) else { return };
        match &news {
            Some(news) => tracing::warn!("{news}"),
            None => tracing::info!("the config file has the same contents again as at startup"),
        }
        agent.status.reloads.edit(agent.clock.now(), agent.throttle.policy().summary(), news);
    });
}

/// Checks the config file while the process serves.
#[derive(Debug)]
struct Look {
    file: ConfigFile,
    state: FileState,
    news: Option<String>,
}

impl Look {
    fn at(file: &ConfigFile) -> Look {
        let state = FileState::new(vec![file.path.clone()]);
        Look { file: file.clone(), state, news: None }
    }

    /// The change since the last check, if any. The inner `None` means that an edit was undone.
    fn again(&mut self, now: Timestamp) -> Option<Option<String>> {
        if !self.state.has_settled(now) {
            return None;
        }
        let before = std::mem::replace(&mut self.news, self.file.news());
        (self.news != before).then(|| self.news.clone())
    }
}

/// Warns about fields that the policy needs but requests lack, or carry in an unreadable form.
fn watch_fields(agent: Arc<Agent>, shutdown: &Shutdown) {
    each_second("the check for missing fields", shutdown, move || {
        let total = || agent.metrics.verdicts.total();
        let News { missing, faults } = agent.status.missing.tick(&agent.throttle.policy(), total);
        faults.iter().for_each(|line| tracing::warn!("{}: `slowlane doctor` shows the remedy", line.text));
        for line in missing {
            match agent.status.reloads.edited() {
                Some(edited) => tracing::warn!("{line}; {edited}"),
                None => tracing::warn!(
                    "{line}: configure the proxy to send the field (`slowlane config` prints files that \
                     do), or remove the field from the policy"
                ),
            }
        }
    });
}

/// Samples the counters once a second for the history in the status.
fn keep_status(agent: Arc<Agent>, shutdown: &Shutdown) {
    each_second("the status history", shutdown, move || {
        agent.status.tick(agent.clock.now(), &agent.metrics.verdicts, agent.throttle.table());
    });
}

/// Applications whose proxies never report ends: those found at the last check, and those already logged.
#[derive(Debug, Default)]
struct Blind {
    before: HashSet<Key>,
    logged: HashSet<Key>,
}

impl Blind {
    /// Warns once about each application that, both now and at the last call, has requests inside, but no ends
    /// reported. Call this every [`ENDS`].
    fn look(&mut self, agent: &Agent) {
        let is_blind = |of: &Protected| !of.view.sees_ends && of.view.inside > 0;
        let blind: Vec<Protected> = agent.throttle.protected().into_iter().filter(is_blind).collect();
        let now: HashSet<Key> = blind.iter().map(|of| of.key).collect();
        for Protected { slo, key, .. } in blind.iter().filter(|of| self.before.contains(&of.key)) {
            if self.logged.insert(*key) {
                tracing::warn!(
                    "SLO {slo} protects nothing: {NO_ENDS}, so everything passes; HAProxy reports ends with \
                     the `response` message, nginx with log lines to `[ends] listen`, Envoy with its access \
                     log, Caddy and Traefik with `[ends] follow`"
                );
            }
        }
        self.logged.retain(|key| now.contains(key));
        self.before = now;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config::{Config, Flags};

    #[test]
    fn an_edit_is_told_once_the_file_rests() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "").unwrap();
        let config = Config::load(Some(file.path()), Flags::default()).unwrap();
        let mut look = Look::at(config.file.as_ref().unwrap());
        let mut seconds = 0;
        let mut again = || {
            seconds += 1;
            look.again(Timestamp::from_millis(seconds * 1_000))
        };
        assert_eq!([again(), again(), again()], [None, None, None], "nothing is new");
        fs::write(file.path(), "[hold]\n").unwrap();
        assert_eq!(again(), None, "its writer may not be done");
        let reported = again().unwrap().unwrap();
        assert!(reported.ends_with("has changed: `slowlane upgrade` puts it in force"), "{reported}");
        assert_eq!(again(), None, "once");
        fs::write(file.path(), "").unwrap();
        assert_eq!([again(), again()], [None, Some(None)], "it is taken back");
    }
}
