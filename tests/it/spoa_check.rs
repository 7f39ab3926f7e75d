//! `slowlane-check spoa`: slowlane passes, and agents with a fault are found out.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;
use spop::{Ack, Connection, Data, Error, Frame, Head, Notify, Scope, Step, Variable};

use crate::cli::{Ran, ran_by, stands_although_nobody_reads};
use crate::support::checker::checker;
use crate::support::slowlane::Slowlane;

const POLICY: &[(&str, &str)] = &[("slo.map", "0 burst=1000000 rate=5000/s\n")];

/// Long enough for any machine: an agent that answers is not waited for.
pub const PATIENT: &[&str] = &["--timeout", "20s"];

fn checked(address: &str, arguments: &[&str]) -> Ran {
    ran_checker(&[&["spoa", address], arguments].concat())
}

pub fn ran_checker(arguments: &[&str]) -> Ran {
    ran_by(checker(), Path::new("."), arguments)
}

/// The names of the cases with this level and this result.
pub fn names(card: &str, level: &str, result: &str) -> Vec<String> {
    let cells = card.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let rows = cells.filter(|cells| cells.get(2..4).is_some_and(|own| own == [level, result]));
    rows.map(|cells| cells[0].to_owned()).collect()
}

#[test]
fn slowlane_passes_every_case() {
    let slowlane = Slowlane::with_policy(POLICY);
    let Ran { code, out, problems } = checked(&slowlane.spop.to_string(), PATIENT);
    assert_eq!((code, problems), (0, vec![]), "{out}");
    for level in ["required", "advised"] {
        assert_eq!(names(&out, level, "fail"), [""; 0], "{out}");
        assert_eq!(names(&out, level, "skipped"), [""; 0], "{out}");
    }
    assert!(names(&out, "required", "pass").len() >= 80, "{out}");
    lists_the_cases_of("spoa", &out);
}

pub fn lists_the_cases_of(suite: &str, card: &str) {
    let listed = ran_checker(&[suite, "--list"]);
    assert_eq!(listed.code, 0);
    let first = |text: &str| -> Vec<String> {
        let names = text.lines().take_while(|line| !line.is_empty());
        names.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
    };
    assert_eq!(first(&listed.out), first(card), "the list has the cases of the card");
}

#[test]
fn a_unix_socket_and_a_message_of_ones_own_are_checked_as_well() {
    let slowlane = Slowlane::with_policy(POLICY);
    let address = format!("unix:{}", slowlane.socket("spop").display());
    let own =
        ["--message", "request", "--arg", "source=192.0.2.1", "--arg", "website=shop.example", "--json"];
    let Ran { code, out, .. } = checked(&address, &[&own[..], PATIENT].concat());
    assert_eq!(code, 0, "{out}");
    let card: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((card["ok"].clone(), card["address"].clone()), (true.into(), address.into()));
    assert_eq!(card["required"]["failed"], 0);
    let cases = card["cases"].as_array().unwrap();
    let counted: u64 = ["required", "advised"]
        .iter()
        .flat_map(|level| ["passed", "failed", "skipped"].map(|result| &card[level][result]))
        .map(|count| count.as_u64().unwrap())
        .sum();
    assert_eq!(counted, cases.len() as u64);
    assert_eq!(cases[0]["name"], "hello");
    assert_eq!(cases[0]["reason"], Value::Null);
}

/// A small agent, correct but for one fault.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// ACKs lack the flag FIN.
    NoFin,
    /// Stream-ids are kept in 16 bits.
    ShortIds,
    /// The first ACK of a connection is sent twice.
    TwoAcks,
    /// Agrees on 256 bytes at most.
    SmallFrames,
    /// Closes without AGENT-DISCONNECT.
    NoGoodbye,
    /// A wrong frame ends all connections, as the crash of a process does.
    Crash,
}

type Streams = Arc<Mutex<Vec<TcpStream>>>;

/// Serves until the tests end.
fn agent(fault: Fault) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let streams = Streams::default();
        for stream in listener.incoming().map_while(Result::ok) {
            streams.lock().unwrap().push(stream.try_clone().unwrap());
            let streams = streams.clone();
            thread::spawn(move || {
                let _ = serve(&stream, fault, &streams);
                let _ = stream.shutdown(Shutdown::Both);
            });
        }
    });
    address
}

fn serve(mut stream: &TcpStream, fault: Fault, streams: &Streams) -> std::io::Result<()> {
    let own_bytes_max = if fault == Fault::SmallFrames { 256 } else { 16_380 };
    let (mut connection, mut unread, mut bytes) = (Connection::new(own_bytes_max), Vec::new(), [0; 4096]);
    let mut acked = 0;
    loop {
        let (mut out, mut consumed, mut is_over) = (Vec::new(), 0, false);
        while !is_over {
            let step = match Frame::cut(&unread[consumed..], connection.frame_bytes_max()) {
                Ok(None) => break,
                Err(error) => Step::Close(connection.refuse(error, &mut out)),
                Ok(Some((frame, length))) => {
                    consumed += length;
                    connection.receive(frame, &mut out)
                }
            };
            let close = match step {
                Step::Continue => None,
                Step::Close(close) => Some(close),
                Step::Notify(notify) => match read(notify) {
                    Err(error) => Some(connection.refuse(error, &mut out)),
                    Ok(()) => {
                        acked += 1;
                        let copies = if fault == Fault::TwoAcks && acked == 1 { 2 } else { 1 };
                        out.extend(ack(notify.stream_id, notify.frame_id, fault).repeat(copies));
                        None
                    }
                },
            };
            if let Some(close) = close {
                is_over = true;
                let is_check = connection.hello().is_some_and(|hello| hello.healthcheck);
                if fault == Fault::NoGoodbye && !is_check {
                    out.clear();
                }
                if fault == Fault::Crash && close.error.is_some() {
                    for stream in streams.lock().unwrap().drain(..) {
                        let _ = stream.shutdown(Shutdown::Both);
                    }
                }
            }
        }
        unread.drain(..consumed);
        stream.write_all(&out)?;
        if is_over {
            return Ok(());
        }
        match stream.read(&mut bytes)? {
            0 => return Ok(()),
            count => unread.extend_from_slice(&bytes[..count]),
        }
    }
}

/// Reads every argument.
fn read(notify: Notify<'_>) -> Result<(), Error> {
    let mut messages = notify.messages();
    while let Some(message) = messages.next_message()? {
        message.arguments().try_for_each(|argument| argument.map(drop))?;
    }
    Ok(())
}

fn ack(stream_id: u64, frame_id: u64, fault: Fault) -> Vec<u8> {
    let mut bytes = Vec::new();
    let stream_id = if fault == Fault::ShortIds { stream_id & 0xffff } else { stream_id };
    Ack::begin(&mut bytes, stream_id, frame_id).set(&Variable::new(Scope::Txn, b"a"), Data::Null).finish();
    if fault == Fault::NoFin {
        // The flags end 4 bytes behind the type.
        bytes[8] &= !(Head::FIN as u8);
    }
    bytes
}

/// The required cases that an agent with this fault fails, and the card.
fn failed(fault: Fault) -> (Vec<String>, String) {
    let Ran { code, out, problems } = checked(&agent(fault).to_string(), PATIENT);
    let names = names(&out, "required", "fail");
    assert_eq!((code, problems), (i32::from(!names.is_empty()), vec![]), "{fault:?}: {out}");
    (names, out)
}

#[test]
fn a_correct_agent_of_another_kind_passes() {
    let (names, card) = failed(Fault::None);
    assert_eq!(names, [""; 0], "{card}");
}

/// HAProxy sends it no longer frames either.
#[test]
fn an_agent_that_agrees_on_small_frames_passes() {
    let (failed, card) = failed(Fault::SmallFrames);
    assert_eq!(failed, [""; 0], "{card}");
    assert_eq!(
        names(&card, "required", "skipped"),
        ["arguments-255", "type-string", "type-binary"],
        "{card}"
    );
    assert!(card.contains("and 256 were agreed"), "{card}");
}

#[test]
fn a_message_that_is_longer_than_agreed_fails() {
    let own = format!("path={}", "a".repeat(300));
    let address = agent(Fault::SmallFrames).to_string();
    let Ran { code, out, .. } = checked(&address, &[&["--arg", &own], PATIENT].concat());
    assert_eq!(code, 1, "{out}");
    assert!(names(&out, "required", "fail").contains(&"ack".to_owned()), "{out}");
    assert!(out.contains("256 were agreed: shorten its arguments"), "{out}");
}

#[test]
fn each_fault_fails_its_own_cases() {
    let (names, card) = failed(Fault::NoFin);
    assert_eq!(names, ["ack-fin"], "{card}");
    let (names, card) = failed(Fault::ShortIds);
    assert_eq!(names, ["ids-31-bits"], "{card}");
    let (names, card) = failed(Fault::NoGoodbye);
    let answers = ["version-1.0", "version-missing", "frame-size-missing", "frame-size-255", "version-9.9"];
    let ends = ["disconnect", "disconnect-reason", "disconnect-refused", "disconnect-asked"];
    let mut expected = [&answers[..], &ends].concat();
    expected.sort_unstable();
    let mut names = names;
    names.sort_unstable();
    assert_eq!(names, expected, "{card}");
}

#[test]
fn a_second_ack_is_found() {
    let (names, card) = failed(Fault::TwoAcks);
    assert!(names.contains(&"ack-once".to_owned()), "{card}");
    assert!(card.contains("which are not open"), "{card}");
}

#[test]
fn an_agent_that_a_wrong_frame_ends_is_found() {
    let (names, card) = failed(Fault::Crash);
    for name in ["frame-too-long", "string-past-end", "http", "noise-later"] {
        assert!(names.contains(&name.to_owned()), "{name}: {card}");
    }
    assert!(card.contains("another connection is disturbed: no ACK for"), "{card}");
    assert!(!names.contains(&"silent".to_owned()), "no frame, no crash: {card}");
}

/// Gives every connection to `answer`.
pub fn server(answer: fn(TcpStream)) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || answer(stream));
        }
    });
    address
}

#[test]
fn an_agent_that_answers_garbage_fails() {
    let address = server(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    let Ran { code, out, .. } = checked(&address, PATIENT);
    assert_eq!(code, 1, "{out}");
    assert!(names(&out, "required", "fail").contains(&"hello".to_owned()), "{out}");
    assert!(out.contains("this is not a frame"), "{out}");
    assert!(names(&out, "required", "skipped").contains(&"ack".to_owned()), "{out}");
}

#[test]
fn an_agent_that_never_answers_fails() {
    let address = server(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let Ran { code, out, .. } = checked(&address, &["--timeout", "20ms"]);
    assert_eq!(code, 1, "{out}");
    assert_eq!(names(&out, "required", "pass"), [""; 0], "{out}");
    assert!(out.contains("no AGENT-HELLO: no answer in time"), "{out}");
}

#[test]
fn a_missing_agent_fails() {
    let Ran { code, out, .. } = checked("127.0.0.1:1", &["--timeout", "10ms"]);
    assert_eq!(code, 1, "{out}");
    assert_eq!(names(&out, "required", "pass"), [""; 0], "{out}");
    assert!(out.contains("cannot connect"), "{out}");
}

#[test]
fn what_cannot_be_checked_is_a_usage_error() {
    for (arguments, words) in [
        (&["spoa"][..], "<ADDR>"),
        (&["spoa", "9000"], "expected host:port"),
        (&["spoa", "127.0.0.1:1", "--arg", "ip"], "expected an argument, like ip=192.0.2.1"),
        (&[&["spoa", "127.0.0.1:1"][..], &["--arg=a=1"; 254]].concat()[..], "expected at most 253 arguments"),
        (&["spoa", "127.0.0.1:1", "--timeout", "61s"], "expected a time from 10ms to 60s"),
    ] {
        let output = Command::new(checker()).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(words), "{arguments:?}");
    }
}

#[test]
fn help_teaches_with_examples_that_can_be_typed() {
    for (suite, words) in [
        ("spoa", ["Examples:", "[ADDR]", "--message <NAME>", "--arg <NAME=VALUE>", "--timeout <TIME>"]),
        ("rls", ["Examples:", "[ADDR]", "--domain <NAME>", "--entry <KEY=VALUE>", "--timeout <TIME>"]),
    ] {
        let Ran { code, out, .. } = ran_checker(&[suite, "--help"]);
        assert_eq!(code, 0);
        words.iter().for_each(|word| assert!(out.contains(word), "{suite} does not say {word:?}:\n{out}"));
        let examples: Vec<&str> =
            out.lines().filter_map(|line| line.strip_prefix("  slowlane-check ")).collect();
        assert!(examples.len() >= 4, "{out}");
        for example in examples {
            let typed_on: Vec<&str> = example.split(' ').chain(["--help"]).collect();
            assert_eq!(ran_checker(&typed_on).code, 0, "{example}");
        }
    }
    let nothing = Command::new(checker()).output().unwrap();
    assert_eq!(nothing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("Usage: slowlane-check <COMMAND>"));
}

/// A closed pipe, as by `head`, is not an error. A full disk is one.
#[test]
fn output_that_nobody_reads_is_no_error_and_output_that_is_lost_is_one() {
    for suite in ["spoa", "rls"] {
        stands_although_nobody_reads(checker(), &[suite, "--list"]);
    }
    // A failed test fails, whoever reads its report.
    for ends in [Stdio::null, || Stdio::from(std::io::pipe().unwrap().1)] {
        let mut command = Command::new(checker());
        command.args(["spoa", "127.0.0.1:1", "--timeout", "10ms"]).stdout(ends()).stderr(ends());
        assert_eq!(command.status().unwrap().code(), Some(1));
    }
}
