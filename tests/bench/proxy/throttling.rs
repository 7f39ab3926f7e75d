//! The ways to throttle in HAProxy: none, an agent, or the Lua of the article.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use tempfile::TempDir;

use crate::support::five_maps::{self, LINES, UNDELAYED};
use crate::support::programs::haproxy::{CONFIG, Delivery, Haproxy, Version, replace};
use crate::support::programs::process::Process;
use crate::support::programs::slowlane::Slowlane;
use crate::support::{cores, spop_floor, this_program, usage};

pub const UNTHROTTLED: &str = "no throttling";
pub const SLOWLANE: &str = "slowlane";

/// Makes the floor answer as many variables as slowlane.
pub const TELLING_ALL: &str = "--telling-all";

/// HAProxy with one way of throttling, and the agent that it asks, if any.
pub struct Throttling {
    pub name: &'static str,
    haproxy: Haproxy,
    agent: Agent,
}

enum Agent {
    None,
    Floor(Process, TempDir),
    Slowlane(Slowlane),
    /// The folder of the article's files.
    Lua(TempDir),
}

impl Throttling {
    /// All ways to throttle; `None` if this version of HAProxy is not installed.
    pub fn each(version: Version) -> Option<Vec<Throttling>> {
        version.binary()?;
        let agents = [
            (UNTHROTTLED, Agent::None),
            ("the floor", Agent::floor(&[])),
            ("the floor, telling all", Agent::floor(&[TELLING_ALL])),
            (SLOWLANE, Agent::slowlane()),
            ("Lua", Agent::lua()),
        ];
        Some(agents.into_iter().map(|(name, agent)| Throttling::start(name, version, agent)).collect())
    }

    fn start(name: &'static str, version: Version, agent: Agent) -> Throttling {
        let delivery = if version == Version::V3_2 { Delivery::Pause } else { Delivery::Hold };
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 9));
        let edit = |file: &str, text: String| match file {
            CONFIG => agent.configured(text),
            "spoe-slowlane.conf" => patient(&text),
            _ => text,
        };
        let start = || Haproxy::with(version, delivery, &agent.address(), nowhere, edit);
        let mut haproxy = cores::on_first(start).expect("it was there");
        if agent.is_asked() {
            haproxy.wait_for_agent("UP");
        }
        Throttling { name, haproxy, agent }
    }

    pub fn address(&self) -> SocketAddr {
        self.haproxy.address
    }

    pub fn has_agent(&self) -> bool {
        self.agent.is_asked()
    }

    /// The CPU time of HAProxy and of its agent, in nanoseconds.
    pub fn cpu_ns(&self) -> [u64; 2] {
        let agent = match &self.agent {
            Agent::None | Agent::Lua(_) => 0,
            Agent::Floor(process, _) => usage::cpu_ns(process.id()),
            Agent::Slowlane(slowlane) => usage::cpu_ns(slowlane.process.id()),
        };
        [usage::cpu_ns(self.haproxy.process.id()), agent]
    }

    /// Delays would spoil the measurement.
    pub fn assert_that_nobody_waited(&self) {
        if let Agent::Slowlane(slowlane) = &self.agent {
            let verdicts = |labels| slowlane.metric("slowlane_verdicts_total", labels);
            assert_eq!(verdicts(""), verdicts("verdict=\"pass\""), "somebody had to wait or was refused");
        }
    }
}

impl Agent {
    fn floor(arguments: &[&str]) -> Agent {
        let folder = tempfile::tempdir().unwrap();
        let at = format!("unix:{}", folder.path().join("spop").display());
        let arguments = [&[spop_floor::ARGUMENT, &at], arguments].concat();
        let mut process = cores::on_second(|| this_program(&arguments));
        process.logged("SPOP on ");
        Agent::Floor(process, folder)
    }

    /// slowlane with the law of the article.
    fn slowlane() -> Agent {
        Agent::Slowlane(cores::on_second(|| five_maps::slowlane(UNDELAYED, "adaptive")))
    }

    /// The Lua of the article, with the same maps.
    fn lua() -> Agent {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in five_maps::files(UNDELAYED, "adaptive", LINES, LINES) {
            fs::write(folder.path().join(name), text).unwrap();
        }
        fs::write(folder.path().join("throttling.lua"), include_str!("throttling.lua")).unwrap();
        Agent::Lua(folder)
    }

    fn is_asked(&self) -> bool {
        matches!(self, Agent::Floor(..) | Agent::Slowlane(_))
    }

    /// The address of the agent; without an agent, one that is never used.
    fn address(&self) -> String {
        let at = |path: &Path| format!("unix@{}", path.display());
        match self {
            Agent::None | Agent::Lua(_) => "127.0.0.1:9".to_owned(),
            Agent::Floor(_, folder) => at(&folder.path().join("spop")),
            Agent::Slowlane(slowlane) => at(&slowlane.socket("spop")),
        }
    }

    /// The shipped configuration with this throttling, with one thread, without a log, and with HAProxy as application.
    fn configured(&self, text: String) -> String {
        let text = replace(&text, "    log stdout format raw local0\n", "    nbthread 1\n");
        let source = "    http-request set-src req.hdr(x-from)\n";
        let text = replace(&text, "\nfrontend www\n", &format!("\nfrontend www\n{source}"));
        let text = replace(&text, "# http-request set-var(txn.owner)", "http-request set-var(txn.owner)");
        let text = replace(&text, "    server app1 127.0.0.1:9\n", "    http-request return status 200\n");
        match self {
            Agent::Floor(..) | Agent::Slowlane(_) => replace(
                &text,
                "# http-request deny deny_status 503 unless",
                "http-request deny deny_status 503 unless",
            ),
            Agent::None => with_rules(&text, ""),
            Agent::Lua(folder) => {
                let here = format!("{}/", folder.path().display());
                let rules = include_str!("throttling.cfg").replace("/etc/haproxy/", &here);
                let text =
                    replace(&text, "global\n", &format!("global\n    lua-load {here}throttling.lua\n"));
                with_rules(&text, &rules) + STICK_TABLE
            }
        }
    }
}

const STICK_TABLE: &str = "
backend throttling
    stick-table type binary len 8 size 1m expire 30s store http_req_cnt,gpc0_rate(1s),gpc1_rate(1s),gpt0
";

/// Replaces the lines that use slowlane by other rules, and removes the agent.
fn with_rules(text: &str, rules: &str) -> String {
    let (before, rest) =
        text.split_once("    # --- attach slowlane").expect("it is marked in the shipped file");
    let (_, after) = rest.split_once("    # -----").expect("its end is marked in the shipped file");
    let (_, after) = after.split_once('\n').expect("the mark is not the last line");
    let (after, _) = after.split_once("\n# The agents.").expect("the agents are the last section");
    format!("{before}{rules}{after}")
}

/// Raises the timeout: a shared machine may stall for longer than the shipped 100 ms.
fn patient(text: &str) -> String {
    replace(text, "timeout processing 100ms", "timeout processing 5s")
}
