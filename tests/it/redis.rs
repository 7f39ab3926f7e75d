//! Nodes that share SLOs through a real Redis, and what happens when it fails.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::eventually;
use crate::support::redis::{Redis, servers};
use crate::support::slowlane::{BINARY, Slowlane};
use crate::support::{client, own_address};

/// Twenty requests, then one in an hour: what is used up is used up for the length of a test.
pub(crate) const POLICY: &[(&str, &str)] = &[
    (
        "slo.map",
        "0 rate=unlimited\n2001 burst=20 rate=1/h law=token-bucket\n2002 burst=20 rate=1/h law=token-bucket cluster=local\n\
         2003 burst=20 rate=1/h law=token-bucket cluster=split\n2004 burst=50 rate=50/s\n\
         2005 burst=1 rate=200/h law=fixed-window cluster=lease\n2006 burst=1 rate=40/h law=fixed-window\n\
         2007 burst=1 rate=40/h law=sliding-window\n2008 burst=1 rate=1/h law=token-bucket block=10m\n",
    ),
    (
        "website.map",
        "shop.example 2001\nlocal.example 2002\nsplit.example 2003\npaced.example 2004\nleased.example 2005\n\
         fixed.example 2006\nsliding.example 2007\nbrief.example 2008\n",
    ),
];

pub(crate) fn node(name: &str, store: &str) -> Slowlane {
    node_with(name, store, "")
}

fn node_with(name: &str, store: &str, more: &str) -> Slowlane {
    Slowlane::with_config(POLICY, &format!("[cluster]\nstore = \"{store}\"\nnode = \"{name}\"\n{more}\n"))
}

fn nodes<const N: usize>(redis: &Redis) -> [Slowlane; N] {
    let nodes = std::array::from_fn(|number| node(&format!("node{number}"), &redis.url()));
    nodes.iter().for_each(|node| is_joined(node, N));
    nodes
}

pub(crate) fn is_joined(node: &Slowlane, count: usize) {
    eventually("all nodes know each other", || {
        (up(node) == 1.0 && node.metric("slowlane_cluster_nodes", "") == count as f64).then_some(())
    });
}

pub(crate) fn up(node: &Slowlane) -> f64 {
    node.metric("slowlane_cluster_up", "")
}

/// How many of these requests are let through.
pub(crate) fn passed(node: &Slowlane, website: &str, requests: usize) -> usize {
    let ask = |_| node.check("?hold=off", &[("X-Slowlane-Website", website)]).status;
    (0..requests).map(ask).filter(|&status| status == 204).count()
}

/// Waits until the store knows of every request.
pub(crate) fn is_reported(node: &Slowlane) {
    eventually("the node has told its requests", || {
        (node.metric("slowlane_cluster_owed_requests", "") == 0.0).then_some(())
    });
}

pub(crate) fn logged(node: &Slowlane, what: &str) -> usize {
    node.process.log().iter().filter(|line| line.contains(what)).count()
}

#[test]
fn what_one_node_lets_through_the_others_count() {
    servers().into_iter().for_each(others_count_in);
}

fn others_count_in(server: PathBuf) {
    let redis = Redis::of(server, own_address(), &[]);
    let [one, other] = nodes(&redis);
    let mut used = passed(&one, "shop.example", 40);
    assert!(used >= 15, "the burst is there for one node");
    is_reported(&one);
    // A quarter is let through unreported, a quarter as an equal share, and half of the rest until the store has answered.
    let of_other = passed(&other, "shop.example", 30);
    assert!(of_other <= 15, "the burst is used up for all nodes: {of_other}");
    // A node that has tokens left learns by its next message that there are none.
    eventually("the burst is used up", || {
        let more = passed(&one, "shop.example", 1) + passed(&other, "shop.example", 1);
        used += more;
        (more == 0).then_some(())
    });
    assert!(used + of_other <= 36, "two nodes that are alone let 40 through: {used} + {of_other}");
    assert_eq!(passed(&one, "local.example", 30) + passed(&other, "local.example", 30), 40);
    assert_eq!(passed(&one, "split.example", 30), 20, "the burst is not split");
    let shown = client::get(one.admin, "/api/cluster", &[]).body;
    assert!(shown.contains("node0") && shown.contains("node1") && shown.contains("(this node)"), "{shown}");
    let why = client::get(one.admin, "/api/why?website=shop.example", &[]).body;
    assert!(why.contains("share") && why.contains("elsewhere"), "{why}");
}

/// A quota by leases is never exceeded, though every node asks for more than all of it.
#[test]
fn a_leased_quota_is_used_up_and_never_exceeded() {
    servers().into_iter().for_each(a_quota_is_leased_in);
}

fn a_quota_is_leased_in(server: PathBuf) {
    let redis = Redis::of(server, own_address(), &[]);
    let nodes: [Slowlane; 3] = nodes(&redis);
    let mut used = 0;
    eventually("the quota is used up", || {
        used += nodes.iter().map(|node| passed(node, "leased.example", 7)).sum::<usize>();
        // A fiftieth may stay with nodes that do not ask.
        (used >= 196).then_some(())
    });
    for _ in 0..50 {
        used += nodes.iter().map(|node| passed(node, "leased.example", 7)).sum::<usize>();
    }
    assert!(used <= 200, "{used}");
}

/// Windows are counted together. What nodes let through before they knew of each other is a little too much.
#[test]
fn windows_are_counted_together() {
    let redis = Redis::start();
    let [one, other] = nodes(&redis);
    for website in ["fixed.example", "sliding.example"] {
        // Before the first answer a node takes an equal part, and then the rest.
        let mut used = 0;
        eventually("one node uses up the window", || {
            used += passed(&one, website, 1);
            (used >= 38).then_some(())
        });
        is_reported(&one);
        // A quarter is let through unreported, and up to half until the store has answered.
        used += passed(&other, website, 30);
        eventually("the window is used up", || {
            let more = passed(&one, website, 1) + passed(&other, website, 1);
            used += more;
            (more == 0).then_some(())
        });
        assert!(used <= 65, "{website}: two nodes that are alone let 80 through: {used}");
    }
    redis.process.stop();
    eventually("the store is silent", || (up(&one) == 0.0).then_some(()));
    assert!(passed(&one, "fixed.example", 60) <= 20, "alone, a node has an equal part of the limit");
    redis.process.signal("CONT");
}

/// Nodes and store exchange differences, not moments.
#[test]
fn nodes_with_other_clocks_share_one_burst_and_one_window() {
    let redis = Redis::start();
    let with = |name: &str, clock: &str| {
        let config = format!("[cluster]\nstore = \"{}\"\nnode = \"{name}\"\n", redis.url());
        Slowlane::with_clock(POLICY, &config, clock)
    };
    let (early, late) = (with("early", "-1h"), with("late", "+1h"));
    is_joined(&early, 2);
    is_joined(&late, 2);
    for website in ["shop.example", "fixed.example"] {
        let mut used = 0;
        eventually("it is used up", || {
            let more = passed(&early, website, 2) + passed(&late, website, 2);
            used += more;
            (more == 0).then_some(())
        });
        let most = if website == "shop.example" { 36 } else { 65 };
        assert!(used <= most, "{website}: two nodes that are alone let twice as much through: {used}");
    }
    eventually("an operator sees how far the clocks are apart", || {
        let shown = client::get(early.admin, "/api/cluster", &[]).body;
        let ahead: Vec<f64> = shown.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let is_near = |hours: f64| ahead.iter().any(|ms| (ms - hours * 3_600_000.0).abs() < 60_000.0);
        (is_near(-1.0) && is_near(1.0)).then_some(())
    });
}

/// Nobody who reads the store learns whom it is about.
#[test]
fn the_store_has_no_names_and_no_key_without_an_end() {
    let redis = Redis::start();
    let [one] = nodes(&redis);
    passed(&one, "shop.example", 30);
    is_reported(&one);
    let keys = redis.ask(&["KEYS", "*"]);
    assert!(keys.lines().count() >= 3 && keys.lines().all(|key| key.starts_with("slowlane:{")), "{keys}");
    for key in keys.lines() {
        assert!(redis.ask(&["PTTL", key]).parse::<u64>().unwrap() > 0, "{key} has an end");
        let kind = redis.ask(&["TYPE", key]);
        let value = if kind == "string" { redis.ask(&["GET", key]) } else { redis.ask(&["HGETALL", key]) };
        assert!(!value.contains("shop"), "{key}: {value}");
    }
}

/// A load of twelve clients that wait for each answer, on three nodes.
#[test]
fn three_nodes_pace_their_clients_together() {
    const SECONDS: u64 = 8;
    let redis = Redis::start();
    let nodes: [Slowlane; 3] = nodes(&redis);
    let begun = Instant::now();
    let is_over = || begun.elapsed() > Duration::from_secs(SECONDS);
    let ask = |node: &Slowlane| {
        let mut count = 0;
        while !is_over() {
            count += u64::from(node.check("", &[("X-Slowlane-Website", "paced.example")]).status == 204);
        }
        count
    };
    let passed: u64 = thread::scope(|scope| {
        let ask = &ask;
        let clients: Vec<_> =
            nodes.iter().cycle().take(12).map(|node| scope.spawn(move || ask(node))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    // The last answers come up to a second late. On a busy machine clients may be slower than the rate.
    let (least, most) = (SECONDS * 50 / 2, 50 + (SECONDS + 1) * 50 * 11 / 10);
    assert!((least..=most).contains(&passed), "{passed}: expected {least} to {most}");
}

/// The failures of a store that answers, each with its kind in the metrics and one line in the log.
#[test]
fn a_store_that_refuses_is_named_once_and_comes_back() {
    let redis = Redis::start();
    let [one, other] = nodes(&redis);
    let elsewhere = own_address();
    let (host, port) = (elsewhere.ip().to_string(), elsewhere.port().to_string());
    passed(&one, "paced.example", 60);
    for (kind, begin, end) in [
        ("memory", &["CONFIG", "SET", "maxmemory", "1"][..], &["CONFIG", "SET", "maxmemory", "0"][..]),
        ("read_only", &["REPLICAOF", &host, &port], &["REPLICAOF", "NO", "ONE"]),
    ] {
        assert_eq!(redis.ask(begin), "OK");
        eventually(kind, || {
            passed(&one, "paced.example", 1);
            (one.metric("slowlane_cluster_errors_total", kind) > 1.0 && up(&one) == 0.0).then_some(())
        });
        assert_eq!(client::get(one.admin, "/readyz", &[]).status, 200, "the node is ready all the time");
        assert_eq!(redis.ask(end), "OK");
        eventually("the store answers", || (up(&one) == 1.0 && up(&other) == 1.0).then_some(()));
    }
    assert_eq!(logged(&one, "the store is silent"), 2, "{:?}", one.process.log());
    // The first line is that of the start. A line may come a moment after the metric.
    eventually("the last line", || (logged(&one, "the store answers") == 3).then_some(()));
}

#[test]
fn a_store_that_has_forgotten_is_taught() {
    let mut redis = Redis::start();
    let [one, other] = nodes(&redis);
    passed(&one, "shop.example", 30);
    is_reported(&one);
    assert!(passed(&other, "shop.example", 30) <= 15);
    is_reported(&other);
    assert_eq!(redis.ask(&["FLUSHALL"]), "OK");
    let pushed =
        || [&one, &other].map(|node| node.metric("slowlane_cluster_taught_total", "")).iter().sum::<f64>();
    eventually("the store is taught", || {
        passed(&one, "shop.example", 1);
        (pushed() > 0.0).then_some(())
    });
    assert_eq!(redis.ask(&["SCRIPT", "FLUSH"]), "OK");
    passed(&other, "shop.example", 1);
    is_reported(&other);
    redis.kill();
    eventually("the store is silent", || (up(&one) == 0.0).then_some(()));
    redis.restart();
    eventually("the store answers", || (up(&one) == 1.0).then_some(()));
    // A forgotten burst would be twenty requests.
    let more = passed(&one, "shop.example", 30) + passed(&other, "shop.example", 30);
    assert!(more <= 3, "the nodes have not forgotten: {more}");
}

/// A failover to a master whose clock is not that of the old one, with the records of the old one.
#[test]
fn a_new_master_with_another_clock_forgets_nothing() {
    for was_ahead_by in [-5, 5] {
        let redis = Redis::start();
        let [one, other] = nodes(&redis);
        eventually("it is used up", || {
            (passed(&one, "shop.example", 5) + passed(&other, "shop.example", 5) == 0).then_some(())
        });
        is_reported(&one);
        is_reported(&other);
        redis.was_ahead_by(was_ahead_by);
        // A node that comes now knows only the new master's record: its own unreported quarter is all that it lets through.
        let late = node("late", &redis.url());
        is_joined(&late, 3);
        eventually("it has the key secret of the others", || {
            (late.metric("slowlane_policy_reloads_total", "") >= 1.0).then_some(())
        });
        let of_late = passed(&late, "shop.example", 40);
        assert!(of_late <= 15, "{was_ahead_by}: {of_late} of a late node");
        let more = passed(&one, "shop.example", 10) + passed(&other, "shop.example", 10);
        assert_eq!(more, 0, "{was_ahead_by}");
        is_reported(&late);
        assert_eq!(passed(&late, "shop.example", 10), 0, "{was_ahead_by}");
    }
}

/// Keys that the store evicts for lack of memory are taught again, and no node falls silent.
#[test]
fn evicted_keys_are_taught() {
    let redis = Redis::start();
    let [one, other] = nodes(&redis);
    eventually("it is used up", || {
        (passed(&one, "shop.example", 5) + passed(&other, "shop.example", 5) == 0).then_some(())
    });
    is_reported(&one);
    is_reported(&other);
    let used = redis.ask(&["INFO", "memory"]);
    let used = used.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap().trim().to_owned();
    let most = (used.parse::<u64>().unwrap() + 500_000).to_string();
    assert_eq!(redis.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-random"]), "OK");
    assert_eq!(redis.ask(&["CONFIG", "SET", "maxmemory", &most]), "OK");
    let evicted = || {
        let stats = redis.ask(&["INFO", "stats"]);
        stats
            .lines()
            .find_map(|line| line.strip_prefix("evicted_keys:"))
            .unwrap()
            .trim()
            .parse::<u64>()
            .unwrap()
    };
    let fill = "for i = 1, 5000 do redis.call('SET', 'other' .. i .. ARGV[1], string.rep('x', 200)) end";
    eventually("a key of the nodes is evicted", || {
        redis.ask(&["EVAL", fill, "0", &fastrand::u64(..).to_string()]);
        let pushed = one.metric("slowlane_cluster_taught_total", "")
            + other.metric("slowlane_cluster_taught_total", "");
        let more = passed(&one, "shop.example", 2) + passed(&other, "shop.example", 2);
        assert_eq!(more, 0, "the nodes know what was used up");
        (pushed > 0.0).then_some(())
    });
    assert!(evicted() > 1_000, "{}", evicted());
    assert_eq!((up(&one), up(&other)), (1.0, 1.0));
    assert_eq!(logged(&one, "the store is silent"), 0, "{:?}", one.process.log());
}

/// A firewall that forgets a connection: it stays open, and nothing comes through. New ones work.
#[test]
fn a_half_open_connection_is_given_up() {
    let redis = Redis::start();
    let wire = HalfOpen::lay(redis.address);
    let one = node("one", &format!("redis://{}", wire.address));
    is_joined(&one, 1);
    for times in 1..=2 {
        wire.forget_all();
        eventually("the silence is noticed", || {
            (one.metric("slowlane_cluster_errors_total", "silent") >= times as f64).then_some(())
        });
        // The error is counted a moment before the store counts as silent, so the metric would not do here.
        eventually("the store answers again", || {
            (logged(&one, "the store answers again") == times + 1).then_some(())
        });
    }
    assert_eq!(logged(&one, "the store is silent"), 2, "{:?}", one.process.log());
}

/// A TCP proxy that can forget its connections without closing them.
struct HalfOpen {
    address: SocketAddr,
    /// Connections of an older age than this one are forgotten.
    age: Arc<AtomicU32>,
}

impl HalfOpen {
    fn lay(target: SocketAddr) -> HalfOpen {
        let listener = TcpListener::bind(own_address()).unwrap();
        let (address, age) = (listener.local_addr().unwrap(), Arc::new(AtomicU32::new(0)));
        let now = age.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, other) = (stream.unwrap(), TcpStream::connect(target).unwrap());
                let born = now.load(Relaxed);
                for (mut from, mut to) in [
                    (stream.try_clone().unwrap(), other.try_clone().unwrap()),
                    (other.try_clone().unwrap(), stream.try_clone().unwrap()),
                ] {
                    let now = now.clone();
                    thread::spawn(move || {
                        let mut buffer = [0; 4_096];
                        while let Ok(count @ 1..) = from.read(&mut buffer) {
                            if now.load(Relaxed) == born && to.write_all(&buffer[..count]).is_err() {
                                return;
                            }
                        }
                    });
                }
            }
        });
        HalfOpen { address, age }
    }

    fn forget_all(&self) {
        self.age.fetch_add(1, Relaxed);
    }
}

/// A writer to the store can lie, but nothing that it writes stops a node.
#[test]
fn foreign_values_in_the_store_are_replaced() {
    let redis = Redis::start();
    let [one] = nodes(&redis);
    passed(&one, "shop.example", 30);
    is_reported(&one);
    let keys = redis.ask(&["KEYS", "slowlane:*"]);
    let key = keys.lines().find(|key| !key.contains("{cluster}")).unwrap().to_owned();
    let values = [
        "nan nan nan nan nan",
        "1e300 1e300 1e300 1e300 1e300",
        "-5 -5 -5 -5 -5",
        "inf 0 0 -inf 0",
        "1 2 3",
        "",
        "\u{1F422} 0 0 0 0",
    ];
    for value in values {
        redis.ask(&["SET", &key, value]);
        eventually("the record is repaired", || {
            passed(&one, "shop.example", 3);
            let record = redis.ask(&["GET", &key]);
            let numbers: Vec<f64> = record.split(' ').filter_map(|number| number.parse().ok()).collect();
            let is_whole = numbers.len() == 9 && numbers.iter().all(|number| number.abs() < 1e17);
            (is_whole && record != value).then_some(())
        });
    }
    for kind in [&["LPUSH", &key, "x"][..], &["HSET", &key, "x", "y"], &["SADD", &key, "x"]] {
        redis.ask(&["DEL", &key]);
        redis.ask(kind);
        eventually("the record is repaired", || {
            passed(&one, "shop.example", 3);
            (redis.ask(&["TYPE", &key]) == "string").then_some(())
        });
    }
    for key in ["slowlane:{cluster}nodes", "slowlane:{cluster}secret", "slowlane:{cluster}crowded"] {
        redis.ask(&["DEL", key]);
        redis.ask(&["LPUSH", key, "x"]);
    }
    redis.ask(&["HSET", "slowlane:{cluster}nodes", "liar", "1 {}"]);
    eventually("the heartbeat has repaired its keys", || {
        (redis.ask(&["TYPE", "slowlane:{cluster}nodes"]) == "hash"
            && redis.ask(&["TYPE", "slowlane:{cluster}secret"]) == "string")
            .then_some(())
    });
    assert_eq!(up(&one), 1.0);
}

/// The most memory that a process has had, in MB.
fn peak_mb(node: &Slowlane) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.process.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() / 1024
}

/// What is longer than any value of slowlane's stays in the store.
#[test]
fn a_long_foreign_value_takes_no_memory_of_a_node() {
    const TWENTY_MB: &str = "string.rep('x', 20 * 1024 * 1024)";
    let redis = Redis::start();
    let [one] = nodes(&redis);
    passed(&one, "shop.example", 30);
    command(&one, &["block", "add", "source=192.0.2.66", "--for", "10m"]);
    is_reported(&one);
    let before = peak_mb(&one);
    let keys = redis.ask(&["KEYS", "slowlane:*"]);
    let record = keys.lines().find(|key| !key.contains("{cluster}")).unwrap();
    let write = |key: &str, command: &str| {
        let command = command.replace("KEY", &format!("'{key}'")).replace("LONG", TWENTY_MB);
        let outcome = redis.ask(&["EVAL", &format!("return redis.call({command})"), "1", key]);
        assert!(
            ["OK", "0", "1"].contains(&outcome.as_str()) || outcome.ends_with("-0"),
            "{command}: {outcome}"
        );
    };
    let cluster = |name: &str| format!("slowlane:{{cluster}}{name}");
    let values = [
        (record, "'SET', KEY, LONG"),
        (&cluster("secret"), "'SET', KEY, LONG"),
        (&cluster("nodes"), "'HSET', KEY, 'stranger', '1 ' .. LONG"),
        (&cluster("nodes"), "'HSET', KEY, LONG, '1 {}'"),
        (&cluster("crowded"), "'ZADD', KEY, 9e15, LONG"),
        (&cluster("blocks"), "'ZADD', KEY, 99999999999999, LONG"),
        (&cluster("keys"), "'ZADD', KEY, 99999999999999, LONG"),
        (&cluster("changes"), "'XADD', KEY, '2-0', 't', LONG, 'u', '99999999999999'"),
        // Without its epoch the store begins a new list.
        (&cluster("state"), "'HSET', KEY, 'epoch', LONG"),
        (&cluster("state"), "'HSET', KEY, 'seq', LONG"),
    ];
    for (values, source) in [(&values[..8], "192.0.2.100"), (&values[8..], "192.0.2.101")] {
        values.iter().for_each(|(key, command)| write(key, command));
        passed(&one, "shop.example", 3);
        is_reported(&one);
        let late = node("late", &redis.url());
        is_joined(&late, 2);
        self::command(&late, &["block", "add", &format!("source={source}"), "--for", "10m"]);
        eventually("the block holds", || is_blocked(&one, source).then_some(()));
        eventually("a late node has the blocks", || is_blocked(&late, "192.0.2.66").then_some(()));
        assert!(peak_mb(&late) < before + 15, "{before} MB before, {} MB of a late node", peak_mb(&late));
        drop(late);
        is_joined(&one, 1);
    }
    assert!(peak_mb(&one) < before + 15, "{before} MB before, {} MB after", peak_mb(&one));
    // A store that is busy with such values may have been silent for a moment.
    eventually("the store answers", || (up(&one) == 1.0).then_some(()));
}

#[test]
fn a_wrong_password_is_named_and_never_shown() {
    let redis = Redis::with(&["--requirepass", "turtle-secret"]);
    let wrong = node("wrong", &format!("redis://:turtle-wrong@{}", redis.address));
    eventually("the login is refused", || {
        (wrong.metric("slowlane_cluster_errors_total", "login") > 0.0).then_some(())
    });
    let right = node("right", &format!("redis://:turtle-secret@{}/3", redis.address));
    is_joined(&right, 1);
    for node in [&wrong, &right] {
        let shown = client::get(node.admin, "/api/cluster", &[]).body + &node.process.log().join("\n");
        assert!(shown.contains("***@") && !shown.contains("turtle"), "{shown}");
    }
    assert_eq!(redis.ask(&["-n", "3", "EXISTS", "slowlane:{cluster}nodes"]), "1");
}

/// Several clusters, and other programs, may use one store.
#[test]
fn clusters_with_other_prefixes_do_not_meet() {
    let redis = Redis::start();
    let one = node_with("one", &redis.url(), "prefix = \"one:\"");
    let other = node_with("other", &redis.url(), "prefix = \"other:\"");
    is_joined(&one, 1);
    is_joined(&other, 1);
    assert_eq!(redis.ask(&["SET", "mine", "kept"]), "OK");
    assert!(passed(&one, "shop.example", 30) >= 15);
    is_reported(&one);
    assert!(passed(&other, "shop.example", 30) >= 15);
    assert_eq!(redis.ask(&["GET", "mine"]), "kept");
}

#[test]
fn a_unix_socket_is_as_good() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("redis.sock");
    let _redis = Redis::with(&["--unixsocket", path.to_str().unwrap()]);
    let one = node("one", &format!("redis+unix://{}", path.display()));
    is_joined(&one, 1);
    let shown = client::get(one.admin, "/api/cluster", &[]).body;
    assert!(shown.contains("\n0 keys shared, 0 requests not yet reported"), "{shown}");
}

/// A port that answers with something else than Redis does, and one that answers nothing.
#[test]
fn garbage_and_silence_are_no_store() {
    for (answer, kinds) in [(&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "garbage"), (b"", "silent")] {
        let listener = TcpListener::bind(own_address()).unwrap();
        let store = format!("redis://{}", listener.local_addr().unwrap());
        thread::spawn(move || {
            let mut open = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 1_000]);
                let _ = stream.write_all(answer);
                open.push(stream);
            }
        });
        let one = node("one", &store);
        let errors = || one.metric("slowlane_cluster_errors_total", "");
        eventually("the store fails", || (errors() > 0.0).then_some(()));
        assert!(
            one.metric("slowlane_cluster_errors_total", kinds) > 0.0,
            "{}",
            client::get(one.admin, "/metrics", &[]).body
        );
        assert_eq!(passed(&one, "shop.example", 30), 20, "alone, the node has the whole rate");
    }
}

/// A node that is alone with its policy is named by the others, and knows it of itself.
#[test]
fn nodes_with_other_slos_are_named() {
    let redis = Redis::start();
    let [one, other] = nodes(&redis);
    let others = |node: &Slowlane| node.metric("slowlane_cluster_other_policies", "");
    assert_eq!([others(&one), others(&other)], [0.0, 0.0]);
    other.replace("slo.map", &POLICY[0].1.replace("burst=50 rate=50/s", "burst=50 rate=60/s"));
    eventually("both know it", || (others(&one) == 1.0 && others(&other) == 1.0).then_some(()));
    // The metric comes first.
    let is_logged = |text: &str| eventually(text, || (logged(&one, text) > 0).then_some(()));
    is_logged("nodes with different SLOs: node1;");
    other.replace("slo.map", POLICY[0].1);
    eventually("all agree", || (others(&one) == 0.0 && others(&other) == 0.0).then_some(()));
    is_logged("all nodes have the same SLOs");
    let lines =
        ["nodes with different SLOs: node1;", "all nodes have the same SLOs"].map(|text| logged(&one, text));
    assert_eq!(lines, [1, 1], "{:?}", one.process.log());
}

/// The refusal of a source, by a block of an operator.
fn is_blocked(node: &Slowlane, source: &str) -> bool {
    node.check("?hold=off", &[("X-Slowlane-Source", source)]).status == 403
}

/// Runs a command against a node, like `block source=192.0.2.66 --for 10m`.
fn command(node: &Slowlane, words: &[&str]) {
    let mut command = Command::new(BINARY);
    let ran = command.args(words).arg("--admin").arg(node.admin.to_string()).output().unwrap();
    assert!(ran.status.success(), "{words:?}: {}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn a_block_holds_on_all_nodes_and_on_those_that_come_later() {
    servers().into_iter().for_each(a_block_holds_in);
}

fn a_block_holds_in(server: PathBuf) {
    let mut redis = Redis::of(server, own_address(), &[]);
    let [one, other] = nodes(&redis);
    command(&one, &["block", "add", "source=192.0.2.66", "--for", "10m"]);
    eventually("the other node blocks", || is_blocked(&other, "192.0.2.66").then_some(()));
    assert!(!is_blocked(&other, "192.0.2.67"));
    let late = node("late", &redis.url());
    eventually("a late node blocks", || is_blocked(&late, "192.0.2.66").then_some(()));
    command(&late, &["block", "rm", "source=192.0.2.66"]);
    eventually("no node blocks", || {
        [&one, &other, &late].iter().all(|node| !is_blocked(node, "192.0.2.66")).then_some(())
    });

    // A store that has forgotten everything learns it from any node.
    command(&one, &["block", "add", "source=192.0.2.99", "--for", "10m"]);
    eventually("the other node blocks", || is_blocked(&other, "192.0.2.99").then_some(()));
    redis.kill();
    redis.restart();
    eventually("the store knows the block", || {
        (redis.ask(&["ZCARD", "slowlane:{cluster}blocks"]) == "1").then_some(())
    });
    assert!(is_blocked(&one, "192.0.2.99") && is_blocked(&other, "192.0.2.99"));
    assert!(redis.ask(&["PTTL", "slowlane:{cluster}blocks"]).parse::<u64>().unwrap() > 0, "it has an end");
}

/// A node that was away reads the whole list, also when the changes meanwhile are no longer kept one by one.
#[test]
fn a_node_that_was_away_misses_no_change() {
    let redis = Redis::start();
    let [one, other] = nodes(&redis);
    command(&one, &["block", "add", "source=192.0.2.1", "--for", "10m"]);
    command(&one, &["block", "add", "source=192.0.2.2", "--for", "10m"]);
    eventually("the other node blocks", || is_blocked(&other, "192.0.2.2").then_some(()));
    other.process.stop();
    command(&one, &["block", "rm", "source=192.0.2.1"]);
    command(&one, &["block", "add", "source=192.0.2.3", "--for", "10m"]);
    eventually("the store knows", || {
        (redis.ask(&["ZCARD", "slowlane:{cluster}blocks"]) == "2").then_some(())
    });
    assert_eq!(redis.ask(&["XTRIM", "slowlane:{cluster}changes", "MAXLEN", "0"]).parse::<u32>().unwrap(), 4);
    other.process.signal("CONT");
    eventually("the other node knows", || {
        (!is_blocked(&other, "192.0.2.1") && is_blocked(&other, "192.0.2.3")).then_some(())
    });
    assert!(is_blocked(&other, "192.0.2.2") && is_blocked(&one, "192.0.2.2"));
}

/// A key that an SLO with `block=` refuses on one node is refused on all.
#[test]
fn a_key_that_an_slo_blocks_is_blocked_on_all_nodes() {
    let redis = Redis::start();
    let [one, other] = nodes(&redis);
    let ask = |node: &Slowlane| node.check("?hold=off", &[("X-Slowlane-Website", "brief.example")]).status;
    eventually("the key is refused", || (ask(&one) == 403).then_some(()));
    eventually("it is blocked on the other node", || {
        client::get(other.admin, "/api/blocks", &[]).body.contains("key=").then_some(())
    });
    assert_eq!(ask(&other), 403, "its first request there");
}

/// Nothing that a stranger writes into the lists of blocks stops a node or blocks anybody else.
#[test]
fn foreign_blocks_in_the_store_are_left_out() {
    let redis = Redis::start();
    let [one] = nodes(&redis);
    command(&one, &["block", "add", "source=192.0.2.66", "--for", "10m"]);
    let end = "99999999999999";
    for member in ["", "source", "=", "key=nothex", "source=192.0.2.0/24 source=x", "\u{1F422}"] {
        redis.ask(&["ZADD", "slowlane:{cluster}blocks", end, member]);
    }
    for field in ["epoch", "seq"] {
        redis.ask(&["HSET", "slowlane:{cluster}state", field, "nan"]);
        let late = node("late", &redis.url());
        eventually("a late node blocks", || is_blocked(&late, "192.0.2.66").then_some(()));
        assert!(!is_blocked(&late, "192.0.2.1"));
    }
    for key in ["slowlane:{cluster}state", "slowlane:{cluster}blocks", "slowlane:{cluster}changes"] {
        redis.ask(&["DEL", key]);
        redis.ask(&["LPUSH", key, "x"]);
    }
    command(&one, &["block", "add", "source=192.0.2.77", "--for", "10m"]);
    eventually("the lists are repaired", || {
        (redis.ask(&["TYPE", "slowlane:{cluster}blocks"]) == "zset").then_some(())
    });
    let late = node("latest", &redis.url());
    eventually("a late node blocks", || is_blocked(&late, "192.0.2.77").then_some(()));
    assert_eq!(up(&one), 1.0);
}

/// Behind sentinels, nodes ask for the master anew after a failover. They teach it what the old one had not passed on.
#[test]
fn a_failover_behind_sentinels_costs_no_request() {
    let mut master = Redis::start();
    let (host, port) = (master.address.ip().to_string(), master.address.port().to_string());
    let _replica = Redis::with(&["--replicaof", &format!("{host} {port}")]);
    let sentinel = Redis::sentinel(&master);
    eventually("the sentinel has found the replica", || {
        sentinel.ask(&["SENTINEL", "MASTERS"]).contains("num-slaves\n1").then_some(())
    });
    let url = format!("redis-sentinel://{}/main", sentinel.address);
    let [one, other] = ["one", "other"].map(|name| node(name, &url));
    is_joined(&one, 2);
    is_joined(&other, 2);
    assert!(passed(&one, "shop.example", 30) >= 15);
    is_reported(&one);
    master.kill();
    eventually("the store is silent", || (up(&one) == 0.0).then_some(()));
    eventually("the new master answers", || (up(&one) == 1.0 && up(&other) == 1.0).then_some(()));
    let more = passed(&one, "shop.example", 30);
    assert!(more <= 8, "a forgotten burst would be twenty requests: {more}");
    is_joined(&one, 2);
}

/// In a Redis Cluster the keys are spread over the servers, and nodes share each of them.
#[test]
fn a_redis_cluster_is_one_store() {
    let servers = Redis::cluster();
    let url = format!("redis-cluster://{},{}", servers[0].address, servers[1].address);
    let [one, other] = ["one", "other"].map(|name| node(name, &url));
    is_joined(&one, 2);
    is_joined(&other, 2);
    for website in ["shop.example", "paced.example", "leased.example", "fixed.example"] {
        passed(&one, website, 60);
    }
    is_reported(&one);
    assert!(passed(&other, "shop.example", 30) <= 15);
    let keys: usize = servers.iter().map(|server| server.ask(&["DBSIZE"]).parse::<usize>().unwrap()).sum();
    assert!(keys >= 5, "{keys}");
    command(&one, &["block", "add", "source=192.0.2.66", "--for", "10m"]);
    eventually("the other node blocks", || is_blocked(&other, "192.0.2.66").then_some(()));
}

/// A store over TLS is believed only with a certificate of the authority that the config names.
#[test]
fn tls_needs_the_right_authority() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let address = own_address();
    for name in ["right", "wrong"] {
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
            .args(["-days", "2", "-subj", "/CN=slowlane test"])
            .args(["-addext", &format!("subjectAltName=IP:{}", address.ip())])
            .args(["-addext", "basicConstraints=critical,CA:FALSE"])
            .args(["-keyout", &path(&format!("{name}.key")), "-out", &path(&format!("{name}.pem"))])
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
    let port = (address.port() + 1).to_string();
    let (certificate, key) = (path("right.pem"), path("right.key"));
    let tls = ["--tls-port", &port, "--tls-auth-clients", "no"];
    let files = ["--tls-cert-file", &certificate, "--tls-key-file", &key];
    let _redis = Redis::at(address, &[tls, files].concat());
    let with = |name: &str| {
        let authority = format!("ca = \"{}\"", path(&format!("{name}.pem")));
        node_with(name, &format!("rediss://{}:{port}", address.ip()), &authority)
    };
    let (right, wrong) = (with("right"), with("wrong"));
    is_joined(&right, 1);
    eventually("the certificate is refused", || {
        (wrong.metric("slowlane_cluster_errors_total", "kind") > 1.0).then_some(())
    });
    assert_eq!(up(&wrong), 0.0);
    let shown = client::get(wrong.admin, "/api/cluster", &[]).body;
    assert!(shown.contains("certificate"), "{shown}");
}
