//! A policy with five full maps, the third of which answers, and requests under it.

use std::io;
use std::net::Ipv4Addr;
use std::path::Path;

use slowlane_core::base::{Request, Value};
use slowlane_core::policy::{Layout, Policy};

use super::programs::slowlane::Slowlane;

/// The lines of each map, and the sources of the requests.
pub const LINES: u32 = 100_000;

/// The SLO of all sources, that of a busy client. Most verdicts are `pass`.
pub const BUSY: &str = "burst=1000 rate=1000/s";

/// An SLO so high that no request is delayed. A slot of one microsecond would also stand for a refused key.
pub const UNDELAYED: &str = "burst=2000000 rate=500000/s";

/// A daemon with this policy.
pub fn slowlane(objective: &str, law: &str) -> Slowlane {
    slowlane_with(objective, law, "")
}

/// The same with further sections in its config.
pub fn slowlane_with(objective: &str, law: &str, config: &str) -> Slowlane {
    let files = files(objective, law, LINES, LINES);
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    Slowlane::with_config(&files, &format!("[policy]\nkey_secret_file = \"secret\"\n{config}"))
}

/// The names and texts of the policy's files.
///
/// Each source has an SLO of the type "source" with this objective and law. The other maps have `lines` lines each.
pub fn files(objective: &str, law: &str, sources: u32, lines: u32) -> [(&'static str, String); 6] {
    let line = |number: u32, rest: &str, id: u32| format!("{}{rest} {id}\n", source(number));
    let elsewhere = |rest: &str| (0..lines).map(|number| line(number, rest, 0)).collect();
    let names = |kind: &str| (0..lines).map(|number| format!("{kind}-{number}.example 0\n")).collect();
    [
        ("slo.map", format!("0 burst=10000 rate=5000/s\n3001 {objective} law={law}\n")),
        ("source+website.map", elsewhere("+elsewhere.example")),
        ("source+owner.map", elsewhere("+nobody")),
        ("source.map", (0..sources).map(|number| line(number, "", 3001)).collect()),
        ("website.map", names("site")),
        ("owner.map", names("owner")),
    ]
}

pub fn policy(law: &str, sources: u32, lines: u32) -> Policy {
    parse(&files(BUSY, law, sources, lines))
}

/// A policy from these files.
pub fn parse(files: &[(&str, String)]) -> Policy {
    let read = |path: &Path| {
        let file = files.iter().find(|(name, _)| path == Path::new(name));
        file.map(|(_, text)| text.clone().into_bytes()).ok_or_else(|| io::ErrorKind::NotFound.into())
    };
    Policy::parse(Path::new(""), &Layout::default(), read).unwrap()
}

/// The address of a source: 10.0.0.0 and up.
pub fn source(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a00_0000 + number)
}

pub fn request(number: u32) -> Request<'static> {
    let mut request = Request::new();
    request.push(b"source", Value::Address(source(number).into()));
    request.push(b"website", Value::Text(b"shop.example"));
    request.push(b"owner", Value::Text(b"acme"));
    request.push(b"method", Value::Text(b"GET"));
    request
}
