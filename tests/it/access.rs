//! Who may ask: networks, warnings about open listeners and open files, and secrets that nobody is shown.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use slowlane::store_protocol::{HELLO, Question, frame};
use slowlane_core::base::Network;
use socket2::{Domain, Socket, Type};

use crate::cli::{Ran, ran};
use crate::support::process::Process;
use crate::support::slowlane::{BINARY, Slowlane};
use crate::support::spop::{Line, hello};
use crate::support::tls::Authority;
use crate::support::{PATIENCE, client, eventually, own_address};

const POLICY: &[(&str, &str)] = &[("slo.map", "0 rate=unlimited\n")];

/// A connection from an address of the loopback network.
fn from(source: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((source, 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// The answer to bytes; empty if the listener closes.
fn answer(mut stream: TcpStream, bytes: &[u8]) -> Vec<u8> {
    let _ = stream.write_all(bytes);
    let mut answer = [0; 4096];
    match stream.read(&mut answer) {
        Ok(count) => answer[..count].to_vec(),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Vec::new(),
        Err(error) => panic!("neither an answer nor a close: {error}"),
    }
}

const CHECK: &[u8] = b"GET /check HTTP/1.1\r\nHost: localhost\r\n\r\n";
const HEALTH: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[test]
fn a_connection_from_another_network_is_closed_unread() {
    let allow = "allow = [\"127.1.0.0/16\", \"127.0.0.1\", \"2001:db8::/32\"]";
    let store = own_address();
    let config = format!(
        "[spop]\n{allow}\n[http]\n{allow}\n[admin]\n{allow}\n[cluster]\nlisten = [\"{store}\"]\n{allow}\n"
    );
    let slowlane = Slowlane::with_config(POLICY, &config);
    let login: Question = Question::Login(None);
    let login = [HELLO.as_bytes(), &frame(&login)].concat();
    let listeners = [
        ("spop", slowlane.spop, &hello()[..]),
        ("http", slowlane.http, CHECK),
        ("admin", slowlane.admin, HEALTH),
        ("cluster", store, &login[..]),
    ];
    for (name, address, question) in listeners {
        for allowed in [[127, 0, 0, 1], [127, 1, 2, 3], [127, 1, 255, 255]] {
            assert!(!answer(from(allowed, address), question).is_empty(), "{name} {allowed:?}");
        }
        for refused in [[127, 0, 0, 2], [127, 2, 0, 1]] {
            assert_eq!(answer(from(refused, address), question), b"", "{name} {refused:?}");
        }
        let metric = |name: &str, listener: &str| slowlane.metric(name, &format!("listener=\"{listener}\""));
        assert_eq!(metric("slowlane_connections_not_allowed_total", name), 2.0);
    }
    let line = "closed a connection from 127.0.0.2: `allow` does not list its network";
    let outcome = || slowlane.process.log().iter().filter(|outcome| outcome.contains(line)).count();
    eventually("each listener has a line", || (outcome() == 4).then_some(()));
    // A Unix socket has its permissions instead.
    let mut unix = UnixStream::connect(slowlane.socket("http")).unwrap();
    unix.write_all(CHECK).unwrap();
    let mut outcome = [0; 12];
    unix.read_exact(&mut outcome).unwrap();
    assert_eq!(&outcome, b"HTTP/1.1 204");
}

#[test]
fn no_handshake_is_made_with_a_network_that_is_not_listed() {
    let authority = Authority::new("servers");
    let config = format!("[spop]\nallow = [\"127.0.0.2\"]\n[spop.tls]\n{}", authority.pair("server").lines());
    let slowlane = Slowlane::with_config(POLICY, &config);
    assert_eq!(answer(from([127, 0, 0, 1], slowlane.spop), b"\x16\x03\x01"), b"");
    assert_eq!(slowlane.metric("slowlane_connections_not_allowed_total", "spop"), 1.0);
    assert_eq!(slowlane.metric("slowlane_tls_handshake_failures_total", ""), 0.0);
}

/// A listener on all addresses of both families has IPv4 peers in the notation of IPv6.
#[test]
fn an_ipv4_peer_of_an_ipv6_listener_counts_as_ipv4() {
    for (allow, is_allowed) in [("127.0.0.1", true), ("::ffff:127.0.0.0/104", true), ("::/0", false)] {
        let config = format!("[http]\nlisten = [\"[::]:0\"]\nallow = [\"{allow}\"]\n[spop]\nlisten = []\n");
        let folder = tempfile::tempdir().unwrap();
        let mut process = run(folder.path(), &config);
        let port: u16 = process.logged("HTTP check on [::]:").parse().unwrap();
        process.logged("admin on ");
        let outcome = answer(from([127, 0, 0, 1], SocketAddr::from(([127, 0, 0, 1], port))), CHECK);
        assert_eq!(!outcome.is_empty(), is_allowed, "{allow}");
    }
}

/// A daemon with this config. Its admin listener is on a free port.
fn run(folder: &Path, config: &str) -> Process {
    let path = folder.join("slowlane.toml");
    fs::write(&path, config).unwrap();
    let mut command = Command::new(BINARY);
    command.args(["run", "--admin", &own_address().to_string(), "--config"]).arg(path);
    Process::start(&mut command)
}

fn checked(config: &str) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("slowlane.toml");
    fs::write(&path, config).unwrap();
    let mut ran = ran(&["check", "--config", path.to_str().unwrap()]);
    ran.problems
        .iter_mut()
        .for_each(|line| *line = line.replace(&format!("{}/", folder.path().display()), ""));
    ran
}

#[test]
fn wrong_networks_are_told_with_what_may_stand_there() {
    for (network, expected) in [
        ("10.0.0.1/8", "\"10.0.0.1/8\": expected the first address of the network, 10.0.0.0/8"),
        ("10.0.0.0/33", "\"10.0.0.0/33\": expected an address or a network, like 10.0.0.0/8"),
        ("10.0.0.0/+8", "\"10.0.0.0/+8\": expected an address or a network, like 10.0.0.0/8"),
        ("proxy.example", "\"proxy.example\": expected an address or a network, like 10.0.0.0/8"),
        ("", "\"\": expected an address or a network, like 10.0.0.0/8"),
    ] {
        let Ran { code, problems, .. } = checked(&format!("[spop]\nallow = [\"{network}\"]\n"));
        assert_eq!((code, problems), (1, vec![format!("slowlane.toml:2: {expected}")]));
    }
    let many = "\"10.0.0.1\", ".repeat(1_001);
    let Ran { problems, .. } = checked(&format!("[http]\nallow = [{many}]\n"));
    assert_eq!(problems, ["slowlane.toml:2: expected at most 1000 networks"]);
}

#[test]
fn a_listener_that_others_reach_without_tls_is_a_warning() {
    let plain = |section: &str, address: &str, risk: &str| {
        format!(
            "warning: [{section}] listens on {address} without TLS, and {risk}: add [{section}.tls], or name the \
             networks that may connect, like allow = [\"10.0.0.0/8\"]"
        )
    };
    let others = "anyone on the network can use up the SLOs of other clients";
    let clear = "the token travels in clear text";
    let token = "token = \"0123456789abcdef\"";
    for (config, expected) in [
        (
            "[spop]\nlisten = [\"127.0.0.1:9000\", \"0.0.0.0:9000\"]".to_owned(),
            plain("spop", "0.0.0.0:9000", others),
        ),
        ("[http]\nlisten = [\"proxy.example:9001\"]".into(), plain("http", "proxy.example:9001", others)),
        (format!("[admin]\nlisten = [\"[::]:9002\"]\n{token}"), plain("admin", "[::]:9002", clear)),
    ] {
        let Ran { code, problems, .. } = checked(&config);
        assert!(code == 0 && problems.contains(&expected), "{problems:?}");
        // The operator's word for the networks ends it.
        let (section, _) = config.split_once("]\n").unwrap();
        let allowed = config.replacen("]\n", "]\nallow = [\"10.0.0.0/8\"]\n", 1);
        let Ran { problems, .. } = checked(&allowed);
        assert!(!problems.iter().any(|line| line.contains("without TLS")), "{section}: {problems:?}");
    }
    for local in ["127.0.0.1:9000", "[::1]:9000", "localhost:9000", "unix:/run/spop"] {
        assert!(checked(&format!("[spop]\nlisten = [\"{local}\"]\n")).problems.is_empty(), "{local}");
    }
    let folder = tempfile::tempdir().unwrap();
    let mut process = run(folder.path(), "[spop]\nlisten = [\"0.0.0.0:0\"]\n[http]\nlisten = []\n");
    process.logged("[spop] listens on 0.0.0.0:0 without TLS");
    assert_eq!(
        ran(&["check", "--strict", "--config", folder.path().join("slowlane.toml").to_str().unwrap()]).code,
        1
    );
}

#[test]
fn tls_that_no_address_has_is_a_warning() {
    let authority = Authority::new("servers");
    let config =
        format!("[spop]\nlisten = [\"unix:/run/spop\"]\n[spop.tls]\n{}", authority.pair("server").lines());
    let expected = "warning: [spop.tls] has no effect: [spop] listen has no TCP address";
    assert_eq!(checked(&config).problems, [expected]);
}

#[test]
fn files_with_secrets_that_every_user_may_read_are_warnings() {
    let authority = Authority::new("servers");
    let (server, node) = (authority.pair("server"), authority.pair("node"));
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        fs::write(folder.path().join(name), text).unwrap();
        folder.path().join(name)
    };
    let files = [
        (write("admin-token", "0123456789abcdef"), "the admin token"),
        (write("node-token", "fedcba9876543210"), "the nodes' token"),
        (write("secret", "00112233445566778899aabbccddeeff"), "the key secret"),
        (server.key.clone(), "a private key"),
        (node.key.clone(), "a private key"),
    ];
    let [admin, nodes, secret, ..] = files.each_ref().map(|(path, _)| path.display().to_string());
    let config = write(
        "slowlane.toml",
        &format!(
            "[admin]\ntoken_file = \"{admin}\"\n[policy]\nkey_secret_file = \"{secret}\"\n[http.tls]\n{}\
             [cluster]\ntoken_file = \"{nodes}\"\nstore = \"redis://:password@127.0.0.1:6379\"\n{}",
            server.lines(),
            node.lines(),
        ),
    );
    let set = |mode| {
        for path in files.iter().map(|(path, _)| path).chain([&config]) {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    let warnings = || {
        let Ran { code, problems, .. } = ran(&["check", "--config", config.to_str().unwrap()]);
        assert_eq!(code, 0, "{problems:?}");
        problems
    };
    set(0o640);
    assert_eq!(warnings(), [""; 0]);
    for mode in [0o644, 0o604, 0o602] {
        set(mode);
        let mut expected: Vec<String> = files
            .iter()
            .map(|(path, holds)| (path, *holds))
            .chain([(&config, "a token or a password")])
            .map(|(path, holds)| (path.display().to_string(), holds))
            .map(|(path, holds)| {
                // The user of the service needs the group to read a file of root.
                let is_of_root = fs::metadata(&path).unwrap().gid() == 0;
                let chgrp = if is_of_root { format!("chgrp slowlane {path} && ") } else { String::new() };
                format!(
                    "warning: {path}: every user may read {holds} in this file: run `{chgrp}chmod o= {path}`"
                )
            })
            .collect();
        let mut outcome = warnings();
        expected.sort();
        outcome.sort();
        assert_eq!(outcome, expected);
    }
}

/// The secrets of a daemon, and a folder with a config that has them all.
struct Secrets {
    folder: tempfile::TempDir,
    authority: Authority,
    words: Vec<String>,
}

impl Secrets {
    const ADMIN: &str = "admin-token-4f6a1c";
    const NODES: &str = "nodes-token-9b3e7d";
    const PASSWORD: &str = "store-password-8d2f";
    const KEYS: &str = "8d1f6b2a9c3e4f50a7b6c5d4e3f20911";

    fn new() -> Secrets {
        let (authority, folder) = (Authority::new("servers"), tempfile::tempdir().unwrap());
        let pair = authority.pair("server");
        fs::write(folder.path().join("nodes"), Secrets::NODES).unwrap();
        fs::write(folder.path().join("keys"), Secrets::KEYS).unwrap();
        let config = format!(
            "[admin]\ntoken = \"{}\"\nlisten = [\"{}\"]\n[policy]\nkey_secret_file = \"keys\"\n[spop]\n\
             listen = [\"{}\"]\n[spop.tls]\n{}[http]\nlisten = [\"{}\"]\n[cluster]\n\
             store = \"redis://:{}@127.0.0.1:1\"\nlisten = [\"{}\"]\ntoken_file = \"nodes\"\n[log]\nlevel = \"debug\"\n",
            Secrets::ADMIN,
            own_address(),
            own_address(),
            pair.lines(),
            own_address(),
            Secrets::PASSWORD,
            own_address(),
        );
        fs::write(folder.path().join("slowlane.toml"), config).unwrap();
        let key = fs::read_to_string(&pair.key).unwrap();
        let lines = key.lines().filter(|line| !line.starts_with('-')).map(str::to_owned);
        let words = [Secrets::ADMIN, Secrets::NODES, Secrets::PASSWORD, Secrets::KEYS].map(str::to_owned);
        Secrets { folder, authority, words: words.into_iter().chain(lines).collect() }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn are_not_in(&self, what: &str, text: &str) {
        for word in &self.words {
            assert!(!text.contains(word), "{what} shows {word}:\n{text}");
        }
    }

    /// The output of a command with the config.
    fn output(&self, args: &[&str]) -> String {
        let mut command = Command::new("timeout");
        command.args(["2", BINARY]).args(args).arg("--config").arg(self.path("slowlane.toml"));
        let output = command.output().unwrap();
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat()
    }
}

#[test]
fn no_output_of_a_daemon_shows_a_secret() {
    let secrets = Secrets::new();
    let mut process =
        Process::start(Command::new(BINARY).args(["run", "--config"]).arg(secrets.path("slowlane.toml")));
    let admin: SocketAddr = process.logged("admin on ").parse().unwrap();
    let bearer = format!("Bearer {}", Secrets::ADMIN);
    for path in ["/", "/api/status", "/metrics", "/api/cluster", "/api/why?source=192.0.2.1", "/api/blocks"] {
        let answer = client::get(admin, path, &[("Authorization", &bearer)]);
        assert_eq!(answer.status, 200, "{path}");
        secrets.are_not_in(path, &answer.body);
    }
    // Wrong and right tokens, and a reload with and without the files.
    client::get(admin, "/metrics", &[("Authorization", &format!("{bearer}x"))]);
    process.signal("HUP");
    process.logged("[spop.tls] files reloaded");
    fs::write(secrets.authority.path("server.pem"), fs::read(secrets.authority.path("server.key")).unwrap())
        .unwrap();
    process.logged("[spop.tls] files not reloaded");
    eventually("the store is silent", || process.log().join("\n").contains("cluster").then_some(()));
    secrets.are_not_in("the log", &process.log().join("\n"));
    process.signal("TERM");
    process.wait();
    secrets.are_not_in("the log", &process.log().join("\n"));
}

#[test]
fn no_command_shows_a_secret_and_no_error_quotes_one() {
    let secrets = Secrets::new();
    let commands = [&["config", "show"][..], &["check"], &["check", "--json"], &["top", "--once"], &["run"]];
    for command in commands {
        secrets.are_not_in(&command.join(" "), &secrets.output(command));
    }
    // Each file in the place of another, damaged, and with something in front of it.
    let config = fs::read_to_string(secrets.path("slowlane.toml")).unwrap();
    let key = fs::read_to_string(secrets.authority.path("server.key")).unwrap();
    let (nodes, keys) = (format!("{} {}", Secrets::NODES, Secrets::ADMIN), format!("{}00", Secrets::KEYS));
    let damaged = key.replacen("-----END", "----END", 1);
    let swapped = key.replacen("-----BEGIN PRIVATE KEY-----\n", "-----BEGIN PRIVATE KEY ", 1);
    for (path, text) in [
        (secrets.path("nodes"), nodes.as_str()),
        (secrets.path("nodes"), &key),
        (secrets.path("keys"), &keys),
        (secrets.path("keys"), &key),
        (secrets.authority.path("server.key"), &damaged),
        (secrets.authority.path("server.key"), &swapped),
        (secrets.authority.path("server.pem"), &key),
        (secrets.path("slowlane.toml"), &config.replace("redis://:", "redis:///:")),
        (secrets.path("slowlane.toml"), &config.replace("redis://:", "http://:")),
        (secrets.path("slowlane.toml"), &config.replace(Secrets::ADMIN, &format!("{} x", Secrets::ADMIN))),
        (secrets.path("slowlane.toml"), &config.replace("[admin]", "[admin]\ntoken_file = \"nodes\"")),
    ] {
        let before = fs::read(&path).unwrap();
        fs::write(&path, text).unwrap();
        for command in [&["check"][..], &["check", "--json"], &["config", "show"], &["run"]] {
            let output = secrets.output(command);
            assert!(!output.is_empty());
            secrets.are_not_in(&format!("{} with {}", command.join(" "), path.display()), &output);
        }
        fs::write(&path, before).unwrap();
    }
}

proptest! {
    /// A network has exactly the addresses that begin with its bits, and its text names it.
    #[test]
    fn a_network_is_read_as_it_is_written(bits: u128, other: u128, prefix in 0u8..=128, is_ipv4: bool) {
        let whole = if is_ipv4 { 32 } else { 128 };
        let prefix = prefix.min(whole);
        let address = |bits: u128| -> IpAddr {
            if is_ipv4 { std::net::Ipv4Addr::from_bits(bits as u32).into() } else { std::net::Ipv6Addr::from_bits(bits).into() }
        };
        let network = Network::of(address(bits), prefix);
        prop_assume!(network.address().to_canonical() == network.address());
        prop_assert_eq!(network.to_string().parse::<Network>().unwrap(), network);
        let other = address(if other & 1 == 0 { other } else { bits ^ (other & 0xff) });
        let is_in = Network::of(other.to_canonical(), prefix) == network;
        prop_assert_eq!(network.contains(other), is_in && other.to_canonical().is_ipv4() == is_ipv4);
    }

    #[test]
    fn any_text_is_a_network_or_none(text in "[0-9a-f:./ +-]{0,20}") {
        if let Ok(network) = text.parse::<Network>() {
            prop_assert!(network.contains(network.address()));
        }
    }
}

#[test]
fn a_line_from_an_allowed_network_is_served() {
    let slowlane = Slowlane::with_config(POLICY, "[spop]\nallow = [\"127.0.0.0/8\"]\n");
    let mut line = Line::greeted(slowlane.spop);
    assert_eq!(line.ask(1, "192.0.2.1", "free.example").variable("verdict"), Some("pass"));
}
