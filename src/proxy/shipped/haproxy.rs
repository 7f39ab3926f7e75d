//! The files shipped for HAProxy: configurations, the SPOE configuration, a Lua action, example maps.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use serde_json::{Value, json};
use thiserror::Error;

use crate::proxy::shipped::template::fill;
use crate::proxy::shipped::{File, Places, ProxyTls, Unprintable, agent, peers, sample, word};
use slowlane_core::base::{Address, HOLD_SHIPPED, units::written};

pub use crate::proxy::shipped::peers::Paced;

const HOLD: NamedText = ("haproxy-2.6-hold.cfg", include_str!("../../../haproxy/haproxy-2.6-hold.cfg"));
const LUA: NamedText = ("haproxy-2.6-lua.cfg", include_str!("../../../haproxy/haproxy-2.6-lua.cfg"));
const PAUSE: NamedText = ("haproxy-3.2-pause.cfg", include_str!("../../../haproxy/haproxy-3.2-pause.cfg"));
const PEERS: NamedText = ("haproxy-3.2-peers.cfg", include_str!("../../../haproxy/haproxy-3.2-peers.cfg"));
const PEERS_LUA: NamedText =
    ("haproxy-2.6-peers.cfg", include_str!("../../../haproxy/haproxy-2.6-peers.cfg"));
const SPOE: NamedText = ("spoe-slowlane.conf", include_str!("../../../haproxy/spoe-slowlane.conf"));
const ACTION: NamedText = ("slowlane.lua", include_str!("../../../haproxy/slowlane.lua"));
const TEMPLATE: &str = include_str!("haproxy.mustache");

/// The example policy. slowlane reads these files; HAProxy does not.
const MAPS: [NamedText; 6] = [
    ("maps/slo.map", include_str!("../../../haproxy/maps/slo.map")),
    ("maps/source+website.map", include_str!("../../../haproxy/maps/source+website.map")),
    ("maps/source+owner.map", include_str!("../../../haproxy/maps/source+owner.map")),
    ("maps/source.map", include_str!("../../../haproxy/maps/source.map")),
    ("maps/website.map", include_str!("../../../haproxy/maps/website.map")),
    ("maps/owner.map", include_str!("../../../haproxy/maps/owner.map")),
];

/// The name and the text of a file.
type NamedText = (&'static str, &'static str);

/// A version of HAProxy, by its first two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    major: u16,
    minor: u16,
}

impl Version {
    pub const OLDEST: Version = Version { major: 2, minor: 6 };
    /// The first version with `mode spop`. From this version on, HAProxy warns about configurations without this mode.
    const WITH_SPOP_MODE: Version = Version { major: 3, minor: 1 };
    /// The first version with `http-request pause`.
    const WITH_PAUSE: Version = Version { major: 3, minor: 2 };
    /// The first version that has `option abortonclose` by default, and accepts it in a frontend.
    pub const WITH_ABORTS: Version = Version { major: 3, minor: 3 };
    /// The first version with `tune.stick-counters`.
    const WITH_COUNTERS: Version = Version { major: 2, minor: 8 };

    /// Whether a hold may outlive its agent: 2.6.12 loses the timeout of the second SPOE engine. Delivery by Lua is
    /// better for such a version.
    pub fn loses_holds(self) -> bool {
        self == Version::OLDEST
    }
}

/// The text is not a version of HAProxy that slowlane supports.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("expected an HAProxy version, {} or later, like 3.2", Version::OLDEST)]
pub struct VersionError;

impl FromStr for Version {
    type Err = VersionError;

    /// Reads the first two numbers, as in `3.2.26` or `2.6.12-1+deb12u1`.
    fn from_str(text: &str) -> Result<Version, VersionError> {
        let mut numbers = text.split(['.', '-']).map(|number| number.parse().ok());
        match (numbers.next().flatten(), numbers.next().flatten()) {
            (Some(major), Some(minor)) if Version::OLDEST <= (Version { major, minor }) => {
                Ok(Version { major, minor })
            }
            _ => Err(VersionError),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// How to delay a request, as `slowlane config haproxy --delivery` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Delivery {
    /// slowlane waits, and answers late
    Hold,
    /// HAProxy waits, from 3.2 on
    Pause,
    /// HAProxy waits, if it has Lua
    Lua,
    /// HAProxy enforces limits that slowlane pushes, and waits
    Peers,
}

impl Delivery {
    /// The best delivery for a version.
    pub fn of(version: Version) -> Delivery {
        if version >= Version::WITH_PAUSE { Delivery::Pause } else { Delivery::Hold }
    }
}

/// The values that only HAProxy's files contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Own<'a> {
    /// The folder of HAProxy's files.
    pub folder: &'a str,
    /// The address of slowlane's listener for peers.
    pub peer: &'a Address,
    /// The address of slowlane's listener for log lines. `None` if HAProxy does not report the ends of requests.
    pub ends: Option<&'a Address>,
    /// The keys whose limits HAProxy enforces with [`Delivery::Peers`], the most specific first.
    pub paced: &'a [Paced],
}

pub const LISTEN: &str = ":8080";
pub const FOLDER: &str = "/etc/haproxy";
pub const PEER: &str = "127.0.0.1:9003";

/// The files for a version and a delivery: the configuration first, then the files that it names.
///
/// ```
/// use slowlane::proxy::shipped::haproxy::{Delivery, FOLDER, LISTEN, Own, PEER, files};
/// use slowlane::proxy::shipped::Places;
/// let (agent, peer) = ("unix:/run/slowlane/spop.sock".parse().unwrap(), PEER.parse().unwrap());
/// let places = Places::shipped(&agent, LISTEN);
/// let own = Own { folder: FOLDER, peer: &peer, ends: None, paced: &[] };
/// let files = files("3.2".parse().unwrap(), Delivery::Pause, &places, &own).unwrap();
/// let names: Vec<_> = files.iter().map(|file| file.name).collect();
/// assert_eq!(names, ["haproxy-3.2-pause.cfg", "spoe-slowlane.conf"]);
/// assert!(files[0].text.starts_with("# For HAProxy 3.2; --version names another.\n"));
/// assert!(files[0].text.contains("server agent1 unix@/run/slowlane/spop.sock check"));
/// ```
///
/// # Errors
/// This version does not support the delivery or so many keys, or a word cannot be written to its files.
pub fn files(
    version: Version,
    delivery: Delivery,
    places: &Places<'_>,
    own: &Own<'_>,
) -> Result<Vec<File>, Unprintable> {
    if delivery == Delivery::Pause && version < Version::WITH_PAUSE {
        return Err(Unprintable::NoPause(version));
    }
    if delivery == Delivery::Peers && version < Version::WITH_COUNTERS && peers::counters(own.paced).is_some()
    {
        return Err(Unprintable::TooManyKeys(version));
    }
    let (from, to) = (shipped(), values(version, places, own)?);
    let files: &[NamedText] = match delivery {
        Delivery::Hold => &[HOLD, SPOE],
        Delivery::Pause => &[PAUSE, SPOE],
        Delivery::Lua => &[LUA, SPOE, ACTION],
        Delivery::Peers if version >= Version::WITH_PAUSE => &[PEERS, SPOE],
        Delivery::Peers => &[PEERS_LUA, SPOE, ACTION],
    };
    let filled = |&(name, text): &NamedText| File { name, text: fill(text, TEMPLATE, &from, &to) };
    let mut files: Vec<File> = files.iter().map(filled).collect();
    files[0].text.insert_str(0, &format!("# For HAProxy {version}; --version names another.\n"));
    Ok(files)
}

/// The values of the shipped files.
fn shipped() -> [Value; 3] {
    let address = |text: &str| text.parse().expect("it is an address");
    let (agent, peer) = (address("127.0.0.1:9000"), address(PEER));
    let places = Places::shipped(&agent, LISTEN);
    let own = Own { folder: FOLDER, peer: &peer, ends: None, paced: &[Paced::source()] };
    values(Version::OLDEST, &places, &own).expect("they are words")
}

/// The values for the template.
fn values(version: Version, places: &Places<'_>, own: &Own<'_>) -> Result<[Value; 3], Unprintable> {
    const MINUTE: Duration = Duration::from_secs(60);
    let hold_max = places.delay_max.max(HOLD_SHIPPED);
    let ends = own.ends.map_or(Ok(ENDS.to_owned()), |ends| agent(ends, "unix@"))?;
    let values = json!({
        "peer": agent(own.peer, "unix@")?,
        "ends": ends,
        "has_ends": own.ends.is_some(),
        "agent": agent(places.agent, "unix@")?,
        "folder": word(own.folder)?.trim_end_matches('/'),
        "bind": in_its_words(places.listen)?,
        "app": in_its_words(places.app)?,
        "ssl": places.tls.map_or(Ok(String::new()), ssl)?,
        "mode": if version >= Version::WITH_SPOP_MODE { "spop" } else { "tcp" },
        "processing": written(hold_max + Duration::from_secs(1)),
        "idle": written((hold_max + MINUTE).max(2 * MINUTE)),
        "server": written((hold_max + 2 * MINUTE).max(3 * MINUTE)),
        "ratelimit": places.ratelimit,
    });
    Ok([values, sample::values(places.fields), peers::values(own.paced)])
}

/// The address for log lines in the shipped files.
const ENDS: &str = "127.0.0.1:9004";

/// The options of a server that uses TLS.
fn ssl(tls: ProxyTls<'_>) -> Result<String, Unprintable> {
    let own = if tls.has_certificate { " crt /etc/slowlane/tls/haproxy.pem" } else { "" };
    let name = word(tls.name)?;
    Ok(format!(" ssl verify required verifyhost {name} ca-file /etc/slowlane/tls/ca.pem{own}"))
}

/// An address in HAProxy's notation: `unix:/path` becomes `unix@/path`.
fn in_its_words(address: &str) -> Result<String, Unprintable> {
    let written = address.strip_prefix("unix:").map(|path| format!("unix@{path}"));
    Ok(word(written.as_deref().unwrap_or(address))?.to_owned())
}

/// The example maps, under `maps/`.
pub fn maps() -> Vec<File> {
    MAPS.iter().map(|&(name, text)| File { name, text: text.to_owned() }).collect()
}

/// The first words of the lines in the section `global` that slowlane needs.
const GLOBAL: [&str; 5] = ["localpeer ", "tune.", ".if ", ".endif", "lua-load-per-thread "];

/// A note on the operator's connection limits.
const ROOM: &str = "# Leave room for slowlane's connections: give all frontends together at most three eighths of the global maxconn.\n";

/// The lines of a shipped configuration that the operator adds to an existing one, by section.
#[derive(Clone, Debug)]
pub struct Pieces<'f> {
    lines: Vec<&'f str>,
}

impl<'f> Pieces<'f> {
    /// The lines of the main file.
    pub fn of(main: &'f File) -> Pieces<'f> {
        Pieces { lines: main.text.lines().collect() }
    }

    /// The lines for the section `global`. Most deliveries need no lines there.
    pub fn global(&self) -> Vec<String> {
        let is_global = |line: &&&str| GLOBAL.iter().any(|word| line.trim_start().starts_with(word));
        let section = self.lines.iter().take_while(|line| **line != "defaults");
        section.filter(is_global).map(ToString::to_string).collect()
    }

    /// The lines for the frontend, which go after its other rules.
    pub fn frontend(&self) -> Vec<String> {
        let begin = self.at("# --- attach slowlane");
        let end = self.lines[begin + 1..].iter().position(|line| line.contains("# ---")).unwrap_or(0);
        without_comments(&self.lines[begin..begin + 1 + end])
    }

    /// The sections for the end of the file.
    pub fn end(&self) -> Vec<String> {
        without_comments(&self.lines[self.at("defaults slowlane")..])
    }

    /// The path of the agent's Unix socket, if it has one.
    pub fn socket(&self) -> Option<&'f str> {
        let server = self.lines.iter().find_map(|line| line.trim().strip_prefix("server agent1 unix@"))?;
        server.split(' ').next()
    }

    fn at(&self, part: &str) -> usize {
        self.lines.iter().position(|line| line.trim_start().starts_with(part)).expect("the file has the part")
    }

    /// All lines as one text, in which comments name the place for each group of lines.
    pub fn to_paste(&self) -> String {
        let parts = [
            ("the section global", self.global()),
            ("your frontend", self.frontend()),
            ("the end of the file", self.end()),
        ];
        let mut text = format!(
            "{}\n# To write the files that these lines name, such as the SPOE file, add --dir DIR.\n",
            self.lines[0]
        );
        text += ROOM;
        for (place, lines) in parts.iter().filter(|(_, lines)| !lines.is_empty()) {
            text += &format!("\n# For {place}:\n{}\n", lines.join("\n"));
        }
        text
    }
}

fn without_comments(lines: &[&str]) -> Vec<String> {
    let says = |line: &&&str| !line.trim_start().starts_with('#') && !line.is_empty();
    lines.iter().filter(says).map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::shipped::template::parts;

    #[test]
    fn versions_are_read_as_haproxy_writes_them() {
        let version = |text: &str| text.parse::<Version>().map(|version| version.to_string());
        assert_eq!(version("2.6").unwrap(), "2.6");
        assert_eq!(version("2.6.12-1+deb12u1").unwrap(), "2.6");
        assert_eq!(version("3.5-dev5").unwrap(), "3.5");
        assert_eq!(version("10.0").unwrap(), "10.0");
        for text in ["", "3", "2.5", "x.y", "-3.2", "3.2x", "1.99", "99999999.0"] {
            assert_eq!(version(text), Err(VersionError), "{text:?}");
        }
    }

    #[test]
    fn every_place_is_in_a_shipped_file() {
        let all = [HOLD.1, LUA.1, PAUSE.1, PEERS.1, SPOE.1].concat();
        for part in parts(TEMPLATE, &shipped()) {
            assert!(all.contains(&part), "{part:?}");
        }
        let [.., tables] = &parts(TEMPLATE, &shipped())[..] else { panic!() };
        let [.., rules, clock, left, counts, _] = &parts(TEMPLATE, &shipped())[..] else { panic!() };
        assert_eq!(peers::counters(&[Paced::source()]), None);
        for text in [PEERS.1, PEERS_LUA.1] {
            assert!(text.ends_with(tables), "{tables}");
            for part in [rules, clock, left, counts] {
                assert!(text.contains(part), "{part}");
            }
        }
    }
}
