//! The configuration in force: the defaults, then the file, then the flags.

mod error;
mod file;
mod grpc;
mod listen;
mod mistakes;
mod peers;
mod policy;
mod secret;
mod show;
mod values;
mod warnings;

use file::File;
use listen::Tls;

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, mem};

use error::Report;
pub(crate) use error::{ConfigError, ConfigErrors};
pub(crate) use file::Flags;
pub(crate) use grpc::GrpcConfig;
pub(crate) use listen::Listen;
use listen::{HANDSHAKE_MAX, pair};
use mistakes::ConfigMistake;
pub(crate) use peers::PeersConfig;
use warnings::Secret;

use crate::observe::{Clock, decision_log, log};
use crate::server::tls::{self, TlsError};
use crate::server::{Hosts, OpenListener};
use crate::sync::{StateFile, StoreUrl, SyncConfig};
use crate::watch::Source;
use slowlane_core::base::{Address, HoldLimits, KeySecret, Network, Token};
use slowlane_core::policy::{Policy, PolicyErrors};
use slowlane_core::table::Sizing;

/// The settings and the errors of a text. The files that it names are not read.
///
/// The settings are those of [`slowlane config show`](crate::cli), except that relative paths stay relative. Each
/// error is one line, with the number of the faulty line.
///
/// ```
/// let (shown, mistakes) = slowlane::config::examine("[table]\nsize = 0\n[hold]\nmax = 7\n");
/// assert!(shown.contains("\nmax = 7 "));
/// assert_eq!(mistakes, [(Some(2), "invalid value: integer `0`, expected a number from 1 to 100000000".into())]);
/// ```
pub fn examine(text: &str) -> (String, Vec<(Option<usize>, String)>) {
    let (mut file, mistakes) = mistakes::read(text);
    let shown = show::show(&file).expect("paths that are read from a text are text");
    (file.admin.token_file, file.policy.written.key_secret_file, file.cluster.token_file) =
        (None, None, None);
    let named = ConfigFile { path: PathBuf::new(), text: text.to_owned(), flags: Flags::default() };
    let mut errors = Vec::new();
    Config::new(file, Some(named), &mut errors);
    let mistakes = mistakes.into_iter().map(|ConfigMistake { line, message }| (Some(line), message));
    let errors = errors.iter().map(ConfigError::place).map(|(_, line, message)| (line, message));
    (shown, mistakes.chain(errors).collect())
}

/// All settings that need a restart or an upgrade to change. Of the policy, only the directory is included.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Config {
    pub spop: SpopConfig,
    pub http: HttpConfig,
    pub grpc: GrpcConfig,
    pub admin: AdminConfig,
    pub hold: HoldLimits,
    pub table: Sizing,
    /// The memory limit for auxiliary states and open tickets, in bytes.
    pub annex_bytes_max: usize,
    /// `None`: the built-in policy.
    pub policy: Option<Source>,
    /// The secret of the keys. `None`: each start draws a random one.
    pub key_secret: Option<KeySecret>,
    /// `None`: this slowlane is not in a cluster.
    pub cluster: Option<SyncConfig>,
    /// `None`: a restart loses all state.
    pub state: Option<StateFile>,
    /// `None`: this slowlane is not a store for others.
    pub token_server: Option<TokenServerConfig>,
    /// `None`: no proxy enforces limits locally.
    pub peers: Option<PeersConfig>,
    /// Over UDP. Without an address, no log lines are read.
    pub ends: Listen,
    /// The log files whose lines report the ends of requests.
    pub followed: Vec<PathBuf>,
    /// `None`: no decisions are logged.
    pub decision_log: Option<decision_log::DecisionLogSettings>,
    pub log: log::LogSettings,
    /// `None`: there are only defaults and flags.
    pub file: Option<ConfigFile>,
    secrets: Vec<Secret>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SpopConfig {
    pub listen: Listen,
    pub frame_bytes_max: u32,
    pub timeout: Duration,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HttpConfig {
    pub listen: Listen,
    pub idle_timeout: Duration,
    /// The networks of proxies before those that query.
    pub trusted: Vec<Network>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdminConfig {
    pub listen: Listen,
    /// The access token, required if the listener can be reached from other machines.
    pub token: Option<Token>,
    /// Further hosts that requests may name, if there is no token.
    pub hosts: Hosts,
    /// The Unix socket of the Runtime API.
    pub socket: Option<PathBuf>,
    /// The permissions of the Unix sockets of this listener.
    pub socket_mode: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenServerConfig {
    pub listen: Listen,
    /// The access token, required if the listener can be reached from other machines.
    pub token: Option<Token>,
}

/// The config file, with its text at the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigFile {
    pub(crate) path: PathBuf,
    text: String,
    /// Flags override the file, so they affect whether an edit is valid.
    flags: Flags,
}

impl ConfigFile {
    /// A message for the operator if the file has been edited since the start.
    pub(crate) fn news(&self) -> Option<String> {
        let is_same = fs::read_to_string(&self.path).is_ok_and(|text| text == self.text);
        match Config::load(Some(&self.path), self.flags.clone()) {
            _ if is_same => None,
            Ok(_) => {
                Some(format!("{} has changed: `slowlane upgrade` puts it in force", self.path.display()))
            }
            Err(ConfigErrors(errors)) => {
                let more =
                    if errors.len() > 1 { format!(", and {} more", errors.len() - 1) } else { String::new() };
                let first = errors.first().map(ConfigError::to_string).unwrap_or_default();
                Some(format!("{first}{more} (the settings from the start stay in force)"))
            }
        }
    }
}

/// The maximum number of connections of a token server. Each node needs one.
const NODE_CONNECTIONS_MAX: usize = 2_000;

/// The maximum number of admin connections: enough for operators and scrapers.
const ADMIN_CONNECTIONS_MAX: usize = 1_000;

impl Config {
    /// # Errors
    /// All errors of the file and the flags.
    pub(crate) fn load(path: Option<&Path>, flags: Flags) -> Result<Config, ConfigErrors> {
        let (config, errors) = Config::examine(path, flags);
        if errors.is_empty() { Ok(config) } else { Err(ConfigErrors(errors)) }
    }

    /// Reads a configuration as far as possible. Settings with an error have their defaults.
    pub(crate) fn examine(path: Option<&Path>, flags: Flags) -> (Config, Vec<ConfigError>) {
        let (written, text, mut errors) = written(path, flags.clone());
        let file = path.zip(text).map(|(path, text)| ConfigFile { path: path.to_owned(), text, flags });
        let config = Config::new(written, file, &mut errors);
        (config, errors)
    }

    /// Warnings about settings that are valid, but probably unintended.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let proxies = [&self.spop.listen, &self.http.listen];
        let holds = proxies.iter().filter_map(|listen| warnings::of_holds(listen, &self.hold));
        // Without its token, such a listener is already an error.
        let has_token = |listen: &&Listen| match listen.section {
            "admin" => self.admin.token.is_some(),
            "cluster" => self.token_server.as_ref().is_some_and(|server| server.token.is_some()),
            "peers" => false,
            _ => true,
        };
        let plain = self.listens().filter(has_token).filter_map(warnings::of_plain);
        let idle = self.listens().filter_map(warnings::of_idle_tls);
        let secrets = self.secrets.iter().filter_map(Secret::warning);
        holds.chain(plain).chain(idle).chain(secrets).collect()
    }

    /// The listeners of all protocols.
    fn listens(&self) -> impl Iterator<Item = &Listen> {
        let token_server = self.token_server.as_ref().map(|server| &server.listen);
        let peers = self.peers.as_ref().map(|peers| &peers.listen);
        let proxies =
            [&self.spop.listen, &self.http.listen, &self.grpc.listen, &self.admin.listen].into_iter();
        proxies.chain(token_server).chain(peers)
    }

    /// The paths of the TLS files.
    pub(crate) fn tls_files(&self) -> Vec<PathBuf> {
        let files = self.listens().filter_map(|listen| listen.tls.as_ref());
        files.flat_map(tls::TlsFiles::paths).map(Path::to_owned).collect()
    }

    /// The files that the daemon reads, and the directory of its policy.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let policy = self
            .policy
            .iter()
            .flat_map(|Source { dir, layout, .. }| layout.files(dir).into_iter().chain([dir.clone()]));
        let secrets = self.secrets.iter().map(|secret| secret.path.clone());
        let config = self.file.iter().map(|file| file.path.clone());
        config.chain(policy).chain(secrets).chain(self.tls_files()).collect()
    }

    /// Reads the TLS files: returns those that cannot be used, and warnings about the others.
    pub(crate) fn check_tls(&self) -> (Vec<ConfigError>, Vec<String>) {
        let (mut errors, mut warnings) = (Vec::new(), Vec::new());
        for listen in self.listens() {
            let Some(files) = &listen.tls else { continue };
            match files.check() {
                Ok(expires) => warnings.extend(files.warning(expires, Clock::wall())),
                Err(error) => {
                    let key = match &error.path {
                        path if *path == files.cert => "cert",
                        path if *path == files.key => "key",
                        _ => "client_ca",
                    };
                    errors.push(self.tls_error(listen.tls_section(), key, error));
                }
            }
        }
        if let Some(cluster) = &self.cluster
            && let Err(error) = cluster.files.check()
        {
            let key = match &cluster.files.identity {
                Some((cert, _)) if error.path == *cert => "cert",
                Some((_, key)) if error.path == *key => "key",
                _ => "ca",
            };
            errors.push(self.tls_error("cluster".into(), key, error));
        }
        (errors, warnings)
    }

    fn tls_error(&self, section: String, key: &str, error: TlsError) -> ConfigError {
        placed(self.file.as_ref(), &section.clone(), key, ConfigError::Tls { section, error })
    }

    /// The policy for use by a command: its keys are the same at each run.
    ///
    /// # Errors
    /// The policy has an error.
    pub(crate) fn read_policy(&self) -> Result<Policy, PolicyErrors> {
        let policy = self.policy.as_ref().map_or_else(|| Ok(Policy::builtin()), Source::read)?;
        Ok(policy.with_key_secret(self.key_secret.unwrap_or(KeySecret::KNOWN)))
    }

    /// The secret of the keys of this run: that of the config, that of an earlier run, or a random one.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub(crate) fn secret_of_this_run(&self, earlier: Option<KeySecret>) -> Result<KeySecret, ConfigError> {
        self.key_secret.or(earlier).map_or_else(secret::draw, Ok)
    }

    /// The configuration in force as a config file, with every key and its comment.
    ///
    /// The text may be saved anywhere, so relative paths become absolute, and the token is left out.
    pub(crate) fn show(path: Option<&Path>, flags: Flags) -> Result<String, ConfigErrors> {
        let (mut file, _, errors) = written(path, flags);
        if !errors.is_empty() {
            return Err(ConfigErrors(errors));
        }
        for path in file.paths() {
            *path = std::path::absolute(&*path)
                .map_err(|source| ConfigError::Unreadable { path: path.clone(), source })?;
        }
        Ok(show::show(&file)?)
    }

    fn new(written: file::File, file: Option<ConfigFile>, errors: &mut Vec<ConfigError>) -> Config {
        let mut report = |section: &str, key: &str, error: ConfigError| {
            errors.push(placed(file.as_ref(), section, key, error));
        };
        let secrets = secrets(&written, file.as_ref());
        let file::File {
            spop,
            http,
            grpc,
            admin,
            hold,
            table,
            policy,
            mut cluster,
            peers,
            ends,
            state,
            decision_log,
            log,
        } = written;
        let policy::Policy { written: policy::WrittenPolicy { dir, key_secret_file, .. }, layout } = policy;
        let (spop, http) = (SpopConfig::new(spop, &mut report), HttpConfig::new(http, &mut report));
        let grpc = GrpcConfig::new(grpc, &mut report);
        let admin = AdminConfig::new(admin, &mut report);
        let key_secret = key_secret_file.map(secret::read).transpose();
        let key_secret = key_secret.unwrap_or_else(|error| {
            report("policy", "key_secret_file", error);
            None
        });
        let peers = PeersConfig::new(peers, &mut report);
        let file::EndsSection { listen, allow, follow: followed } = ends;
        let ends = Listen::new("ends", listen, allow, Tls::default(), 0, HANDSHAKE_MAX, &mut report);
        if let Some(unix) = ends.addresses.iter().find(|address| matches!(address, Address::Unix(_))) {
            report("ends", "listen", ConfigError::EndsOverUnix(unix.to_string()));
        }
        let token_server = TokenServerConfig::new(&mut cluster, &mut report);
        let listens = [&spop.listen, &http.listen, &grpc.listen, &admin.listen].map(Some);
        let others =
            [token_server.as_ref().map(|server| &server.listen), peers.as_ref().map(|peers| &peers.listen)];
        listen::report_collisions(listens.into_iter().chain(others).flatten(), &mut report);
        let identity = pair("cluster", cluster.cert.take(), cluster.key.take(), &mut report);
        let cluster = cluster.settings(identity, key_secret.is_some(), token_server.is_some());
        let period = cluster.as_ref().map(|cluster| cluster.settings.period);
        Config {
            spop,
            http,
            grpc,
            admin,
            hold: HoldLimits { holds_max: hold.max, hold_max: hold.longest, when_full: hold.when_full },
            table: Sizing { entries_max: table.size, expire: table.expire },
            annex_bytes_max: table.annex_bytes_max,
            policy: dir.map(|dir| Source {
                dir,
                layout,
                hold_max: hold.longest,
                key_secret: KeySecret::KNOWN,
                period,
                has_peers: peers.is_some(),
            }),
            cluster,
            token_server,
            peers,
            ends,
            followed,
            state: state.file.map(|path| StateFile { path, every: state.every }),
            key_secret,
            decision_log: decision_log.settings(),
            log,
            file,
            secrets,
        }
    }
}

/// The error with the line of the key in the file, if it has one.
fn placed(file: Option<&ConfigFile>, section: &str, key: &str, error: ConfigError) -> ConfigError {
    let line = file.and_then(|file| mistakes::line_of(&file.text, section, key));
    match (file, line) {
        (Some(ConfigFile { path, .. }), Some(line)) => {
            ConfigError::Invalid { path: path.clone(), line, message: error.to_string() }
        }
        _ => error,
    }
}

impl SpopConfig {
    fn new(written: file::Spop, report: Report<'_>) -> SpopConfig {
        let file::Spop { listen, allow, connections_max, frame_bytes_max, timeout, tls } = written;
        let listen = Listen::new("spop", listen, allow, tls, connections_max, timeout, report);
        SpopConfig { listen, frame_bytes_max, timeout }
    }
}

impl HttpConfig {
    fn new(written: file::Http, report: Report<'_>) -> HttpConfig {
        let file::Http { listen, allow, connections_max, idle_timeout, trusted, tls } = written;
        let handshake_max = idle_timeout.min(HANDSHAKE_MAX);
        let listen = Listen::new("http", listen, allow, tls, connections_max, handshake_max, report);
        HttpConfig { listen, idle_timeout, trusted }
    }
}

impl AdminConfig {
    fn new(written: file::Admin, report: Report<'_>) -> AdminConfig {
        let file::Admin { listen, allow, token, token_file, hosts, socket, socket_mode, tls } = written;
        let listen = Listen::new("admin", listen, allow, tls, ADMIN_CONNECTIONS_MAX, HANDSHAKE_MAX, report);
        let token = guard(&listen, token, token_file, report);
        let hosts = Hosts::new(&hosts).expect("they were checked when the file was read");
        AdminConfig { listen, token, hosts, socket, socket_mode }
    }
}

impl TokenServerConfig {
    /// Takes its keys out of `[cluster]`. None without an address.
    fn new(written: &mut file::ClusterSection, report: Report<'_>) -> Option<TokenServerConfig> {
        let file::ClusterSection { listen, allow, token_file, tls, .. } = written;
        let (listen, allow, tls) = (mem::take(listen), mem::take(allow), mem::take(tls));
        let listen = Listen::new("cluster", listen, allow, tls, NODE_CONNECTIONS_MAX, HANDSHAKE_MAX, report);
        let token = guard(&listen, None, token_file.take(), report);
        (!listen.addresses.is_empty()).then_some(TokenServerConfig { listen, token })
    }
}

/// The token of a listener that needs one if other machines can reach it.
fn guard(listen: &Listen, token: Option<Token>, file: Option<PathBuf>, report: Report<'_>) -> Option<Token> {
    // An unreadable token is one error; the listener does not also count as one without a token.
    let is_secret = token.is_some() || file.is_some();
    let open = listen.addresses.iter().find(|address| !address.is_local());
    let token = match (token, file) {
        (Some(token), Some(_)) => {
            report(listen.section, "token_file", ConfigError::TwoTokens);
            Some(token)
        }
        (None, Some(path)) => {
            read_token(path).map_err(|error| report(listen.section, "token_file", error)).ok()
        }
        (token, None) => token,
    };
    if let Some(address) = open.filter(|_| !is_secret) {
        let open = OpenListener { section: listen.section, address: address.to_string() };
        report(listen.section, "listen", open.into());
    }
    token
}

/// The files that hold secrets.
fn secrets(written: &file::File, file: Option<&ConfigFile>) -> Vec<Secret> {
    let file::File { spop, http, grpc, admin, policy, cluster, peers, .. } = written;
    // `--cluster` replaces the store of the file.
    let is_flag = file.is_some_and(|file| file.flags.cluster.is_some());
    let has_password = !is_flag && cluster.store.as_ref().is_some_and(StoreUrl::has_password);
    let is_in_file = admin.token.is_some() || has_password;
    let files = [
        (admin.token_file.as_deref(), "the admin token"),
        (cluster.token_file.as_deref(), "the token of nodes"),
        (policy.written.key_secret_file.as_deref(), "the secret of the keys"),
        (cluster.key.as_deref(), "a private key"),
        (file.filter(|_| is_in_file).map(|file| file.path.as_path()), "a token or a password"),
    ];
    let tls = [&spop.tls, &http.tls, &grpc.tls, &admin.tls, &cluster.tls, &peers.tls];
    let keys = tls.map(|tls| (tls.key.as_deref(), "a private key"));
    let secret = |(path, holds): (Option<&Path>, _)| Some(Secret { path: path?.to_owned(), holds });
    files.into_iter().chain(keys).filter_map(secret).collect()
}

/// Reads a token from a file, without the white space around it.
pub(crate) fn read_token(path: PathBuf) -> Result<Token, ConfigError> {
    let read = fs::read_to_string(&path).map_err(|error| error.to_string());
    let token =
        read.and_then(|text| Token::try_from(text.trim().to_owned()).map_err(|error| error.to_string()));
    token.map_err(|reason| ConfigError::TokenFile { path, reason })
}

/// The settings of the file, or the defaults, with the flags applied; the text of the file; its errors.
fn written(path: Option<&Path>, flags: Flags) -> (file::File, Option<String>, Vec<ConfigError>) {
    let (file, text, errors) = path.map_or_else(Default::default, read);
    (file.with(flags, path.and_then(Path::parent).unwrap_or(Path::new(""))), text, errors)
}

fn read(path: &Path) -> (file::File, Option<String>, Vec<ConfigError>) {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(source) => {
            let unreadable = ConfigError::Unreadable { path: path.to_owned(), source };
            return (file::File::default(), None, vec![unreadable]);
        }
    };
    let (file, mistakes) = mistakes::read(&text);
    let invalid =
        |ConfigMistake { line, message }| ConfigError::Invalid { path: path.to_owned(), line, message };
    (file, Some(text), mistakes.into_iter().map(invalid).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::listener::UNIX_MODE;
    use slowlane_core::base::Address;
    use slowlane_core::cluster::Settings;
    use slowlane_core::policy::Layout;

    fn parse(text: &str) -> Result<Config, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        let result = Config::load(Some(file.path()), Flags::default());
        result.map_err(|error| error.to_string().replace(&file.path().display().to_string(), "file"))
    }

    #[test]
    fn the_shipped_file_says_the_defaults() {
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("slowlane.toml");
        let with = |path| {
            let flags = Flags { policy: Some("maps".into()), ..Flags::default() };
            Config { file: None, ..Config::load(path, flags).unwrap() }
        };
        assert_eq!(with(Some(shipped.as_path())), with(None));
        let file::File { admin, cluster, policy, .. } = file::File::default();
        let cluster = file::ClusterSection { store: Some(StoreUrl::own()), ..cluster };
        assert_eq!(cluster.settings(None, false, true).unwrap().settings, Settings::default());
        assert_eq!(policy.layout, Layout::default());
        assert_eq!(admin.socket_mode, UNIX_MODE);
    }

    #[test]
    fn flags_win_over_the_file_and_the_file_over_the_defaults() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "[spop]\nlisten = ['127.0.0.1:1', 'unix:/a']\n[admin]\nlisten = []\n")
            .unwrap();
        let address = |text: &str| text.parse::<Address>().unwrap();
        let flags = Flags { spop: vec![address("[::1]:2")], ..Flags::default() };
        let config = Config::load(Some(file.path()), flags).unwrap();
        assert_eq!(config.spop.listen.addresses, [address("[::1]:2")]);
        assert_eq!(config.http.listen.addresses, [address("127.0.0.1:9001")]);
        assert_eq!(config.admin.listen.addresses, []);
    }

    #[test]
    fn two_listeners_on_one_port_are_a_mistake() {
        let reported =
            parse("[spop]\nlisten = ['127.0.0.1:9000']\n[http]\nlisten = ['127.0.0.1:9000']\n").unwrap_err();
        let expected =
            "file:4: [http] listens on 127.0.0.1:9000, and so does [spop]: give each a port of its own";
        assert_eq!(reported, expected);
        let all = "[spop]\nlisten = ['0.0.0.0:9001']\n";
        assert!(parse(all).unwrap_err().contains("[http] listens on 127.0.0.1:9001, and so does [spop]"));
    }

    #[test]
    fn a_mistake_is_told_with_its_line_and_what_may_stand_there() {
        let error = |text| parse(text).unwrap_err();
        assert_eq!(
            error("[spop]\ntimout = '5s'"),
            "file:2: unknown field `timout`, expected one of `listen`, `allow`, `connections_max`, `frame_bytes_max`, `timeout`, `tls`"
        );
        let unit = "expected a number and a unit us, ms, s, m, h or d, like 5s";
        assert_eq!(error("\n[spop]\ntimeout = '5'"), format!("file:3: \"5\": {unit}"));
        assert_eq!(
            error("[table]\nsize = 0"),
            "file:2: invalid value: integer `0`, expected a number from 1 to 100000000"
        );
        assert_eq!(
            error("[http]\nlisten = ['9001']"),
            "file:2: \"9001\": expected host:port, like 127.0.0.1:9000, or unix:/path"
        );
        assert_eq!(
            error("[[policy.lookups]]\nfields = ['a']\nmap = 'a.map'\nmatch = 'len'"),
            "file:4: unknown variant `len`, expected one of `str`, `ip`, `beg`, `end`, `dom`, `sub`, `reg`"
        );
        assert_eq!(
            error("[admin]\nhosts = ['a.example:80']"),
            "file:2: \"a.example:80\": expected a name or an address without a port, like slowlane.example"
        );
        assert!(error("[policy.types]\n0 = ['a']").starts_with("file:2: \"0\": expected a type, 1 to 999"));
        assert!(error("[hold]\nwhen_full = 'drop'").starts_with("file:2: unknown variant `drop`"));
        assert!(error("[spop").starts_with("file:1: "));
    }

    #[test]
    fn an_edit_since_the_start_is_told_and_so_is_its_mistake() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("slowlane.toml");
        let edit = |text: &str| fs::write(&path, text).unwrap();
        edit("[table]\nsize = 10\n");
        let file = Config::load(Some(&path), Flags::default()).unwrap().file.unwrap();
        let news = || file.news().map(|news| news.replace(&path.display().to_string(), "file"));
        assert_eq!(news(), None);
        edit("[table]\nsize = 11\n");
        assert_eq!(news().unwrap(), "file has changed: `slowlane upgrade` puts it in force");
        edit("[table]\nsize = 0\n");
        let mistake = "file:2: invalid value: integer `0`, expected a number from 1 to 100000000 \
                       (the settings from the start stay in force)";
        assert_eq!(news().unwrap(), mistake);
        fs::remove_file(&path).unwrap();
        assert!(news().unwrap().starts_with("file: No such file"), "{:?}", news());
        edit("[table]\nsize = 10\n");
        assert_eq!(news(), None);
        assert_eq!(Config::load(None, Flags::default()).unwrap().file, None);
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = Config::load(Some(Path::new("/nowhere/slowlane.toml")), Flags::default()).unwrap_err();
        assert!(error.to_string().starts_with("/nowhere/slowlane.toml: No such file"), "{error}");
    }
}
