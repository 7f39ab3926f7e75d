//! The proxies in front: each real, with the files that `slowlane config` prints for a policy, or those of an example.

mod examples;
mod haproxy;
mod nginx;

use std::fmt;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use quinn::ClientConfig;
use tempfile::TempDir;

use crate::app::App;
use crate::policies::{self, Counter, Policy};
use crate::support::haproxy::{Version, replace};
use crate::support::process::Process;
use crate::support::slowlane::{BINARY, Slowlane};
use crate::support::{eventually, project, unpacked};

pub use haproxy::Tables;

/// A kind of proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// With this delivery and its main file.
    Haproxy(Version, &'static str, &'static str),
    /// The installed one.
    Nginx,
    /// An unpacked one of this version, whose strangers all speak this version of HTTP.
    UnpackedNginx(&'static str, Http),
    /// The unpacked one of this version, or else the installed one.
    Caddy(Option<&'static str>),
    Traefik,
    Envoy,
    /// With slowlane as its rate limit service.
    EnvoyRateLimit,
}

/// The versions of HTTP that have header fields and no text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http {
    Two,
    Three,
}

impl Kind {
    /// The policies whose fields this proxy sends.
    pub fn policies(self) -> &'static [Policy] {
        match self {
            Kind::Haproxy(..) | Kind::Nginx | Kind::UnpackedNginx(..) => &policies::ALL,
            Kind::Caddy(_) | Kind::Traefik | Kind::Envoy | Kind::EnvoyRateLimit => &policies::OF_ANY_PROXY,
        }
    }

    pub fn counter(self) -> Counter {
        match self {
            Kind::Haproxy(_, "peers", _) => Counter::Counts,
            _ => Counter::Asks,
        }
    }

    /// The part of the strangers that speak HTTP/2 or HTTP/3.
    pub fn fields_percent(self) -> u32 {
        if let Kind::UnpackedNginx(..) = self { 100 } else { 25 }
    }

    /// Whether the field `path` is written as HAProxy's printed rules do: without parameters, in lower case.
    pub fn has_normal_paths(self) -> bool {
        matches!(self, Kind::Haproxy(..))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Haproxy(version, delivery, _) => {
                write!(f, "HAProxy {} {delivery}", version.number())
            }
            Kind::Nginx => write!(f, "nginx"),
            Kind::UnpackedNginx(version, Http::Two) => write!(f, "nginx {version} HTTP/2"),
            Kind::UnpackedNginx(version, Http::Three) => write!(f, "nginx {version} HTTP/3"),
            Kind::Caddy(None) => write!(f, "Caddy"),
            Kind::Caddy(Some(version)) => write!(f, "Caddy {version}"),
            Kind::Traefik => write!(f, "Traefik"),
            Kind::Envoy => write!(f, "Envoy"),
            Kind::EnvoyRateLimit => write!(f, "Envoy's rate limit service"),
        }
    }
}

/// A running proxy.
pub struct Front {
    process: Process,
    pub address: SocketAddr,
    /// The address for HTTP/2. Most take it beside HTTP/1.
    pub http2: SocketAddr,
    /// The client of a front that takes HTTP/3, at its address, in place of HTTP/2.
    pub http3: Option<ClientConfig>,
    folder: TempDir,
}

impl Front {
    /// None if it is not installed. `own` is the address of slowlane's listener for peers, or for gRPC.
    pub fn start(kind: Kind, slowlane: &Slowlane, own: SocketAddr, app: &App) -> Option<Front> {
        match kind {
            Kind::Haproxy(version, delivery, main) => {
                haproxy::start(version, (delivery, main), slowlane, own, app)
            }
            Kind::Nginx => Some(nginx::installed(slowlane, app)),
            Kind::UnpackedNginx(version, http) => {
                let program = unpacked("nginx", version)?;
                Some(nginx::unpacked(&program, http, slowlane, app))
            }
            Kind::Caddy(version) => {
                let program = version.map_or_else(
                    || examples::program("caddy", "version"),
                    |version| unpacked("caddy", version),
                );
                Some(examples::caddy(&program?, slowlane, app))
            }
            Kind::Traefik => examples::traefik(slowlane, app),
            Kind::Envoy => examples::envoy("envoy", ("9001", slowlane.http), app),
            Kind::EnvoyRateLimit => examples::envoy("envoy-ratelimit", ("9005", own), app),
        }
    }

    /// The tables of HAProxy.
    pub fn tables(&self) -> Tables {
        Tables::at(self.folder.path())
    }

    fn once_it_listens(process: Process, address: SocketAddr, folder: TempDir) -> Front {
        let mut front = Front { process, address, http2: address, http3: None, folder };
        eventually("the proxy listens", || {
            assert!(front.process.is_running(), "it ended:\n{}", front.process.log().join("\n"));
            TcpStream::connect(front.address).ok()
        });
        front
    }
}

/// Asks nginx to end, which ends its workers.
impl Drop for Front {
    fn drop(&mut self) {
        if self.process.is_running() {
            self.process.signal("TERM");
            self.process.wait();
        }
    }
}

fn print(slowlane: &Slowlane, args: &[&str]) {
    let mut command = Command::new(BINARY);
    command.arg("config").args(args).arg("--config").arg(slowlane.folder().join("slowlane.toml"));
    let output = command.arg("--policy").arg(slowlane.policy()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Replaces a text that the file must contain.
fn edit(path: &Path, what: &str, with: &str) {
    let text = fs::read_to_string(path).unwrap();
    fs::write(path, replace(&text, what, with)).unwrap();
}

/// A file of an example, with these texts replaced.
fn copy(file: &str, to: &Path, places: &[(&str, &str)]) {
    let text = fs::read_to_string(project("examples").join(file)).unwrap();
    let each = |text: String, (what, with): &(&str, &str)| {
        assert!(text.contains(what), "no {what:?} in {file}");
        text.replace(what, with)
    };
    fs::write(to, places.iter().fold(text, each)).unwrap();
}
