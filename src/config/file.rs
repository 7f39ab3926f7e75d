//! The config file in TOML. Every key has a default, and unknown keys are errors.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::system::uname;
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::base::address::Address;
use crate::base::hold::WhenFull;
use crate::base::kind::Kind as VerdictKind;
use crate::base::token::Token;
use crate::base::units;
use crate::cluster::{OnSilence, Settings};
use crate::config::flags::Flags;
use crate::observe::decision_log::{self, Place, Sample};
use crate::observe::log::{Format, Level};
use crate::policy::{Layout, LayoutError, Lookup, Method};
use crate::server::hosts::Hosts;
use crate::server::listener::UNIX_MODE;
use crate::sync::{StoreUrl, SyncConfig};

/// The whole file.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct File {
    pub(super) spop: Spop,
    pub(super) http: Http,
    pub(super) admin: Admin,
    pub(super) hold: Hold,
    pub(super) table: Table,
    pub(super) policy: Policy,
    pub(super) cluster: Cluster,
    pub(super) state: State,
    pub(super) decision_log: DecisionLog,
    pub(super) log: Log,
}

impl File {
    /// Applies the flags, which override the file. Relative paths in the file start at `base`, its folder.
    pub(super) fn with(mut self, flags: Flags, base: &Path) -> File {
        let Flags { policy, spop, http, admin, cluster, state } = flags;
        let listens =
            [(&mut self.spop.listen, spop), (&mut self.http.listen, http), (&mut self.admin.listen, admin)];
        for (written, typed) in listens {
            if !typed.is_empty() {
                *written = typed;
            }
        }
        for path in self.paths() {
            *path = base.join(&*path);
        }
        self.policy.dir = policy.or(self.policy.dir);
        self.cluster.store = cluster.or(self.cluster.store);
        self.state.file = state.or(self.state.file);
        self
    }

    /// The paths that may be relative to the folder of the file.
    pub(super) fn paths(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let Admin { token_file, socket, .. } = &mut self.admin;
        let log = self.decision_log.path.as_mut().filter(|path| path.as_os_str() != STDOUT);
        let Policy { dir, key_secret_file, .. } = &mut self.policy;
        let Cluster { ca, token_file: node_token_file, .. } = &mut self.cluster;
        let state = &mut self.state.file;
        [dir, key_secret_file, token_file, socket, ca, node_token_file, state]
            .into_iter()
            .flatten()
            .chain(log)
    }
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Spop {
    pub(super) listen: Vec<Address>,
    #[serde(deserialize_with = "connections_max")]
    pub(super) connections_max: usize,
    #[serde(deserialize_with = "frame_bytes_max")]
    pub(super) frame_bytes_max: u32,
    #[serde(deserialize_with = "duration", serialize_with = "written")]
    pub(super) timeout: Duration,
}

impl Default for Spop {
    fn default() -> Spop {
        Spop {
            listen: vec![tcp("127.0.0.1:9000")],
            connections_max: 20_000,
            frame_bytes_max: 65_536,
            timeout: Duration::from_secs(5),
        }
    }
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Http {
    pub(super) listen: Vec<Address>,
    #[serde(deserialize_with = "connections_max")]
    pub(super) connections_max: usize,
    #[serde(deserialize_with = "duration", serialize_with = "written")]
    pub(super) idle_timeout: Duration,
}

impl Default for Http {
    fn default() -> Http {
        Http {
            listen: vec![tcp("127.0.0.1:9001")],
            connections_max: 20_000,
            idle_timeout: Duration::from_secs(75),
        }
    }
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Admin {
    pub(super) listen: Vec<Address>,
    /// `config show` leaves this secret out.
    #[serde(skip_serializing)]
    pub(super) token: Option<Token>,
    pub(super) token_file: Option<PathBuf>,
    #[serde(deserialize_with = "hosts")]
    pub(super) hosts: Vec<String>,
    pub(super) socket: Option<PathBuf>,
    #[serde(deserialize_with = "socket_mode", serialize_with = "written_mode")]
    pub(super) socket_mode: u32,
}

impl Default for Admin {
    fn default() -> Admin {
        Admin {
            listen: vec![tcp("127.0.0.1:9002")],
            token: None,
            token_file: None,
            hosts: Vec::new(),
            socket: None,
            socket_mode: UNIX_MODE,
        }
    }
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Hold {
    #[serde(deserialize_with = "holds_max")]
    pub(super) max: usize,
    #[serde(deserialize_with = "duration", serialize_with = "written")]
    pub(super) longest: Duration,
    pub(super) when_full: WhenFull,
}

impl Default for Hold {
    fn default() -> Hold {
        Hold { max: 10_000, longest: Duration::from_secs(60), when_full: WhenFull::Pass }
    }
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Table {
    #[serde(deserialize_with = "size")]
    pub(super) size: u32,
    #[serde(deserialize_with = "expire", serialize_with = "written")]
    pub(super) expire: Duration,
    #[serde(deserialize_with = "annex_bytes_max")]
    pub(super) annex_bytes_max: usize,
}

impl Default for Table {
    fn default() -> Table {
        Table { size: 1_000_000, expire: Duration::from_secs(30), annex_bytes_max: 64 << 20 }
    }
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct State {
    pub(super) file: Option<PathBuf>,
    #[serde(deserialize_with = "every", serialize_with = "written")]
    pub(super) every: Duration,
}

impl Default for State {
    fn default() -> State {
        State { file: None, every: Duration::from_secs(10) }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(try_from = "WrittenPolicy")]
pub(super) struct Policy {
    pub(super) dir: Option<PathBuf>,
    pub(super) key_secret_file: Option<PathBuf>,
    pub(super) layout: Layout,
}

impl Serialize for Policy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        WrittenPolicy::from(self).serialize(serializer)
    }
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct WrittenPolicy {
    dir: Option<PathBuf>,
    key_secret_file: Option<PathBuf>,
    #[serde(deserialize_with = "ipv4_prefix")]
    ipv4_prefix: Option<u8>,
    #[serde(deserialize_with = "ipv6_prefix")]
    ipv6_prefix: Option<u8>,
    types: BTreeMap<Kind, Names>,
    lookups: Option<Vec<WrittenLookup>>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct WrittenLookup {
    fields: Names,
    map: PathBuf,
    #[serde(rename = "match", deserialize_with = "method", serialize_with = "method_name")]
    method: Method,
}

impl TryFrom<WrittenPolicy> for Policy {
    type Error = LayoutError;

    fn try_from(written: WrittenPolicy) -> Result<Policy, LayoutError> {
        let WrittenPolicy { dir, key_secret_file, ipv4_prefix, ipv6_prefix, types, lookups } = written;
        let mut layout = Layout::default();
        let ipv4_prefix = ipv4_prefix.unwrap_or(layout.ipv4_prefix());
        let ipv6_prefix = ipv6_prefix.unwrap_or(layout.ipv6_prefix());
        layout = layout.with_prefixes(ipv4_prefix, ipv6_prefix)?;
        for (Kind(kind), Names(fields)) in types {
            layout = layout.with_type(kind, fields)?;
        }
        if let Some(lookups) = lookups {
            let lookup =
                |WrittenLookup { fields: Names(fields), map: file, method }| Lookup { fields, file, method };
            layout = layout.with_lookups(lookups.into_iter().map(lookup).collect())?;
        }
        Ok(Policy { dir, key_secret_file, layout })
    }
}

impl From<&Policy> for WrittenPolicy {
    fn from(policy: &Policy) -> WrittenPolicy {
        let layout = &policy.layout;
        let fields = |kind| Names(layout.type_fields(kind).to_vec());
        let types = (1..=9).filter(|&kind| !layout.type_fields(kind).is_empty());
        let lookup = |lookup: &Lookup| WrittenLookup {
            fields: Names(lookup.fields.clone()),
            map: lookup.file.clone(),
            method: lookup.method,
        };
        WrittenPolicy {
            dir: policy.dir.clone(),
            key_secret_file: policy.key_secret_file.clone(),
            ipv4_prefix: Some(layout.ipv4_prefix()),
            ipv6_prefix: Some(layout.ipv6_prefix()),
            types: types.map(|kind| (Kind(kind), fields(kind))).collect(),
            lookups: Some(layout.lookups().iter().map(lookup).collect()),
        }
    }
}

/// The digit of a type. TOML keys are text; checking them here gives the error a line number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
struct Kind(u8);

impl From<Kind> for String {
    fn from(Kind(kind): Kind) -> String {
        kind.to_string()
    }
}

impl TryFrom<String> for Kind {
    type Error = String;

    fn try_from(text: String) -> Result<Kind, String> {
        let expected = "expected a type, 1 to 9; type 0 is one bucket for all and has no fields";
        match text.parse() {
            Ok(kind @ 1..=9) => Ok(Kind(kind)),
            _ => Err(format!("{text:?}: {expected}")),
        }
    }
}

/// The names of fields, at least one.
#[derive(Debug, Deserialize, Serialize)]
#[serde(try_from = "Vec<String>")]
struct Names(Vec<String>);

impl TryFrom<Vec<String>> for Names {
    type Error = LayoutError;

    fn try_from(names: Vec<String>) -> Result<Names, LayoutError> {
        Layout::check_names(&names).map(|()| Names(names))
    }
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Cluster {
    /// `config show` leaves an address with a password out.
    #[serde(deserialize_with = "store", serialize_with = "written_store", skip_serializing_if = "is_secret")]
    pub(super) store: Option<StoreUrl>,
    #[serde(deserialize_with = "node")]
    pub(super) node: Option<String>,
    #[serde(deserialize_with = "prefix")]
    pub(super) prefix: String,
    pub(super) ca: Option<PathBuf>,
    #[serde(deserialize_with = "period", serialize_with = "written")]
    pub(super) period: Duration,
    #[serde(deserialize_with = "duration", serialize_with = "written")]
    pub(super) silent_after: Duration,
    pub(super) on_silence: OnSilence,
    #[serde(deserialize_with = "keys_max")]
    pub(super) keys_max: usize,
    #[serde(deserialize_with = "nodes")]
    pub(super) nodes: u32,
    pub(super) listen: Vec<Address>,
    pub(super) token_file: Option<PathBuf>,
}

impl Default for Cluster {
    fn default() -> Cluster {
        let Settings { period, silent_after, on_silence, keys_max, nodes } = Settings::default();
        let prefix = "slowlane:".into();
        Cluster {
            store: None,
            node: None,
            prefix,
            ca: None,
            period,
            silent_after,
            on_silence,
            keys_max,
            nodes,
            listen: Vec::new(),
            token_file: None,
        }
    }
}

impl Cluster {
    /// None without a store: this slowlane is alone.
    pub(super) fn settings(self, is_secret_fixed: bool) -> Option<SyncConfig> {
        let Cluster { store, node, prefix, ca, period, silent_after, on_silence, keys_max, nodes, .. } = self;
        let settings = Settings { period, silent_after, on_silence, keys_max, nodes };
        let host = || uname().nodename().to_string_lossy().into_owned();
        Some(SyncConfig {
            store: store?,
            node: node.unwrap_or_else(host),
            prefix,
            ca,
            settings,
            is_secret_fixed,
        })
    }
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Log {
    pub(super) level: Level,
    pub(super) format: Format,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct DecisionLog {
    pub(super) path: Option<PathBuf>,
    #[serde(deserialize_with = "sample")]
    sample: f64,
    #[serde(deserialize_with = "per_second")]
    per_second: u32,
    #[serde(deserialize_with = "verdicts")]
    verdicts: Vec<VerdictKind>,
}

/// The path that means standard output.
pub(super) const STDOUT: &str = "-";

impl Default for DecisionLog {
    fn default() -> DecisionLog {
        let verdicts = vec![VerdictKind::Delay, VerdictKind::Deny];
        DecisionLog { path: None, sample: 1.0, per_second: 100, verdicts }
    }
}

impl DecisionLog {
    /// `None` without a path: no decisions are logged.
    pub(super) fn settings(self) -> Option<decision_log::Settings> {
        let path = self.path?;
        let place = if path.as_os_str() == STDOUT { Place::Stdout } else { Place::File(path) };
        let sample = Sample::new(self.sample).expect("it is more than 0 and at most 1 in every file");
        Some(decision_log::Settings { place, sample, per_second: self.per_second, kinds: self.verdicts })
    }
}

fn tcp(address: &str) -> Address {
    Address::Tcp(address.to_owned())
}

/// A duration over zero: all of them are limits.
fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    match units::duration(&text) {
        Ok(Duration::ZERO) => Err(D::Error::custom(format!("{text:?}: expected more than 0, like 5s"))),
        Ok(duration) => Ok(duration),
        Err(error) => Err(D::Error::custom(format!("{text:?}: {error}"))),
    }
}

/// The inverse of [`duration`].
fn written<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&units::written(*duration))
}

fn store<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<StoreUrl>, D::Error> {
    let text = String::deserialize(deserializer)?;
    // The text may have a password.
    text.parse().map(Some).map_err(|error| D::Error::custom(format!("store: {error}")))
}

fn written_store<S: Serializer>(store: &Option<StoreUrl>, serializer: S) -> Result<S::Ok, S::Error> {
    match store {
        Some(store) => serializer.collect_str(store),
        None => serializer.serialize_none(),
    }
}

fn is_secret(store: &Option<StoreUrl>) -> bool {
    store.as_ref().is_some_and(StoreUrl::has_password)
}

/// The other nodes show it to their operators.
fn node<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let is_fit = (1..=NODE_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
    let expected = format!("{text:?}: expected a name of 1 to {NODE_BYTES_MAX} bytes, like lb1");
    if is_fit { Ok(Some(text)) } else { Err(D::Error::custom(expected)) }
}

const NODE_BYTES_MAX: usize = 64;

fn prefix<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    let is_fit =
        text.len() <= PREFIX_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'{');
    let expected =
        format!("{text:?}: expected at most {PREFIX_BYTES_MAX} letters without {{, like slowlane:");
    if is_fit { Ok(text) } else { Err(D::Error::custom(expected)) }
}

/// A prefix is a part of every key in the store.
const PREFIX_BYTES_MAX: usize = 64;

fn period<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let period = duration(deserializer)?;
    let is_fit = (Duration::from_millis(10)..=Duration::from_secs(10)).contains(&period);
    if is_fit { Ok(period) } else { Err(D::Error::custom("expected 10ms to 10s")) }
}

fn every<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let every = duration(deserializer)?;
    let is_fit = (Duration::from_secs(1)..=Duration::from_secs(3_600)).contains(&every);
    if is_fit { Ok(every) } else { Err(D::Error::custom("expected 1s to 1h")) }
}

/// A shared key takes 300 to 600 bytes.
fn keys_max<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    Ok(within(deserializer, 1, 10_000_000)? as usize)
}

fn nodes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    Ok(within(deserializer, 1, 1_000)? as u32)
}

/// At most 24 days, as in HAProxy: rates use a 32-bit clock in milliseconds, half of whose range is the past.
fn expire<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let expire = duration(deserializer)?;
    if expire > EXPIRE_MAX { Err(D::Error::custom("expected at most 24d")) } else { Ok(expire) }
}

const EXPIRE_MAX: Duration = Duration::from_secs(24 * 86_400);

fn hosts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let hosts = Vec::deserialize(deserializer)?;
    Hosts::new(&hosts).map(|_| hosts).map_err(D::Error::custom)
}

/// File permissions in octal, as for `chmod`: three or four digits, at most 0777.
fn socket_mode<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let text = String::deserialize(deserializer)?;
    let is_octal = (3..=4).contains(&text.len()) && text.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    let mode = u32::from_str_radix(&text, 8).ok().filter(|mode| is_octal && *mode <= 0o777);
    mode.ok_or_else(|| D::Error::custom(format!("{text:?}: expected a mode like \"0660\"")))
}

fn written_mode<S: Serializer>(mode: &u32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{mode:04o}"))
}

fn method<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Method, D::Error> {
    let name = String::deserialize(deserializer)?;
    let names = Method::ALL.map(Method::name).join(", ");
    Method::named(&name).ok_or_else(|| D::Error::custom(format!("{name:?}: expected one of {names}")))
}

fn method_name<S: Serializer>(method: &Method, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(method.name())
}

fn connections_max<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    Ok(within(deserializer, 1, 1_000_000)? as usize)
}

/// SPOP needs at least 256 bytes. HAProxy offers 16380, or more with larger buffers.
fn frame_bytes_max<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    Ok(within(deserializer, 256, 16 << 20)? as u32)
}

/// At about 75 bytes an entry, 100 million entries take 7.5 GB.
fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    Ok(within(deserializer, 1, 100_000_000)? as u32)
}

/// 0 is allowed: laws with annexes then always use their fallback.
fn annex_bytes_max<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    Ok(within(deserializer, 0, 1 << 40)? as usize)
}

/// 0 is allowed: `when_full` then replaces every delay.
fn holds_max<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    Ok(within(deserializer, 0, 100_000_000)? as usize)
}

fn sample<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let sample = f64::deserialize(deserializer)?;
    let expected = || D::Error::custom(format!("{sample}: expected a fraction, more than 0 and at most 1"));
    Sample::new(sample).map(|_| sample).ok_or_else(expected)
}

/// At about 300 bytes a line, a million lines per second exceed most disks.
fn per_second<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    Ok(within(deserializer, 1, 1_000_000)? as u32)
}

fn verdicts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<VerdictKind>, D::Error> {
    let verdicts = Vec::deserialize(deserializer)?;
    let expected = || D::Error::custom("expected one or more of \"pass\", \"delay\", \"deny\"");
    if verdicts.is_empty() { Err(expected()) } else { Ok(verdicts) }
}

fn ipv4_prefix<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u8>, D::Error> {
    Ok(Some(within(deserializer, 0, 32)? as u8))
}

fn ipv6_prefix<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u8>, D::Error> {
    Ok(Some(within(deserializer, 0, 128)? as u8))
}

fn within<'de, D: Deserializer<'de>>(deserializer: D, min: i64, max: i64) -> Result<i64, D::Error> {
    deserializer.deserialize_i64(Within { min, max })
}

/// A whole number. The error for anything else names the range.
struct Within {
    min: i64,
    max: i64,
}

impl Visitor<'_> for Within {
    type Value = i64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a number from {} to {}", self.min, self.max)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<i64, E> {
        let is_within = (self.min..=self.max).contains(&number);
        if is_within { Ok(number) } else { Err(E::invalid_value(Unexpected::Signed(number), &self)) }
    }
}
