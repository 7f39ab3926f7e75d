//! The admin socket, used like scripts with socat do; a real HAProxy gets the same commands.

use std::collections::HashSet;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use slowlane::server::runtime_api::{PIECE_BYTES, answer, commands};
use slowlane_core::base::{Key, Timestamp};
use slowlane_core::policy::Policy;
use slowlane_core::table::Sizing;
use slowlane_core::throttle::Throttle;

use crate::support::client::{self, Client};
use crate::support::haproxy::Version::{V2_6, V3_0, V3_2, V3_4};
use crate::support::slowlane::Slowlane;
use crate::support::spop::{Line, request};
use crate::support::{PATIENCE, eventually};
use crate::table_cli::{StickTable, talk};

/// A policy with a separate row for every source.
const POLICY: &[(&str, &str)] = &[
    (
        "slo.map",
        "0 burst=10000 rate=5000/s\n2001 burst=9 rate=9/s\n2002 burst=9 rate=9/s\n3001 burst=9 rate=9/s\n",
    ),
    ("source.map", "10.0.0.0/8 3001\n192.0.2.0/24 -1\n"),
    ("website.map", "shop.example 2001\nfair.example 2002\n"),
];

fn slowlane() -> Slowlane {
    Slowlane::with_config(POLICY, "[admin]\nsocket = \"admin.sock\"\n")
}

fn socket(slowlane: &Slowlane) -> PathBuf {
    slowlane.folder().join("admin.sock")
}

fn outcome(slowlane: &Slowlane, said: impl AsRef<[u8]>) -> String {
    talk(&socket(slowlane), said.as_ref()).unwrap()
}

#[test]
fn it_answers_as_haproxy_does() {
    let slowlane = slowlane();
    for version in [V2_6, V3_0, V3_2, V3_4] {
        let Some(theirs) = StickTable::start(version) else { continue };
        for said in [
            "show table\n",
            "show table slowlane\n",
            "show  table\tslowlane \n",
            "show table slow\\lane\n",
            "show table nope\n",
            "show table slowlane data.gpt0\n",
            "show table slowlane data.gpt0 gt\n",
            "show table slowlane data.gpt0 above 3\n",
            "show table slowlane data.gpt0 gt 3x\n",
            "show table slowlane data.foo gt 3\n",
            "show table slowlane data.http_req_rate gt 3\n",
            "show table slowlane data.gpt0 gt 3 data.gpc0_rate lt\n",
            "show table slowlane data.gpt0 gt -1\n",
            "show table slowlane key\n",
            "clear table slowlane key\n",
            "clear table slowlane data.gpt0 gt\n",
            "clear table nope\n",
            "clear table slowlane\n",
            "clear table slowlane data.gpt0 gt 7\n",
            "set table nope key a data.gpt0 1\n",
            "show table nope;clear table nope\n",
            "show table; show table slowlane ;show table nope\n",
            "quit\n",
            "quit; show table\n",
            "show table slowlane key; clear table slowlane key\n",
            "show table; quit; show table\n",
        ] {
            assert_eq!(outcome(&slowlane, said), theirs.ask(said), "{version:?}, {said:?}");
        }
    }
    let too_many = "clear table slowlane".to_owned() + &" slowlane".repeat(62) + "\n";
    let haproxy_3_2 = [
        ("\n", "\n"),
        (";\n", "\n\n"),
        (
            "show table slowlane data.gpt0 gt +3\n",
            "Filter entry #1: Require a valid integer value to compare against\n\n",
        ),
        (&too_many, "Too many arguments. Commands must have at most 64 arguments.\n\n"),
    ];
    for (said, heard) in haproxy_3_2 {
        assert_eq!(outcome(&slowlane, said), heard, "{said:?}");
        if let Some(theirs) = StickTable::start(V3_2) {
            assert_eq!(theirs.ask(said), heard, "{said:?}");
        }
    }
    // Scripts read up to an empty line, so only the end of an answer may have one.
    let [help, unknown] = ["help\n", "bogus\n"].map(|said| outcome(&slowlane, said));
    for ours in [&help, &unknown] {
        assert!(ours.ends_with(": disconnect\n\n") && ours.find("\n\n") == Some(ours.len() - 2), "{ours}");
    }
    if let Some(theirs) = StickTable::start(V3_2) {
        for said in ["help\n", "bogus\n"] {
            let theirs = theirs.ask(said);
            assert!(theirs.ends_with(": disconnect\n\n") && theirs.find("\n\n") == Some(theirs.len() - 2));
        }
    }
}

#[test]
fn commands_are_listed_and_those_left_out_name_their_successor() {
    let slowlane = slowlane();
    let help = outcome(&slowlane, "help\n");
    for word in ["clear table", "set table", "show table", "help", "quit"] {
        assert!(help.contains(&format!("\n  {word}")), "{word}: {help}");
    }
    assert_eq!(outcome(&slowlane, "help show table\n").lines().count(), 5);
    assert!(outcome(&slowlane, "bogus\n").starts_with("Unknown command: 'bogus'. Please enter one of"));
    for (said, successor) in [
        ("show map\n", "`slowlane why FIELD=VALUE`"),
        ("get map source.map 10.1.2.3\n", "`slowlane why FIELD=VALUE`"),
        ("show info\n", "`slowlane status`"),
        ("show version\n", "`slowlane status`"),
        ("prompt\n", "`;`"),
    ] {
        let heard = outcome(&slowlane, said);
        assert!(heard.contains(successor) && heard.ends_with("\n\n"), "{said:?}: {heard}");
    }
}

#[test]
fn a_connection_ends_with_its_line() {
    let slowlane = slowlane();
    let header = "# table: slowlane, type: binary, size:1000000, used:0\n";
    assert_eq!(outcome(&slowlane, "show table\nshow table\n"), format!("{header}\n"), "one line, one answer");
    assert_eq!(outcome(&slowlane, "show table\r\n"), format!("{header}\n"));
    // The last line before a client closes its sending side needs no line break.
    let mut half = UnixStream::connect(socket(&slowlane)).unwrap();
    half.write_all(b"show table").unwrap();
    half.shutdown(std::net::Shutdown::Write).unwrap();
    let mut heard = String::new();
    half.read_to_string(&mut heard).unwrap();
    assert_eq!(heard, format!("{header}\n"));

    // A line may come in parts.
    let mut stream = UnixStream::connect(socket(&slowlane)).unwrap();
    stream.write_all(b"show ta").unwrap();
    stream.write_all(b"ble\n").unwrap();
    heard.clear();
    stream.read_to_string(&mut heard).unwrap();
    assert_eq!(heard, format!("{header}\n"));
}

#[test]
fn nonsense_is_answered_or_closed_and_disturbs_nobody() {
    let mut slowlane = slowlane();
    let mut bystander = Client::connect(slowlane.http);
    for seed in 0..200 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut bytes: Vec<u8> = match rng.u8(..3) {
            0 => (0..rng.usize(1..3_000)).map(|_| rng.u8(..)).collect(),
            1 => b"show table slowlane data.gpt0 gt 3; set table slowlane key 00 data.gpt0 1; show map #1"
                .to_vec(),
            _ => b"prompt;clear table slowlane data.gpc0_rate le 9;get map #0 x;help;\\;;".to_vec(),
        };
        for _ in 0..rng.usize(..4) {
            let at = rng.usize(..bytes.len());
            bytes[at] = rng.u8(..);
        }
        bytes.extend(b"\nquit\n");
        let heard = outcome(&slowlane, &bytes);
        assert!(!heard.chars().any(|letter| letter.is_control() && letter != '\n'), "seed {seed}: {heard:?}");
        assert_eq!(bystander.request("GET", "/check", &[], "").status, 204, "seed {seed}");
    }
    // An endless line is not kept.
    let mut stream = UnixStream::connect(socket(&slowlane)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let mut said = 0;
    let closed = loop {
        match stream.write(&[b'a'; 4_096]) {
            Ok(written) => said += written,
            Err(error) => break error,
        }
        assert!(said < 16 << 20, "{said} bytes of a line were taken");
    };
    assert!([ErrorKind::BrokenPipe, ErrorKind::ConnectionReset].contains(&closed.kind()), "{closed}");
    // The same over HTTP.
    let post =
        |body: &str| Client::connect(slowlane.admin).try_request("POST", "/api/runtime", &[], body).ok();
    assert!(post(&"a".repeat(1 << 20)).is_none_or(|answer| answer.status == 400));
    for (body, status) in [("show table", 200), ("", 200), ("show table; help", 400), ("\u{0}\u{1b}", 400)] {
        assert_eq!(post(body).unwrap().status, status, "{body:?}");
    }
    eventually("the connections of nonsense are given up", || {
        // The remaining one asks for the metrics.
        (slowlane.metric("slowlane_connections", "listener=\"admin\"") == 1.0).then_some(())
    });
    assert!(slowlane.process.is_running());
    assert!(!slowlane.process.log().join("\n").contains("panicked"));
}

/// Sends one request from each of `rows` sources.
fn fill(slowlane: &Slowlane, rows: u32) {
    let mut line = Line::greeted(slowlane.spop);
    for batch in (0..rows).collect::<Vec<_>>().chunks(1_000) {
        let asked: Vec<u8> = batch
            .iter()
            .flat_map(|row| request(1, &std::net::Ipv4Addr::from_bits(0x0A00_0000 + row).to_string(), "x"))
            .collect();
        line.say(&asked);
        batch.iter().for_each(|_| drop(line.hear()));
    }
}

#[test]
fn slow_readers_of_a_large_table_make_nobody_wait() {
    const ROWS: u32 = 40_000;
    let slowlane = slowlane();
    fill(&slowlane, ROWS);
    // Many clients ask for more than their sockets hold, on both listeners, and do not read.
    let command = "show table slowlane\n";
    let mut unix: Vec<UnixStream> = (0..20)
        .map(|_| {
            let mut stream = UnixStream::connect(socket(&slowlane)).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(command.as_bytes()).unwrap();
            stream
        })
        .collect();
    let post = format!(
        "POST /api/runtime HTTP/1.1\r\nHost: s\r\nContent-Length: {}\r\n\r\n{command}",
        command.len()
    );
    let tcp: Vec<TcpStream> = (0..20)
        .map(|_| {
            let mut stream = TcpStream::connect(slowlane.admin).unwrap();
            stream.write_all(post.as_bytes()).unwrap();
            stream
        })
        .collect();
    let mut line = Line::greeted(slowlane.spop);
    for stream_id in 1..=500 {
        assert_eq!(line.ask(stream_id, "192.0.2.1", "x").variable("verdict"), Some("pass"));
    }
    // Each of them holds a piece in memory, not the table.
    let status = std::fs::read_to_string(format!("/proc/{}/status", slowlane.process.id())).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap().trim();
    let resident_kb: u32 = resident.trim_end_matches(" kB").parse().unwrap();
    assert!(resident_kb < 100_000, "{resident_kb} kB");
    // A client that reads on gets everything.
    let mut shown = String::new();
    unix[0].read_to_string(&mut shown).unwrap();
    let keys: HashSet<&str> = shown
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .filter(|word| word.starts_with("key="))
        .collect();
    assert!(keys.len() >= ROWS as usize, "{} of {ROWS} keys", keys.len());
    assert!(shown.ends_with("\n\n"));
    drop(tcp);
}

#[test]
fn two_thousand_silent_connections_delay_no_verdict() {
    let slowlane = slowlane();
    // As many connections as this process may open.
    let connect = |number: u32| {
        let tcp = TcpStream::connect(slowlane.admin);
        let tcp = tcp.inspect(|stream| stream.set_nonblocking(true).unwrap());
        let unix =
            UnixStream::connect(socket(&slowlane)).inspect(|stream| stream.set_nonblocking(true).unwrap());
        // Some send the start of a request.
        let begun = if number.is_multiple_of(2) { &b"GET /metrics HTTP/1.1\r\nX"[..] } else { b"" };
        let _ = tcp.as_ref().map(|mut stream| stream.write(begun));
        Some((tcp.ok()?, unix.ok()?))
    };
    let silent: Vec<_> = (0..1_000).map_while(connect).collect();
    assert!(silent.len() >= 300, "only {} pairs of connections", silent.len());
    for _ in 0..100 {
        assert_eq!(client::get(slowlane.http, "/check", &[]).status, 204);
    }
    let mut line = Line::greeted(slowlane.spop);
    assert_eq!(line.ask(1, "192.0.2.1", "x").variable("verdict"), Some("pass"));
    drop(silent);
    eventually("operators are served again", || {
        (slowlane.metric("slowlane_connections", "listener=\"admin\"") == 1.0).then_some(())
    });
}

#[test]
fn a_table_is_shown_while_it_is_written() {
    let slowlane = slowlane();
    fill(&slowlane, 2_000);
    thread::scope(|scope| {
        let writer = scope.spawn(|| fill(&slowlane, 20_000));
        while !writer.is_finished() {
            let shown = outcome(&slowlane, "show table slowlane data.http_req_cnt gt 0\n");
            assert!(shown.lines().count() >= 2_000, "{} lines", shown.lines().count());
            outcome(
                &slowlane,
                "set table slowlane key 0000000000000001 data.gpt0 1; clear table slowlane data.gpt0 eq 1\n",
            );
        }
    });
    outcome(&slowlane, "clear table slowlane\n");
    assert!(outcome(&slowlane, "show table\n").contains(" used:0\n"));
}

#[test]
fn a_million_rows_come_in_small_pieces_and_each_once() {
    const ROWS: u64 = 1_000_000;
    let sizing = Sizing { entries_max: ROWS as u32 + ROWS as u32 / 8, expire: Duration::from_secs(30) };
    let throttle = Throttle::new(Policy::builtin(), sizing, 0);
    let now = Timestamp::from_millis(1_700_000_000_000);
    let key = |number: u64| Key::from_bits(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    for number in 0..ROWS {
        throttle.table().with(key(number), now, Duration::ZERO, |entry| entry.gpt0 = number as u32);
    }
    let pieces = |line: &str, mut each: Box<dyn FnMut(&str) + '_>| {
        let words = &commands(line.as_bytes())[0];
        let (mut answer, mut piece, mut goes_on) = (answer(words, &throttle, now), String::new(), true);
        while goes_on {
            piece.clear();
            goes_on = answer.more(&throttle, now, &mut piece);
            // A piece may exceed its length by a page of rows.
            assert!(piece.len() < PIECE_BYTES + 16 * 1024, "a piece of {} bytes", piece.len());
            each(&piece);
        }
    };
    let mut keys = HashSet::new();
    pieces(
        "show table slowlane",
        Box::new(|piece| {
            for row in piece.lines().filter(|line| !line.starts_with('#')) {
                let key = row.split("key=").nth(1).unwrap().split(' ').next().unwrap();
                assert!(keys.insert(Key::from_hex(key).unwrap()), "{key} came twice");
            }
        }),
    );
    assert_eq!(keys.len() as u64, throttle.usage().entries);
    assert_eq!(throttle.usage().evictions + throttle.usage().entries, ROWS);

    let mut found = 0;
    pieces(
        "show table slowlane data.gpt0 lt 10",
        Box::new(|piece| found += piece.lines().filter(|line| line.starts_with("0x")).count()),
    );
    assert_eq!(found, (0..10).filter(|&number| keys.contains(&key(number))).count());
    pieces("clear table slowlane data.gpt0 ge 10", Box::new(|_| ()));
    assert_eq!(throttle.usage().entries, found as u64);
}
