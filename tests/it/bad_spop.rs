//! Invalid SPOP: it gets a clear error, loses no answer, and disturbs no other connection.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use spop::{Data, Disconnect, HaproxyHello, Head, Kind, Status};

use crate::support::slowlane::Slowlane;
use crate::support::spop::{Heard, Line, frame, goodbye, hello, hello_of, hold, message, notify, request};
use crate::support::{PATIENCE, eventually};

/// `slow.example` passes once and is then denied for a minute. Others pass.
const POLICY: &[(&str, &str)] = &[
    ("slo.map", "0 burst=1000000 rate=5000/s\n2001 burst=1 rate=1/m max_delay=1s\n"),
    ("website.map", "slow.example 2001\n"),
];

/// A refusal comes no earlier than this, because HAProxy up to 3.0 repeats a refused handshake at once.
const REFUSAL_PAUSE_MIN: Duration = Duration::from_millis(900);

fn slowlane() -> Slowlane {
    Slowlane::with_policy(POLICY)
}

fn verdict(heard: &Heard) -> &str {
    heard.variable("verdict").expect("every answer has a verdict")
}

/// Another connection, which must not be disturbed.
struct Bystander {
    line: Line,
    asked: u64,
}

impl Bystander {
    fn of(slowlane: &Slowlane) -> Bystander {
        Bystander { line: Line::greeted(slowlane.spop), asked: 0 }
    }

    fn is_served(&mut self) {
        self.asked += 1;
        let heard = self.line.ask(self.asked, "192.0.2.1", "free.example");
        let Heard::Ack { stream_id, frame_id, .. } = heard else { panic!("no answer but {heard:?}") };
        assert_eq!((stream_id, frame_id), (self.asked, 1));
        assert_eq!((verdict(&heard), heard.variable("slo")), ("pass", Some("0")));
    }
}

fn raw(bytes: &[u8]) -> Vec<u8> {
    bytes.to_vec()
}

/// A frame of this type with a payload, FIN set, as stream 5.
fn typed(kind: Kind, payload: &[u8]) -> Vec<u8> {
    frame(Head::new(kind, 5, 1), payload)
}

fn flagged(kind: Kind, flags: u32) -> Vec<u8> {
    frame(Head { flags, ..Head::new(kind, 5, 1) }, b"\x07request\x00")
}

#[test]
fn a_malformed_frame_is_refused_with_its_status_and_closed() {
    let slowlane = slowlane();
    let mut bystander = Bystander::of(&slowlane);
    let too_long = 16_381u32.to_be_bytes();
    let cases: &[(&str, Vec<u8>, u32)] = &[
        ("longer than agreed", raw(&too_long), 3),
        ("four gigabytes long", raw(b"\xff\xff\xff\xff"), 3),
        ("shorter than a head", raw(b"\0\0\0\x06"), 4),
        ("without any byte", raw(b"\0\0\0\0"), 4),
        ("ids that pass its end", raw(b"\0\0\0\x07\x03\0\0\0\x01\xf0\xf0"), 4),
        (
            "an id of more than 64 bits",
            raw(b"\0\0\0\x11\x03\0\0\0\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x01"),
            4,
        ),
        ("a second hello", hello(), 4),
        ("what agents say: hello", typed(Kind::AGENT_HELLO, b""), 4),
        ("what agents say: disconnect", typed(Kind::AGENT_DISCONNECT, b""), 4),
        ("what agents say: ack", typed(Kind::ACK, b""), 4),
        ("a fragment", flagged(Kind::NOTIFY, 0), 10),
        ("a fragment taken back", flagged(Kind::NOTIFY, Head::ABORT), 10),
        ("the rest of a fragment", flagged(Kind::UNSET, Head::FIN), 10),
        ("a name that passes its end", typed(Kind::NOTIFY, b"\x08request"), 4),
        ("no number of arguments", typed(Kind::NOTIFY, b"\x07request"), 4),
        ("fewer arguments than it says", typed(Kind::NOTIFY, b"\x07request\x02\x01a\x00"), 4),
        ("a byte after its end", typed(Kind::NOTIFY, b"\x07request\x00\x01"), 4),
        ("text that passes its end", typed(Kind::NOTIFY, b"\x07request\x01\x01a\x08\x05shop"), 4),
        ("half an address", typed(Kind::NOTIFY, b"\x07request\x01\x06source\x07\0\0\0\0"), 4),
        ("a data type that is reserved", typed(Kind::NOTIFY, b"\x07request\x01\x01a\x0a"), 4),
        ("32 bits that are 40", typed(Kind::NOTIFY, b"\x07request\x01\x01a\x03\xff\xf0\xfe\xfe\xff\x7e"), 4),
        ("a fault in the second message", typed(Kind::NOTIFY, b"\x07request\x00\x04hold\x01"), 4),
        ("a fault in a message of no name of ours", typed(Kind::NOTIFY, b"\x05other\x01\x01a\x0f"), 4),
        ("a goodbye with a stream", frame(Head::new(Kind::HAPROXY_DISCONNECT, 1, 0), b""), 4),
        ("a garbled goodbye", frame(Head::of_connection(Kind::HAPROXY_DISCONNECT), b"\x0bstatus"), 4),
        (
            "half a goodbye",
            frame(Head { flags: 0, ..Head::of_connection(Kind::HAPROXY_DISCONNECT) }, b""),
            10,
        ),
    ];
    let mut refused = BTreeMap::new();
    for (what, bytes, status) in cases {
        let mut line = Line::greeted(slowlane.spop);
        line.say(bytes);
        assert_eq!(line.hear_goodbye(), *status, "{what}");
        bystander.is_served();
        *refused.entry(status).or_insert(0.0) += 1.0;
    }
    for (status, count) in refused {
        let labels = format!("status=\"{status}\",by=\"slowlane\"");
        assert_eq!(slowlane.metric("slowlane_spop_errors_total", &labels), count, "{labels}");
    }
}

#[test]
fn what_was_asked_before_a_malformed_frame_is_answered() {
    let slowlane = slowlane();
    let mut line = Line::greeted(slowlane.spop);
    line.say(&[hold(1, 60_000), request(2, "192.0.2.1", "free.example"), raw(b"\0\0\0\0")].concat());
    let asked = line.hear();
    assert!(matches!(asked, Heard::Ack { stream_id: 2, .. }), "{asked:?}");
    let held = line.hear();
    assert!(matches!(held, Heard::Ack { stream_id: 1, .. }), "{held:?}");
    assert_eq!(line.hear_goodbye(), 4);
}

#[test]
fn frames_of_unknown_types_are_skipped() {
    let slowlane = slowlane();
    let mut line = Line::greeted(slowlane.spop);
    for byte in [4, 100, 104, 255] {
        line.say(&typed(Kind(byte), b"\xff\xff"));
    }
    let heard = line.ask(1, "192.0.2.1", "free.example");
    assert_eq!(verdict(&heard), "pass");
}

const VERSIONS: (&[u8], Data<'static>) = (b"supported-versions", Data::Str(b"2.0"));
const FRAME_SIZE: (&[u8], Data<'static>) = (b"max-frame-size", Data::Uint32(16_380));
const CAPABILITIES: (&[u8], Data<'static>) = (b"capabilities", Data::Str(b"pipelining"));

#[test]
fn a_refused_handshake_is_told_why_after_a_second() {
    let slowlane = slowlane();
    let of = hello_of;
    let versions = |value| of(&[(VERSIONS.0, value), FRAME_SIZE, CAPABILITIES]);
    let size = |value| of(&[VERSIONS, (FRAME_SIZE.0, value), CAPABILITIES]);
    let head = Head::of_connection(Kind::HAPROXY_HELLO);
    let cases: &[(&str, Vec<u8>, u32)] = &[
        ("no version", of(&[FRAME_SIZE, CAPABILITIES]), 5),
        ("nothing at all", of(&[]), 5),
        ("no frame size", of(&[VERSIONS, CAPABILITIES]), 6),
        ("version 1.0", versions(Data::Str(b"1.0")), 8),
        ("version 3.0", versions(Data::Str(b"3.0, 12.0")), 8),
        ("an empty version", versions(Data::Str(b"")), 8),
        ("a version that is a number", versions(Data::Int64(2)), 8),
        ("a version that is NULL", versions(Data::Null), 8),
        ("frames too small", size(Data::Uint32(255)), 9),
        ("frames of negative size", size(Data::Int64(-1)), 9),
        ("a frame size in words", size(Data::Str(b"16380")), 9),
        ("a garbled hello", frame(head, b"\x12supported-versions"), 4),
        ("a hello with a stream", frame(Head { stream_id: 1, ..head }, b""), 4),
        ("half a hello", frame(Head { flags: 0, ..head }, b""), 10),
        ("a notify first", request(1, "192.0.2.1", "free.example"), 4),
        ("an agent", frame(Head::of_connection(Kind::AGENT_HELLO), b""), 4),
        ("a browser", raw(b"GET / HTTP/1.1\r\n\r\n"), 4),
        ("a browser with TLS", raw(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), 4),
        ("a terminal", raw(b"\r\n\r\n"), 3),
    ];
    let started = Instant::now();
    let mut lines: Vec<Line> = cases
        .iter()
        .map(|(_, bytes, _)| {
            let mut line = Line::silent(slowlane.spop);
            line.say(bytes);
            line
        })
        .collect();
    Bystander::of(&slowlane).is_served();
    for ((what, _, status), line) in cases.iter().zip(&mut lines) {
        assert_eq!(line.hear_goodbye(), *status, "{what}");
        assert!(started.elapsed() >= REFUSAL_PAUSE_MIN, "{what}: {:?}", started.elapsed());
    }
    let refused = slowlane.metric("slowlane_spop_errors_total", "by=\"slowlane\"");
    assert_eq!(refused, cases.len() as f64);
    let log = slowlane.process.log().join("\n");
    assert!(log.contains("INFO slowlane 0.1.0 starts"), "{log}");
    // The first such line, so no earlier one was suppressed.
    let ended: Vec<&str> = log.lines().filter(|line| line.contains("spop connection ended")).collect();
    assert!(!ended.is_empty() && !ended[0].contains("suppressed"), "{log}");
}

#[test]
fn hellos_in_any_order_and_with_unknown_items_are_greeted() {
    let slowlane = slowlane();
    let versions = |list: &'static [u8]| hello_of(&[(VERSIONS.0, Data::Str(list)), FRAME_SIZE, CAPABILITIES]);
    let size = |size| hello_of(&[VERSIONS, (FRAME_SIZE.0, size), CAPABILITIES]);
    let unknown: [(&[u8], Data<'_>); 9] = [
        (b"", Data::Null),
        (b"null", Data::Null),
        (b"bool", Data::Bool(true)),
        (b"max-frame-size-of-tomorrow", Data::Uint32(1)),
        (b"negative", Data::Int64(-1)),
        (b"ipv4", Data::Ipv4([192, 0, 2, 1].into())),
        CAPABILITIES,
        FRAME_SIZE,
        VERSIONS,
    ];
    for (hello, frame_bytes_max) in [
        (versions(b" 1.0 ,  2.0"), 16_380),
        (versions(b"2.0,3.0"), 16_380),
        (versions(b"2.1"), 16_380),
        (hello_of(&unknown), 16_380),
        (hello_of(&[FRAME_SIZE, VERSIONS]), 16_380),
        (hello_of(&[(FRAME_SIZE.0, Data::Uint32(1_000)), VERSIONS, FRAME_SIZE]), 16_380),
        (size(Data::Int64(1_000)), 1_000),
        (size(Data::Int32(256)), 256),
        (size(Data::Uint64(20_000)), 20_000),
        (size(Data::Uint64(1 << 40)), 65_536),
    ] {
        let mut line = Line::silent(slowlane.spop);
        line.say(&hello);
        assert_eq!(line.hear_hello(), (frame_bytes_max, "pipelining".into()), "{}", hello.escape_ascii());
        assert_eq!(verdict(&line.ask(0, "192.0.2.1", "free.example")), "pass");
    }
}

#[test]
fn a_frame_may_be_as_long_as_agreed_and_no_longer() {
    let slowlane = Slowlane::with_config(POLICY, "[spop]\nframe_bytes_max = 300\n");
    let mut line = Line::silent(slowlane.spop);
    line.say(&hello());
    assert_eq!(line.hear_hello().0, 300);
    let of_length = |length: usize| {
        let overhead = message(1, b"request", &[(b"owner", Data::Str(&[b'a'; 255]))]).len() - 255;
        let bytes = message(1, b"request", &[(b"owner", Data::Str(&vec![b'a'; length + 4 - overhead]))]);
        assert_eq!(bytes.len(), length + 4);
        bytes
    };
    line.say(&of_length(300));
    assert_eq!(verdict(&line.hear()), "pass");
    line.say(&of_length(301));
    assert_eq!(line.hear_goodbye(), 3);
}

#[test]
fn a_health_check_is_greeted_and_closed() {
    let slowlane = slowlane();
    let mut bytes = Vec::new();
    let check = HaproxyHello {
        supported_versions: b"2.0",
        frame_bytes_max: 16_380,
        capabilities: b"",
        engine_id: None,
        healthcheck: true,
    };
    check.encode(&mut bytes);
    for _ in 0..3 {
        let mut line = Line::silent(slowlane.spop);
        line.say(&bytes);
        assert_eq!(line.hear_hello().0, 16_380);
        assert_eq!(line.hear(), Heard::Closed);
    }
    assert_eq!(slowlane.metric("slowlane_spop_errors_total", ""), 0.0);
    assert_eq!(slowlane.metric("slowlane_spop_frames_total", "type=\"hello\""), 3.0);
}

/// Random bytes, or valid frames with a few bytes changed.
fn nonsense(rng: &mut fastrand::Rng) -> Vec<u8> {
    let truth = match rng.u8(..4) {
        0 => return (0..rng.usize(1..5_000)).map(|_| rng.u8(..)).collect(),
        1 => hello(),
        2 => [hello(), request(1, "192.0.2.66", "bad.example"), hold(2, 1_000)].concat(),
        _ => [hello(), notify(3, &[(b"other", &[(b"a", Data::Str(b"b"))]), (b"request", &[])]), goodbye()]
            .concat(),
    };
    let mut bytes = truth;
    for _ in 0..rng.usize(1..4) {
        let at = rng.usize(..bytes.len());
        bytes[at] = rng.u8(..);
    }
    bytes.truncate(rng.usize(1..=bytes.len()));
    bytes
}

#[test]
fn random_bytes_disturb_nobody() {
    let mut slowlane = slowlane();
    let mut bystander = Bystander::of(&slowlane);
    for seed in 0..400 {
        let mut line = Line::silent(slowlane.spop);
        line.say(&nonsense(&mut fastrand::Rng::with_seed(seed)));
        drop(line);
        bystander.is_served();
        assert!(slowlane.process.is_running(), "seed {seed}");
    }
    let asked = slowlane.metric("slowlane_verdicts_total", "slo=\"0\",verdict=\"pass\"");
    assert!(asked >= bystander.asked as f64);
    eventually("the connections of nonsense are given up", || {
        (slowlane.metric("slowlane_connections", "listener=\"spop\"") == 1.0).then_some(())
    });
    let log = slowlane.process.log().join("\n");
    assert!(!log.contains("panicked"), "{log}");
}

#[test]
fn who_does_not_finish_what_was_begun_is_timed_out() {
    let slowlane = Slowlane::with_config(POLICY, "[spop]\ntimeout = \"600ms\"\n");
    let begun = |bytes: &[u8]| {
        let mut line = Line::silent(slowlane.spop);
        line.say(bytes);
        line
    };
    let half = |bytes: &[u8]| bytes[..bytes.len() / 2].to_vec();
    let asked = request(1, "192.0.2.1", "free.example");
    let mut idle = Line::greeted(slowlane.spop);
    let mut lines = [
        ("silent", begun(b"")),
        ("in the length of a hello", begun(&hello()[..2])),
        ("in a hello", begun(&half(&hello()))),
        ("unknown frames, and never a hello", begun(&typed(Kind(9), b""))),
    ];
    let mut greeted = begun(&[hello(), hold(7, 60_000), half(&asked)].concat());

    assert_eq!(greeted.hear(), Heard::Hello);
    let held = greeted.hear();
    assert!(matches!(held, Heard::Ack { stream_id: 7, .. }), "what is held is answered: {held:?}");
    assert_eq!(greeted.hear_goodbye(), 2, "in a notify");
    for (what, line) in &mut lines {
        assert_eq!(line.hear_goodbye(), 2, "{what}");
    }
    assert_eq!(verdict(&idle.ask(1, "192.0.2.1", "free.example")), "pass", "idling is no crime");
    assert_eq!(slowlane.metric("slowlane_spop_errors_total", "status=\"2\",by=\"slowlane\""), 5.0);
}

#[test]
fn a_frame_that_dribbles_in_without_end_is_timed_out() {
    let slowlane = Slowlane::with_config(POLICY, "[spop]\ntimeout = \"600ms\"\n");
    let mut line = Line::greeted(slowlane.spop);
    line.say(&16_000u32.to_be_bytes());
    // Each byte comes within the timeout, but the whole frame does not.
    eventually("a dribbler is closed", || {
        thread::sleep(Duration::from_millis(20));
        line.try_say(b"\x03").is_err().then_some(())
    });
    assert_eq!(slowlane.metric("slowlane_spop_errors_total", "status=\"2\",by=\"slowlane\""), 1.0);
}

/// The peak memory of a process, in KiB.
fn peak_kib(slowlane: &Slowlane) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", slowlane.process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn who_never_reads_its_answers_is_closed_and_costs_no_memory() {
    const CLIENTS: usize = 4;
    /// Far more than the buffers of the sockets can hold.
    const SAID_BYTES_MAX: usize = 256 << 20;
    /// A limit far above the buffers of the connections.
    const PEAK_KIB_MAX: u64 = 16 << 10;

    let slowlane = Slowlane::with_config(POLICY, "[spop]\ntimeout = \"600ms\"\n");
    let mut bystander = Bystander::of(&slowlane);
    let before = peak_kib(&slowlane);
    let batch: Vec<u8> = (0..1_000).flat_map(|id| request(id, "192.0.2.66", "bad.example")).collect();
    thread::scope(|scope| {
        let deaf: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    let mut line = Line::greeted(slowlane.spop);
                    let mut said = 0;
                    while said < SAID_BYTES_MAX {
                        match line.try_say(&batch) {
                            Ok(()) => said += batch.len(),
                            Err(error) => {
                                let closed = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
                                assert!(closed.contains(&error.kind()), "not closed: {error}");
                                return;
                            }
                        }
                    }
                    panic!("{said} bytes were taken and none of the answers read");
                })
            })
            .collect();
        while deaf.iter().any(|client| !client.is_finished()) {
            bystander.is_served();
            thread::sleep(Duration::from_millis(10));
        }
    });
    bystander.is_served();
    let grown = peak_kib(&slowlane) - before;
    assert!(grown < PEAK_KIB_MAX, "{grown} KiB");
}

#[test]
fn pipelined_questions_are_all_answered_under_their_ids() {
    let slowlane = slowlane();
    let mut line = Line::silent(slowlane.spop);
    let asked = (0..3_000).flat_map(|id| request(id, "192.0.2.1", "free.example"));
    line.say(&[hello(), asked.collect(), goodbye()].concat());
    assert_eq!(line.hear(), Heard::Hello);
    for id in 0..3_000 {
        let heard = line.hear();
        let Heard::Ack { stream_id, frame_id, .. } = heard else { panic!("no answer but {heard:?}") };
        assert_eq!((stream_id, frame_id, verdict(&heard)), (id, 1, "pass"));
    }
    assert_eq!(line.hear_goodbye(), 0);
    let frames = |kind| slowlane.metric("slowlane_spop_frames_total", &format!("type=\"{kind}\""));
    assert_eq!(["hello", "notify", "ack", "disconnect"].map(frames), [1.0, 3_000.0, 3_000.0, 1.0]);
    assert_eq!(slowlane.metric("slowlane_verdicts_total", "slo=\"0\",verdict=\"pass\""), 3_000.0);
}

#[test]
fn the_largest_ids_come_back_too() {
    let slowlane = slowlane();
    let mut line = Line::greeted(slowlane.spop);
    for (stream_id, frame_id) in [(u64::MAX, u64::MAX), (0, 0), (240, 2_288)] {
        line.say(&frame(Head::new(Kind::NOTIFY, stream_id, frame_id), b"\x07request\x00"));
        let heard = line.hear();
        let Heard::Ack { stream_id: stream, frame_id: frame, .. } = heard else { panic!("{heard:?}") };
        assert_eq!((stream, frame), (stream_id, frame_id));
    }
}

#[test]
fn of_several_messages_the_first_question_is_answered_once() {
    let slowlane = slowlane();
    let mut line = Line::greeted(slowlane.spop);
    let slow: [(&[u8], Data<'_>); 2] = [(b"unknown", Data::Null), (b"website", Data::Str(b"slow.example"))];
    let delay: [(&[u8], Data<'_>); 1] = [(b"delay", Data::Int64(60_000))];
    let asked = notify(1, &[(b"other", &slow), (b"request", &slow), (b"hold", &delay), (b"request", &[])]);
    line.say(&asked);
    let heard = line.hear();
    assert_eq!((verdict(&heard), heard.variable("slo")), ("pass", Some("2001")));
    line.say(&asked);
    let heard = line.hear();
    assert_eq!((verdict(&heard), heard.variable("delay")), ("deny", Some("0")));
    assert!(heard.variable("retry_after").is_some());
    line.say(&goodbye());
    assert_eq!(line.hear_goodbye(), 0);
    assert_eq!(slowlane.metric("slowlane_verdicts_total", ""), 2.0);
}

#[test]
fn what_asks_nothing_is_answered_with_something() {
    let slowlane = slowlane();
    let mut line = Line::greeted(slowlane.spop);
    let arguments: [(&[u8], Data<'_>); 1] = [(b"website", Data::Str(b"slow.example"))];
    for asked in [notify(4, &[]), notify(4, &[(b"other", &arguments)]), notify(4, &[(b"", &[])])] {
        line.say(&asked);
        let Heard::Ack { stream_id: 4, frame_id: 1, variables } = line.hear() else { panic!("no ACK") };
        assert_eq!(variables.len(), 1, "HAProxy 3.1 stalls over an empty ACK");
    }
    assert_eq!(slowlane.metric("slowlane_verdicts_total", ""), 0.0);
}

#[test]
fn held_answers_come_when_they_are_due_and_hold_up_no_other() {
    let slowlane = slowlane();
    let mut line = Line::greeted(slowlane.spop);
    let started = Instant::now();
    line.say(&[hold(1, 600), hold(2, 300), hold(3, 0), request(4, "192.0.2.1", "free.example")].concat());
    for (id, after_ms) in [(3, 0), (4, 0), (2, 300), (1, 600)] {
        let heard = line.hear();
        assert!(matches!(heard, Heard::Ack { stream_id, .. } if stream_id == id), "{id}: {heard:?}");
        assert_eq!(verdict(&heard), "pass");
        assert!(started.elapsed() >= Duration::from_millis(after_ms), "{id}: {:?}", started.elapsed());
    }
    let frames = |kind| slowlane.metric("slowlane_spop_frames_total", &format!("type=\"{kind}\""));
    assert_eq!((frames("notify"), frames("ack")), (4.0, 4.0), "each is answered once, and counted once");
}

#[test]
fn what_is_no_delay_is_not_held() {
    let slowlane = slowlane();
    let mut line = Line::greeted(slowlane.spop);
    for data in [Data::Null, Data::Str(b"60000"), Data::Int64(-60_000), Data::Bool(true)] {
        line.say(&message(1, b"hold", &[(b"delay", data)]));
        assert_eq!(verdict(&line.hear()), "pass");
    }
    line.say(&message(1, b"hold", &[]));
    assert_eq!(verdict(&line.hear()), "pass");
}

#[test]
fn at_the_end_everything_held_is_answered_and_everybody_is_told() {
    let mut slowlane = slowlane();
    let mut holding = Line::greeted(slowlane.spop);
    let mut idle = Line::greeted(slowlane.spop);
    let mut silent = Line::silent(slowlane.spop);
    holding.say(&[hold(1, 60_000), hold(2, 50_000)].concat());
    eventually("both are held", || (slowlane.metric("slowlane_holds", "") == 2.0).then_some(()));
    slowlane.process.signal("TERM");

    for id in [2, 1] {
        let heard = holding.hear();
        assert!(matches!(heard, Heard::Ack { stream_id, .. } if stream_id == id), "{heard:?}");
        assert_eq!(verdict(&heard), "pass");
    }
    let outcome = |line: &mut Line| matches!(line.hear(), Heard::Disconnect { status: 0, .. });
    assert!(outcome(&mut holding) && outcome(&mut idle) && outcome(&mut silent));
    // HAProxy may send its own DISCONNECT, or another question. Neither gets an answer.
    let _ = holding.try_say(&goodbye());
    let _ = idle.try_say(&request(1, "192.0.2.1", "free.example"));
    drop(silent);
    assert_eq!((holding.hear(), idle.hear()), (Heard::Closed, Heard::Closed));
    assert!(slowlane.process.wait().success());
}

#[test]
fn a_stream_of_questions_without_end_does_not_hold_up_the_end() {
    /// Questions per write. Several writes precede the answers, so there is always something to read.
    const BATCH: u64 = 50;
    const AHEAD: usize = 4;

    let mut slowlane = slowlane();
    let mut asking = Line::greeted(slowlane.spop);
    let mut hearing = asking.again();
    let batch: Vec<u8> = (0..BATCH).flat_map(|id| request(id, "192.0.2.1", "free.example")).collect();
    let (answered, more) = mpsc::channel();
    (0..AHEAD).for_each(|_| answered.send(()).unwrap());
    thread::scope(|scope| {
        scope.spawn(move || while more.recv().is_ok() && asking.try_say(&batch).is_ok() {});
        let mut heard = 0;
        let last = loop {
            match hearing.hear() {
                Heard::Ack { .. } => heard += 1,
                last => break last,
            }
            if heard % BATCH == 0 {
                let _ = answered.send(());
            }
            if heard == 20 * BATCH {
                slowlane.process.signal("TERM");
            }
        };
        drop(answered);
        assert!(matches!(last, Heard::Disconnect { status: 0, .. }), "{last:?}");
    });
    assert!(slowlane.process.wait().success());
}

#[test]
fn haproxys_goodbye_is_answered_after_what_is_held() {
    let slowlane = slowlane();
    let mut line = Line::greeted(slowlane.spop);
    line.say(&[hold(1, 60_000), goodbye()].concat());
    let heard = line.hear();
    assert!(matches!(heard, Heard::Ack { stream_id: 1, .. }), "{heard:?}");
    assert_eq!(line.hear_goodbye(), 0);
    assert_eq!(slowlane.metric("slowlane_holds", ""), 0.0);
    assert_eq!(slowlane.metric("slowlane_spop_errors_total", ""), 0.0, "going is no error");
}

#[test]
fn haproxys_complaint_is_counted_under_a_known_status() {
    let slowlane = slowlane();
    for status in [4, 77, 1_000_000, u32::MAX] {
        let mut line = Line::greeted(slowlane.spop);
        let mut complaint = Vec::new();
        Disconnect { status: Status::new(status), message: b"no" }.encode_as_haproxy(&mut complaint);
        line.say(&complaint);
        assert_eq!(line.hear_goodbye(), 0);
    }
    let complaints = |labels| slowlane.metric("slowlane_spop_errors_total", labels);
    assert_eq!(complaints("status=\"4\",by=\"haproxy\""), 1.0);
    // The sender chooses the status code, so codes must not become time series.
    assert_eq!(complaints("status=\"99\",by=\"haproxy\""), 3.0);
}

#[test]
fn a_conversation_may_come_byte_by_byte() {
    let slowlane = slowlane();
    let mut line = Line::silent(slowlane.spop);
    let asked = [hello(), request(300, "2001:db8::1", "free.example"), hold(301, 1), goodbye()].concat();
    for byte in asked {
        line.say(&[byte]);
    }
    assert_eq!(line.hear(), Heard::Hello);
    for id in [300, 301] {
        let heard = line.hear();
        assert!(matches!(heard, Heard::Ack { stream_id, .. } if stream_id == id), "{heard:?}");
    }
    assert_eq!(line.hear_goodbye(), 0);
}

#[test]
fn one_hold_too_many_is_answered_at_once_as_configured() {
    for (config, expected) in
        [("", "pass"), ("when_full = \"pass\"\n", "pass"), ("when_full = \"deny\"\n", "deny")]
    {
        let slowlane = Slowlane::with_config(POLICY, &format!("[hold]\nmax = 2\n{config}"));
        let (mut first, mut second) = (Line::greeted(slowlane.spop), Line::greeted(slowlane.spop));
        first.say(&hold(1, 60_000));
        second.say(&hold(1, 60_000));
        eventually("both are held", || (slowlane.metric("slowlane_holds", "") == 2.0).then_some(()));

        second.say(&hold(2, 60_000));
        let heard = second.hear();
        assert!(matches!(heard, Heard::Ack { stream_id: 2, .. }), "{heard:?}");
        assert_eq!(verdict(&heard), expected);
        assert_eq!(heard.variable("retry_after"), (expected == "deny").then_some("1"));
        assert_eq!(slowlane.metric("slowlane_holds_refused_total", ""), 1.0);

        drop(first);
        eventually("a place is free again", || (slowlane.metric("slowlane_holds", "") == 1.0).then_some(()));
        second.say(&hold(3, 10));
        let heard = second.hear();
        assert!(matches!(heard, Heard::Ack { stream_id: 3, .. }), "{heard:?}");
        assert_eq!((verdict(&heard), slowlane.metric("slowlane_holds_refused_total", "")), ("pass", 1.0));
    }
}

#[test]
fn no_answer_is_held_for_longer_than_the_longest_hold() {
    let slowlane = Slowlane::with_config(POLICY, "[hold]\nlongest = \"200ms\"\n");
    let mut line = Line::greeted(slowlane.spop);
    let started = Instant::now();
    line.say(&[hold(1, i64::MAX), hold(2, 3_600_000)].concat());
    for _ in 0..2 {
        assert_eq!(verdict(&line.hear()), "pass");
        assert!(started.elapsed() >= Duration::from_millis(200));
    }
}

/// Returns once a connection waits for a place.
fn one_waits(slowlane: &Slowlane) {
    let waited = || slowlane.metric("slowlane_connections_waited_total", "listener=\"spop\"");
    eventually("one waits for a place", || (waited() == 1.0).then_some(()));
}

#[test]
fn one_connection_too_many_waits_until_another_leaves() {
    let slowlane = Slowlane::with_config(POLICY, "[spop]\nconnections_max = 3\n");
    let mut lines: Vec<Line> = (0..3).map(|_| Line::greeted(slowlane.spop)).collect();
    let mut fourth = Line::silent(slowlane.spop);
    fourth.say(&hello());
    one_waits(&slowlane);
    for line in &mut lines {
        assert_eq!(verdict(&line.ask(1, "192.0.2.1", "free.example")), "pass");
    }
    assert_eq!(slowlane.metric("slowlane_connections", "listener=\"spop\""), 3.0);
    fourth.has_heard_nothing();
    lines.pop();
    assert_eq!(fourth.hear(), Heard::Hello);
    assert_eq!(verdict(&fourth.ask(1, "192.0.2.1", "free.example")), "pass");
}

#[test]
fn the_last_place_is_for_whichever_listener_is_asked_first() {
    // The daemon listens on TCP and on a Unix socket.
    let slowlane = Slowlane::with_config(POLICY, "[spop]\nconnections_max = 1\n");
    let mut tcp = Line::greeted(slowlane.spop);
    let mut unix = UnixStream::connect(slowlane.socket("spop")).unwrap();
    unix.set_read_timeout(Some(PATIENCE)).unwrap();
    unix.write_all(&hello()).unwrap();
    one_waits(&slowlane);
    assert_eq!(verdict(&tcp.ask(1, "192.0.2.1", "free.example")), "pass");
    assert_eq!(slowlane.metric("slowlane_connections", "listener=\"spop\""), 1.0);
    drop(tcp);
    unix.read_exact(&mut [0]).expect("it is greeted");
    drop(unix);
    Line::greeted(slowlane.spop);
}

#[test]
fn two_thousand_connections_are_served_and_leave_nothing_behind() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    setrlimit(Resource::Nofile, files).unwrap();

    let slowlane = slowlane();
    let open = || slowlane.metric("slowlane_connections", "listener=\"spop\"");
    let mut lines: Vec<Line> = (0..2_000).map(|_| Line::greeted(slowlane.spop)).collect();
    assert_eq!(open(), 2_000.0);
    for line in &mut lines {
        line.say(&request(1, "192.0.2.1", "free.example"));
    }
    for line in &mut lines {
        assert_eq!(verdict(&line.hear()), "pass");
    }
    drop(lines);
    eventually("all are gone", || (open() == 0.0).then_some(()));
    assert_eq!(slowlane.metric("slowlane_connections_accepted_total", "listener=\"spop\""), 2_000.0);
    assert_eq!(slowlane.metric("slowlane_verdicts_total", ""), 2_000.0);
}
