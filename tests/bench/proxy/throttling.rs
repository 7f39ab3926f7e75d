//! The ways to throttle in HAProxy: none, an agent, or the Lua of the article.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::support::clients::Ran;
use crate::support::five_maps::{self, LINES, UNDELAYED};
use crate::support::programs::haproxy::{CONFIG, Delivery, Haproxy, Version, replace};
use crate::support::programs::process::Process;
use crate::support::programs::slowlane::Slowlane;
use crate::support::programs::{eventually, own_address};
use crate::support::{cores, peers, spop_baseline, this_program, usage};

pub const UNTHROTTLED: &str = "no throttling";
pub const SLOWLANE: &str = "slowlane";
pub const BASELINE: &str = "the baseline";
pub const BASELINE_OF_ALL: &str = "the baseline, all headers";
pub const LUA: &str = "Lua";
pub const TABLE: &str = "a stick table";
pub const PEERS: &str = "slowlane as a peer";
pub const TABLE_MANY: &str = "a stick table, 100 k";
pub const PEERS_MANY: &str = "as a peer, 100 k";

/// The sources of the clients, where not all of them ask.
const SOURCES: u32 = 10_000;

/// Makes the baseline answer as many variables as slowlane.
pub const ALL_HEADERS: &str = "--all-headers";

/// HAProxy with one way of throttling, and the agent that it asks, if any.
pub struct Throttling {
    pub name: &'static str,
    /// The number of sources that ask.
    pub sources: u32,
    haproxy: Haproxy,
    agent: Agent,
}

enum Agent {
    None,
    Baseline(Process, TempDir),
    Slowlane(Slowlane),
    /// slowlane and its listener for peers. HAProxy keeps the pace.
    Peer(Slowlane, SocketAddr),
    /// A stick table of HAProxy's own, whose limit is never reached.
    Table,
    /// The folder of the article's files.
    Lua(TempDir),
}

impl Throttling {
    /// All ways to throttle; `None` if this version of HAProxy is not installed.
    pub fn each(version: Version) -> Option<Vec<Throttling>> {
        version.binary()?;
        let agents = [
            (UNTHROTTLED, LINES, Agent::None),
            (BASELINE, LINES, Agent::baseline(&[])),
            (BASELINE_OF_ALL, LINES, Agent::baseline(&[ALL_HEADERS])),
            (SLOWLANE, LINES, Agent::slowlane()),
            (LUA, LINES, Agent::lua()),
            (TABLE, SOURCES, Agent::Table),
            (PEERS, SOURCES, Agent::peer()),
            (TABLE_MANY, LINES, Agent::Table),
            (PEERS_MANY, LINES, Agent::peer()),
        ];
        let start = |(name, sources, agent)| Throttling::start(name, sources, version, agent);
        Some(agents.into_iter().map(start).collect())
    }

    fn start(name: &'static str, sources: u32, version: Version, agent: Agent) -> Throttling {
        let delivery = match (&agent, version) {
            (Agent::Peer(..), _) => peers::delivery(version),
            (_, Version::V3_2 | Version::V3_4) => Delivery::Pause,
            _ => Delivery::Hold,
        };
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 9));
        let edit = |file: &str, text: String| match file {
            CONFIG => agent.configured(text),
            "spoe-slowlane.conf" => patient(&text),
            _ => text,
        };
        let start = || Haproxy::with(version, delivery, &agent.address(), nowhere, edit);
        let mut haproxy = cores::on_first(start).expect("it was there");
        if agent.is_process() {
            haproxy.wait_for_agent("UP");
        }
        if let Agent::Peer(slowlane, _) = &agent {
            let sessions = || slowlane.metric("slowlane_peers_sessions", "");
            eventually("HAProxy is a peer", || (sessions() == 1.0).then_some(()));
        }
        Throttling { name, sources, haproxy, agent }
    }

    pub fn address(&self) -> SocketAddr {
        self.haproxy.address
    }

    pub fn has_agent(&self) -> bool {
        self.agent.is_process()
    }

    /// The CPU time of HAProxy and of its agent, in nanoseconds.
    pub fn cpu_ns(&self) -> [u64; 2] {
        let agent = match &self.agent {
            Agent::None | Agent::Table | Agent::Lua(_) => 0,
            Agent::Baseline(process, _) => usage::cpu_ns(process.id()),
            Agent::Slowlane(slowlane) | Agent::Peer(slowlane, _) => usage::cpu_ns(slowlane.process.id()),
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

    /// Whether HAProxy keeps the pace. Then its sources have to be taught before anything is measured.
    pub fn is_pushed(&self) -> bool {
        matches!(self.agent, Agent::Peer(..))
    }

    /// The requests that HAProxy has told its peer of.
    pub fn outcome(&self) -> f64 {
        match &self.agent {
            Agent::Peer(slowlane, _) => slowlane.metric("slowlane_peers_admitted_total", ""),
            _ => 0.0,
        }
    }

    /// Waits until limits are no longer refreshed, some seconds after the last request: it would disturb other runs.
    pub fn calm_down(&self) {
        let Agent::Peer(slowlane, _) = &self.agent else { return };
        let pushes = || slowlane.metric("slowlane_peers_pushes_total", "");
        let mut before = pushes();
        eventually("limits are no longer refreshed", || {
            // Longer than a round of refreshing.
            thread::sleep(Duration::from_millis(500));
            let now = pushes();
            (std::mem::replace(&mut before, now) == now).then_some(())
        });
    }

    /// Without limits and counts, there would be nothing to measure. `outcome`: the count before the run.
    pub fn assert_that_sources_were_taught(&self, ran: &Ran<2>, time: Duration, outcome: f64) {
        let Agent::Peer(slowlane, _) = &self.agent else { return };
        let requests = ran.per_second * time.as_secs_f64();
        // Not each: a source that was forgotten begins anew, and may look as it did before.
        eventually("HAProxy tells its peer of the requests", || {
            (self.outcome() - outcome >= requests / 2.0).then_some(())
        });
        // The sources of this run, if each request has one by chance. Limits live for 10 s.
        let requests = ran.per_second * time.min(LIMITS_EXPIRE).as_secs_f64();
        let sources = f64::from(self.sources);
        let asked = sources * (1.0 - (-requests / sources).exp());
        let pushed = peers::limits(&self.haproxy) as f64;
        assert!(pushed >= 0.9 * asked, "{}: {pushed} of {asked} sources have a limit", self.name);
        let source = five_maps::source(0).to_string();
        let is_asked = asked > 0.999 * sources;
        assert!(!is_asked || peers::slot_us(&self.haproxy, &source) == Some(2), "{source} has no limit");
        assert_eq!(slowlane.metric("slowlane_peers_denied_total", ""), 0.0, "somebody was refused");
        assert_eq!(slowlane.metric("slowlane_peers_left_out_total", ""), 0.0, "a source had no room");
    }
}

impl Agent {
    fn baseline(arguments: &[&str]) -> Agent {
        let folder = tempfile::tempdir().unwrap();
        let at = format!("unix:{}", folder.path().join("spop").display());
        let arguments = [&[spop_baseline::ARGUMENT, &at], arguments].concat();
        let mut process = cores::on_second(|| this_program(&arguments));
        process.logged("SPOP on ");
        Agent::Baseline(process, folder)
    }

    /// slowlane with the law of the article.
    fn slowlane() -> Agent {
        Agent::Slowlane(cores::on_second(|| five_maps::slowlane(UNDELAYED, "adaptive")))
    }

    /// slowlane as a peer, with a law that HAProxy can keep.
    fn peer() -> Agent {
        let at = own_address();
        let start = || five_maps::slowlane_with(UNDELAYED, "pace", &peers::section(at));
        Agent::Peer(cores::on_second(start), at)
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

    fn is_process(&self) -> bool {
        matches!(self, Agent::Baseline(..) | Agent::Slowlane(_) | Agent::Peer(..))
    }

    /// The address of the agent; without an agent, one that is never used.
    fn address(&self) -> String {
        let at = |path: &Path| format!("unix@{}", path.display());
        match self {
            Agent::None | Agent::Table | Agent::Lua(_) => "127.0.0.1:9".to_owned(),
            Agent::Baseline(_, folder) => at(&folder.path().join("spop")),
            Agent::Slowlane(slowlane) | Agent::Peer(slowlane, _) => at(&slowlane.socket("spop")),
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
            // A shared machine may stall for longer than the shipped timeout, and HAProxy would take the agent for dead.
            Agent::Baseline(..) | Agent::Slowlane(_) => replace(
                &replace(&text, "timeout check   250ms", "timeout check   5s"),
                "# http-request deny deny_status 503 unless",
                "http-request deny deny_status 503 unless",
            ),
            Agent::None => with_rules(&text, ""),
            Agent::Table => with_rules(&text, TABLE_RULES) + TABLE_OF_ALL,
            Agent::Peer(_, at) => peers::named(&text, "lb1", own_address(), *at),
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

/// A limit as HAProxy alone can have it; nobody reaches it.
const TABLE_RULES: &str = "    http-request track-sc0 src table throttling
    http-request deny deny_status 429 if { sc_http_req_rate(0) gt 1000000 }
";

/// The keys are texts, as those of the tables that slowlane teaches.
const TABLE_OF_ALL: &str = "
backend throttling
    stick-table type string len 128 size 100k expire 60s store http_req_rate(1s)
";

/// The shipped life of a limit.
const LIMITS_EXPIRE: Duration = Duration::from_secs(10);

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
