//! The task that talks to the store and applies its answers.

use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

use fastrand::Rng;
use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use crate::observe::groups::ClusterMetrics;
use crate::observe::status::ClusterLine;
use crate::observe::{OncePerSecond, revived};
use crate::server::Agent;
use crate::sync::block_sync::BlockSync;
use crate::sync::store::Store;
use crate::sync::{StoreError, SyncConfig, TokenServer};
use crate::watch::Reload;
use slowlane_core::base::{KeySecret, Shown, Timestamp};
use slowlane_core::cluster::{Beat, Cluster, Due, Member, Membership, PRESENT, Presence, Response};

/// How often the task checks for messages that are due. A change waits for at most this long.
const LOOK: Duration = Duration::from_millis(5);

/// The time between two heartbeats.
const BEAT: Duration = Duration::from_secs(1);

/// The maximum number of keys in one exchange.
const KEYS_MAX: usize = 4_000;

/// The first pause between attempts to reach the store. A store that restarts is back within a second.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// The longest pause, within which all nodes notice that a store is back.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// This node: everything that the task needs.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) config: SyncConfig,
    /// The token server that this slowlane runs, if any.
    pub(crate) token_server: Option<Arc<TokenServer>>,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) agent: Arc<Agent>,
    pub(crate) reload: Option<Reload>,
    pub(crate) metrics: ClusterMetrics,
}

impl Node {
    /// Starts the thread of the task. The thread ends when the returned value is dropped.
    ///
    /// # Errors
    /// A TLS file cannot be used, or the system cannot start a thread.
    pub(crate) fn start(self) -> io::Result<RunningNode> {
        self.config.files.check().map_err(io::Error::other)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (end, mut ended) = oneshot::channel::<()>();
        let work = move || {
            revived("the exchange with the store", || {
                let mut task = Task::new(&self);
                runtime.block_on(async {
                    tokio::select! {
                        () = task.run() => {}
                        _ = &mut ended => {}
                    }
                });
            });
        };
        thread::Builder::new().name("cluster".into()).spawn(work)?;
        Ok(end)
    }

    /// How this node appears at the token server of this slowlane.
    pub(super) fn presence(&self) -> Presence {
        match (self.cluster.is_used(), self.config.is_secret_fixed) {
            (false, _) => Presence::Onlooker,
            (true, false) => Presence::Own,
            (true, true) => Presence::Node,
        }
    }
}

/// A node that talks to the store until this value is dropped.
pub(crate) type RunningNode = oneshot::Sender<()>;

/// The state of the task, since its start or its last panic.
struct Task<'n> {
    node: &'n Node,
    run: String,
    rng: Rng,
    pauses: Pauses,
    /// When the store last began to answer, or fell silent.
    since: Timestamp,
    silent: Option<String>,
    /// When the last answered heartbeat and the last answered exchange of blocks were sent.
    beaten: Option<Instant>,
    asked: Option<Instant>,
    block_sync: BlockSync,
    /// Whether this node had received a request under a shared SLO by its last exchange.
    was_used: bool,
    without_room_line: OncePerSecond,
    membership: Membership,
    /// The names of the nodes with different SLOs, as last reported.
    others: Vec<String>,
    /// The key secret in the store, if it differs from this node's.
    other_secret: Option<String>,
    clock_ms: i64,
    round_trip: Duration,
}

impl<'n> Task<'n> {
    fn new(node: &'n Node) -> Task<'n> {
        let mut rng = Rng::new();
        let run = rng.u64(..);
        node.cluster.set_run(run);
        Task {
            node,
            run: format!("{run:016x}"),
            rng,
            pauses: Pauses::default(),
            since: node.agent.clock.now(),
            silent: Some("not yet reached".into()),
            beaten: None,
            asked: None,
            block_sync: BlockSync::default(),
            was_used: false,
            without_room_line: OncePerSecond::default(),
            membership: Membership::default(),
            others: Vec::new(),
            other_secret: None,
            clock_ms: 0,
            round_trip: Duration::ZERO,
        }
    }

    async fn run(&mut self) {
        tracing::info!("cluster: the store is {}", self.node.config.store);
        self.show(self.node.agent.clock.now());
        loop {
            let open = Store::open(self.node);
            let error = match self.meanwhile_alone(open).await {
                Ok(mut store) => self.sync(&mut store).await,
                Err(error) => error,
            };
            self.fails(&error);
            let pause = self.pauses.next(self.rng.f64());
            self.meanwhile_alone(sleep(pause)).await;
        }
    }

    /// Talks to the store until it fails.
    async fn sync(&mut self, store: &mut Store<'_>) -> StoreError {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.beaten = None;
        loop {
            look.tick().await;
            if let Err(error) = self.exchange(store).await {
                return error;
            }
        }
    }

    /// Makes one exchange with the store, if anything is due.
    async fn exchange(&mut self, store: &mut Store<'_>) -> Result<(), StoreError> {
        let Node { cluster, agent, .. } = self.node;
        let now = agent.clock.now();
        // The node of a token server becomes a member with its first request, so its next heartbeat is due at once.
        let is_new = self.was_used != cluster.is_used();
        let is_beat_due = is_new || self.beaten.is_none_or(|at| at.elapsed() >= BEAT);
        self.was_used = cluster.is_used();
        let has_changes = self.block_sync.gather(&agent.throttle, now);
        let are_blocks_due = self.asked.is_none_or(|at| at.elapsed() >= cluster.settings().period);
        let due = Due {
            updates: cluster.collect(now, KEYS_MAX),
            beat: is_beat_due.then(|| self.beat()),
            blocks: (has_changes || are_blocks_due).then(|| self.block_sync.arguments(now)),
        };
        if due.is_empty() {
            return Ok(());
        }
        let (sent, silent_after) = (Instant::now(), cluster.settings().silent_after);
        let response = timeout(silent_after, store.exchange(&due)).await;
        match response.unwrap_or(Err(StoreError::Silent(silent_after))) {
            Ok(response) => {
                self.round_trip = sent.elapsed();
                self.answered(&due, response, sent);
                Ok(())
            }
            Err(error) => {
                due.updates.iter().for_each(|update| cluster.lost(update));
                self.block_sync.lost();
                Err(error)
            }
        }
    }

    /// Applies the answers of the store.
    fn answered(
        &mut self,
        Due { updates, .. }: &Due,
        Response { answers, membership, blocks }: Response,
        sent: Instant,
    ) {
        let Node { cluster, agent, metrics, .. } = self.node;
        let now = agent.clock.now();
        cluster.set_round_trip(self.round_trip);
        for (update, answer) in updates.iter().zip(&answers) {
            if update.arguments.restores(answer) {
                metrics.restored.inc();
            }
            cluster.reply(update, answer, self.round_trip, now);
        }
        metrics.messages.inc_by(updates.len() as u64);
        metrics.round_trip_s.set(self.round_trip.as_secs_f64());
        if self.silent.take().is_some() {
            let silent_s = now.since(self.since).as_secs();
            tracing::info!("cluster: the store answers again after {silent_s} s of silence");
            self.since = now;
            self.pauses = Pauses::default();
            cluster.set_silent(false);
        }
        if let Some(blocks) = blocks {
            self.asked = Some(sent);
            let without_room = self.block_sync.news(blocks, &agent.throttle, now);
            self.report_blocks(without_room, now);
        }
        if let Some(membership) = membership {
            self.beaten = Some(sent);
            self.counted(membership, now);
        }
    }

    /// Logs when the first block appears that is in force on this node only, when the last such block ends, and when
    /// this node has no room for the blocks of other nodes.
    fn report_blocks(&mut self, without_room: usize, now: Timestamp) {
        let alone = self.block_sync.alone.len();
        match (self.node.metrics.blocks_alone.set(alone as i64), alone) {
            (0, 1..) => tracing::warn!(
                "cluster: blocks for which the store has no room: {alone}; these blocks are in force on this \
                 node only, and will be offered to the store again"
            ),
            (1.., 0) => tracing::info!("cluster: the store now has every block of this node"),
            _ => {}
        }
        if without_room > 0 {
            let text =
                || format!("cluster: blocks of other nodes for which this node has no room: {without_room}");
            self.without_room_line.warn(now, text);
        }
    }

    /// Applies the answer to a heartbeat.
    fn counted(&mut self, membership: Membership, now: Timestamp) {
        let Node { cluster, .. } = self.node;
        let half_trip_us = self.round_trip.as_micros() as i64 / 2;
        self.clock_ms = ((now.as_nanos() / 1_000) as i64 - half_trip_us - membership.now_us as i64) / 1_000;
        let before = membership.members.iter().filter(|member| member.run < self.run).count();
        let place = u32::try_from(before).unwrap_or(u32::MAX);
        cluster.set_nodes(self.nodes(membership.members.len(), now), place);
        self.share_secret(&membership.secret);
        self.compare(&membership.members);
        membership.crowded.iter().for_each(|key| self.node.agent.throttle.share(*key, now));
        cluster.set_hints(&membership.hints, self.round_trip, now);
        self.membership = membership;
        self.show(now);
    }

    /// The number of nodes to assume. After a silence, the other nodes come back one by one, so the number does not
    /// fall at first.
    fn nodes(&self, members: usize, now: Timestamp) -> u32 {
        let members = u32::try_from(members).unwrap_or(u32::MAX);
        let known = if now.since(self.since) < PRESENT { self.node.cluster.nodes() } else { 0 };
        members.max(known)
    }

    /// Adopts a different key secret of the cluster, or logs why this node cannot. Each secret is handled once.
    fn share_secret(&mut self, secret: &str) {
        let theirs = KeySecret::read(secret.as_bytes());
        if theirs == Some(self.node.agent.throttle.policy().key_secret()) {
            self.other_secret = None;
        } else if self.other_secret.as_deref() != Some(secret) {
            self.other_secret = Some(secret.to_owned());
            self.take_secret(theirs);
        }
    }

    fn take_secret(&self, theirs: Option<KeySecret>) {
        match (theirs, &self.node.reload) {
            (None, _) => {
                tracing::error!("cluster: the store's key secret is damaged; remove it from the store");
            }
            (Some(_), _) if self.node.config.is_secret_fixed => tracing::error!(
                "cluster: the key secret in the store differs from [policy] key_secret_file: this node \
                 shares no keys with the other nodes; give all nodes the same file, or none"
            ),
            (Some(theirs), Some(reload)) => {
                tracing::info!("cluster: this node adopts the other nodes' key secret, and clears its table");
                reload.rekey(theirs);
            }
            // The built-in policy throttles nothing, so it needs no common key secret.
            (Some(_), None) => {}
        }
    }

    /// Logs the nodes whose SLOs differ from this node's, whenever the list of these nodes changes.
    fn compare(&mut self, members: &[Member]) {
        let policy = self.node.agent.throttle.policy();
        // A token server without requests of its own is not a member, and needs no SLOs.
        let is_member = members.iter().any(|member| member.run == self.run);
        let others = members.iter().filter(|member| is_member && member.policy != policy.shared_hash());
        let others: Vec<String> = others.map(|member| member.name.clone()).collect();
        self.node.metrics.other_policies.set(others.len() as i64);
        if others != self.others {
            match others.as_slice() {
                [] => tracing::info!("cluster: all nodes have the same SLOs"),
                names => tracing::error!(
                    "cluster: nodes with different SLOs: {}; each node charges a shared key by its own \
                     SLOs; give all nodes the same policy",
                    names.join(", ")
                ),
            }
            self.others = others;
        }
    }

    fn beat(&self) -> Beat {
        let policy = self.node.agent.throttle.policy();
        let member = Member {
            name: self.node.config.node.clone(),
            run: self.run.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            policy: policy.shared_hash().to_owned(),
            clock_ms: self.clock_ms,
        };
        Beat {
            member,
            secret: policy.key_secret().to_hex(),
            crowded: self.node.cluster.crowded(self.node.agent.clock.now()),
        }
    }

    /// Notes a failure, which is logged as a warning if the store has just fallen silent or the reason has changed.
    fn fails(&mut self, error: &StoreError) {
        self.node.metrics.failed(error.kind());
        self.node.cluster.set_silent(true);
        // The text may come from another program, so unsafe characters in it are escaped.
        let reason = Shown(error.to_string().as_bytes()).to_string();
        let now = self.node.agent.clock.now();
        match &self.silent {
            Some(known) if *known == reason => {
                tracing::debug!("cluster: the store still does not answer: {reason}")
            }
            Some(_) => tracing::warn!("cluster: the store still does not answer: {reason}"),
            None => {
                self.since = now;
                tracing::warn!(
                    "cluster: the store is silent: {reason}; this node {}",
                    self.node.cluster.settings().on_silence.response()
                );
            }
        }
        self.silent = Some(reason);
        self.show(now);
    }

    /// Waits for a future while there is no store. Messages that become due in the meantime count as lost.
    async fn meanwhile_alone<T>(&mut self, waited_for: impl Future<Output = T>) -> T {
        let mut waited_for = std::pin::pin!(waited_for);
        let mut look = interval(LOOK);
        loop {
            tokio::select! {
                result = &mut waited_for => return result,
                _ = look.tick() => {
                    let Node { cluster, agent, metrics, .. } = self.node;
                    cluster.collect(agent.clock.now(), KEYS_MAX).iter().for_each(|update| cluster.lost(update));
                    metrics.silent_s.inc_by(LOOK.as_secs_f64());
                }
            }
        }
    }

    /// Shows the state to operators.
    fn show(&self, now: Timestamp) {
        let Node { cluster, metrics, .. } = self.node;
        let line = ClusterLine {
            store: self.node.config.store.to_string(),
            run: self.run.clone(),
            silent: self.silent.clone(),
            since_s: now.since(self.since).as_secs(),
            round_trip_ms: self.round_trip.as_secs_f64() * 1e3,
            keys: cluster.keys(),
            debt: cluster.debt(),
            nodes: self.membership.members.clone(),
        };
        metrics.up.set(i64::from(self.silent.is_none()));
        metrics.nodes.set(i64::from(cluster.nodes()));
        let refused = cluster.refused();
        metrics.keys_refused.inc_by(refused.saturating_sub(metrics.keys_refused.get()));
        *self.node.agent.status.cluster.lock() = Some(line);
    }
}

/// Pauses that double up to [`LONGEST_PAUSE`], each less up to half at random, so that not all nodes reconnect at once.
#[derive(Debug, Default)]
struct Pauses(u32);

impl Pauses {
    /// The next pause, for a random number from 0 to 1.
    fn next(&mut self, rng: f64) -> Duration {
        let whole = FIRST_PAUSE.saturating_mul(1 << self.0.min(16)).min(LONGEST_PAUSE);
        self.0 = self.0.saturating_add(1);
        whole.mul_f64(1.0 - rng / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_quarter_of_a_second() {
        let mut pauses = Pauses::default();
        let ms: Vec<u128> = (0..6).map(|_| pauses.next(0.0).as_millis()).collect();
        assert_eq!(ms, [50, 100, 200, 250, 250, 250]);
        assert_eq!(pauses.next(1.0).as_millis(), 125);
        pauses = Pauses::default();
        assert_eq!(pauses.next(0.0).as_millis(), 50);
    }
}
