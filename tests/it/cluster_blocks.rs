//! Blocks that the nodes of a cluster share: their room in the store, and what an operator is told.

use std::process::{Command, Output};
use std::time::Duration;

use slowlane::store_protocol::{Question, StoreAnswer};
use slowlane_core::base::Target;
use slowlane_core::cluster::{BlockChange, BlockUpdate, Due};

use crate::redis::{is_joined, node};
use crate::support::redis::Redis;
use crate::support::slowlane::{BINARY, Slowlane};
use crate::support::token_server::TokenServer;
use crate::support::{eventually, project};

/// The most blocks in the store: of operators, and of keys that clients have earned.
const OPERATORS: usize = 10_000;
const KEYS: usize = 20_000;

fn block(node: &Slowlane, fields: &str) -> Output {
    let admin = node.admin.to_string();
    Command::new(BINARY).args(["block", "add", fields, "--for", "10m", "--admin", &admin]).output().unwrap()
}

fn is_blocked(node: &Slowlane, website: &str) -> bool {
    node.check("?hold=off", &[("X-Slowlane-Website", website)]).status == 403
}

/// Sends changes of blocks to a store, as a node does: 500 of them in each message.
fn fill(targets: impl Iterator<Item = String>, report: impl Fn(&[&str])) {
    let targets: Vec<String> = targets.collect();
    for targets in targets.chunks(500) {
        let changes = targets.iter().flat_map(|target| [target.as_str(), "600000", "0"]);
        report(&["e", "0", "e"].into_iter().chain(changes).collect::<Vec<_>>());
    }
}

fn keys() -> impl Iterator<Item = String> {
    (0..KEYS).map(|number| format!("key={number:016X}"))
}

/// Each request over an SLO with `block=` earns one, from as many keys as clients like.
#[test]
fn blocks_that_clients_earn_take_no_room_of_operators() {
    let (redis, server) = (Redis::start(), TokenServer::start(""));
    let read = |name: &str| std::fs::read_to_string(project(&format!("src/sync/{name}.lua"))).unwrap();
    let script = read("common") + &read("blocks");
    let names = ["state", "blocks", "keys", "changes"].map(|name| format!("slowlane:{{cluster}}{name}"));
    fill(keys(), |words| {
        let head = ["EVAL", &script, "4"].into_iter().chain(names.iter().map(String::as_str));
        redis.ask(&head.chain(words.iter().copied()).collect::<Vec<_>>());
    });
    let (mut caller, _) = server.login(None);
    let word = |target: &String| {
        let target = Target::parse(target.as_bytes()).unwrap();
        BlockChange { target, rest: Some(Duration::from_secs(600)), is_restored: false }
    };
    for targets in keys().collect::<Vec<_>>().chunks(500) {
        let changes = targets.iter().map(word).collect();
        let blocks = Some(BlockUpdate { epoch: "e".into(), seq: 0, changes });
        let answer = caller.ask(&Question::Exchange(Due { blocks, ..Due::default() }));
        assert!(matches!(answer, StoreAnswer::Response(_)), "{answer:?}");
    }
    for url in [redis.url(), server.url()] {
        let one = node("one", &url);
        is_joined(&one, 1);
        let outcome = block(&one, "website=quiet.example");
        assert!(outcome.status.success(), "{outcome:?}");
        let late = node("late", &url);
        eventually("a late node blocks", || is_blocked(&late, "quiet.example").then_some(()));
    }
}

/// The room is full of blocks that this node does not know of.
#[test]
fn a_block_without_room_in_the_store_is_told_and_holds_on() {
    const FILL: &str =
        "for i = 1, tonumber(ARGV[1]) do redis.call('ZADD', KEYS[1], 99999999999999, 'path=/' .. i) end";
    const BLOCKS: &str = "slowlane:{cluster}blocks";
    let redis = Redis::start();
    let [one, other] = ["one", "other"].map(|name| node(name, &redis.url()));
    is_joined(&one, 2);
    redis.ask(&["EVAL", FILL, "1", BLOCKS, &OPERATORS.to_string()]);
    let outcome = block(&one, "website=quiet.example");
    let error = String::from_utf8_lossy(&outcome.stderr);
    assert_eq!((outcome.status.code(), outcome.stdout.as_slice()), (Some(1), &b""[..]), "{error}");
    assert!(error.contains("website=quiet.example is blocked on this node only"), "{error}");
    assert_eq!([&one, &other].map(|node| is_blocked(node, "quiet.example")), [true, false]);
    assert_eq!(one.metric("slowlane_cluster_blocks_alone", ""), 1.0);

    // Both read the whole list, which does not have it.
    redis.ask(&["ZREM", BLOCKS, "path=/1"]);
    redis.ask(&["HINCRBY", "slowlane:{cluster}state", "seq", "5"]);
    redis.ask(&["XTRIM", "slowlane:{cluster}changes", "MAXLEN", "0"]);
    eventually("the store takes the block, now that it has room", || {
        assert!(is_blocked(&one, "quiet.example"));
        is_blocked(&other, "quiet.example").then_some(())
    });
    eventually("it holds on all nodes", || {
        (one.metric("slowlane_cluster_blocks_alone", "") == 0.0).then_some(())
    });
    assert!(block(&one, "website=quiet.example").status.success(), "a known block needs no room");
    let full = block(&one, "website=other.example");
    assert!(String::from_utf8_lossy(&full.stderr).contains("`slowlane block rm`"), "{full:?}");
}

/// No command waits for a store that does not answer.
#[test]
fn a_block_without_a_store_says_that_the_others_do_not_know_it() {
    let redis = Redis::start();
    let [one, other] = ["one", "other"].map(|name| node(name, &redis.url()));
    is_joined(&one, 2);
    redis.process.stop();
    let outcome = block(&one, "website=quiet.example");
    redis.process.signal("CONT");
    assert!(outcome.status.success(), "{outcome:?}");
    let outcome = String::from_utf8(outcome.stdout).unwrap();
    assert!(
        outcome.ends_with(
            "the store is silent: the other nodes will learn of the block when the store \
                           answers\n"
        ),
        "{outcome}"
    );
    eventually("the other node learns of it", || is_blocked(&other, "quiet.example").then_some(()));
}
