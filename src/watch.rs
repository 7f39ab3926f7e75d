//! The hot reload: an edited policy replaces the current policy, unless the edited policy has an error.
//!
//! [`debounce`] decides when to read, so that a half-written file never comes into force.

mod debounce;
mod events;
mod fingerprint;

use std::collections::BTreeSet;
use std::fs;
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use notify::Event;

use crate::observe::{Clock, Metrics, Status, revived, systemd};
pub(crate) use debounce::FileState;
use debounce::{Debounce, SECOND_LOOK, WatchStep};
use events::{LOOK, Watch, Writers, follow, matters};
pub(crate) use fingerprint::Fingerprint;
use fingerprint::Seen;
use slowlane_core::base::KeySecret;
use slowlane_core::policy::{Layout, Policy, PolicyErrors, Strays};
use slowlane_core::throttle::Throttle;

/// Events that arrive within this time cause one check.
const GATHER: Duration = Duration::from_millis(10);

/// The maximum number of attempts, at startup and on SIGHUP, to read a policy that is being edited.
const READINGS_MAX: u32 = 5;

/// A policy directory and its layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub dir: PathBuf,
    pub layout: Layout,
    /// The longest hold. Longer delays are cut to this limit, so they cause a warning.
    pub hold_max: Duration,
    /// The key secret for every policy that is read, so that a reload keeps all keys.
    pub key_secret: KeySecret,
    /// How often a node of a cluster talks to its store, for warnings about SLOs that cannot be shared well. `None` if
    /// this slowlane is not in a cluster.
    pub period: Option<Duration>,
    /// Whether HAProxy enforces limits by itself, as a peer.
    pub has_peers: bool,
}

impl Source {
    pub(crate) fn read(&self) -> Result<Policy, PolicyErrors> {
        let mut policy = Policy::read(&self.dir, &self.layout)?.with_key_secret(self.key_secret);
        policy.warn_of_delays_over(self.hold_max);
        if let Some(period) = self.period {
            policy.warn_of_sharing(period, self.has_peers);
        }
        if self.has_peers {
            policy.warn_of_peers();
        }
        Ok(policy)
    }

    /// The policy that results if `text` replaces the content of some files.
    pub(crate) fn read_with(&self, text: impl Fn(&Path) -> Option<String>) -> Result<Policy, PolicyErrors> {
        let read = |path: &Path| text(path).map_or_else(|| fs::read(path), |text| Ok(text.into()));
        Policy::examine(&self.dir, &self.layout, read)
    }

    /// Reads the policy at startup. Also returns the files' metadata from before the reading. If the files change
    /// during every attempt, the policy of the last attempt is used, because there is no previous policy.
    pub(crate) fn read_first(&self) -> (Fingerprint, Result<Policy, PolicyErrors>) {
        let whole = self.read_whole(self.fingerprint(), READINGS_MAX);
        whole.unwrap_or_else(|| (self.fingerprint(), self.read()))
    }

    /// Reads the policy, and reads it again if its files have changed in the meantime, because old and new files may be
    /// mixed. `None` if the files changed during every attempt.
    fn read_whole(
        &self,
        mut found: Fingerprint,
        readings_max: u32,
    ) -> Option<(Fingerprint, Result<Policy, PolicyErrors>)> {
        for _ in 0..readings_max {
            let read = self.read();
            let after = self.fingerprint();
            if after == found {
                return Some((found, read));
            }
            found = after;
        }
        None
    }

    /// The metadata of the files: any edit changes it.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        let files = self.layout.files(&self.dir).iter().map(|path| Seen::look(path)).collect();
        Fingerprint { files, strays: Strays::look(&self.dir, &self.layout) }
    }

    /// The directories to watch for edits of the files.
    ///
    /// A rename replaces a file, or a symbolic link to it, without an event for the file itself. Only the directory
    /// that holds the name reports an event.
    fn watched(&self) -> BTreeSet<PathBuf> {
        let mut dirs = BTreeSet::from([self.dir.clone()]);
        for path in self.layout.files(&self.dir).into_iter().chain([self.dir.clone()]) {
            follow(path, &mut dirs);
        }
        dirs
    }
}

/// A reason to check the files.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wake {
    /// An event in a watched directory.
    Noticed(Event),
    /// SIGHUP: read the policy now, even if nothing has changed.
    Ask,
    /// The keys get a different secret.
    Rekey(KeySecret),
}

/// A handle for requesting a reload.
#[derive(Clone, Debug)]
pub(crate) struct Reload(Sender<Wake>);

impl Reload {
    pub(crate) fn ask(&self) {
        // The reloader runs until the process ends.
        let _ = self.0.send(Wake::Ask);
    }

    /// Requests a different key secret. All keys then start fresh.
    pub(crate) fn rekey(&self, secret: KeySecret) {
        let _ = self.0.send(Wake::Rekey(secret));
    }
}

/// Starts the thread that reads the source again after each edit.
///
/// The thread is separate, so that no request waits while a map of a million lines is read. `seen` is the fingerprint
/// of the source, taken before it was last read.
pub(crate) fn start(
    source: Source,
    seen: Fingerprint,
    throttle: Arc<Throttle>,
    metrics: Arc<Metrics>,
    status: Arc<Status>,
    clock: Clock,
) -> Reload {
    let (wake, wakes) = mpsc::channel();
    let noticed = wake.clone();
    let watch = Watch::new(move |event| {
        if matters(&event) {
            let _ = noticed.send(Wake::Noticed(event));
        }
    });
    let (debounce, writers) = (Debounce::new(seen), Writers::default());
    let reloader = Reloader { source, throttle, metrics, status, clock, debounce, writers };
    thread::Builder::new()
        .name("reload".into())
        .spawn(move || {
            let (mut reloader, mut watch) = (reloader, watch);
            revived("the policy reload", || reloader.run(&wakes, &mut watch));
        })
        .expect("the system can start a thread");
    Reload(wake)
}

struct Reloader {
    source: Source,
    throttle: Arc<Throttle>,
    metrics: Arc<Metrics>,
    status: Arc<Status>,
    clock: Clock,
    debounce: Debounce,
    writers: Writers,
}

impl Reloader {
    fn run(&mut self, wakes: &Receiver<Wake>, watch: &mut Watch) {
        // The first check also finds an edit made between the first reading and the start of this watch.
        loop {
            watch.look_at(self.source.watched());
            let found = self.source.fingerprint();
            let is_open = self.writers.have_open(&found);
            let wait = match self.debounce.look(self.clock.now(), &found, is_open) {
                WatchStep::Rest => {
                    tracing::debug!("policy files unchanged");
                    LOOK
                }
                WatchStep::Wait(wait) => wait.min(LOOK),
                WatchStep::Read { force } => {
                    self.read(found, force);
                    Duration::ZERO
                }
            };
            match wakes.recv_timeout(wait) {
                Ok(wake) => self.gather(wake, wakes),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Collects the events that arrive together.
    fn gather(&mut self, first: Wake, wakes: &Receiver<Wake>) {
        if first != Wake::Ask {
            thread::sleep(GATHER);
        }
        for wake in iter::once(first).chain(wakes.try_iter()) {
            match wake {
                Wake::Noticed(event) => self.writers.notice(&event),
                Wake::Ask => self.debounce.is_asked = true,
                Wake::Rekey(secret) => {
                    self.source.key_secret = secret;
                    self.debounce.is_asked = true;
                }
            }
        }
    }

    /// Reads the policy, and puts it in force or rejects it. If files change in the meantime, the result is discarded.
    fn read(&mut self, found: Fingerprint, force: bool) {
        let is_asked = self.debounce.is_asked;
        if is_asked {
            systemd::reloading();
        }
        match self.source.read_whole(found, if is_asked { READINGS_MAX } else { 1 }) {
            Some((found, Ok(policy))) => self.accept(found, policy, force),
            Some((found, Err(problems))) => {
                self.debounce.taken(found);
                self.refuse(&problems);
            }
            None => {
                tracing::warn!(
                    "policy files changed while slowlane read them: the previous policy stays in force"
                );
                self.debounce.torn(self.clock.now());
            }
        }
        if is_asked {
            systemd::ready();
        }
    }

    /// Puts a policy in force, unless a map has lost more than half of its lines and `force` is not set.
    fn accept(&mut self, found: Fingerprint, policy: Policy, force: bool) {
        let shrunk = policy.shrunk_since(&self.throttle.policy());
        if !shrunk.is_empty() && !force {
            let seconds = SECOND_LOOK.as_secs();
            for map in shrunk {
                tracing::warn!(
                    "{map}: takes effect in {seconds} s unless the file changes again, or at once on SIGHUP"
                );
            }
            return self.debounce.shrunk(self.clock.now());
        }
        if self.debounce.is_asked {
            shrunk.iter().for_each(|map| tracing::warn!("{map}"));
        }
        self.debounce.taken(found);
        self.put_in_force(policy);
    }

    fn put_in_force(&self, policy: Policy) {
        self.metrics.plain.policy_refused.set(0);
        systemd::status(&format!("serving {}", policy.summary()));
        let changes = policy.changes_since(&self.throttle.policy());
        tracing::info!("policy reloaded from {}: {changes}", self.source.dir.display());
        let warnings = policy.warnings().to_string();
        warn(&warnings);
        self.status.reloads.done(self.clock.now(), changes, &warnings);
        let old = self.throttle.replace(policy);
        self.metrics.reloads_done.inc();
        free(old);
    }

    fn refuse(&self, problems: &PolicyErrors) {
        self.metrics.plain.policy_refused.set(1);
        let problems = problems.to_string();
        systemd::status(&format!("serving the previous policy: {problems}"));
        self.metrics.reloads_refused.inc();
        let dir = self.source.dir.display();
        tracing::error!("policy not reloaded from {dir}; the previous one stays in force");
        self.status.reloads.refused(self.clock.now(), &problems);
        for problem in problems.lines() {
            tracing::error!("{problem}");
        }
    }
}

/// Logs the warnings of a policy, one per line.
pub(crate) fn warn(warnings: &str) {
    for warning in warnings.lines() {
        tracing::warn!("{warning}");
    }
}

/// Waits until no request uses the old policy, so that this thread frees it and no request has to.
fn free(old: Arc<Policy>) {
    while Arc::strong_count(&old) > 1 {
        thread::sleep(Duration::from_millis(10));
    }
}
