//! The daemon: everything is built once, in order; then it serves, and at the end it drains.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{interval, timeout};

use crate::config::{Config, Listen};
use crate::policy::Policy;
use crate::reload::{self, Reload};
use crate::server::admin;
use crate::server::http::Check;
use crate::server::shutdown::{self, Shutdown};
use crate::server::socket::{Handed, Listener};
use crate::server::spoe::Spoe;
use crate::server::{Agent, Entrance};
use crate::telemetry::metrics::{ConnectionMetrics, Metrics};
use crate::telemetry::systemd;
use crate::throttle::Throttle;

/// How long the end may take: answers in flight are written at once, and proxies close when told to.
const DRAIN: Duration = Duration::from_secs(5);

/// Serves until SIGTERM or SIGINT. An error is one of the start: nothing has been served then.
pub fn run(config: Config) -> anyhow::Result<()> {
    raise_file_limit();
    let runtime = Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(serve(config))
}

async fn serve(config: Config) -> anyhow::Result<()> {
    let mut signals = Signals::new().context("cannot listen to signals")?;
    let metrics = Arc::new(Metrics::new());
    let (throttle, reload) = throttle(&config, &metrics)?;
    let agent = Arc::new(Agent::new(throttle, config.hold, metrics.clone()));
    warn_of_limits(&config);

    // Every listener is bound before the first one serves: a start that fails has answered nobody.
    let mut handed = Handed::from_systemd();
    let spop = entrance(&config.spop.listen, handed.take("spop"), &metrics.spop).await?;
    let http = entrance(&config.http.listen, handed.take("http"), &metrics.http).await?;
    let admin = entrance(&config.admin, handed.take("admin"), &metrics.admin).await?;

    let (end, shutdown) = shutdown::channel();
    let spoe = Arc::new(Spoe::new(config.spop.frame_bytes_max, config.spop.timeout));
    spop.open(&agent, &shutdown, move |stream, agent, shutdown| spoe.clone().serve(stream, agent, shutdown));
    let check = Check::new(config.http.idle_timeout);
    http.open(&agent, &shutdown, move |stream, agent, shutdown| check.clone().serve(stream, agent, shutdown));
    admin.open(&agent, &shutdown, admin::serve);
    watchdog(&shutdown);
    watch_table(agent.clone(), &shutdown);
    drop(shutdown);

    systemd::ready();
    signals.wait(reload).await;
    tracing::info!("ending: held requests are let through, connections closed");
    systemd::stopping();
    if timeout(DRAIN, end.end()).await.is_err() {
        tracing::warn!("ended with connections that did not close within {} s", DRAIN.as_secs());
    }
    Ok(())
}

/// The first policy is read here; later ones by the reloader.
fn throttle(config: &Config, metrics: &Arc<Metrics>) -> anyhow::Result<(Arc<Throttle>, Option<Reload>)> {
    let Some(source) = config.policy.clone() else {
        let policy = Policy::builtin();
        tracing::info!("no policy directory, serving the built-in policy: {}", policy.summary());
        systemd::status(&format!("serving the built-in policy: {}", policy.summary()));
        return Ok((Arc::new(Throttle::new(policy, config.table, config.annex_bytes_max)), None));
    };
    let seen = source.fingerprint();
    let policy = source.read()?;
    tracing::info!("policy: {}", policy.summary());
    systemd::status(&format!("serving {}", policy.summary()));
    let throttle = Arc::new(Throttle::new(policy, config.table, config.annex_bytes_max));
    let reload = reload::start(source, seen, throttle.clone(), metrics.clone());
    Ok((throttle, Some(reload)))
}

/// Sockets from systemd stand in for those that the config names.
async fn entrance(
    listen: &Listen,
    handed: Vec<Listener>,
    metrics: &ConnectionMetrics,
) -> anyhow::Result<Entrance> {
    let mut listeners = handed;
    if listeners.is_empty() {
        for address in &listen.addresses {
            listeners.push(Listener::bind(address).await?);
        }
    }
    for listener in &listeners {
        tracing::info!("{} on {listener}", listen.name);
    }
    Ok(Entrance { listeners, connections_max: listen.connections_max, metrics: metrics.clone() })
}

/// The signals that a daemon obeys.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Returns when it is time to end; until then each SIGHUP reads the policy again.
    async fn wait(&mut self, reload: Option<Reload>) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hangup.recv() => match &reload {
                    Some(reload) => reload.ask(),
                    None => {
                        systemd::reloading();
                        tracing::info!("nothing to reload: there is no policy directory");
                        systemd::ready();
                    }
                },
            }
        }
    }
}

/// Tells systemd that the runtime still turns, if it asks to be told.
fn watchdog(shutdown: &Shutdown) {
    let Some(often) = systemd::watchdog() else { return };
    let mut shutdown = shutdown.clone();
    tokio::spawn(async move {
        let mut beat = interval(often);
        loop {
            tokio::select! {
                _ = beat.tick() => systemd::alive(),
                () = shutdown.begun() => return,
            }
        }
    });
}

/// A held answer occupies a connection of nginx or of HAProxy up to 3.0. Where holds use up all of them, the
/// requests of others wait as well, and `when_full` never speaks.
fn warn_of_limits(config: &Config) {
    for listen in [&config.spop.listen, &config.http.listen] {
        if !listen.addresses.is_empty() && config.hold.holds_max >= listen.connections_max {
            tracing::warn!("[hold] max should be well below connections_max of {}", listen.name);
        }
    }
}

/// Says once a second that the table gives up entries that are still in use, while it does.
fn watch_table(agent: Arc<Agent>, shutdown: &Shutdown) {
    let mut shutdown = shutdown.clone();
    tokio::spawn(async move {
        let mut look = interval(Duration::from_secs(1));
        let mut before = 0;
        loop {
            tokio::select! {
                _ = look.tick() => {}
                () = shutdown.begun() => return,
            }
            let evictions = agent.throttle.usage().evictions;
            if evictions > before {
                tracing::warn!(
                    "the table is full: {} entries given up; raise [table] size",
                    evictions - before
                );
            }
            before = evictions;
        }
    });
}

/// Every connection is a file. Shells and services start with a soft limit of 1024 and a far higher hard one.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Where it is refused, the limit stays as it is.
    let _ = setrlimit(Resource::Nofile, limit);
}
