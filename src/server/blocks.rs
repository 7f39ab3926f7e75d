//! The blocks that the admin listener sets, ends and lists.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use tokio::time::{sleep, timeout};

use crate::server::Agent;
use slowlane_core::base::units::{self, left, written};
use slowlane_core::base::{Query, Target, Timestamp, aligned, shown, target};
use slowlane_core::cluster::Cluster;
use slowlane_core::policy::Policy;
use slowlane_core::throttle::{Block, BlockOrigin, Reach, Receipt};

/// The maximum number of blocked keys that are listed.
const KEYS_LISTED_MAX: usize = 1_000;

const NO_TIME: &str = "expected a duration of up to 366d, like --for 10m, or for=10m in the POST's body\n";

const NO_VALUE: &str = "each field needs a value, like source=192.0.2.66\n";

const KEY: &str = "expected the fields to block, like source=192.0.2.66; to block the keys that an SLO \
                   refuses, add block=10m to its line in slo.map\n";

const STORE_SILENT: &str =
    "the store is silent: the other nodes will learn of the block when the store answers";

const NO_ROOM: &str =
    "the store has no room for another block; end some with `slowlane block rm`, or block a network\n";

/// Blocks that were set or ended.
#[derive(Debug, Serialize)]
pub(super) struct Change {
    blocks: Vec<String>,
    /// How long the blocks last, like `10m`; `None` if they have ended.
    #[serde(rename = "for")]
    time: Option<String>,
    notes: Vec<String>,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for block in &self.blocks {
            match &self.time {
                Some(time) => writeln!(f, "blocked {block} for {time}")?,
                None => writeln!(f, "unblocked {block}")?,
            }
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "{note}"))
    }
}

/// The longest wait for the store's answer. Nodes report a block to the store at once.
const STORE_WAIT: Duration = Duration::from_secs(1);

const LOOK: Duration = Duration::from_millis(5);

/// Answers `/api/block`: blocks requests with the fields of the query for the time in the body. In a cluster, waits for
/// the store's answer.
///
/// # Errors
/// The reason, with its remedy.
pub(super) async fn block(agent: &Agent, query: &str, body: &[u8]) -> Result<Change, String> {
    let (mut change, receipt) = block_here(agent, query, body)?;
    let Some(receipt) = receipt else { return Ok(change) };
    let reach = async {
        while receipt.reach() == Reach::Unknown && !agent.throttle.cluster().is_none_or(Cluster::is_silent) {
            sleep(LOOK).await;
        }
        receipt.reach()
    };
    match timeout(STORE_WAIT, reach).await.unwrap_or(Reach::Unknown) {
        Reach::All => Ok(change),
        Reach::Unknown => {
            change.notes.push(STORE_SILENT.into());
            Ok(change)
        }
        Reach::Here => Err(format!("{} is blocked on this node only: {NO_ROOM}", change.blocks[0])),
    }
}

/// Sets the block on this node. In a cluster, the receipt will show whether the block has reached the other nodes.
fn block_here(agent: &Agent, query: &str, body: &[u8]) -> Result<(Change, Option<Receipt>), String> {
    let (policy, now) = (agent.throttle.policy(), agent.clock.now());
    let typed = typed(query)?;
    if let Ok(Target::Key(_)) = Target::of(typed.clone()) {
        return Err(KEY.into());
    }
    let fields = policy.block_fields(typed).map_err(line)?;
    let time = time(body)?;
    let receipt = agent.throttle.block(fields.clone(), now + time, now).map_err(line)?;
    let unknown: Vec<&str> = fields.iter().map(|(name, _)| name).filter(|name| !policy.knows(name)).collect();
    let note =
        || format!("make sure that the proxy sends {}, which the policy does not use", unknown.join(", "));
    let notes = if unknown.is_empty() { Vec::new() } else { vec![note()] };
    let target = Target::Fields(fields);
    tracing::info!("an operator blocked {target} for {}", written(time));
    Ok((Change { blocks: vec![target.to_string()], time: Some(written(time)), notes }, receipt))
}

/// Answers `/api/unblock`: ends the block of these fields, and the blocks of the keys that they form.
///
/// # Errors
/// The reason, with its remedy.
pub(super) fn unblock(agent: &Agent, query: &str) -> Result<Change, String> {
    let targets = targets(&agent.throttle.policy(), typed(query)?)?;
    let ended = targets.iter().filter(|target| agent.throttle.unblock(target));
    let blocks: Vec<String> = ended.map(Target::to_string).collect();
    if blocks.is_empty() {
        return Err(format!("{} is not blocked: `slowlane block list` lists the blocks\n", targets[0]));
    }
    blocks.iter().for_each(|target| tracing::info!("an operator unblocked {target}"));
    Ok(Change { blocks, time: None, notes: Vec::new() })
}

/// The blocks, at least one, to which the fields may refer.
fn targets(policy: &Policy, typed: Pairs) -> Result<Vec<Target>, String> {
    // A single address may have been blocked alone, without the rest of its customer's network.
    let as_written = Target::of(typed.clone()).map_err(line)?;
    if let Target::Key(_) = as_written {
        return Ok(vec![as_written]);
    }
    let fields = policy.block_fields(typed.clone()).map_err(line)?;
    let mut targets = vec![Target::Fields(fields.clone())];
    if as_written != targets[0] {
        targets.push(as_written);
    }
    targets.extend(keys(policy, &fields, &typed));
    Ok(targets)
}

/// The keys whose fields are all among these fields. A key with another field may belong to other clients.
fn keys(policy: &Policy, fields: &target::Fields, typed: &Pairs) -> Vec<Target> {
    let query = Query(typed.clone());
    let is_given = |name: &str| fields.iter().any(|(given, _)| given == name.replace('-', "_"));
    let cases = policy.cases(&query.request()).list;
    let whole = cases.iter().filter(|case| {
        let mut names = policy.key_fields(case.slo.id).peekable();
        names.peek().is_some() && names.all(is_given)
    });
    whole.map(|case| Target::Key(case.key)).collect()
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// The fields of a query. A field without a value is refused, because it would block more than intended.
fn typed(query: &str) -> Result<Pairs, String> {
    let count = query.split('&').filter(|pair| !pair.is_empty()).count();
    let pairs = Query::read(query).0;
    if pairs.len() == count { Ok(pairs) } else { Err(NO_VALUE.into()) }
}

/// Reads the duration of a block from a body like `for=10m`.
fn time(body: &[u8]) -> Result<Duration, String> {
    let text = std::str::from_utf8(body).map_err(|_| NO_TIME)?;
    let text = text.trim().strip_prefix("for=").ok_or(NO_TIME)?;
    match units::duration(text) {
        Ok(Duration::ZERO) => Err(NO_TIME.into()),
        Ok(time) => Ok(time),
        Err(reason) => Err(format!("for {:?}: {reason}\n", shown(text))),
    }
}

fn line(error: impl std::fmt::Display) -> String {
    format!("{error}\n")
}

/// A block as JSON.
#[derive(Debug, Serialize)]
struct BlockJson {
    block: String,
    /// `operator`, `slo` or `dry_run`.
    by: &'static str,
    /// The SLO that blocked the key, if known.
    slo: Option<u32>,
    /// Whole seconds, rounded up.
    left_s: u64,
    /// Milliseconds since 1970.
    until_ms: u64,
}

impl BlockJson {
    fn of(block: &Block, now: Timestamp) -> BlockJson {
        let (by, slo) = match block.origin {
            BlockOrigin::Operator => ("operator", None),
            BlockOrigin::Slo(slo) => ("slo", slo),
            BlockOrigin::DryRun(slo) => ("dry_run", slo),
        };
        BlockJson {
            block: block.target.to_string(),
            by,
            slo: slo.map(|slo| slo.number()),
            left_s: left_s(block, now),
            until_ms: block.until.as_nanos() / 1_000_000,
        }
    }
}

fn left_s(block: &Block, now: Timestamp) -> u64 {
    block.until.since(now).as_nanos().div_ceil(1_000_000_000) as u64
}

/// Answers `/api/blocks` as JSON.
pub(super) fn json(agent: &Agent) -> String {
    let now = agent.clock.now();
    let blocks = agent.throttle.blocks(KEYS_LISTED_MAX, now);
    let lines: Vec<BlockJson> = blocks.iter().map(|block| BlockJson::of(block, now)).collect();
    serde_json::to_string_pretty(&lines).expect("plain values are JSON") + "\n"
}

/// Answers `/api/blocks` as text.
pub(super) fn text(agent: &Agent) -> String {
    let now = agent.clock.now();
    let blocks = agent.throttle.blocks(KEYS_LISTED_MAX, now);
    if blocks.is_empty() {
        return "nothing is blocked\n".into();
    }
    let row =
        |block: &Block| vec![left(left_s(block, now)), block.origin.to_string(), block.target.to_string()];
    let head = ["left", "by", "block"].map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(blocks.iter().map(row)).collect();
    let listed = blocks.iter().filter(|block| matches!(block.origin, BlockOrigin::Slo(_))).count();
    let more = match agent.throttle.block_usage(now).keys.saturating_sub(listed) {
        0 => String::new(),
        more => format!("and {more} more\n"),
    };
    aligned(&rows, "  ", |column, _| column > 0) + &more
}
