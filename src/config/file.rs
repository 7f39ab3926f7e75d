//! The config file in TOML. Every key has a default, and unknown keys are errors.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use rustix::system::uname;
use serde::{Deserialize, Serialize};

use crate::config::peers::Peers;
use crate::config::policy::{Policy, WrittenPolicy};
use crate::config::values::{
    allow, descriptors, duration, duration_within, expire, hosts, is_secret, node, prefix, sample,
    socket_mode, store, verdicts, within, written, written_mode, written_store,
};
use crate::config::{ConfigError, Tls};
use crate::observe::decision_log::STDOUT;
use crate::observe::log;
use crate::sync::{StoreTlsFiles, StoreUrl, SyncConfig};
use slowlane_core::base::{Address, Kind as VerdictKind, Network, Token, WhenFull};
use slowlane_core::cluster::{OnSilence, Settings};

/// The sections of the file. A missing key takes its value from the shipped file.
#[derive(Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sections {
    pub spop: Spop,
    pub http: Http,
    pub grpc: Grpc,
    pub admin: Admin,
    pub hold: Hold,
    pub table: TableSection,
    pub policy: Policy,
    pub cluster: ClusterSection,
    pub peers: Peers,
    pub ends: EndsSection,
    pub state: StateSection,
    pub decision_log: DecisionLog,
    pub log: log::LogSettings,
}

impl Sections {
    /// Applies the flags, which override the file. Relative paths in the file are relative to its folder, `base`.
    pub(super) fn with(mut self, flags: Flags, base: &Path) -> Sections {
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

    /// The text of a config file with these settings, but without secrets.
    pub(super) fn shown(&self) -> Result<String, ConfigError> {
        toml::to_string(self).map_err(|error| ConfigError::Unwritable(error.to_string()))
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

// Not a doc comment, because clap would show it as the description of a command.
// Settings from the command line. An empty list, or `None`, leaves the file's setting unchanged.
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
    /// Address for HAProxy instances that enforce limits locally (peers protocol); may be repeated
    #[arg(long, value_name = "ADDR")]
    pub peers: Vec<Address>,
    /// UDP address for log lines that report when requests end; may be repeated
    #[arg(long, value_name = "ADDR")]
    pub ends: Vec<Address>,
    /// The store of a cluster, like redis://127.0.0.1:6379; the cluster's nodes share each SLO
    #[arg(long, value_name = "URL")]
    pub cluster: Option<StoreUrl>,
    /// Keep the state in this file, so that a restart forgets nothing
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
}

#[derive(Debug, PartialEq, Deserialize, Serialize)]
#[serde(expecting = "the section [spop]", deny_unknown_fields)]
pub(crate) struct Spop {
    pub listen: Vec<Address>,
    #[serde(deserialize_with = "allow")]
    pub allow: Vec<Network>,
    #[serde(deserialize_with = "within::<1, 1_000_000, _, _>")]
    pub connections_max: usize,
    /// SPOP needs at least 256 bytes. HAProxy offers 16380, or more with larger buffers.
    #[serde(deserialize_with = "within::<256, 16_777_216, _, _>")]
    pub frame_bytes_max: u32,
    #[serde(deserialize_with = "duration", serialize_with = "written")]
    pub timeout: Duration,
    pub tls: Tls,
}

#[derive(Debug, PartialEq, Deserialize, Serialize)]
#[serde(expecting = "the section [http]", deny_unknown_fields)]
pub(crate) struct Http {
    pub listen: Vec<Address>,
    #[serde(deserialize_with = "allow")]
    pub allow: Vec<Network>,
    #[serde(deserialize_with = "allow")]
    pub trusted: Vec<Network>,
    #[serde(deserialize_with = "within::<1, 1_000_000, _, _>")]
    pub connections_max: usize,
    #[serde(deserialize_with = "duration", serialize_with = "written")]
    pub idle_timeout: Duration,
    pub tls: Tls,
}

#[derive(Debug, PartialEq, Deserialize, Serialize)]
#[serde(expecting = "the section [grpc]", deny_unknown_fields)]
pub(crate) struct Grpc {
    pub listen: Vec<Address>,
    #[serde(deserialize_with = "allow")]
    pub allow: Vec<Network>,
    /// Each connection may keep 128 MB in memory.
    #[serde(deserialize_with = "within::<1, 100_000, _, _>")]
    pub connections_max: usize,
    #[serde(deserialize_with = "descriptors")]
    pub fields: BTreeMap<String, String>,
    pub tls: Tls,
}

#[derive(Debug, PartialEq, Deserialize, Serialize)]
#[serde(expecting = "the section [admin]", deny_unknown_fields)]
pub(crate) struct Admin {
    pub listen: Vec<Address>,
    #[serde(deserialize_with = "allow")]
    pub allow: Vec<Network>,
    /// `config show` leaves this secret out.
    #[serde(skip_serializing)]
    pub token: Option<Token>,
    pub token_file: Option<PathBuf>,
    #[serde(deserialize_with = "hosts")]
    pub hosts: Vec<String>,
    pub socket: Option<PathBuf>,
    #[serde(deserialize_with = "socket_mode", serialize_with = "written_mode")]
    pub socket_mode: u32,
    pub tls: Tls,
}

#[derive(Debug, PartialEq, Deserialize, Serialize)]
#[serde(expecting = "the section [hold]", deny_unknown_fields)]
pub(crate) struct Hold {
    /// 0 is allowed: `when_full` then replaces every delay.
    #[serde(deserialize_with = "within::<0, 100_000_000, _, _>")]
    pub max: usize,
    #[serde(deserialize_with = "duration", serialize_with = "written")]
    pub longest: Duration,
    pub when_full: WhenFull,
}

#[derive(Debug, PartialEq, Deserialize, Serialize)]
#[serde(expecting = "the section [table]", deny_unknown_fields)]
pub(crate) struct TableSection {
    /// At about 75 bytes an entry, 100 million entries take 7.5 GB.
    #[serde(deserialize_with = "within::<1, 100_000_000, _, _>")]
    pub size: u32,
    #[serde(deserialize_with = "expire", serialize_with = "written")]
    pub expire: Duration,
    /// 0 is allowed. Laws with auxiliary states then always use their fallback.
    #[serde(deserialize_with = "within::<0, 1_099_511_627_776, _, _>")]
    pub annex_bytes_max: usize,
}

#[derive(Debug, PartialEq, Deserialize, Serialize)]
#[serde(expecting = "the section [ends]", deny_unknown_fields)]
pub(crate) struct EndsSection {
    pub listen: Vec<Address>,
    #[serde(deserialize_with = "allow")]
    pub allow: Vec<Network>,
    pub follow: Vec<PathBuf>,
}

#[derive(Debug, PartialEq, Deserialize, Serialize)]
#[serde(expecting = "the section [state]", deny_unknown_fields)]
pub(crate) struct StateSection {
    pub file: Option<PathBuf>,
    #[serde(deserialize_with = "duration_within::<1_000, 3_600_000, _>", serialize_with = "written")]
    pub every: Duration,
}

#[derive(Debug, PartialEq, Deserialize, Serialize)]
#[serde(expecting = "the section [cluster]", deny_unknown_fields)]
pub(crate) struct ClusterSection {
    /// `config show` leaves out an address with a password.
    #[serde(
        default,
        deserialize_with = "store",
        serialize_with = "written_store",
        skip_serializing_if = "is_secret"
    )]
    pub store: Option<StoreUrl>,
    #[serde(default, deserialize_with = "node")]
    pub node: Option<String>,
    #[serde(deserialize_with = "prefix")]
    pub prefix: String,
    pub ca: Option<PathBuf>,
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
    #[serde(deserialize_with = "duration_within::<10, 10_000, _>", serialize_with = "written")]
    pub period: Duration,
    #[serde(deserialize_with = "duration", serialize_with = "written")]
    pub silent_after: Duration,
    pub on_silence: OnSilence,
    /// A shared key takes 300 to 600 bytes.
    #[serde(deserialize_with = "within::<1, 10_000_000, _, _>")]
    pub keys_max: usize,
    #[serde(deserialize_with = "within::<1, 1_000, _, _>")]
    pub nodes: u32,
    pub listen: Vec<Address>,
    #[serde(deserialize_with = "allow")]
    pub allow: Vec<Network>,
    pub token_file: Option<PathBuf>,
    pub tls: Tls,
}

impl ClusterSection {
    /// The settings of the cluster; `None` if there is no store. A token server is its own store by default. `identity`
    /// is the node's certificate and key.
    pub(super) fn settings(
        &self,
        identity: Option<(PathBuf, PathBuf)>,
        is_secret_fixed: bool,
        is_token_server: bool,
    ) -> Option<SyncConfig> {
        let &ClusterSection { period, silent_after, on_silence, keys_max, nodes, .. } = self;
        let settings = Settings { period, silent_after, on_silence, keys_max, nodes };
        let host = || uname().nodename().to_string_lossy().into_owned();
        Some(SyncConfig {
            store: self.store.clone().or(is_token_server.then(StoreUrl::own))?,
            node: self.node.clone().unwrap_or_else(host),
            prefix: self.prefix.clone(),
            files: StoreTlsFiles { ca: self.ca.clone(), identity },
            settings,
            is_secret_fixed,
        })
    }
}

#[derive(Debug, PartialEq, Deserialize, Serialize)]
#[serde(expecting = "the section [decision_log]", deny_unknown_fields)]
pub(crate) struct DecisionLog {
    /// `None` if no decisions are logged.
    pub path: Option<PathBuf>,
    #[serde(deserialize_with = "sample")]
    pub sample: f64,
    /// At about 300 bytes a line, a million lines per second are more than most disks can write.
    #[serde(deserialize_with = "within::<1, 1_000_000, _, _>")]
    pub per_second: u32,
    #[serde(deserialize_with = "verdicts")]
    pub verdicts: Vec<VerdictKind>,
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use toml::{Table, Value};

    use super::*;
    use crate::config::Config;
    use crate::config::mistakes::TEMPLATE;

    /// The output for a config file with this text.
    fn shown(text: &str) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        Config::show(Some(file.path()), Flags::default()).unwrap()
    }

    fn load(text: &str) -> Config {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        Config { file: None, ..Config::load(Some(file.path()), Flags::default()).unwrap() }
    }

    #[test]
    fn the_defaults_are_shown_as_a_file_that_says_the_same() {
        let text = Config::show(None, Flags::default()).unwrap();
        assert!(text.starts_with("[spop]\nlisten = [\"127.0.0.1:9000\"]\n"), "{text}");
        assert_eq!(load(&text), load(""));
    }

    /// Every key has a line in the shipped file, and so a comment that explains it.
    #[test]
    fn the_shipped_file_has_every_key() {
        let values = Table::try_from(Sections::default()).unwrap();
        let written: Table = TEMPLATE.replace("# dir =", "dir =").parse().unwrap();
        for (section, keys) in &values {
            for key in keys.as_table().unwrap().keys() {
                assert!(written[section].get(key).is_some(), "[{section}] {key}");
            }
        }
    }

    #[test]
    fn what_is_changed_is_shown() {
        let text =
            shown("[table]\nsize = 7\n[policy]\ndir = '/etc/slowlane/policy'\n[policy.types]\n6 = ['a']\n");
        assert!(text.contains("\nsize = 7\n"), "{text}");
        assert!(text.contains("\ndir = \"/etc/slowlane/policy\"\n"), "{text}");
        assert!(text.contains("\n6 = [\"a\"]\n"), "{text}");
    }

    #[test]
    fn lookups_may_be_more_or_fewer_than_the_shipped_file_has() {
        let lookup = |name: &str| {
            format!("[[policy.lookups]]\nfields = ['{name}']\nmap = '{name}.map'\nmatch = 'beg'\n")
        };
        for names in [&["a"][..], &["a", "b"], &["a", "b", "c", "d", "e", "f", "g"]] {
            let written: String = names.iter().map(|name| lookup(name)).collect();
            let written = format!("policy.dir = '/p'\n{written}");
            let text = shown(&written);
            assert_eq!(text.matches("[[policy.lookups]]").count(), names.len(), "{text}");
            assert_eq!(load(&text), load(&written));
        }
        let none = "policy.dir = '/p'\npolicy.lookups = []\n";
        assert_eq!(load(&shown(none)), load(none));
    }

    #[test]
    fn derived_fields_are_shown_as_they_are_in_force() {
        let derived = "[policy]\ndir = 'maps'\n[policy.derived.asn]\nfrom = 'source'\nmap = 'asn.map'\nmatch = 'ip'\n\
                       [policy.derived.'a b']\nfrom = 'x'\nipv4_prefix = 8\nipv6_prefix = 16\n\
                       [policy.derived.network]\nipv4_prefix = 20\n[policy.types]\n6 = ['asn', 'a b']\n";
        let text = shown(derived);
        assert_eq!(load(&text), load(derived), "{text}");
        assert!(
            text.contains("[policy.derived.asn]\nfrom = \"source\"\nmap = \"asn.map\"\nmatch = \"ip\""),
            "{text}"
        );
        assert_ne!(load(&text), load("[policy]\ndir = 'maps'\n[policy.types]\n6 = ['asn', 'a b']\n"));
    }

    /// A text that may need quotes.
    fn name() -> impl Strategy<Value = String> {
        "[a-zé\"\\\\# ='\u{1}]{1,6}"
    }

    proptest! {
        #[test]
        fn what_is_shown_is_what_is_in_force(
            listen in prop::collection::vec("[a-z]{1,9}:[1-9][0-9]{0,3}", 0..3),
            sizes in (1u32..1000, 1u32..90_000, 0u64..9_000),
            fields in prop::collection::vec(name(), 1..4),
            files in prop::collection::btree_set(name(), 0..7),
            dir in prop::option::of("/[a-z \"\\\\é]{1,9}"),
            types in prop::collection::btree_map(1u8..10, prop::collection::vec(name(), 1..3), 0..4),
        ) {
            let text = |text: &str| Value::from(text).to_string();
            let list = |texts: &[String]| Value::from(texts.to_vec()).to_string();
            let dir = dir.map_or(String::new(), |dir| format!("dir = {}\n", text(&dir)));
            let types: String = types.iter().map(|(kind, fields)| format!("{kind} = {}\n", list(fields))).collect();
            let lookup = |file: &String| {
                let file = text(&format!("{file}.map"));
                format!("[[policy.lookups]]\nfields = {}\nmap = {file}\nmatch = 'end'\n", list(&fields))
            };
            let lookups: String = files.iter().map(lookup).collect();
            let (size, seconds, ms) = sizes;
            let written = format!(
                "[spop]\nlisten = {}\ntimeout = '{seconds}s'\n[table]\nsize = {size}\n[hold]\nlongest = '{}ms'\n\
                 when_full = 'deny'\n[policy]\n{dir}[policy.types]\n{types}{lookups}",
                list(&listen), ms + 1,
            );
            let shown = shown(&written);
            prop_assert_eq!(load(&shown), load(&written), "{}", shown);
            prop_assert_eq!(super::tests::shown(&shown), shown);
        }
    }

    #[test]
    fn a_relative_policy_directory_is_shown_where_it_is() {
        let flags = Flags { policy: Some("maps".into()), ..Flags::default() };
        let text = Config::show(None, flags).unwrap();
        let dir = std::path::absolute(Path::new("maps")).unwrap();
        assert!(text.contains(&format!("\ndir = \"{}\"", dir.display())), "{text}");
    }
}
