//! Nodes that share SLOs through another slowlane, and a standby that takes over.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::redis::{POLICY, is_joined, is_reported, logged, node, passed, up};
use crate::support::slowlane::BINARY;
use crate::support::token_server::{Pair, TokenServer};
use crate::support::{PATIENCE, client, eventually};
use rustix::process::{Resource, getrlimit, setrlimit};
use slowlane::store_protocol::{HELLO, Question, Refusal, StoreAnswer};
use slowlane_core::cluster::Due;

const TOKEN: &str = "0123456789abcdef";

#[test]
fn nodes_share_a_burst_a_secret_and_blocks_without_redis() {
    let server = TokenServer::start("");
    let [one, other] = [node("one", &server.url()), node("other", &server.url())];
    for node in [&one, &other] {
        is_joined(node, 2);
    }
    let used = passed(&one, "shop.example", 40);
    assert!(used >= 15, "the burst is there for one node");
    is_reported(&one);
    let of_other = passed(&other, "shop.example", 30);
    assert!(of_other <= 15, "the burst is used up for all nodes: {of_other}");
    eventually("the burst is used up", || {
        (passed(&one, "shop.example", 1) + passed(&other, "shop.example", 1) == 0).then_some(())
    });
    let block = ["block", "add", "website=other.example", "--for", "10m", "--admin", &one.admin.to_string()];
    let block = Command::new(BINARY).args(block).output().unwrap();
    assert!(block.status.success(), "{block:?}");
    eventually("the block holds on the other node", || {
        (passed(&other, "other.example", 1) == 0).then_some(())
    });
    assert!(server.slowlane.metric("slowlane_token_server_records", "") >= 1.0);
    assert!(server.slowlane.metric("slowlane_token_server_commands_total", "") >= 4.0);
    assert_eq!(server.slowlane.metric("slowlane_connections", "cluster"), 2.0);
    // The token server itself has no requests.
    let admin = server.slowlane.admin.to_string();
    let outcome = Command::new(BINARY).args(["status", "cluster", "--admin", &admin]).output().unwrap();
    let outcome = String::from_utf8(outcome.stdout).unwrap();
    let nodes: Vec<&str> = outcome.lines().skip(3).filter_map(|line| line.split(' ').next()).collect();
    assert!(outcome.starts_with("store this token server: up for "), "{outcome}");
    assert!(nodes.len() == 2 && ["one", "other"].iter().all(|node| nodes.contains(node)), "{outcome}");
    assert_eq!(server.slowlane.metric("slowlane_cluster_other_policies", ""), 0.0, "it needs no SLOs");
}

/// A leased quota is never exceeded, and windows are counted together, as with Redis.
#[test]
fn quotas_and_windows_are_shared_without_redis() {
    let server = TokenServer::start("");
    let nodes = [node("one", &server.url()), node("other", &server.url())];
    nodes.iter().for_each(|node| is_joined(node, 2));
    for (website, least, most) in [("leased.example", 196, 200), ("fixed.example", 30, 65)] {
        let mut used = 0;
        let mut ask = |count| {
            let more = nodes.iter().map(|node| passed(node, website, count)).sum::<usize>();
            used += more;
            (used, more)
        };
        eventually("the quota is used up", || (ask(7).0 >= least).then_some(()));
        eventually("nothing is left", || (ask(1).1 == 0).then_some(()));
        assert!(used <= most, "{website}: {used}");
    }
}

/// More has been given of a quota than an edit leaves of it.
#[test]
fn a_leased_quota_may_be_edited_while_it_is_used() {
    let server = TokenServer::start("");
    let one = node("one", &server.url());
    is_joined(&one, 1);
    let mut used = 0;
    eventually("most of the quota is used", || {
        used += passed(&one, "leased.example", 9);
        (used >= 180).then_some(())
    });
    let reloads = one.metric("slowlane_policy_reloads_total", "");
    one.replace("slo.map", &POLICY[0].1.replace("rate=200/h", "rate=100/h"));
    eventually("the edit is in force", || {
        (one.metric("slowlane_policy_reloads_total", "") > reloads).then_some(())
    });
    let outcome = one.metric("slowlane_cluster_messages_total", "");
    eventually("the node has asked for more", || {
        passed(&one, "leased.example", 1);
        (one.metric("slowlane_cluster_messages_total", "") >= outcome + 3.0).then_some(())
    });
    assert_eq!((one.metric("slowlane_cluster_errors_total", "garbage"), up(&one)), (0.0, 1.0));
}

/// A token server that decides for a proxy, too, is a node like the others.
#[test]
fn a_token_server_counts_its_own_requests_with_those_of_its_nodes() {
    let server = TokenServer::with_policy(POLICY, "node = \"server\"");
    let [one, other] = [node("one", &server.url()), node("other", &server.url())];
    let nodes = [&server.slowlane, &one, &other];
    nodes.iter().for_each(|node| is_joined(node, 2));
    passed(&server.slowlane, "split.example", 1);
    nodes.iter().for_each(|node| is_joined(node, 3));
    eventually("all have one key secret", || {
        let taken = nodes.iter().map(|node| node.metric("slowlane_policy_reloads_total", "")).sum::<f64>();
        (taken >= 2.0).then_some(())
    });
    let mut used = 0;
    let mut ask = |website| {
        let more = nodes.iter().map(|node| passed(node, website, 7)).sum::<usize>();
        used += more;
        (used, more)
    };
    eventually("the quota is used up", || (ask("leased.example").0 >= 196).then_some(()));
    eventually("nothing is left", || (ask("leased.example").1 == 0).then_some(()));
    assert!(used <= 200, "a leased quota is never exceeded: {used}");
    let block = ["block", "add", "website=quiet.example", "--for", "10m", "--admin"];
    let block = Command::new(BINARY).args(block).arg(server.slowlane.admin.to_string()).output().unwrap();
    assert!(block.status.success(), "{block:?}");
    for node in nodes {
        eventually("the block holds", || (passed(node, "quiet.example", 1) == 0).then_some(()));
    }
    let shown = client::get(server.slowlane.admin, "/api/cluster", &[]).body;
    assert!(shown.starts_with("store this token server: up for ") && shown.contains("server"), "{shown}");
}

/// The first one dies. HAProxy sends the nodes to the standby, which learns from them what was used up.
#[test]
fn a_standby_takes_over_and_learns_from_the_nodes() {
    takes_over(&[("slo.map", "0 rate=unlimited\n")]);
}

/// It has a key secret of its own, which no node takes.
#[test]
fn a_standby_with_slos_takes_the_key_secret_of_the_nodes() {
    takes_over(POLICY);
}

fn takes_over(files: &[(&str, &str)]) {
    let pair = Pair::start(files);
    let [one, other] = [node("one", &pair.url()), node("other", &pair.url())];
    let Pair { mut first, standby, balancer: _balancer } = pair;
    for node in [&one, &other] {
        is_joined(node, 2);
    }
    // The standby knows keys of its own.
    passed(&standby.slowlane, "paced.example", 9);
    let mut used = 0;
    eventually("the burst is used up", || {
        let more = passed(&one, "shop.example", 4) + passed(&other, "shop.example", 4);
        used += more;
        (more == 0).then_some(())
    });
    for node in [&one, &other] {
        is_reported(node);
    }
    // What one of them has reported, the other knows with the next reply.
    for node in [&one, &other] {
        let messages = || node.metric("slowlane_cluster_messages_total", "");
        let before = messages();
        eventually("the node has asked for more", || {
            used += passed(node, "shop.example", 1);
            (messages() >= before + 3.0).then_some(())
        });
    }
    first.slowlane.kill();
    for node in [&one, &other] {
        eventually("the node has met the standby", || {
            (logged(node, "the store is silent") == 1 && logged(node, "the store answers") == 2).then_some(())
        });
    }
    let more = passed(&one, "shop.example", 10) + passed(&other, "shop.example", 10);
    // A node that cannot know what the others take refuses too early: then the rest of the burst is still to be had.
    assert!(more == 0 || used + more <= 20, "the standby knows what was used up: {used}, then {more}");
    eventually("the standby keeps the key", || {
        (standby.slowlane.metric("slowlane_token_server_records", "") >= 1.0).then_some(())
    });
    assert_eq!([&one, &other].map(up), [1.0; 2]);
}

#[test]
fn without_its_token_a_node_shares_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    fs::write(&path, TOKEN).unwrap();
    let server = TokenServer::start(&format!("token_file = \"{}\"", path.display()));
    for (token, refusal) in [
        (None, Refusal::NoToken),
        (Some(""), Refusal::WrongToken),
        (Some("0123456789abcde"), Refusal::WrongToken),
        (Some("0123456789abcdeF"), Refusal::WrongToken),
    ] {
        let (mut stranger, answer) = server.login(token);
        assert!(matches!(answer, StoreAnswer::Refused(outcome) if outcome == refusal), "{answer:?}");
        assert!(stranger.is_closed(), "it has one message");
    }
    let mut stranger = server.greeted();
    let answer = stranger.ask(&Question::Exchange(Due::default()));
    assert!(matches!(answer, StoreAnswer::Refused(Refusal::NoToken)), "{answer:?}");
    assert!(stranger.is_closed());
    let (mut known, answer) = server.login(Some(TOKEN));
    assert!(matches!(answer, StoreAnswer::Welcome), "{answer:?}");
    assert!(matches!(known.ask(&Question::Exchange(Due::default())), StoreAnswer::Response(_)));
    let answer = known.ask(&Question::Login(Some("0123456789abcdeF".into())));
    assert!(matches!(answer, StoreAnswer::Refused(Refusal::WrongToken)), "{answer:?}");
    assert!(known.is_closed());

    // Byte by byte, a stranger keeps a connection no longer than any other.
    let (mut slow, begun) = (TcpStream::connect(server.address).unwrap(), Instant::now());
    slow.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let login = [HELLO.as_bytes(), &400u32.to_le_bytes()].concat();
    for byte in login.iter().chain(std::iter::repeat(&b'x')) {
        let is_gone = slow.write_all(&[*byte]).is_err() || matches!(slow.read(&mut [0; 100]), Ok(0));
        if is_gone {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "a stranger is let go");
    }
    for url in [server.url(), server.url().replace("//", "//:fedcba9876543210@")] {
        let node = node("stranger", &url);
        eventually("the node is told", || {
            (node.metric("slowlane_cluster_errors_total", "login") > 0.0).then_some(())
        });
        assert_eq!(up(&node), 0.0);
        assert!(!node.process.log().iter().any(|line| line.contains("fedcba9876543210")));
    }
    let node = node("friend", &server.url().replace("//", &format!("//:{TOKEN}@")));
    is_joined(&node, 1);
    assert!(!node.process.log().iter().any(|line| line.contains(TOKEN)));
}

/// More strangers than there are connections for nodes come, and stay.
#[test]
fn strangers_keep_no_node_out() {
    const STRANGERS: usize = 3_000;
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    fs::write(&path, TOKEN).unwrap();
    let server = TokenServer::start(&format!("token_file = \"{}\"", path.display()));
    let friend = node("friend", &server.url().replace("//", &format!("//:{TOKEN}@")));
    is_joined(&friend, 1);
    let mut strangers: Vec<TcpStream> =
        (0..STRANGERS).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    assert!(matches!(server.login(Some(TOKEN)).1, StoreAnswer::Welcome));
    let mut is_open = |stranger: &mut TcpStream| {
        stranger.set_nonblocking(true).unwrap();
        !matches!(stranger.read(&mut [0; 9]), Ok(0))
    };
    let open = strangers.iter_mut().map(&mut is_open).filter(|&is_open| is_open).count();
    // Without a lobby, 2,000 of them stay for five seconds, and the rest comes before the login.
    assert!(open <= 500, "{open} strangers are still there");
    assert!(is_open(strangers.last_mut().unwrap()), "the oldest of them have gone");
    assert!(server.slowlane.metric("slowlane_token_server_strangers_gone_total", "") >= 2_500.0);
    assert_eq!((up(&friend), logged(&friend, "the store is silent")), (1.0, 0));
}

/// Other machines could read the key secret, and clear every SLO.
#[test]
fn a_token_server_that_others_can_reach_needs_a_token() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("slowlane.toml");
    fs::write(&config, "[cluster]\nlisten = [\"0.0.0.0:0\"]\n").unwrap();
    let run = Command::new(BINARY).arg("run").arg("--config").arg(&config).output().unwrap();
    let outcome = String::from_utf8(run.stderr).unwrap();
    assert_eq!(run.status.code(), Some(1), "{outcome}");
    assert!(outcome.contains(":2: cluster on 0.0.0.0:0 is open to others: set a token"), "{outcome}");
}

/// Whatever comes, the connection ends, and the others are served.
#[test]
fn bytes_that_are_no_message_end_the_connection() {
    let server = TokenServer::start("");
    let node = node("one", &server.url());
    is_joined(&node, 1);
    let hello = HELLO.as_bytes();
    let with = |bytes: &[u8]| [hello, bytes].concat();
    let long = [hello, &513u32.to_le_bytes()[..], &[b'x'; 100_000]].concat();
    for bytes in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\0\0\0\0", &with(&[0xFF; 4]), &with(&[1, 0, 0, 0, 9]), &long]
    {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        // The server may have closed already.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty() || answer == hello, "{answer:?}");
    }
    // A message that never ends, and one that is answered beside it.
    let mut open = TcpStream::connect(server.address).unwrap();
    open.write_all(&with(&400u32.to_le_bytes())).unwrap();
    assert!(matches!(server.login(None).1, StoreAnswer::Welcome));
    let (_, answer) = server.login(Some(TOKEN));
    assert!(matches!(answer, StoreAnswer::Refused(Refusal::NoneWanted)), "{answer:?}");
    assert_eq!(up(&node), 1.0);
    assert_eq!(logged(&node, "the store is silent"), 0);
}

/// Both sides name the remedy: the older one by an error of its own protocol.
#[test]
fn nodes_and_servers_of_another_version_are_told() {
    let server = TokenServer::start("");
    for (bytes, answered, outcome) in [
        (
            &b"*2\r\n$4\r\nAUTH\r\n$16\r\n0123456789abcdef\r\n"[..],
            "-ERR this token server has a different version",
            "the other side speaks RESP",
        ),
        (b"slowlane-store 99\n", "slowlane-store", "the other side speaks slowlane-store 99"),
    ] {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(bytes).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with(answered), "{answer}");
        eventually("the log tells of it", || (logged(&server.slowlane, outcome) == 1).then_some(()));
        // At most one line a second.
        std::thread::sleep(Duration::from_millis(1_100));
    }
    let older = TcpListener::bind("127.0.0.1:0").unwrap();
    let node = node("one", &format!("slowlane://{}", older.local_addr().unwrap()));
    let (mut stream, _) = older.accept().unwrap();
    stream.write_all(b"-ERR Protocol error: expected an array of bulk strings\r\n").unwrap();
    eventually("the log tells of it", || (logged(&node, "the other side speaks RESP") == 1).then_some(()));
}
