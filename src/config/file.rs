//! The config file in TOML. Every key has a default, and unknown keys are errors.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use rustix::system::uname;
use serde::{Deserialize, Serialize};

use crate::config::Tls;
use crate::config::grpc::Grpc;
use crate::config::peers::Peers;
use crate::config::policy::{Policy, WrittenPolicy};
use crate::config::values::{
    allow, duration, duration_within, expire, hosts, is_secret, node, prefix, sample, socket_mode, store,
    verdicts, within, written, written_mode, written_store,
};
use crate::observe::decision_log::{self, STDOUT, Sample};
use crate::observe::log;
use crate::sync::{StoreTlsFiles, StoreUrl, SyncConfig};
use slowlane_core::base::{Address, Kind as VerdictKind, Network, Token, WhenFull};
use slowlane_core::cluster::{OnSilence, Settings};

/// The whole file. A missing key has the value of the shipped file.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) spop: Spop,
    pub(super) http: Http,
    pub(super) grpc: Grpc,
    pub(super) admin: Admin,
    pub(super) hold: Hold,
    pub(super) table: TableSection,
    pub(super) policy: Policy,
    pub(super) cluster: ClusterSection,
    pub(super) peers: Peers,
    pub(super) ends: EndsSection,
    pub(super) state: StateSection,
    pub(super) decision_log: DecisionLog,
    pub(super) log: log::LogSettings,
}

impl File {
    /// Applies the flags, which override the file. Relative paths in the file start at `base`, its folder.
    pub(super) fn with(mut self, flags: Flags, base: &Path) -> File {
        let Flags { policy, spop, http, grpc, admin, peers, ends, cluster, state } = flags;
        let listens = [
            (&mut self.spop.listen, spop),
            (&mut self.http.listen, http),
            (&mut self.grpc.listen, grpc),
            (&mut self.admin.listen, admin),
            (&mut self.peers.listen, peers),
            (&mut self.ends.listen, ends),
        ];
        for (written, typed) in listens {
            if !typed.is_empty() {
                *written = typed;
            }
        }
        for path in self.paths() {
            *path = base.join(&*path);
        }
        self.policy.written.dir = policy.or(self.policy.written.dir);
        self.cluster.store = cluster.or(self.cluster.store);
        self.state.file = state.or(self.state.file);
        self
    }

    /// The paths that may be relative to the folder of the file.
    pub(super) fn paths(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let Admin { token_file, socket, tls: admin, .. } = &mut self.admin;
        let log = self.decision_log.path.as_mut().filter(|path| path.as_os_str() != STDOUT);
        let WrittenPolicy { dir, key_secret_file, .. } = &mut self.policy.written;
        let ClusterSection { ca, cert, key, token_file: node_token_file, tls: cluster, .. } =
            &mut self.cluster;
        let state = &mut self.state.file;
        let tls =
            [&mut self.spop.tls, &mut self.http.tls, &mut self.grpc.tls, admin, cluster, &mut self.peers.tls];
        let tls = tls.into_iter().flat_map(|Tls { cert, key, client_ca }| [cert, key, client_ca]);
        [dir, key_secret_file, token_file, socket, ca, cert, key, node_token_file, state]
            .into_iter()
            .chain(tls)
            .flatten()
            .chain(log)
            .chain(&mut self.ends.follow)
    }
}

// Not a doc comment: clap would show it as the description of a command.
// Settings from the command line. An empty list, or `None`, leaves the setting of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct Flags {
    /// The policy directory
    #[arg(long, value_name = "DIR")]
    pub policy: Option<PathBuf>,
    /// Address for HAProxy (SPOP); may be repeated [default: 127.0.0.1:9000]
    #[arg(long, value_name = "ADDR")]
    pub spop: Vec<Address>,
    /// Address for nginx (/check); may be repeated [default: 127.0.0.1:9001]
    #[arg(long, value_name = "ADDR")]
    pub http: Vec<Address>,
    /// Address for Envoy (gRPC); may be repeated
    #[arg(long, value_name = "ADDR")]
    pub grpc: Vec<Address>,
    /// Address of the status page, the API and the metrics; may be repeated [default: 127.0.0.1:9002]
    #[arg(long, value_name = "ADDR")]
    pub admin: Vec<Address>,
    /// Address for HAProxys that enforce limits locally (peers protocol); may be repeated
    #[arg(long, value_name = "ADDR")]
    pub peers: Vec<Address>,
    /// UDP address for log lines that report the ends of requests; may be repeated
    #[arg(long, value_name = "ADDR")]
    pub ends: Vec<Address>,
    /// The store of a cluster, like redis://127.0.0.1:6379; its nodes share each SLO
    #[arg(long, value_name = "URL")]
    pub cluster: Option<StoreUrl>,
    /// Keep the state in this file, so that a restart forgets nothing
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(expecting = "the section [spop]", deny_unknown_fields)]
pub(super) struct Spop {
    pub(super) listen: Vec<Address>,
    #[serde(deserialize_with = "allow")]
    pub(super) allow: Vec<Network>,
    #[serde(deserialize_with = "within::<1, 1_000_000, _, _>")]
    pub(super) connections_max: usize,
    /// SPOP needs at least 256 bytes. HAProxy offers 16380, or more with larger buffers.
    #[serde(deserialize_with = "within::<256, 16_777_216, _, _>")]
    pub(super) frame_bytes_max: u32,
    #[serde(deserialize_with = "duration", serialize_with = "written")]
    pub(super) timeout: Duration,
    pub(super) tls: Tls,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(expecting = "the section [http]", deny_unknown_fields)]
pub(super) struct Http {
    pub(super) listen: Vec<Address>,
    #[serde(deserialize_with = "allow")]
    pub(super) allow: Vec<Network>,
    #[serde(deserialize_with = "allow")]
    pub(super) trusted: Vec<Network>,
    #[serde(deserialize_with = "within::<1, 1_000_000, _, _>")]
    pub(super) connections_max: usize,
    #[serde(deserialize_with = "duration", serialize_with = "written")]
    pub(super) idle_timeout: Duration,
    pub(super) tls: Tls,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(expecting = "the section [admin]", deny_unknown_fields)]
pub(super) struct Admin {
    pub(super) listen: Vec<Address>,
    #[serde(deserialize_with = "allow")]
    pub(super) allow: Vec<Network>,
    /// `config show` leaves this secret out.
    #[serde(skip_serializing)]
    pub(super) token: Option<Token>,
    pub(super) token_file: Option<PathBuf>,
    #[serde(deserialize_with = "hosts")]
    pub(super) hosts: Vec<String>,
    pub(super) socket: Option<PathBuf>,
    #[serde(deserialize_with = "socket_mode", serialize_with = "written_mode")]
    pub(super) socket_mode: u32,
    pub(super) tls: Tls,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(expecting = "the section [hold]", deny_unknown_fields)]
pub(super) struct Hold {
    /// 0 is allowed: `when_full` then replaces every delay.
    #[serde(deserialize_with = "within::<0, 100_000_000, _, _>")]
    pub(super) max: usize,
    #[serde(deserialize_with = "duration", serialize_with = "written")]
    pub(super) longest: Duration,
    pub(super) when_full: WhenFull,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(expecting = "the section [table]", deny_unknown_fields)]
pub(super) struct TableSection {
    /// At about 75 bytes an entry, 100 million entries take 7.5 GB.
    #[serde(deserialize_with = "within::<1, 100_000_000, _, _>")]
    pub(super) size: u32,
    #[serde(deserialize_with = "expire", serialize_with = "written")]
    pub(super) expire: Duration,
    /// 0 is allowed: laws with auxiliary states then always use their fallback.
    #[serde(deserialize_with = "within::<0, 1_099_511_627_776, _, _>")]
    pub(super) annex_bytes_max: usize,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(expecting = "the section [ends]", deny_unknown_fields)]
pub(super) struct EndsSection {
    pub(super) listen: Vec<Address>,
    #[serde(deserialize_with = "allow")]
    pub(super) allow: Vec<Network>,
    pub(super) follow: Vec<PathBuf>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(expecting = "the section [state]", deny_unknown_fields)]
pub(super) struct StateSection {
    pub(super) file: Option<PathBuf>,
    #[serde(deserialize_with = "duration_within::<1_000, 3_600_000, _>", serialize_with = "written")]
    pub(super) every: Duration,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(expecting = "the section [cluster]", deny_unknown_fields)]
pub(super) struct ClusterSection {
    /// `config show` leaves an address with a password out.
    #[serde(
        default,
        deserialize_with = "store",
        serialize_with = "written_store",
        skip_serializing_if = "is_secret"
    )]
    pub(super) store: Option<StoreUrl>,
    #[serde(default, deserialize_with = "node")]
    pub(super) node: Option<String>,
    #[serde(deserialize_with = "prefix")]
    pub(super) prefix: String,
    pub(super) ca: Option<PathBuf>,
    pub(super) cert: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
    #[serde(deserialize_with = "duration_within::<10, 10_000, _>", serialize_with = "written")]
    pub(super) period: Duration,
    #[serde(deserialize_with = "duration", serialize_with = "written")]
    pub(super) silent_after: Duration,
    pub(super) on_silence: OnSilence,
    /// A shared key takes 300 to 600 bytes.
    #[serde(deserialize_with = "within::<1, 10_000_000, _, _>")]
    pub(super) keys_max: usize,
    #[serde(deserialize_with = "within::<1, 1_000, _, _>")]
    pub(super) nodes: u32,
    pub(super) listen: Vec<Address>,
    #[serde(deserialize_with = "allow")]
    pub(super) allow: Vec<Network>,
    pub(super) token_file: Option<PathBuf>,
    pub(super) tls: Tls,
}

impl ClusterSection {
    /// None without a store: this slowlane is not in a cluster. A token server is its own store by default.
    /// `identity` is the node's certificate and key.
    pub(super) fn settings(
        self,
        identity: Option<(PathBuf, PathBuf)>,
        is_secret_fixed: bool,
        is_token_server: bool,
    ) -> Option<SyncConfig> {
        let ClusterSection {
            store, node, prefix, ca, period, silent_after, on_silence, keys_max, nodes, ..
        } = self;
        let settings = Settings { period, silent_after, on_silence, keys_max, nodes };
        let host = || uname().nodename().to_string_lossy().into_owned();
        Some(SyncConfig {
            store: store.or(is_token_server.then(StoreUrl::own))?,
            node: node.unwrap_or_else(host),
            prefix,
            files: StoreTlsFiles { ca, identity },
            settings,
            is_secret_fixed,
        })
    }
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(expecting = "the section [decision_log]", deny_unknown_fields)]
pub(super) struct DecisionLog {
    pub(super) path: Option<PathBuf>,
    #[serde(deserialize_with = "sample")]
    sample: f64,
    /// At about 300 bytes a line, a million lines per second exceed most disks.
    #[serde(deserialize_with = "within::<1, 1_000_000, _, _>")]
    per_second: u32,
    #[serde(deserialize_with = "verdicts")]
    verdicts: Vec<VerdictKind>,
}

impl DecisionLog {
    /// `None` without a path: no decisions are logged.
    pub(super) fn settings(self) -> Option<decision_log::DecisionLogSettings> {
        let path = self.path?;
        let sample = Sample::new(self.sample).expect("it is more than 0 and at most 1 in every file");
        Some(decision_log::DecisionLogSettings {
            path,
            sample,
            per_second: self.per_second,
            kinds: self.verdicts,
        })
    }
}
