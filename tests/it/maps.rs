//! Maps match like in HAProxy: both get the same random maps and values.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use fastrand::Rng;
use slowlane_core::base::{Request, Value};
use slowlane_core::policy::{Layout, Lookup, Method, Policy};

use crate::support::eventually;
use crate::support::process::Process;
use crate::support::slowlane::BINARY;

const MAPS: usize = 8;
const LINES: usize = 60;
const QUESTIONS: usize = 1_500;

/// Starts HAProxy with one converter for each map, and waits for its runtime API.
fn haproxy(dir: &Path, lookups: &[Lookup]) -> Process {
    let mut config =
        String::from("global\n  stats socket unix@admin.sock level admin\ndefaults\n  mode http\n");
    config +=
        "  timeout client 1s\n  timeout server 1s\n  timeout connect 1s\nfrontend f\n  bind unix@f.sock\n";
    for (number, lookup) in lookups.iter().enumerate() {
        let (method, file) = (lookup.method.name(), lookup.file.display());
        writeln!(config, "  http-request set-var(txn.v{number}) url,map_{method}_int({file},-1)").unwrap();
    }
    fs::write(dir.join("haproxy.cfg"), config).unwrap();
    let mut haproxy =
        Process::start(Command::new("haproxy").args(["-db", "-f", "haproxy.cfg"]).current_dir(dir));
    eventually("HAProxy answers its Runtime API", || {
        assert!(haproxy.is_running(), "HAProxy ended:\n{}", haproxy.log().join("\n"));
        UnixStream::connect(dir.join("admin.sock")).ok()
    });
    haproxy
}

/// The value that HAProxy finds for each key, with one connection for all `get map` commands.
fn ask_haproxy(dir: &Path, file: &Path, values: &[String]) -> Vec<Option<i64>> {
    let mut found = Vec::new();
    for values in values.chunks(100) {
        let mut socket = UnixStream::connect(dir.join("admin.sock")).unwrap();
        let commands: Vec<_> =
            values.iter().map(|value| format!("get map {} {value}", file.display())).collect();
        writeln!(socket, "{}", commands.join(";")).unwrap();
        let mut answers = String::new();
        socket.read_to_string(&mut answers).unwrap();
        let answers = answers.lines().filter(|line| line.starts_with("type="));
        found.extend(answers.map(|answer| {
            let value = answer.split_once("value=\"")?.1;
            Some(value.split_once('"').unwrap().0.parse().unwrap_or(0))
        }));
    }
    assert_eq!(found.len(), values.len());
    found
}

/// A word of few letters, so that values often match.
fn word(rng: &mut Rng, letters: &str, length: std::ops::Range<usize>) -> String {
    let letters: Vec<char> = letters.chars().collect();
    (0..rng.usize(length)).map(|_| *rng.choice(&letters).unwrap()).collect()
}

fn address(rng: &mut Rng) -> IpAddr {
    let few = |rng: &mut Rng| u32::from_be_bytes([0; 4].map(|_| *rng.choice(&[0, 1, 10, 255]).unwrap()));
    let low = u128::from(few(rng));
    match rng.u8(0..5) {
        0 => Ipv6Addr::from_bits(low).into(),
        1 => Ipv6Addr::from_bits(0x2001_0db8 << 96 | low).into(),
        2 => Ipv6Addr::from_bits(0x2002 << 112 | low << 80).into(),
        _ => Ipv4Addr::from_bits(low as u32).into(),
    }
}

fn key(rng: &mut Rng, method: Method) -> String {
    match method {
        Method::Ip => match (address(rng), rng.bool()) {
            (address, true) => address.to_string(),
            (IpAddr::V4(v4), _) if rng.bool() => {
                let mask = Ipv4Addr::from_bits(!u32::MAX.checked_shr(rng.u32(0..=32)).unwrap_or(0));
                format!("{v4}/{mask}")
            }
            (IpAddr::V4(v4), _) => format!("{v4}/{}", rng.u8(0..=32)),
            (IpAddr::V6(_), _) if rng.bool() => format!("::ffff:0.0.0.0/{}", rng.u8(90..=128)),
            (IpAddr::V6(v6), _) => format!("{v6}/{}", rng.u8(0..=128)),
        },
        Method::Dom => format!("{}a{}", word(rng, "ab.:/", 0..3), word(rng, "ab.:/", 0..4)),
        Method::Reg => word(rng, "ab.^$", 1..4),
        Method::Str | Method::Beg | Method::End | Method::Sub => word(rng, "abA#\"é", 1..5),
    }
}

fn value(rng: &mut Rng, method: Method) -> String {
    match method {
        Method::Ip => address(rng).to_string(),
        Method::Dom => word(rng, "ab.:/", 1..9),
        _ => word(rng, "abA#\"é", 1..7),
    }
}

/// A line of a map, well-formed or not.
fn line(rng: &mut Rng, method: Method, id: usize) -> String {
    let blanks = word(rng, " \t", 0..3);
    let (before, between, after) = (&blanks, word(rng, " \t", 1..4), word(rng, " \t", 0..3));
    let end = *rng.choice(&["\n", "\r\n", "\n\n", "\n# a comment\n"]).unwrap();
    let key = key(rng, method);
    match rng.u8(0..20) {
        0 => format!("{before}{key}{end}"),
        1 => format!("{before}{key}{between}-1{after}{end}"),
        2 => format!("{before}{key}{between}00{id}\r 1{end}"),
        _ => format!("{before}{key}{between}{id}{after}{end}"),
    }
}

#[test]
fn random_maps_answer_as_in_haproxy() {
    let dir = tempfile::tempdir().unwrap();
    let seed = fastrand::u64(..);
    let mut rng = Rng::with_seed(seed);
    let mut lookups = Vec::new();
    for method in Method::ALL {
        for number in 0..MAPS {
            let name = format!("{}{number}", method.name());
            let text: String = (0..LINES).map(|number| line(&mut rng, method, 2_000 + number)).collect();
            fs::write(dir.path().join(&name), text).unwrap();
            lookups.push(Lookup { fields: vec!["v".into()], file: name.into(), method, is_added: false });
        }
    }
    let slos: String = (0..LINES).map(|number| format!("{} burst=1 rate=1/s\n", 2_000 + number)).collect();
    fs::write(dir.path().join("slo.map"), format!("0 burst=1 rate=1/s\n{slos}")).unwrap();
    let _haproxy = haproxy(dir.path(), &lookups);

    for lookup in lookups {
        let (method, file) = (lookup.method, lookup.file.clone());
        let layout = Layout::default().with_lookups(vec![lookup]).unwrap();
        let policy = Policy::read(dir.path(), &layout).unwrap();
        let values: Vec<_> = (0..QUESTIONS).map(|_| value(&mut rng, method)).collect();
        for (value, theirs) in values.iter().zip(ask_haproxy(dir.path(), &file, &values)) {
            let mut request = Request::new();
            request.push(b"v", Value::Text(value.as_bytes()));
            let explained = &policy.explain(&request).of[0];
            let ours = explained.origin.map(|_| i64::from(explained.case.slo.id.number()));
            assert_eq!(ours, theirs.filter(|&id| id != -1), "{value:?} in {file:?}, seed {seed}");
        }
    }
}

#[test]
fn all_maps_may_begin_with_a_byte_order_mark_and_a_wildcard_within_a_host_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    let slowlane = |command: &[&str]| {
        let mut of_policy = Command::new(BINARY);
        of_policy.args(command).arg("--policy").arg(dir.path());
        let output = of_policy.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    write("slo.map", "\u{feff}0 rate=unlimited\n2001 burst=1 rate=1/s\n3001 burst=1 rate=1/s\n");
    write("source.map", "\u{feff}192.0.2.0/24 3001\n");
    write("website.map", "\u{feff}shop.example 2001\n");
    assert_eq!(slowlane(&["check", "--strict"]).0, Some(0), "{}", slowlane(&["check"]).1);
    assert!(slowlane(&["why", "source=192.0.2.1"]).1.contains("source.map:1"));
    assert!(slowlane(&["why", "source=64:ff9b::192.0.2.1"]).1.contains("source.map:1"));
    assert!(slowlane(&["why", "website=shop.example"]).1.contains("website.map:1"));
    write("website.map", "shop.*.example 2001\n");
    let (code, said) = slowlane(&["check"]);
    assert_eq!(code, Some(1));
    assert!(
        said.contains(
            "website.map:1: \"shop.*.example\": a * in the middle of a host is not a wildcard: list the hosts"
        ),
        "{said}"
    );
    write("website.map", "");
    write("source.map", "64:ff9b::/96 3001\n");
    let (code, said) = slowlane(&["check"]);
    assert!(
        code == Some(1) && said.contains("clients behind NAT64 are counted under their IPv4 addresses"),
        "{said}"
    );
}
