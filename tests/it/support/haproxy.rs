//! A real HAProxy, in each installed version, with the configuration files that slowlane ships.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use super::client::{Client, Response};
use super::process::Process;
use super::{eventually, own_address, project, skipped, unpacked};

/// The tested versions of HAProxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V2_6,
    V3_0,
    V3_2,
    V3_4,
}

impl Version {
    /// The binary; `None` if this version is not installed. The version of the distribution must be.
    pub fn binary(self) -> Option<PathBuf> {
        static UNPACKED: [OnceLock<Option<PathBuf>>; 4] = [const { OnceLock::new() }; 4];
        match self {
            Version::V2_6 => Some("haproxy".into()),
            _ => UNPACKED[self as usize].get_or_init(|| unpacked("haproxy", self.number())).clone(),
        }
    }

    pub fn number(self) -> &'static str {
        match self {
            Version::V2_6 => "2.6",
            Version::V3_0 => "3.0",
            Version::V3_2 => "3.2",
            Version::V3_4 => "3.4",
        }
    }
}

/// The delivery of a delay, each with its shipped configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    Hold,
    Lua,
    Pause,
    /// HAProxy decides, and waits in Lua.
    PeersLua,
    /// HAProxy decides, and waits with `pause`.
    Peers,
}

impl Delivery {
    pub fn file(self) -> &'static str {
        match self {
            Delivery::Hold => "haproxy-2.6-hold.cfg",
            Delivery::Lua => "haproxy-2.6-lua.cfg",
            Delivery::Pause => "haproxy-3.2-pause.cfg",
            Delivery::PeersLua => "haproxy-2.6-peers.cfg",
            Delivery::Peers => "haproxy-3.2-peers.cfg",
        }
    }
}

/// The shipped combinations.
pub const EACH_DELIVERY: &[(Version, Delivery)] = &[
    (Version::V2_6, Delivery::Hold),
    (Version::V2_6, Delivery::Lua),
    (Version::V3_0, Delivery::Hold),
    (Version::V3_2, Delivery::Hold),
    (Version::V3_2, Delivery::Pause),
    (Version::V3_4, Delivery::Hold),
    (Version::V3_4, Delivery::Pause),
];

/// Runs a test with each of these in parallel. Combinations without an installed HAProxy are reported as skipped.
pub fn each(deliveries: &[(Version, Delivery)], story: impl Fn(Version, Delivery) + Sync) {
    let story = &story;
    thread::scope(|scope| {
        for &(version, delivery) in deliveries {
            if version.binary().is_none() {
                skipped(&format!("HAProxy {version:?} cannot be had on this machine ({delivery:?})"));
                continue;
            }
            // The name of the thread appears in panics.
            let thread = thread::Builder::new().name(format!("{version:?} {delivery:?}"));
            thread.spawn_scoped(scope, move || story(version, delivery)).unwrap();
        }
    });
}

/// HAProxy's variables from slowlane about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerdictHeaders {
    pub verdict: Option<String>,
    pub delay: Duration,
    pub slo: Option<u16>,
    pub key: Option<i64>,
    pub retry_after_s: Option<u64>,
    pub remaining: Option<u32>,
    pub ticket: Option<String>,
    pub error: Option<u32>,
    /// The error of the second engine, which asks for the hold.
    pub hold_error: Option<u32>,
}

impl VerdictHeaders {
    /// Reads the headers that a [`showing_verdicts`] HAProxy adds.
    pub fn by(response: &Response) -> VerdictHeaders {
        let header = |name| response.header(name).filter(|value| !value.is_empty()).map(str::to_owned);
        let number = |name| header(name).map(|value| value.parse::<i64>().unwrap());
        VerdictHeaders {
            verdict: header("x-verdict"),
            delay: Duration::from_millis(number("x-delay").unwrap_or(0).try_into().unwrap()),
            slo: number("x-slo").map(|slo| slo.try_into().unwrap()),
            key: number("x-key"),
            retry_after_s: number("x-retry-after").map(|seconds| seconds.try_into().unwrap()),
            remaining: number("x-remaining").map(|requests| requests.try_into().unwrap()),
            ticket: header("x-ticket"),
            error: number("x-error").map(|error| error.try_into().unwrap()),
            hold_error: number("x-hold-error").map(|error| error.try_into().unwrap()),
        }
    }

    pub fn is(&self, verdict: &str) -> bool {
        self.verdict.as_deref() == Some(verdict)
    }
}

/// Edits a file by its name: HAProxy reports its variables to clients, and trusts their headers for source and owner.
pub fn showing_verdicts(name: &str, text: String) -> String {
    if name != CONFIG {
        return text;
    }
    let text = replace(&text, "# http-request set-var(txn.owner)", "http-request set-var(txn.owner)");
    let from = "    http-request set-src req.hdr(x-from) if { req.hdr(x-from) -m found }\n";
    let report = [
        ("verdict", "slowlane.verdict"),
        ("delay", "slowlane.delay"),
        ("slo", "slowlane.slo"),
        ("key", "slowlane.key"),
        ("retry-after", "slowlane.retry_after"),
        ("remaining", "slowlane.remaining"),
        ("ticket", "slowlane.ticket"),
        ("error", "slowlane.error"),
        ("hold-error", "slowlane_hold.error"),
    ];
    let report = report.map(|(name, variable)| {
        format!("    http-after-response set-header x-{name} %[var(txn.{variable})]\n")
    });
    let text = replace(&text, "    filter spoe", &format!("{from}    filter spoe"));
    replace(&text, "    default_backend", &format!("{}    default_backend", report.concat()))
}

/// The same edit, with a longer timeout for verdicts. A slow machine may stall for the shipped 100 ms, and requests would
/// pass.
pub fn showing_verdicts_patiently(name: &str, text: String) -> String {
    match name {
        "spoe-slowlane.conf" => replace(&text, "timeout processing 100ms", "timeout processing 5s"),
        _ => showing_verdicts(name, text),
    }
}

/// The same in one thread: of two threads that log at the same moment, HAProxy drops the line of one rather than wait.
pub fn logging_every_request(name: &str, text: String) -> String {
    let text = showing_verdicts_patiently(name, text);
    if name == CONFIG { replace(&text, "\nglobal\n", "\nglobal\n    nbthread 1\n") } else { text }
}

/// The name of the main file in the test's folder.
pub const CONFIG: &str = "haproxy.cfg";

/// A running HAProxy.
pub struct Haproxy {
    pub process: Process,
    pub address: SocketAddr,
    binary: PathBuf,
    folder: TempDir,
}

impl Haproxy {
    /// Starts HAProxy with a shipped configuration file; `None` if the version is not installed.
    pub fn shipped(version: Version, delivery: Delivery, agent: &str, app: SocketAddr) -> Option<Haproxy> {
        Haproxy::with(version, delivery, agent, app, |_, text| text)
    }

    /// The same, with an edit of each file, by its name.
    pub fn with(
        version: Version,
        delivery: Delivery,
        agent: &str,
        app: SocketAddr,
        edit: impl Fn(&str, String) -> String,
    ) -> Option<Haproxy> {
        let binary = version.binary()?;
        let folder = tempfile::tempdir().unwrap();
        for file in fs::read_dir(project("haproxy")).unwrap().map(Result::unwrap) {
            if file.file_type().unwrap().is_file() {
                let text = fs::read_to_string(file.path()).unwrap();
                let text = text.replace("/etc/haproxy/", &format!("{}/", folder.path().display()));
                let text = edit(file.file_name().to_str().unwrap(), text);
                fs::write(folder.path().join(file.file_name()), text).unwrap();
            }
        }
        let address = own_address();
        let stats = folder.path().join("stats.sock");
        let shipped = fs::read_to_string(folder.path().join(delivery.file())).unwrap();
        let config = replace(&shipped, "bind :8080", &format!("bind {address}"));
        let config = replace(&config, "server app1 127.0.0.1:8000", &format!("server app1 {app}"));
        let config = replace(&config, "server agent1 127.0.0.1:9000", &format!("server agent1 {agent}"));
        let stats_line =
            format!("global\n    stats socket {} mode 600 level admin expose-fd listeners", stats.display());
        let config = edit(CONFIG, replace(&config, "global\n", &format!("{stats_line}\n")));
        fs::write(folder.path().join(CONFIG), config).unwrap();
        let process = Process::start(&mut command(&binary, folder.path()));
        let mut haproxy = Haproxy { process, address, binary, folder };
        haproxy.wait_until_it_listens();
        Some(haproxy)
    }

    /// The path of one of its files.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// Waits until HAProxy's own check has found the agent in this state, `UP` or `DOWN`.
    pub fn wait_for_agent(&mut self, state: &str) {
        let what = format!("the agent is {state}");
        eventually(&what, || {
            let stats = self.runtime("show stat\n")?;
            let agent = stats.lines().find(|line| line.starts_with("slowlane-agents,agent1,"))?;
            agent.split(',').nth(17)?.starts_with(state).then_some(())
        });
    }

    /// Sends a command to the Runtime API.
    pub fn runtime(&self, command: &str) -> Option<String> {
        let mut stream = UnixStream::connect(self.folder.path().join("stats.sock")).ok()?;
        stream.write_all(command.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    /// Starts a new process that takes over the listeners, as a reload does. The old one finishes its connections.
    pub fn reload(&mut self) -> Process {
        let stats = self.folder.path().join("stats.sock");
        let mut command = command(&self.binary, self.folder.path());
        command.arg("-x").arg(stats).arg("-sf").arg(self.process.id().to_string());
        let old = std::mem::replace(&mut self.process, Process::start(&mut command));
        let new = self.process.id().to_string();
        eventually("the new HAProxy answers", || {
            let info = self.runtime("show info\n")?;
            info.lines().any(|line| line == format!("Pid: {new}")).then_some(())
        });
        old
    }

    fn wait_until_it_listens(&mut self) {
        eventually("HAProxy answers its Runtime API", || {
            assert!(self.process.is_running(), "HAProxy ended:\n{}", self.process.log().join("\n"));
            self.runtime("show info\n").filter(|info| !info.is_empty())
        });
    }
}

/// The command for HAProxy in the foreground, so that it does not fork.
fn command(binary: &Path, folder: &Path) -> Command {
    let mut command = Command::new(binary);
    command.current_dir(folder).arg("-db").arg("-f").arg(folder.join(CONFIG));
    command
}

/// Replaces a text that a shipped file must contain.
pub fn replace(text: &str, what: &str, with: &str) -> String {
    assert!(text.contains(what), "no {what:?} in the shipped file");
    text.replacen(what, with, 1)
}
